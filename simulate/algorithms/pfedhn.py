"""pFedHN and pFedHN-PC: the server generates each client's model with a hypernetwork.

A. Shamsian, A. Navon, E. Fetaya, G. Chechik, Personalized Federated Learning using Hypernetworks,
ICML 2021; baselines of HyperFL.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import unprotected
from simulate.aggregators.per_client import through_hypernetwork
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameter, Hyperparameters
from simulate.algorithms.hyperfl import HIDDEN
from simulate.algorithms.registry import from_spec, register
from simulate.local.personal import generated_sgd
from simulate.mechanisms.per_client import exposed_by_client
from simulate.personalisation import own
from simulate.splits import server_hypernetwork

SERVER_RATE = Hyperparameter(0.05, "learning rate of the hypernetwork and the embeddings", high=1e6)


@register(
    "pFedHN",
    plan=from_spec(unprotected),
    unit="none",
    released="each client's exact update per round",
    source="Shamsian, Navon, Fetaya, Chechik, ICML 2021",
    hyperparameters={"hidden": HIDDEN, "server_rate": SERVER_RATE},
)
def pfedhn(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A hypernetwork at the server generates the whole model from an embedding of each client.

    Source: Algorithm 1.
    Unit of privacy: none.
    Released: per round, the exact update of each participant, since the server needs to know which
        client it comes from; epsilon is infinite.
    Deviations: the clients of a cohort train at once, and the hypernetwork takes the mean of their
        products over the expected cohort (in the original one client participates per step); plain
        steps of the server, no weight decay; one hidden layer of 100 units and embeddings of 64
        that start equal, as in HyperFL; the hypernetwork first generates a usual initialisation of
        the model; the cohort is drawn by the plan's law.
    """
    return _generated(plan, hyperparameters, personal_head=False)


@register(
    "pFedHN-PC",
    plan=from_spec(unprotected),
    unit="none",
    released="each client's exact update of the body per round",
    source="Shamsian, Navon, Fetaya, Chechik, ICML 2021",
    hyperparameters={"hidden": HIDDEN, "server_rate": SERVER_RATE},
)
def pfedhn_pc(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A hypernetwork at the server generates the body; each client has a classifier of its own.

    Source: the paper's variant with a personal classifier.
    Unit of privacy: none.
    Released: per round, the exact update of each participant's body; classifiers stay at the
        clients; epsilon is infinite.
    Deviations: as pFedHN. The classifier is the last dense layer and is trained at the same time as
        the body, at the same learning rate.
    """
    return _generated(plan, hyperparameters, personal_head=True)


def _generated(plan: Plan, hyperparameters: Hyperparameters, *, personal_head: bool) -> Algorithm:
    """Models generated at the server, local SGD, and a step through the hypernetwork."""
    hidden, population = int(hyperparameters["hidden"]), plan.spec.population
    split = server_hypernetwork(population, hidden, personal_head=personal_head)
    return compose(
        "pFedHN",
        plan,
        split=split,
        local=generated_sgd(split),
        mechanism=exposed_by_client(),
        aggregator=through_hypernetwork(population, hidden, hyperparameters["server_rate"]),
        personalisation=own(),
    )
