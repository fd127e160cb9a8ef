"""pFedHN-PC: the hypernetwork at the server makes the body, every client keeps its own classifier.

A. Shamsian, A. Navon, E. Fetaya, G. Chechik, Personalized Federated Learning using Hypernetworks,
ICML 2021, its variant with a personal classifier; baseline of HyperFL.

Unit of privacy: none. Released: the exact update of every participant's body on its own; epsilon
is infinite and the ledger says so client by client. Classifiers stay at the clients.
Deviations: as pFedHN. The classifier is the last dense layer; it moves together with the body, at
the same learning rate.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.pfedhn import NUMBERS, made_by_server


def pfedhn_pc(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """The body made by the server; ``choices`` give ``hidden`` and ``server_rate``."""
    return made_by_server("pFedHN-PC", plan, choices, personal_head=True)


ROW = Entry(
    "pFedHN-PC",
    pfedhn_pc,
    lambda plan, records: uniform(plan.spec),
    unit="none",
    released="each client's exact update of the body a round",
    source="Shamsian, Navon, Fetaya, Chechik, ICML 2021",
    numbers=NUMBERS,
)
