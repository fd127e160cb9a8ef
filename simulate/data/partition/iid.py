"""Partitions without skew by design: even and random, drawn by each client, or by person."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import LazyPartition, Partition
from simulate.data.partition.registry import (
    PARTITIONS,
    Assignment,
    PartitionRequest,
    SchemeKind,
    even_starts,
    positive_int,
)


def parse_iid(rest: str) -> Assignment:
    """The assignment of ``iid`` or ``iid:SIZE``."""
    return partial(assign_drawn, size=positive_int(rest)) if rest else assign_even


def assign_even(request: PartitionRequest) -> Partition:
    """All records in random order, in parts whose sizes differ by at most one."""
    request.require_records()
    order = request.generator().permutation(len(request.labels))
    return Partition(order, even_starts(len(order), request.clients), request.members)


def assign_drawn(request: PartitionRequest, size: int) -> LazyPartition:
    """A partition in which each client draws ``size`` distinct records; clients may share records.

    Raises:
        InputError: when the data set has fewer records.
    """
    if size > len(request.labels):
        rule = f"must not exceed the {len(request.labels)} training records in iid:SIZE"
        raise InputError.one("partition", rule, size)
    return LazyPartition(len(request.labels), size, request.seed, request.members)


def parse_natural(rest: str) -> Assignment:
    """The assignment of ``natural``."""
    if rest:
        raise ValueError(rest)
    return assign_natural


def assign_natural(request: PartitionRequest) -> Partition:
    """A partition in which each client is one person, with all of the person's records.

    With fewer clients than people, the people are drawn at random and the other records are
    not used.

    Raises:
        InputError: when the data set does not name people, or has fewer people than the plan has
            clients.
    """
    if request.people is None:
        rule = "must not be natural for a data set that names no people"
        raise InputError.one("partition", rule, "natural")
    names, person = np.unique(request.people, return_inverse=True)
    if request.clients > len(names):
        rule = f"must not exceed the {len(names)} people of the data set's training records"
        raise InputError.one("groups.clients", rule, request.clients)
    chosen = request.generator().permutation(len(names))[: request.clients]
    records = np.split(np.argsort(person, kind="stable"), np.cumsum(np.bincount(person))[:-1])
    return replace(request.stored([records[one] for one in chosen]), people=names[chosen])


PARTITIONS.register(
    "iid",
    SchemeKind(
        "iid or iid:SIZE",
        "records spread evenly; with SIZE each client draws that many, and clients may share them",
        parse_iid,
        disjoint=lambda rest: not rest,
    ),
)
PARTITIONS.register(
    "natural",
    SchemeKind(
        "natural",
        "each client is a person of the data set (writer, role), drawn at random if there are more",
        parse_natural,
    ),
)
