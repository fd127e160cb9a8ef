"""Records spread evenly and at random, or drawn lazily by any number of clients.

Clients are the people whom the records are from: writers, roles.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import Drawn, Partition
from simulate.data.partition.scheme import (
    Assignment,
    PartitionRequest,
    SchemeKind,
    even,
    in_order,
    whole,
)


def read_iid(rest: str) -> Assignment:
    """``iid`` alone, or ``iid:SIZE``."""
    return partial(drawn, size=whole(rest)) if rest else spread


def spread(problem: PartitionRequest) -> Partition:
    """Every record at one client; sizes differ by at most one."""
    problem.require_records()
    order = problem.generator().permutation(len(problem.labels))
    return problem.written(order, even(len(problem.labels), problem.clients))


def drawn(problem: PartitionRequest, size: int) -> Drawn:
    """Each client draws ``size`` distinct records of its own; clients may share records.

    Raises:
        InputError: when a client would hold more than the data set has.
    """
    if size > len(problem.labels):
        rule = f"must not exceed the {len(problem.labels)} training records in iid:SIZE"
        raise InputError.one("partition", rule, size)
    return Drawn(len(problem.labels), size, problem.seed, problem.members)


IID = SchemeKind(
    "iid or iid:SIZE",
    "records spread evenly; with SIZE each client draws that many, and clients may share records",
    read_iid,
)


def read_natural(rest: str) -> Assignment:
    """``natural``."""
    if rest:
        raise ValueError(rest)
    return deal_natural


def deal_natural(problem: PartitionRequest) -> Partition:
    """Each client is one person, with all of that person's training records.

    With fewer clients than people, the people are drawn at random and the others' records are
    not used.

    Raises:
        InputError: when the data set does not say whom its records are from, or has fewer
            people than the plan has clients.
    """
    if problem.people is None:
        rule = "must not be natural for a data set that names no people"
        raise InputError.one("partition", rule, "natural")
    names, person = np.unique(problem.people, return_inverse=True)
    if problem.clients > len(names):
        rule = f"must not exceed the {len(names)} people of the data set's training records"
        raise InputError.one("groups.clients", rule, problem.clients)
    chosen = problem.generator().permutation(len(names))[: problem.clients]
    by_person = np.argsort(person, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(person))])
    held = [by_person[starts[one] : starts[one + 1]] for one in chosen]
    return replace(problem.written(*in_order(held)), people=names[chosen])


NATURAL = SchemeKind(
    "natural",
    "each client is a person of the data set (writer, role), drawn at random when there are more",
    read_natural,
)
