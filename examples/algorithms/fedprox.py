"""FedProx with noise: DP-FedAvg whose clients are pulled back to the global model.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, Federated Optimization in
Heterogeneous Networks, MLSys 2020. ``python fedprox.py RUN_FOLDER`` trains it on the digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch import Tensor

from privplan import Spec, judge, load_run, solve
from privplan.plan import Plan
from privplan.planning.baselines import strictest
from privplan.spec.presets import preset
from privplan.yaml_text import load_yaml
from simulate.aggregators import at_plan_norm, mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    from_spec,
    register,
)
from simulate.components import ClientBatch, LocalResult, LocalRule
from simulate.local.sgd import Gradient, descend
from simulate.mechanisms import gaussian_joint
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.transforms import plan_clip


def proximal(mu: float) -> LocalRule:
    """SGD on the loss plus (mu / 2) ||theta - start||^2.

    Args:
        mu: weight of the proximal term.
    """

    def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        return gradient(thetas) + mu * (thetas - starts)

    def train(batch: ClientBatch) -> LocalResult:
        return LocalResult(descend(batch, batch.theta, direction))

    return LocalRule("proximal", train, across_groups=True)


@register(
    "DP-FedProx",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
    source="after Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020",
    hyperparameters={
        "mu": Hyperparameter(0.1, "weight of the proximal term", high=1e6)
    },
)
def dp_fedprox(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg with a proximal term in the clients' losses.

    Unit of privacy: client. The term changes the updates before they are clipped, so the noise and
    its cost are those of DP-FedAvg.
    """
    return compose(
        "DP-FedProx",
        plan,
        local=proximal(hyperparameters["mu"]),
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(mean(), plan),
    )


def main(folder: Path) -> None:
    """Train on the digits and verify the run."""
    spec = {**load_yaml(preset("digits"), "digits"), "clipping_norm": 0.3}
    done = execute(
        Request(solve(Spec.parse(spec)), "DP-FedProx", "digits", folder, seed=1)
    )
    verdict = judge(load_run(folder))
    print(f"accuracy {done.record.accuracy:.3f}, verdict {verdict.outcome}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
