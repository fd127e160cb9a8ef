"""SCAFFOLD with noise: two vectors leave a client, and one clipping norm bounds both.

S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning, ICML 2020, Algorithm 1 with option II.
``python scaffold.py RUN_FOLDER`` trains it on the digits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from privplan import Spec, judge, load_run, solve
from privplan.plan import Plan
from privplan.planning.baselines import strictest
from privplan.spec.presets import preset
from privplan.yaml_text import load_yaml
from simulate.aggregators import at_plan_norm, mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.registry import Hyperparameters, from_spec, no_server, register
from simulate.components import (
    ClientBatch,
    LocalResult,
    LocalRule,
    Server,
    Split,
    State,
)
from simulate.local.sgd import PADDING, gradients_at, pixels
from simulate.mechanisms import gaussian_joint
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.transforms import plan_clip


def controlled() -> Split:
    """The global vector is (model x, control variate c) [2 D]; each client keeps its c_i [D]."""
    return Split(
        name="model and control variate",
        dimension=lambda model: 2 * model.parameters,
        start=lambda model, generator: torch.cat(
            [model.initial(generator), torch.zeros(model.parameters)]
        ),
        shared=lambda model: None,
        personal=lambda model, theta: torch.zeros(
            model.parameters, device=theta.device
        ),
        use=lambda model, theta, personal, clients: theta[: model.parameters],
    )


def corrected(size: float) -> LocalRule:
    """Local steps along g - c_i + c, then c_i+ = c_i - c + (x - y) / (K eta).

    Sends (y - x, size (c_i+ - c_i)). Local momentum is not used: option II needs y - x to be the
    sum of the steps.

    Args:
        size: factor on the change of the control variate, which gives it the units of an update.
    """

    def train(batch: ClientBatch) -> LocalResult:
        length = batch.model.parameters
        start, control = batch.theta[:length], batch.theta[length:]
        clients, steps = batch.y.shape[:2]
        own = (
            control.new_zeros(clients, length)
            if batch.personal is None
            else batch.personal
        )
        thetas = start.repeat(clients, 1)
        for step in range(steps):
            x, y = pixels(batch.x[:, step]), batch.y[:, step]
            active = (y != PADDING).any(1, keepdim=True)
            slope = gradients_at(batch.model, thetas, x, y) + control - own
            thetas = thetas - batch.learning_rate * active * slope
        moved = thetas - start
        change = -control - moved / (steps * batch.learning_rate)
        return LocalResult(torch.cat([moved, size * change], 1), own + change)

    return LocalRule("scaffold", train, across_groups=True)


def control_server(share: float, size: float) -> Server:
    """Adds the mean update to the model, and S / N of the mean change to the control variate.

    Args:
        share: S / N, expected participants over clients.
        size: as for ``corrected``.
    """

    def step(theta: Tensor, mean_update: Tensor, state: State) -> tuple[Tensor, State]:
        model, control = mean_update.chunk(2)
        return theta + torch.cat([model, share / size * control]), state

    return Server("scaffold", lambda theta: {}, step)


@register(
    "DP-SCAFFOLD-like",
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped pairs of update and change of control variate per round",
    source="after Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, ICML 2020",
    requires=(no_server,),
)
def dp_scaffold(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """SCAFFOLD on one noisy sum of both vectors.

    Unit of privacy: client. A client sends two vectors of the same records, so both are paid for:
    they are clipped as one vector of 2 D coordinates, whose norm C bounds what the client adds to
    the pair of sums, and all 2 D coordinates get noise for C. Each part is the shorter for
    it: about 1 / sqrt(2) where both are of one size. Clipping each part at C would need noise
    for sqrt(2) C. The control variates c_i never leave the clients.
    """
    local = plan.spec.local
    size = (local.steps or 1) * local.learning_rate
    cohort = sum(group.expected_cohort for group in plan.groups)
    return compose(
        "DP-SCAFFOLD-like",
        plan,
        split=controlled(),
        local=corrected(size),
        transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(),
        aggregator=at_plan_norm(mean(), plan),
        server=control_server(cohort / plan.spec.population, size),
    )


def main(folder: Path) -> None:
    """Train on the digits and verify the run."""
    spec = {**load_yaml(preset("digits"), "digits"), "clipping_norm": 0.3}
    done = execute(
        Request(solve(Spec.parse(spec)), "DP-SCAFFOLD-like", "digits", folder, seed=1)
    )
    verdict = judge(load_run(folder))
    print(f"accuracy {done.record.accuracy:.3f}, verdict {verdict.outcome}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
