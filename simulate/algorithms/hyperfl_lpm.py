"""HyperFL-LPM: HyperFL on a frozen pre-trained model, whose adapters the hypernetwork makes.

P. Guo, S. Zeng, W. Chen, X. Zhang, W. Ren, Y. Zhou, L. Qu, A New Federated Learning Framework
Against Gradient Inversion Attacks, AAAI 2025, Section 3.3.

Unit of privacy: none. Released: the exact sum of the cohort's updates of the hypernetwork in each
round, so epsilon is infinite. Adapters, embeddings and heads stay at the clients.
Deviations: as HyperFL. One adapter of width 8 behind each block, for transformers too, where the
paper puts it within. The plan's model is frozen as it starts: with `vit:FOLDER` that is what was
pre-trained; a model without weights on disk is frozen as it is drawn, which shows the method at
work and nothing of its worth.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Entry, Hyperparameters, Records
from simulate.algorithms.hyperfl import NUMBERS, hyperfl
from simulate.algorithms.requirements import blocks
from simulate.models.adapted import PREFIX
from simulate.models.registry import model


def hyperfl_lpm(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """HyperFL; arguments as there. The plan's model has adapters."""
    return replace(hyperfl(plan, choices), name="HyperFL-LPM")


def frozen(plan: Plan, records: Records) -> Plan:
    """The plan with its model frozen and given adapters, unless it is so already."""
    name = PREFIX + plan.spec.model.name.removeprefix(PREFIX)
    changes = {"name": name, "parameters": model(name).parameters}
    planned = plan.spec.model.model_copy(update=changes)
    return uniform(plan.spec.model_copy(update={"model": planned}))


ROW = Entry(
    "HyperFL-LPM",
    hyperfl_lpm,
    frozen,
    unit="none",
    released="the exact sum of the hypernetworks' updates a round",
    source="Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu (HyperFL), AAAI 2025",
    numbers=NUMBERS,
    needs=(blocks,),
)
