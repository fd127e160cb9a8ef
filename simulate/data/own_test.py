"""A client's own test records, for the evaluation of personal models."""

from __future__ import annotations

import numpy as np

from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.engine.seeds import Purpose, stream

MOST = 100
"""Test records of one client, at most, unless asked otherwise."""


def own_test(
    data: Dataset, held: ClientPartition, client: int, seed: int, most: int = MOST
) -> np.ndarray:
    """Test records that are like the client's own training records.

    Where the clients are real people who have test records of their own, those. Otherwise test
    records with the label mix of the client's training records: as many as the rarest label of
    the mix allows, rounded by largest remainders, drawn without replacement. Two clients may
    share test records.

    Args:
        data: the data set.
        held: who holds which training records.
        client: number of the client.
        seed: the run's seed; equal arguments give equal records.
        most: the largest number of records.

    Returns:
        Sorted indices of test records, without repetition; empty only when the data set has no
        test record of any label that the client holds.
    """
    generator = stream(seed, Purpose.OWN_TEST, int(client))
    person = held.person(client)
    if person is not None and data.test_people is not None:
        own = np.flatnonzero(data.test_people == person)
        if len(own):
            chosen = own if len(own) <= most else generator.choice(own, most, replace=False)
            return np.sort(chosen)
    classes = len(data.classes)
    labels = data.test_y.numpy()
    mix = np.bincount(data.train_y.numpy()[held.records(client)], minlength=classes)
    counts = following(mix, np.bincount(labels, minlength=classes), most)
    drawn = [
        generator.choice(np.flatnonzero(labels == label), counts[label], replace=False)
        for label in np.flatnonzero(counts)
    ]
    return np.sort(np.concatenate(drawn)) if drawn else np.empty(0, np.int64)


def following(mix: np.ndarray, there: np.ndarray, most: int) -> np.ndarray:
    """How many records of each label follow a mix.

    Args:
        mix: a client's records of each label [classes].
        there: test records of each label [classes]; a label without any leaves the mix.
        most: the largest sum.

    Returns:
        Numbers [classes], each within one of its share of their sum and at most ``there``.
    """
    wanted = np.where(there > 0, mix, 0).astype(np.float64)
    if not wanted.sum():
        return np.zeros(len(mix), np.int64)
    share = wanted / wanted.sum()
    held = share > 0
    total = min(most, int(np.floor((there[held] / share[held]).min() + 1e-9)))
    exact = share * total
    counts = np.floor(exact + 1e-9).astype(np.int64)
    remainders = np.where(held & (counts < there), exact - counts, -1.0)
    counts[np.argsort(-remainders, kind="stable")[: total - counts.sum()]] += 1
    return counts
