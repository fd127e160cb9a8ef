"""CENTAUR: a shared body with noise and personal heads.

Z. Shen, J. Ye, A. Kang, H. Hassani, R. Shokri, Share Your Representation Only: Guaranteed
Improvement of the Privacy-Utility Tradeoff in Federated Learning, ICLR 2023.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from privplan.errors import Fault, InputError
from privplan.plan import Plan
from privplan.planning.baselines import either, strictest, unprotected
from simulate.aggregators import (
    as_planned,
    at_plan_norm,
    client_mean,
    mean,
    through_hypernetwork,
)
from simulate.algorithm import (
    Algorithm,
    additive,
    client_hypernetwork,
    compose,
    head,
    own,
    server_hypernetwork,
)
from simulate.algorithms.fedavg import record_level
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    Records,
    of_clients,
    register,
    without_privacy,
)
from simulate.algorithms.sam import HEAD_RATE, protected, shared_body
from simulate.local.dp_sgd import head_then_body, noisy_sum
from simulate.local.sgd import additive_sgd, generated_sgd, hypernetwork_sgd
from simulate.mechanisms import exposed_by_client, gaussian_joint
from simulate.models.adapters import PREFIX, adapted
from simulate.models.registry import model
from simulate.recipe import EXACT, Recipe, RecipeOf
from simulate.transforms import plan_clip


def _either(local: Literal["head", "offset"]) -> RecipeOf:
    """One noisy sum, or under a record-level plan the clients' own updates."""

    def recipe(plan: Plan, aggregation: str) -> Recipe:
        if plan.unit == "record":
            return Recipe("per_client", "by records", local=local)
        return Recipe("joint", local=local)

    return recipe


@of_clients(
    "CENTAUR",
    plan=partial(either, weights="population", of_clients=strictest),
    released="one noisy sum of the body's clipped updates per round",
    source="Shen, Ye, Kang, Hassani, Shokri, ICLR 2023",
    hyperparameters={"head_rate": HEAD_RATE},
    record_level=True,
    recipe=_either("head"),
)
def centaur(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP2-FedSAM with plain SGD on the body.

    Source: ICLR 2023; under a plan of clients as in the comparison of DP2-FedSAM, under a plan of
        records as proposed and as HyperFL compares with it.
    Released: as DP2-FedSAM. Under a record-level plan each participant's update of the body, noised
        by DP-SGD; heads stay at the clients.
    Deviations: as DP2-FedSAM. Under a record-level plan: half of a round's noisy steps train the
        head, the others the body, all by DP-SGD; the original fits the head without noise, and
        then a record changes all other records' gradients of the body through it, by which one
        clipped gradient is no bound on its effect. Gradients are clipped over head and body;
        updates are weighted by records; clients take turns by a public schedule where the cohort is
        smaller than the population.
    """
    rate = hyperparameters["head_rate"]
    if plan.spec.unit == "client":
        return protected(shared_body(plan, 0.0, rate))
    split = head()
    return record_level(
        plan,
        client_mean("by records", as_planned),
        local=head_then_body(plan.spec.clipping_norm, split, rate),
        split=split,
        personalisation=own(),
    )


# --- PPSGD: the model of a client is the sum of shared and personal parameters. ------------------
# A. Bietti, C.-Y. Wei, M. Dudik, J. Langford, Z. S. Wu, Personalization Improves Privacy-Accuracy
# Tradeoffs in Federated Learning, ICML 2022.

ALPHA = Hyperparameter(
    1.0,
    "shared step size over the personal one (its alpha): 0 for local training, large for one model",
    high=1e6,
)


@of_clients(
    "PPSGD",
    plan=partial(either, weights="population", of_clients=strictest),
    released="one noisy sum of clipped shared updates per round",
    source="Bietti, Wei, Dudik, Langford, Wu, ICML 2022",
    hyperparameters={"alpha": ALPHA},
    record_level=True,
    recipe=_either("offset"),
)
def ppsgd(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """SGD at the sum of shared and personal parameters, with noise on the shared updates.

    Released: per round, one noisy sum of the cohort's clipped shared updates, with the noise
        multiplier that the strictest group needs; personal parameters stay at the clients. Under
        a record-level plan each participant's shared update, noised by DP-SGD.
    Deviations: the plan's local steps where the original takes one gradient per round; a personal
        offset of each parameter, where the original's networks have one of the last layer; noise
        is drawn on the sum, which is divided by the expected cohort; the cohort is drawn by the
        plan's law. Under a record-level plan, as HyperFL compares with it, one clipped and noised
        gradient moves both parts (the original protects clients, so its personal part needs no
        noise); updates are weighted by records; clients take turns by a public schedule where the
        cohort is smaller than the population.
    """
    alpha = hyperparameters["alpha"]
    if plan.spec.unit == "record":
        return record_level(
            plan,
            client_mean("by records", as_planned),
            local=noisy_sum(plan.spec.clipping_norm, alpha),
            split=additive(),
            personalisation=own(),
        )
    return compose(
        "PPSGD", plan, split=additive(), local=additive_sgd(alpha), transforms=(plan_clip(plan),),
        mechanism=gaussian_joint(), aggregator=at_plan_norm(mean(), plan), personalisation=own(),
    )  # fmt: skip


# --- HyperFL and HyperFL-LPM: clients generate parameters with a shared hypernetwork. ------------
# P. Guo, S. Zeng, W. Chen, X. Zhang, W. Ren, Y. Zhou, L. Qu, A New Federated Learning Framework
# Against Gradient Inversion Attacks, AAAI 2025.

HIDDEN = Hyperparameter(
    100, "units of the hypernetwork's hidden layer", 1, 1e6, integer=True
)
HYPERFL_HEAD_RATE = Hyperparameter(
    1.0,
    "learning rate of the head over that of the hypernetwork; HyperFL: 10 for grey images, "
    "5 for colour",
    high=1e6,
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
    """The plan with equal ratios, and its model frozen and given adapters where it has none."""
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
    """A hypernetwork at the clients generates the body; SGD on the head, then on the hypernetwork.

    Source: Section 3.2.
    Released: per round, the exact sum of the cohort's updates of the hypernetwork. Embeddings and
        heads stay at the clients, which hinders the reconstruction of records; it gives no
        differential privacy, so epsilon is infinite.
    Deviations: hidden layer of 100 units (the paper does not say); the hypernetwork first generates
        a usual initialisation of the body; one learning rate for head, hypernetwork and embedding
        (the paper: 0.1 for the head, 0.01 or 0.02 for the others, that is ``head_rate`` 10 or 5
        under a plan with its hypernetwork's learning rate; a plan's rate is usually near that of
        its head, which the default leaves as it is); no weight decay; the sum is divided by
        the expected cohort, not weighted by data size; the cohort is drawn by the plan's law.
    """
    hidden = int(hyperparameters["hidden"])
    split = client_hypernetwork(hidden)
    local = hypernetwork_sgd(
        split, hidden=hidden, head_rate=hyperparameters["head_rate"]
    )
    return compose("HyperFL", plan, split=split, local=local, personalisation=own())


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
    Deviations: as HyperFL. One adapter of width 8 after each block, for transformers too, where the
        paper puts it within. The plan's model is frozen as it starts: pre-trained with
        `vit:FOLDER`; a model without weights on disk is frozen as initialised, which tests the
        algorithm but says nothing about its accuracy.
    """
    return hyperfl(plan, hyperparameters)


# --- pFedHN and pFedHN-PC: the server generates each client's model with a hypernetwork. ---------
# A. Shamsian, A. Navon, E. Fetaya, G. Chechik, Personalized Federated Learning using
# Hypernetworks, ICML 2021; baselines of HyperFL.

SERVER_RATE = Hyperparameter(
    0.05, "learning rate of the hypernetwork and the embeddings", high=1e6
)


@without_privacy(
    "pFedHN",
    released="each client's exact update per round",
    source="Shamsian, Navon, Fetaya, Chechik, ICML 2021",
    hyperparameters={"hidden": HIDDEN, "server_rate": SERVER_RATE},
    recipe=EXACT,
)
def pfedhn(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A hypernetwork at the server generates the whole model from an embedding of each client.

    Source: Algorithm 1.
    Released: per round, the exact update of each participant, since the server needs to know which
        client it comes from; epsilon is infinite.
    Deviations: the clients of a cohort train at once, and the hypernetwork takes the mean of their
        products over the expected cohort (in the original one client participates per step); plain
        steps of the server, no weight decay; one hidden layer of 100 units and embeddings of 64
        that start equal, as in HyperFL; the hypernetwork first generates a usual initialisation of
        the model; the cohort is drawn by the plan's law.
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
    """A hypernetwork at the server generates the body; each client has a classifier of its own.

    Source: the paper's variant with a personal classifier.
    Released: per round, the exact update of each participant's body; classifiers stay at the
        clients; epsilon is infinite.
    Deviations: as pFedHN. The classifier is the last dense layer and is trained at the same time as
        the body, at the same learning rate.
    """
    return _generated(plan, hyperparameters, personal_head=True)


def _generated(
    plan: Plan, hyperparameters: Hyperparameters, *, personal_head: bool
) -> Algorithm:
    """Models generated at the server, local SGD, and a step through the hypernetwork."""
    hidden, population = int(hyperparameters["hidden"]), plan.spec.population
    split = server_hypernetwork(population, hidden, personal_head=personal_head)
    return compose(
        "pFedHN", plan, split=split, local=generated_sgd(split), mechanism=exposed_by_client(),
        aggregator=through_hypernetwork(population, hidden, hyperparameters["server_rate"]),
        personalisation=own(),
    )  # fmt: skip
