"""DP-FedPGN: clients step along the last global step too, and only what is new is clipped.

J. Liu, Y. Tian, F. Shang, H. Liu, Y. Liu, J. Zhou, D. Ding, DP-FedPGN: Finding Global Flat Minima
for Differentially Private Federated Learning via Penalizing Gradient Norm, Algorithm 1.

Unit of privacy: client. Released: in each round one noisy sum of the whole cohort's updates, each
shifted by a vector that everybody knows and then clipped. The shift is put back after the noise,
on the mean; it is made of earlier releases, so neither costs anything.
Deviations: as DP-FedAvg. The shift is put back once on the mean over the expected cohort, not by
each client, so the step does not depend on how many took part. The global learning rate is the
local one times the number of local steps, as in the paper's experiments. The clipping norm is the
plan's, not the median of the updates, which would be a release of its own. Local momentum acts
on the client's own gradients.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import strictest
from simulate.aggregators.means import add_shift
from simulate.algorithm import Algorithm
from simulate.algorithms.dp_fedavg import dp_fedavg
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.local.penalised import pgn
from simulate.server import remembering
from simulate.transforms import shift

NUMBERS = {
    "rho": Hyperparameter(0.2, "how far along the pseudo-gradient gradients are taken", high=1e6),
    "beta": Hyperparameter(0.3, "share of a client's own gradient in its steps", high=1.0),
}


def dp_fedpgn(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Shift, clip, one Gaussian sum, mean, shift back; ``choices`` give ``rho`` and ``beta``."""
    beta, decay = choices.numbers["beta"], plan.spec.local.learning_rate_decay
    plain = dp_fedavg(plan, choices)
    return replace(
        plain,
        name="DP-FedPGN",
        local=pgn(choices.numbers["rho"], beta, decay),
        transforms=(shift(1 - beta, decay), *plain.transforms),
        aggregator=add_shift(plain.aggregator, 1 - beta, decay),
        server=remembering(),
    )


ROW = Entry(
    "DP-FedPGN",
    dp_fedpgn,
    lambda plan, records: strictest(plan.spec),
    unit="client",
    released="one noisy sum of shifted, clipped updates a round",
    source="Liu, Tian, Shang, Liu, Liu, Zhou, Ding (DP-FedPGN)",
    numbers=NUMBERS,
)
