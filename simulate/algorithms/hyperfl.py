"""HyperFL and HyperFL-LPM: clients generate parameters with a shared hypernetwork.

P. Guo, S. Zeng, W. Chen, X. Zhang, W. Ren, Y. Zhou, L. Qu, A New Federated Learning Framework
Against Gradient Inversion Attacks, AAAI 2025.
"""

from __future__ import annotations

from privplan.errors import Fault, InputError
from privplan.plan import Plan
from privplan.planning.baselines import unprotected
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameter, Hyperparameters, Records
from simulate.algorithms.registry import from_spec, register
from simulate.local.hypernetwork import hypernetwork_sgd
from simulate.models.adapted import PREFIX, adapted
from simulate.models.registry import model
from simulate.personalisation import own
from simulate.splits import client_hypernetwork

HIDDEN = Hyperparameter(
    100, "units of the hypernetwork's hidden layer", low=1, high=1e6, integer=True
)
HEAD_RATE = Hyperparameter(
    1.0,
    "learning rate of the head over that of the hypernetwork; HyperFL: 10 for grey images, "
    "5 for colour",
    high=1e6,
)


def adapters(plan: Plan) -> Fault | None:
    """Requires a model with blocks that adapters can follow.

    Raises:
        InputError: for a model that is not known.
    """
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


@register(
    "HyperFL",
    plan=from_spec(unprotected),
    unit="none",
    released="the exact sum of the hypernetworks' updates per round",
    source="Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu (HyperFL), AAAI 2025",
    hyperparameters={"hidden": HIDDEN, "head_rate": HEAD_RATE},
)
def hyperfl(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """A hypernetwork at the clients generates the body; SGD on the head, then on the hypernetwork.

    Source: Section 3.2.
    Unit of privacy: none.
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
    local = hypernetwork_sgd(split, hidden=hidden, head_rate=hyperparameters["head_rate"])
    return compose("HyperFL", plan, split=split, local=local, personalisation=own())


@register(
    "HyperFL-LPM",
    plan=frozen,
    unit="none",
    released="the exact sum of the hypernetworks' updates per round",
    source="Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu (HyperFL), AAAI 2025",
    hyperparameters={"hidden": HIDDEN, "head_rate": HEAD_RATE},
    requires=(adapters,),
)
def hyperfl_lpm(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """HyperFL on a frozen pre-trained model, whose adapters the hypernetwork generates.

    Source: Section 3.3.
    Unit of privacy: none.
    Released: as HyperFL. Adapters, embeddings and heads stay at the clients.
    Deviations: as HyperFL. One adapter of width 8 after each block, for transformers too, where the
        paper puts it within. The plan's model is frozen as it starts: pre-trained with
        `vit:FOLDER`; a model without weights on disk is frozen as initialised, which tests the
        algorithm but says nothing about its accuracy.
    """
    return hyperfl(plan, hyperparameters)
