"""HyperFL: each client makes its body with a shared hypernetwork from an embedding of its own.

P. Guo, S. Zeng, W. Chen, X. Zhang, W. Ren, Y. Zhou, L. Qu, A New Federated Learning Framework
Against Gradient Inversion Attacks, AAAI 2025, Section 3.2.

Unit of privacy: none. Released: the exact sum of the cohort's updates of the hypernetwork in each
round. Embeddings and heads stay at the clients, which hinders the reconstruction of records; it
gives no differential privacy, so epsilon is infinite and the ledger says so.
Deviations: hidden layer of 100 units (the paper does not say); the first products of the
hypernetwork are a usual initialisation of the body; one learning rate for hypernetwork and
embedding, no weight decay; the sum is divided by the expected cohort, not weighted by data size;
the cohort is drawn by the plan's law.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameter, Hyperparameters
from simulate.local.hypernetwork import hypernetwork_sgd
from simulate.personalisation import own
from simulate.splits import client_hypernetwork

HIDDEN = Hyperparameter(
    100, "units of the hypernetwork's hidden layer", low=1, high=1e6, whole=True
)
HEAD_RATE = Hyperparameter(
    1.0, "learning rate of the head over that of the hypernetwork; 5 to 10 in HyperFL", high=1e6
)
NUMBERS = {"hidden": HIDDEN, "head_rate": HEAD_RATE}


def hyperfl(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Hypernetwork at the clients, head and then hypernetwork by SGD, plain mean.

    Args:
        plan: the plan.
        choices: the numbers ``hidden`` and ``head_rate``.
    """
    hidden = int(choices.numbers["hidden"])
    split = client_hypernetwork(hidden)
    return compose(
        "HyperFL",
        plan,
        split=split,
        local=hypernetwork_sgd(split, hidden=hidden, head_rate=choices.numbers["head_rate"]),
        personalisation=own(),
    )


ROW = Entry(
    "HyperFL",
    hyperfl,
    lambda plan, records: uniform(plan.spec),
    unit="none",
    released="the exact sum of the hypernetworks' updates a round",
    source="Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu (HyperFL), AAAI 2025",
    numbers=NUMBERS,
)
