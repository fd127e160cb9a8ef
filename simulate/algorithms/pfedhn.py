"""pFedHN: a hypernetwork at the server makes every client's model from an embedding of it.

A. Shamsian, A. Navon, E. Fetaya, G. Chechik, Personalized Federated Learning using Hypernetworks,
ICML 2021, Algorithm 1; baseline of HyperFL.

Unit of privacy: none. Released: the exact update of every participant on its own, since the
server needs to know whose it is; epsilon is infinite and the ledger says so client by client.
Deviations: the clients of a cohort train at once, and the hypernetwork takes the mean of their
products over the expected cohort (the original lets one client a step take part); plain steps of
the server, no weight decay; one hidden layer of 100 units and embeddings of 64 that start equal,
as in HyperFL; the first products are a usual initialisation of the model; the cohort is drawn by
the plan's law.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.aggregators.per_client import through_hypernetwork
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.algorithms.hyperfl import HIDDEN
from simulate.local.personal import generated_sgd
from simulate.mechanisms.per_client import exposed_by_client
from simulate.personalisation import own
from simulate.splits import server_hypernetwork

NUMBERS = {
    "hidden": HIDDEN,
    "server_rate": Hyperparameter(
        0.05, "learning rate of the hypernetwork and the embeddings", high=1e6
    ),
}


def pfedhn(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """The whole model made by the server; ``choices`` give ``hidden`` and ``server_rate``."""
    return made_by_server("pFedHN", plan, choices, personal_head=False)


def made_by_server(
    name: str, plan: Plan, choices: Hyperparameters, *, personal_head: bool
) -> Algorithm:
    """Models made by the server, trained by SGD, and a step through the hypernetwork.

    Args:
        name: as in the catalogue.
        plan: the plan.
        choices: the numbers ``hidden`` and ``server_rate``.
        personal_head: whether clients keep a head of their own.
    """
    hidden, population = int(choices.numbers["hidden"]), plan.spec.population
    split = server_hypernetwork(population, hidden, personal_head=personal_head)
    return compose(
        name,
        plan,
        split=split,
        local=generated_sgd(split),
        mechanism=exposed_by_client(),
        aggregator=through_hypernetwork(population, hidden, choices.numbers["server_rate"]),
        personalisation=own(),
    )


ROW = Entry(
    "pFedHN",
    pfedhn,
    lambda plan, records: uniform(plan.spec),
    unit="none",
    released="each client's exact update a round",
    source="Shamsian, Navon, Fetaya, Chechik, ICML 2021",
    numbers=NUMBERS,
)
