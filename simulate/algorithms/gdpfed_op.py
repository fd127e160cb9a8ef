"""GDPFed-op: GDPFed with the sampling ratios that solve Problem 1, without sparsification.

GDPFed+ (see ``gdpfed_plus``), Section 4 and Table 2.

Unit of privacy: client. Released: in each round one noisy sum of clipped updates a group.
Deviations: as GDPFed.
"""

from __future__ import annotations

from dataclasses import replace

from privplan.plan import Plan
from privplan.planning.baselines import optimised
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.algorithms.gdpfed import gdpfed


def gdpfed_op(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """GDPFed under the optimised plan; arguments as there."""
    return replace(gdpfed(plan, choices), name="GDPFed-op")


ROW = Entry(
    "GDPFed-op",
    gdpfed_op,
    lambda plan, records: optimised(plan.spec),
    unit="client",
    released="one noisy sum of clipped updates a group and round",
    source="Xu, Hu, Kotevska (GDPFed+)",
)
