"""Grouping of individual budgets by what a plan of them minimises.

A group has the least epsilon and the least delta of its members. A grouping retains
sum_g N_g worth_g of sum_i worth_i, where the worth of a client says what its budget adds to the
plan: with the costs of an objective by ``privplan.spec.grouping_costs``, otherwise its precision,
which in the small-loss limit is its Gaussian strength mu. With one delta the best groups are found
exactly (``privplan.spec.grouping_intervals``), with several by local search
(``privplan.spec.grouping_corners``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from privplan.errors import InputError
from privplan.spec.grouped import Floats, Grouping, strengths
from privplan.spec.grouping_corners import Corners
from privplan.spec.grouping_costs import Balance, Costs, balance, condensed, gains
from privplan.spec.grouping_intervals import Intervals, starts_of
from privplan.spec.grouping_search import Error, improved

_ENOUGH = 0.99
_PASSES = 4
_COMPARED = 3
"""Numbers of groups whose cuts are compared by the error of plans, where they are free."""
MOST_GROUPS = 12


def group_budgets(
    epsilons: Floats, deltas: Floats, groups: int, costs: Costs | None = None
) -> Grouping:
    """The best grouping into at most ``groups`` groups.

    Args:
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        groups: number of groups.
        costs: of the plan's objective; None for the precision only.

    Raises:
        InputError: when there is no client, or fewer than one group.
    """
    return groupings(epsilons, deltas, groups, costs=costs, every=False)[-1]


def free_groups(
    epsilons: Floats,
    deltas: Floats,
    most: int = MOST_GROUPS,
    costs: Costs | None = None,
    error_of: Error | None = None,
) -> Grouping:
    """The fewest groups that retain 99% of the precision, or the best ``most`` groups.

    Where plans have errors of their own, as many groups as the plan of least error has.

    Args:
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        most: largest number of groups.
        costs: of the plan's objective; None for the precision only.
        error_of: grouping -> error of its plan; None where the formula says it.

    Raises:
        InputError: when there is no client, or fewer than one group.
    """
    found = groupings(epsilons, deltas, most, stop=True, costs=costs)
    if error_of is None or error_of(found[-1]) is None:
        return found[-1]
    first = sorted(found, key=partial(_error, error_of=error_of))[:_COMPARED]
    better = [with_least_error(one, epsilons, deltas, costs, error_of) for one in first]
    return min(better, key=partial(_error, error_of=error_of))


def _error(one: Grouping, error_of: Error) -> float:
    error = error_of(one)
    return math.inf if error is None else error


def groupings(
    epsilons: Floats,
    deltas: Floats,
    most: int,
    stop: bool = False,
    costs: Costs | None = None,
    every: bool = True,
) -> list[Grouping]:
    """The best grouping for each number of groups from 1 to ``most``.

    Args:
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        most: largest number of groups.
        stop: whether to stop at the first that retains 99% of the precision.
        costs: of the plan's objective; None for the precision only.
        every: whether each number of groups is wanted, not only the last.

    Raises:
        InputError: when there is no client, or fewer than one group.
    """
    if not len(epsilons):
        raise InputError.one("groups_from", "must name at least one client", 0)
    if most < 1:
        raise InputError.one("planning.group_count", "must be 1 or more", most)
    mu, finder = strengths(epsilons, deltas), _finder(epsilons, deltas)
    own = balance(*_bins(mu), costs) if costs is not None else None
    largest = min(most, finder.distinct)
    found = []
    for number in range(1 if stop or every else largest, largest + 1):
        if costs is None or own is None:
            best = finder.best(lambda mu: mu, number)
            best = replace(
                best, precision=float(np.array(best.clients) @ best.strengths) / float(mu.sum())
            )
        else:
            best = _balanced(finder, number, own, costs)
        found.append(best)
        if stop and best.precision >= _ENOUGH:
            break
    return found


def _finder(epsilons: Floats, deltas: Floats) -> Intervals | Corners:
    """Exact with one delta, by local search with several."""
    if deltas.min() == deltas.max():
        return Intervals(epsilons, strengths(epsilons, deltas), float(deltas[0]))
    return Corners(epsilons, deltas)


def with_least_error(
    found: Grouping, epsilons: Floats, deltas: Floats, costs: Costs | None, error_of: Error
) -> Grouping:
    """The grouping, or as many groups whose plan has a smaller error.

    Args:
        found: the best grouping by the formula.
        epsilons: budget of each client, positive, shape (clients,).
        deltas: failure probability of each client, shape (clients,).
        costs: of the plan's objective; None for the precision only.
        error_of: grouping -> error of its plan; None where the formula says it.
    """
    best = improved(found, epsilons, deltas, _finder(epsilons, deltas), error_of)
    if best is found:
        return found
    mu, clients = strengths(epsilons, deltas), np.array(best.clients, dtype=float)
    kept = float(clients @ best.strengths) / float(mu.sum())
    if costs is not None:
        own, error = balance(*_bins(mu), costs).error, balance(best.strengths, clients, costs).error
        kept = math.sqrt(own / error)
    return replace(best, precision=min(kept, 1.0))


def _balanced(finder: Intervals | Corners, number: int, own: Balance, costs: Costs) -> Grouping:
    """The best groups by a plan's error, and the precision that they retain.

    Gains depend on level and price of the plan, which are first those of clients with scales of
    their own, and then those of the groups found.
    """
    at, best, least = own, None, math.inf
    for _ in range(_PASSES):
        found = finder.best(partial(gains, found=at, costs=costs), number)
        at = balance(found.strengths, np.array(found.clients, dtype=float), costs)
        if best is not None and not at.error < least * (1 - 1e-4):
            break
        best, least = found, at.error
    return replace(best or found, precision=min(math.sqrt(own.error / least), 1.0))


def _bins(mu: Floats) -> tuple[Floats, Floats]:
    """Strengths of all clients at few nodes, and the clients of each."""
    values, counts = np.unique(mu, return_counts=True)
    starts, ends = starts_of(values), np.append(0, np.cumsum(counts))
    sizes = np.diff(np.append(ends[starts], ends[-1]))
    return condensed(values[starts], sizes.astype(float))
