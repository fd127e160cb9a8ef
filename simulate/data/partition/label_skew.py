"""Clients of equal size whose label mix is drawn from a symmetric Dirichlet law.

Source: T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data Distribution
(2019).

Records sorted by label and cut into shards, of which each client gets some.

Source: H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, Communication-Efficient
Learning of Deep Networks from Decentralized Data (2017), Section 3.

Each of N clients holds records of exactly S classes: the (N, S) setting.

Source: the experiments of DP2-FedSAM (Section VI): S of the classes for each of N clients, with
disjoint records.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from privplan.errors import InputError
from simulate.data.partition.clients import Partition
from simulate.data.partition.scheme import (
    Assignment,
    PartitionRequest,
    SchemeKind,
    even,
    in_order,
    whole,
)


def read_dirichlet(rest: str) -> Assignment:
    """``dirichlet:ALPHA``."""
    alpha = float(rest)
    if not 0 < alpha < math.inf:
        raise ValueError(rest)
    return partial(deal_dirichlet, alpha=alpha)


def deal_dirichlet(problem: PartitionRequest, alpha: float) -> Partition:
    """Every record at one client; a label that has run out is drawn from the others' mix."""
    problem.require_records()
    labels, generator = problem.labels, problem.generator()
    names = np.unique(labels)
    pools = [generator.permutation(np.flatnonzero(labels == name)) for name in names]
    used, sizes = np.zeros(len(names), np.int64), np.array([len(pool) for pool in pools])
    starts = even(len(labels), problem.clients)
    order = np.empty(len(labels), np.int64)
    for client in range(problem.clients):
        mix = generator.dirichlet(np.full(len(names), alpha))
        position, end = starts[client], starts[client + 1]
        while position < end:
            left = sizes - used
            odds = (mix + 1e-12) * (left > 0)
            counts = np.minimum(generator.multinomial(end - position, odds / odds.sum()), left)
            for label in np.flatnonzero(counts):
                taken = pools[label][used[label] : used[label] + counts[label]]
                order[position : position + len(taken)] = taken
                position += len(taken)
            used += counts
    return problem.written(order, starts)


DIRICHLET = SchemeKind(
    "dirichlet:ALPHA",
    "label mixes drawn from a Dirichlet law, ALPHA above 0; the smaller, the more skewed",
    read_dirichlet,
)


def read_shards(rest: str) -> Assignment:
    """``shards:S``."""
    return partial(deal_shards, shards=whole(rest))


def deal_shards(problem: PartitionRequest, shards: int) -> Partition:
    """Every record at one client: ``shards`` runs of the records sorted by label, at random.

    A shard at the border of two labels holds both, so a client has few labels, not always at
    most ``shards``; ``pathological`` keeps that limit. Records of one label are shuffled first.
    """
    problem.require_records(shards)
    generator = problem.generator()
    shuffled = generator.permutation(len(problem.labels))
    by_label = shuffled[np.argsort(problem.labels[shuffled], kind="stable")]
    pieces = np.split(by_label, even(len(by_label), problem.clients * shards)[1:-1])
    dealt = generator.permutation(len(pieces)).reshape(problem.clients, shards)
    held = [np.concatenate([pieces[one] for one in own]) for own in dealt]
    return problem.written(*in_order(held))


SHARDS = SchemeKind(
    "shards:S", "records sorted by label and cut up; each client gets S pieces", read_shards
)


def read_pathological(rest: str) -> Assignment:
    """``pathological:N,S``, or ``pathological:S`` for all the plan's clients."""
    *clients, classes = (whole(number) for number in rest.split(","))
    if len(clients) > 1:
        raise ValueError(rest)
    return partial(deal_pathological, clients=clients[0] if clients else None, classes=classes)


def deal_pathological(problem: PartitionRequest, clients: int | None, classes: int) -> Partition:
    """A class is cut evenly among the clients that hold it; no record is at two clients.

    Classes are handed out in proportion to their records, so sizes are nearly equal when the
    classes are. The records of a class are unused only when there are more classes than N times S.

    Raises:
        InputError: when the plan has another number of clients, or there are too few classes or
            records for each client to hold some of S classes.
    """
    if clients is not None and clients != problem.clients:
        rule = f"must name the plan's {problem.clients} clients in pathological:N,S"
        raise InputError.one("partition", rule, clients)
    problem.require_records(classes)
    generator = problem.generator()
    names, sizes = np.unique(problem.labels, return_counts=True)
    slots = _slots(sizes, problem.clients, classes)
    if slots is None:
        rule = f"must leave records of {classes} classes for each client"
        raise InputError.one("partition", rule, f"pathological:{classes}")
    pieces = []
    for name, parts in zip(names, slots, strict=True):
        pool = generator.permutation(np.flatnonzero(problem.labels == name))
        pieces.append(np.split(pool, even(len(pool), max(1, int(parts)))[1:-1]))
    held = []
    for _ in range(problem.clients):
        # The classes with most pieces left, ties at random: nobody is left with too few.
        own = np.lexsort((generator.random(len(names)), -slots))[:classes]
        slots[own] -= 1
        held.append(np.concatenate([pieces[index][slots[index]] for index in own]))
    order = generator.permutation(problem.clients)
    return problem.written(*in_order([held[one] for one in order]))


def _slots(sizes: np.ndarray, clients: int, classes: int) -> np.ndarray | None:
    """How many clients hold each class: in proportion to its records, at most once a client.

    Returns:
        Numbers that add up to ``clients * classes``; None when there are none.
    """
    most = np.minimum(sizes, clients)
    if most.sum() < clients * classes or len(sizes) < classes:
        return None
    slots = np.zeros(len(sizes), np.int64)
    while (missing := clients * classes - slots.sum()) > 0:
        open_ = slots < most
        share = np.where(open_, sizes, 0) * missing / sizes[open_].sum()
        added = np.minimum(np.floor(share).astype(np.int64), most - slots)
        if not added.any():
            first = np.argsort(-np.where(open_, share, -1.0), kind="stable")
            added[first[: min(missing, open_.sum())]] = 1
        slots += added
    return slots


PATHOLOGICAL = SchemeKind(
    "pathological:N,S or pathological:S",
    "each of the plan's N clients holds S classes, no more",
    read_pathological,
)
