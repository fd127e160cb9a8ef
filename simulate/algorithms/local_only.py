"""Local-only: every client trains on its own records and nothing ever leaves it.

The lower end of the comparisons of DP2-FedSAM and HyperFL ("Local").

Unit of privacy: client. Released: nothing, so epsilon is 0 for everybody.
Deviations: a client trains in the rounds in which the plan's law draws it, as often as it would
under the other methods; it keeps its parameters between them.
"""

from __future__ import annotations

from privplan.plan import Plan
from privplan.planning.baselines import uniform
from simulate.aggregators.means import mean
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Entry, Hyperparameters
from simulate.local.personal import private_sgd
from simulate.mechanisms.unprotected import silent
from simulate.personalisation import own
from simulate.splits import private


def local_only(plan: Plan, choices: Hyperparameters) -> Algorithm:
    """Every parameter private; ``choices`` change nothing."""
    return compose(
        "Local-only",
        plan,
        split=private(),
        local=private_sgd(),
        mechanism=silent(),
        aggregator=mean(),
        personalisation=own(),
    )


ROW = Entry(
    "Local-only",
    local_only,
    lambda plan, records: uniform(plan.spec),
    unit="client",
    released="nothing",
    source="baseline of DP2-FedSAM and HyperFL",
)
