"""Labels that only the clients of one privacy group hold: the strongest correlation of budgets.

The group is filled up with records of other labels to its share of all records.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import Partition
from simulate.data.partition.registry import (
    PARTITIONS,
    Assignment,
    PartitionRequest,
    SchemeKind,
    even_starts,
)


def parse(rest: str) -> Assignment:
    """The assignment of ``by-class:GROUP=LABEL,LABEL``."""
    group, _, labels = rest.rpartition("=")
    exclusive = tuple(sorted({int(label) for label in labels.split(",")}))
    if not group or exclusive[0] < 0:
        raise ValueError(rest)
    return partial(assign_by_class, group=group, exclusive=exclusive)


def assign_by_class(request: PartitionRequest, group: str, exclusive: tuple[int, ...]) -> Partition:
    """A partition in which only one group holds the given labels.

    Raises:
        InputError: when there is no such group or label, or a client would have no record.
    """
    request.require_records()
    labels, clients, generator = request.labels, request.clients, request.generator()
    if group not in request.names:
        rule = f"must name one of the groups {', '.join(request.names)}"
        raise InputError.one("partition", rule, group)
    absent = [label for label in exclusive if label not in labels]
    if absent:
        raise InputError.one("partition", "must name labels of the data set", absent[0])
    named = np.isin(labels, exclusive)
    inside = request.members[request.names.index(group)]
    in_group = np.isin(np.arange(clients), inside)
    own = generator.permutation(np.flatnonzero(named))
    others = generator.permutation(np.flatnonzero(~named))
    filled = max(0, len(labels) * len(inside) // clients - len(own))
    if len(own) + filled < len(inside) or len(others) - filled < clients - len(inside):
        rule = "must leave each client at least one record"
        raise InputError.one("partition", rule, f"by-class:{group}={exclusive}")
    pool = generator.permutation(np.concatenate([own, others[:filled]]))
    records: list[np.ndarray] = [np.empty(0, np.int64)] * clients
    for part, chosen in ((pool, in_group), (others[filled:], ~in_group)):
        holders = np.flatnonzero(chosen)
        if len(holders):
            pieces = np.split(part, even_starts(len(part), len(holders))[1:-1])
            for client, piece in zip(holders, pieces, strict=True):
                records[client] = piece
    return request.stored(records)


PARTITIONS.register(
    "by-class",
    SchemeKind(
        "by-class:GROUP=LABEL,LABEL",
        "one privacy group alone holds the labels (numbers), filled up to its share of records",
        parse,
        correlatable=False,
    ),
)
