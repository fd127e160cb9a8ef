"""Test records of one client, for the evaluation of personal models."""

from __future__ import annotations

import numpy as np

from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition
from simulate.engine.seeds import Purpose, stream

MOST = 100
"""Default of the largest number of test records of a client."""


def personal_test_records(
    data: Dataset, partition: ClientPartition, client: int, seed: int, most: int = MOST
) -> np.ndarray:
    """Test records distributed like the client's training records.

    Where the client is a person with test records, those of the person. Otherwise test records
    with the label distribution of the client's training records: as many as its scarcest label
    allows, rounded by largest remainders, drawn without replacement. Two clients may share test
    records.

    Args:
        data: the data set.
        partition: the training records of each client.
        client: number of the client.
        seed: the run's seed; equal arguments give equal records.
        most: the largest number of records.

    Returns:
        Sorted indices of test records, without repetition; empty only when the data set has no
        test record of any label that the client holds.
    """
    generator = stream(seed, Purpose.OWN_TEST, int(client))
    person = partition.person(client)
    if person is not None and data.test_people is not None:
        own = np.flatnonzero(data.test_people == person)
        if len(own):
            chosen = own if len(own) <= most else generator.choice(own, most, replace=False)
            return np.sort(chosen)
    classes = len(data.classes)
    labels = data.test_labels.numpy()
    trained = np.bincount(data.train_labels.numpy()[partition.records(client)], minlength=classes)
    counts = proportional_counts(trained, np.bincount(labels, minlength=classes), most)
    drawn = [
        generator.choice(np.flatnonzero(labels == label), counts[label], replace=False)
        for label in np.flatnonzero(counts)
    ]
    return np.sort(np.concatenate(drawn)) if drawn else np.empty(0, np.int64)


def proportional_counts(trained: np.ndarray, available: np.ndarray, most: int) -> np.ndarray:
    """Numbers of test records in proportion to a client's training records.

    Args:
        trained: training records of each label [classes].
        available: test records of each label [classes]; labels without any are left out.
        most: the largest sum.

    Returns:
        Numbers [classes], each within one of its share of their sum and at most ``available``.
    """
    wanted = np.where(available > 0, trained, 0).astype(np.float64)
    if not wanted.sum():
        return np.zeros(len(trained), np.int64)
    share = wanted / wanted.sum()
    positive = share > 0
    total = min(most, int(np.floor((available[positive] / share[positive]).min() + 1e-9)))
    exact = share * total
    counts: np.ndarray = np.floor(exact + 1e-9).astype(np.int64)
    remainders = np.where(positive & (counts < available), exact - counts, -1.0)
    counts[np.argsort(-remainders, kind="stable")[: total - counts.sum()]] += 1
    return counts
