"""Projected federated averaging (PFA) and its baselines WeiAvg and minimum epsilon.

J. Liu, J. Lou, L. Xiong, J. Liu, X. Meng, Projected Federated Averaging with
Heterogeneous Differential Privacy, VLDB 2022.
"""

from __future__ import annotations

from functools import partial

from privplan.plan import Plan
from privplan.planning.baselines import by_record, either
from simulate.aggregators import by_epsilon
from simulate.algorithm import Algorithm
from simulate.algorithms.gdpfed import weighted, with_aggregator
from simulate.algorithms.record_level import record_level
from simulate.algorithms.registry import (
    Hyperparameter,
    Hyperparameters,
    of_groups,
    of_records,
)
from simulate.client_aggregators import as_planned, client_mean
from simulate.projections import projected, projected_clients
from simulate.recipe import Recipe, of_client_updates, of_group_sums

DIRECTIONS = Hyperparameter(
    1,
    "public sums that span the subspace; 1 in Robust-HDP",
    low=1,
    high=100,
    integer=True,
)


def _projected_sums(plan: Plan, aggregation: str) -> Recipe:
    """Sums of groups, or under a record-level plan the clients' own updates."""
    if plan.unit == "record":
        return of_client_updates(plan, aggregation)
    return of_group_sums(plan, aggregation)


def _sums_by_epsilon(plan: Plan, aggregation: str) -> Recipe:
    """The same, with weights in proportion to epsilon."""
    if plan.unit == "record":
        return of_client_updates(plan, aggregation)
    return Recipe("per_group", "by epsilon")


@of_groups(
    "PFA",
    plan=partial(either, weights="epsilon"),
    source="Liu, Lou, Xiong, Liu, Meng, VLDB 2022",
    hyperparameters={"directions": DIRECTIONS},
    record_level=True,
    recipe=_projected_sums,
)
def pfa(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """GDPFed whose strictest group's sum is projected onto the loosest group's.

    Source: VLDB 2022; at the level of clients as in GDPFed+, Appendix B.2: the loosest
        group is public, the strictest one is projected, the groups between are used
        unchanged.
    Released: as GDPFed; the projection is a function of the noisy sums, so it costs no
        privacy. Under a record-level plan, as the original: each participant's update,
        noised by DP-SGD.
    Deviations: as GDPFed, with its plan and weights. The original finds the public
        subspace in single updates of public clients; secure sums reveal none, so the
        last noisy public sums span it here. Under a record-level plan the public
        clients are the upper of two clusters of the participants' budgets (2-means);
        the original does not fix the clustering.
    """
    directions = int(hyperparameters["directions"])
    if plan.spec.unit == "record":
        return record_level(plan, projected_clients(directions))
    return with_aggregator(plan, projected(weighted(hyperparameters), directions))


@of_groups(
    "WeiAvg",
    plan=partial(either, weights="epsilon"),
    source="Liu, Lou, Xiong, Liu, Meng, VLDB 2022",
    record_level=True,
    recipe=_sums_by_epsilon,
)
def weiavg(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """GDPFed with weights of the clients in proportion to epsilon.

    Source: VLDB 2022, baseline of PFA; Algorithm 2 of Robust-HDP.
    Released: as GDPFed. Under a record-level plan, as the original: each participant's
        update, noised by DP-SGD.
    Deviations: as GDPFed. The original protects records; under a client-level plan the
        noise is on each group's sum.
    """
    if plan.spec.unit == "record":
        return record_level(plan, client_mean("by epsilon", as_planned))
    return with_aggregator(plan, by_epsilon())


@of_records(
    "minimum-epsilon",
    plan=partial(by_record, weights="population", strict=True),
    source="Liu, Lou, Xiong, Liu, Meng, VLDB 2022",
)
def minimum_epsilon(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DPFedAvg under the strictest budget for all clients.

    Released: as DPFedAvg, with the noise that the strictest budget needs.
    Deviations: clients take turns by a public schedule where the cohort is smaller than
        the population.
    """
    return record_level(plan, client_mean("by records", as_planned))
