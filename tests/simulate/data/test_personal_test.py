"""Every client's own test records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulate.data.dataset import personal_test_records
from simulate.data.partition.clients import Partition
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from tests.simulate import tiny

DIGITS = load("digits")
GROUPS = tuple(group.model_copy(update={"clients": 10}) for group in tiny.plan().groups)


def test_own_test_records_have_the_client_s_label_mix() -> None:
    labels = DIGITS.train_y.numpy()
    records = np.concatenate([np.flatnonzero(labels == 3)[:30], np.flatnonzero(labels == 8)[:10]])
    held = Partition(records, np.array([0, 40]), (np.array([0]), np.array([], np.int64)))
    found = personal_test_records(DIGITS, held, 0, seed=5, most=20)
    assert np.bincount(DIGITS.test_y.numpy()[found], minlength=10)[[3, 8]].tolist() == [15, 5]
    assert len(set(found)) == len(found) == 20
    # 36 test records are a 3: at 3 of 4, no more than 48 records can follow the mix.
    assert (DIGITS.test_y == 3).sum() == 36
    whole = personal_test_records(DIGITS, held, 0, seed=5, most=100)
    assert np.bincount(DIGITS.test_y.numpy()[whole], minlength=10)[[3, 8]].tolist() == [36, 12]


def test_own_test_depends_on_seed_and_client_alone() -> None:
    held = partition(scheme("iid:40"), DIGITS.train_y.numpy(), GROUPS, seed=1)
    first = personal_test_records(DIGITS, held, 3, seed=1)
    np.testing.assert_array_equal(first, personal_test_records(DIGITS, held, 3, seed=1))
    assert not np.array_equal(first, personal_test_records(DIGITS, held, 4, seed=1))
    assert not np.array_equal(first, personal_test_records(DIGITS, held, 3, seed=2))


@pytest.mark.parametrize("most", [4, 100])
def test_people_are_tested_on_their_own_records(most: int) -> None:
    data = replace(
        DIGITS,
        train_people=np.arange(len(DIGITS.train_y)) % 20,
        test_people=np.arange(len(DIGITS.test_y)) % 19,
    )
    held = partition(
        scheme("natural"), data.train_y.numpy(), GROUPS, seed=1, people=data.train_people
    )
    for client in range(20):
        person = held.person(client)
        found = personal_test_records(data, held, client, seed=1, most=most)
        if person == 19:  # no test records of one's own: the label mix
            assert len(found) == min(most, len(found)) > 0
        else:
            assert len(found) == min(most, (data.test_people == person).sum())
            assert set(data.test_people[found]) == {person}
