"""Hypernetworks that generate parameters: at the clients (HyperFL), or at the server.

P. Guo, S. Zeng, W. Chen, X. Zhang, W. Ren, Y. Zhou, L. Qu, A New Federated Learning
Framework Against Gradient Inversion Attacks, AAAI 2025 (HyperFL and HyperFL-LPM). A.
Shamsian, A. Navon, E. Fetaya, G. Chechik, Personalized Federated Learning using
Hypernetworks, ICML 2021 (pFedHN and pFedHN-PC, baselines of HyperFL).
"""

from __future__ import annotations

from privplan.errors import Fault, InputError
from privplan.plan import Plan
from privplan.planning.baselines import unprotected
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    Records,
    register,
    without_privacy,
)
from simulate.client_aggregators import through_hypernetwork
from simulate.local.sgd import generated_sgd, hypernetwork_sgd
from simulate.mechanisms import exposed_by_client
from simulate.models.adapters import PREFIX, adapted
from simulate.models.registry import model
from simulate.personalisations import own_model
from simulate.recipe import EXACT
from simulate.splits import client_hypernetwork, server_hypernetwork

HIDDEN = Hyperparameter(
    100, "units of the hypernetwork's hidden layer", 1, 1e6, integer=True
)
HYPERFL_HEAD_RATE = Hyperparameter(
    1.0,
    "learning rate of the head over that of the hypernetwork; "
    "HyperFL: 10 for grey images, 5 for colour",
    high=1e6,
)
SERVER_RATE = Hyperparameter(
    0.05, "learning rate of the hypernetwork and the embeddings", high=1e6
)


def adapters(plan: Plan) -> Fault | None:
    """Requires a model with blocks that adapters can follow."""
    base = model(plan.spec.model.name.removeprefix(PREFIX))
    try:
        adapted(base)
    except InputError as error:
        return error.faults[0]
    return None


def frozen(plan: Plan, records: Records) -> Plan:
    """The plan with equal ratios, and its model frozen, with adapters."""
    name = PREFIX + plan.spec.model.name.removeprefix(PREFIX)
    changes = {"name": name, "parameters": model(name).parameters}
    changed = plan.spec.model.model_copy(update=changes)
    return unprotected(plan.spec.model_copy(update={"model": changed}))


@without_privacy(
    "HyperFL",
    released="the exact sum of the hypernetworks' updates per round",
    source="Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu (HyperFL), AAAI 2025",
    hyperparameters={"hidden": HIDDEN, "head_rate": HYPERFL_HEAD_RATE},
    recipe=EXACT,
)
def hyperfl(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A hypernetwork at the clients generates the body.

    SGD trains the head, then the hypernetwork.

    Source: Section 3.2.
    Released: per round, the exact sum of the cohort's updates of the hypernetwork.
        Embeddings and heads stay at the clients, which hinders the reconstruction of
        records; it gives no differential privacy, so epsilon is infinite.
    Deviations: hidden layer of 100 units (the paper does not say); the hypernetwork
        first generates a usual initialisation of the body; one learning rate for head,
        hypernetwork and embedding (the paper: 0.1 for the head, 0.01 or 0.02 for the
        others, that is ``head_rate`` 10 or 5 under a plan with its hypernetwork's
        learning rate; a plan's rate is usually near that of its head, which the default
        leaves as it is); no weight decay; the sum is divided by the expected cohort,
        not weighted by data size; the cohort is drawn by the plan's law.
    """
    hidden = int(hyperparameters["hidden"])
    split = client_hypernetwork(hidden)
    head_rate = hyperparameters["head_rate"]
    return compose(
        "HyperFL",
        plan,
        split=split,
        local=hypernetwork_sgd(split, hidden=hidden, head_rate=head_rate),
        personalisation=own_model(),
    )


@register(
    "HyperFL-LPM",
    plan=frozen,
    unit="none",
    released="the exact sum of the hypernetworks' updates per round",
    source="Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu (HyperFL), AAAI 2025",
    hyperparameters={"hidden": HIDDEN, "head_rate": HYPERFL_HEAD_RATE},
    requires=(adapters,),
    recipe=EXACT,
)
def hyperfl_lpm(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """HyperFL on a frozen pre-trained model, whose adapters the hypernetwork generates.

    Source: Section 3.3.
    Released: as HyperFL. Adapters, embeddings and heads stay at the clients.
    Deviations: as HyperFL. One adapter of width 8 after each block, for transformers
        too, where the paper puts it within. The plan's model is frozen as it starts:
        pre-trained with `vit:FOLDER`; a model without weights on disk is frozen as
        initialised, which tests the algorithm but says nothing about its accuracy.
    """
    return hyperfl(plan, hyperparameters)


@without_privacy(
    "pFedHN",
    released="each client's exact update per round",
    source="Shamsian, Navon, Fetaya, Chechik, ICML 2021",
    hyperparameters={"hidden": HIDDEN, "server_rate": SERVER_RATE},
    recipe=EXACT,
)
def pfedhn(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A hypernetwork at the server generates each client's model from an embedding.

    Source: Algorithm 1.
    Released: per round, the exact update of each participant, since the server needs to
        know which client it comes from; epsilon is infinite.
    Deviations: the clients of a cohort train at once, and the hypernetwork takes the
        mean of their products over the expected cohort (in the original one client
        participates per step); plain steps of the server, no weight decay; one hidden
        layer of 100 units and embeddings of 64 that start equal, as in HyperFL; the
        hypernetwork first generates a usual initialisation of the model; the cohort is
        drawn by the plan's law.
    """
    return _generated(plan, hyperparameters, personal_head=False)


@without_privacy(
    "pFedHN-PC",
    released="each client's exact update of the body per round",
    source="Shamsian, Navon, Fetaya, Chechik, ICML 2021",
    hyperparameters={"hidden": HIDDEN, "server_rate": SERVER_RATE},
    recipe=EXACT,
)
def pfedhn_pc(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A hypernetwork at the server generates the body; classifiers are personal.

    Source: the paper's variant with a personal classifier.
    Released: per round, the exact update of each participant's body; classifiers stay
        at the clients; epsilon is infinite.
    Deviations: as pFedHN. The classifier is the last dense layer and is trained at the
        same time as the body, at the same learning rate.
    """
    return _generated(plan, hyperparameters, personal_head=True)


def _generated(
    plan: Plan, hyperparameters: Hyperparameters, *, personal_head: bool
) -> Algorithm:
    """Models from the server, local SGD, and a step through the hypernetwork."""
    hidden = int(hyperparameters["hidden"])
    rate = hyperparameters["server_rate"]
    population = plan.spec.population
    split = server_hypernetwork(population, hidden, personal_head=personal_head)
    return compose(
        "pFedHN",
        plan,
        split=split,
        local=generated_sgd(split),
        mechanism=exposed_by_client(),
        aggregator=through_hypernetwork(population, hidden, rate),
        personalisation=own_model(),
    )
