"""Test records of one client, for the evaluation of personal models."""

from __future__ import annotations

import numpy as np

from privplan.streams import Purpose, stream
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition

MAX_RECORDS = 100  # most test records of a client
# Rounding must not take away a record from a count that is whole but for it.
_ROUNDING = 1e-9


def personal_test_records(
    data: Dataset,
    partition: ClientPartition,
    client: int,
    seed: int,
) -> np.ndarray:
    """Test records distributed like the client's training records.

    Where the client is a person with test records, those of the person. Otherwise test
    records with the label distribution of the client's training records. Two clients
    may share test records.

    Args:
        data: that has the records.
        partition: of the training records over clients.
        client: its number.
        seed: of the draw.

    Returns:
        Rows of the test records, in order.
    """
    generator = stream(seed, Purpose.OWN_TEST, int(client))
    person = partition.person(client)
    if person is not None and data.test_people is not None:
        rows = np.flatnonzero(data.test_people == person)
        if len(rows) > MAX_RECORDS:
            rows = generator.choice(rows, MAX_RECORDS, replace=False)
        if len(rows):
            return np.sort(rows)
    trained = data.train_labels.numpy()[partition.records(client)]
    test_labels = data.test_labels.numpy()
    counts = _counts(trained, test_labels, len(data.classes))
    drawn = [
        generator.choice(
            np.flatnonzero(test_labels == label), counts[label], replace=False
        )
        for label in np.flatnonzero(counts)
    ]
    if drawn:
        return np.sort(np.concatenate(drawn))
    return np.empty(0, np.int64)


def _counts(trained: np.ndarray, test_labels: np.ndarray, classes: int) -> np.ndarray:
    """Test records of each label [classes], in the shares of the trained labels.

    As many as the scarcest label allows, rounded by largest remainders.
    """
    available = np.bincount(test_labels, minlength=classes)
    target = np.bincount(trained, minlength=classes)
    target = np.where(available > 0, target, 0).astype(np.float64)
    if not target.sum():
        return np.zeros(classes, np.int64)
    share = target / target.sum()
    positive = share > 0
    scarcest = (available[positive] / share[positive]).min()
    total = min(MAX_RECORDS, int(np.floor(scarcest + _ROUNDING)))
    exact = share * total
    counts: np.ndarray = np.floor(exact + _ROUNDING).astype(np.int64)
    remainders = np.where(positive & (counts < available), exact - counts, -1.0)
    largest = np.argsort(-remainders, kind="stable")[: total - counts.sum()]
    counts[largest] += 1
    return counts
