"""Privacy groups that depend on what their clients hold, with a strength that is chosen.

Clients are ranked by the mean of their labels. With strength 1 the plan's first group gets the
lowest ranks, the next group the next ranks, and so on; with strength 0 every rank is drawn at
random. In between each client keeps its rank with a probability of that strength, and those who
do not trade places at random among themselves.

One privacy group alone holds some labels: budgets correlated with data at their worst.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import ClientPartition, Partition
from simulate.data.partition.scheme import Assignment, PartitionRequest, SchemeKind, even
from simulate.engine.seeds import Purpose, stream

MARK = "+correlated:"
FORM = f"SCHEME{MARK}RHO"
MEANING = "any of them but by-class, with groups that follow clients' labels, RHO from 0 to 1"


def strength(text: str) -> float:
    """Parse RHO.

    Raises:
        ValueError: when it is not a number from 0 to 1.
    """
    rho = float(text)
    if not 0 <= rho <= 1:
        raise ValueError(text)
    return rho


def members(problem: PartitionRequest, held: ClientPartition, rho: float) -> tuple[np.ndarray, ...]:
    """The clients of each group.

    Args:
        problem: what was dealt.
        held: who holds which records.
        rho: strength from 0 to 1; at 0 the groups are those drawn without looking at data.

    Returns:
        Sorted numbers of clients, as many for each group as in ``problem.members``.
    """
    clients = problem.clients
    score = [problem.labels[held.records(client)].mean() for client in range(clients)]
    ranked = np.argsort(score, kind="stable")
    free = stream(problem.seed, Purpose.GROUPS, 1).random(clients) >= rho
    ranked[free] = stream(problem.seed, Purpose.GROUPS).permutation(np.sort(ranked[free]))
    cuts = np.cumsum([len(part) for part in problem.members])[:-1]
    return tuple(np.sort(part) for part in np.split(ranked, cuts))


def read(rest: str) -> Assignment:
    """``by-class:GROUP=LABEL,LABEL``."""
    group, _, labels = rest.rpartition("=")
    found = tuple(sorted({int(label) for label in labels.split(",")}))
    if not group or found[0] < 0:
        raise ValueError(rest)
    return partial(deal, group=group, own=found)


def deal(problem: PartitionRequest, group: str, own: tuple[int, ...]) -> Partition:
    """One group alone holds the named labels, filled up with others to its share of records.

    Raises:
        InputError: when there is no such group or label, or a client would hold nothing.
    """
    problem.require_records()
    labels, clients, generator = problem.labels, problem.clients, problem.generator()
    if group not in problem.names:
        rule = f"must name one of the groups {', '.join(problem.names)}"
        raise InputError.one("partition", rule, group)
    absent = [label for label in own if label not in labels]
    if absent:
        raise InputError.one("partition", "must name labels of the data set", absent[0])
    named = np.isin(labels, own)
    inside = problem.members[problem.names.index(group)]
    holders = np.isin(np.arange(clients), inside)
    exclusive = generator.permutation(np.flatnonzero(named))
    others = generator.permutation(np.flatnonzero(~named))
    filled = max(0, len(labels) * len(inside) // clients - len(exclusive))
    if len(exclusive) + filled < len(inside) or len(others) - filled < clients - len(inside):
        rule = "must leave each client at least one record"
        raise InputError.one("partition", rule, f"by-class:{group}={own}")
    pool = generator.permutation(np.concatenate([exclusive, others[:filled]]))
    return problem.written(*_joined(pool, others[filled:], holders))


def _joined(
    inside: np.ndarray, outside: np.ndarray, holders: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Two pools dealt evenly to two kinds of clients, in the order of the clients."""
    sizes = np.zeros(len(holders), np.int64)
    for pool, kind in ((inside, holders), (outside, ~holders)):
        if kind.any():
            sizes[kind] = np.diff(even(len(pool), int(kind.sum())))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    order = np.empty(starts[-1], np.int64)
    holder = np.repeat(holders, sizes)
    order[holder] = inside
    order[~holder] = outside
    return order, starts


BY_CLASS = SchemeKind(
    "by-class:GROUP=LABEL,LABEL",
    "one privacy group alone holds the labels (numbers), filled up to its share of records",
    read,
)
