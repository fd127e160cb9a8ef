"""How records are spread over clients, what each is tested on, parts of a data set."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from pydantic import TypeAdapter

from privplan.errors import InputError
from privplan.planning.baselines import by_record
from privplan.streams import streams
from privplan.values import TitleOrNone
from simulate.data import personal
from simulate.data.partition import clients as of_clients
from simulate.data.partition.clients import Partition, first_shared_record
from simulate.data.partition.schemes import (
    dominant_sets,
    partition,
    require_disjoint,
    scheme,
)
from simulate.data.personal import personal_test_records
from simulate.data.registry import load
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from tests.simulate import tiny

LABELS = default_rng(0).integers(0, 10, 4000)
GROUPS = tiny.plan().groups
CLIENTS = 400


def groups_of(clients):
    """The two groups of the tiny plan with so many clients each."""
    return tuple(group.model_copy(update={"clients": clients}) for group in GROUPS)


WIDE = groups_of(CLIENTS // 2)


def spread_of(text, groups=WIDE, seed=3, labels=LABELS):
    """Records of a partition that is named by its text."""
    return partition(scheme(text), labels, groups, seed)


def label_counts(spread):
    """Records of each label [clients, 10]."""
    counts = [
        np.bincount(LABELS[spread.records(client)], minlength=10)
        for client in range(CLIENTS)
    ]
    return np.array(counts)


WRITTEN = [
    "iid",
    "dirichlet:0.3",
    "by-class:strict=0,8,9",
    "pathological:400,2",
    "pathological:3",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_every_partition_can_be_recorded(text):
    assert TypeAdapter(TitleOrNone).validate_python(text) == text


@pytest.mark.parametrize("text", WRITTEN)
def test_every_record_is_at_one_client_and_nobody_is_empty(text):
    spread = spread_of(text)
    assert_array_equal(np.sort(spread.order), np.arange(len(LABELS)))
    assert np.diff(spread.starts).min() >= 1
    clients = np.sort(np.concatenate(spread.members))
    assert_array_equal(clients, np.arange(CLIENTS))
    again = spread_of(text)
    assert_array_equal(spread.order, again.order)
    of_another_seed = spread_of(text, seed=4)
    assert not np.array_equal(spread.order, of_another_seed.order)


def test_dirichlet_is_skewed_and_even_in_size():
    spread = spread_of("dirichlet:0.3")
    assert set(np.diff(spread.starts)) == {10}
    share = label_counts(spread).max(axis=1) / 10
    iid = spread_of("iid")
    plain = label_counts(iid).max(axis=1) / 10
    # The largest of ten symmetric Dirichlet(0.3) shares is 0.52 on average (by
    # simulation); the mix at hand is drained towards the end, and ten records scatter
    # upwards.
    assert 0.45 < share.mean() < 0.65
    assert plain.mean() < 0.35


def test_by_class_gives_the_labels_to_one_group_alone():
    spread = spread_of("by-class:strict=0,8,9")
    counts = label_counts(spread)
    strict = counts[spread.members[0]]
    loose = counts[spread.members[1]]
    assert loose[:, [0, 8, 9]].sum() == 0
    assert strict[:, [0, 8, 9]].sum() == np.isin(LABELS, [0, 8, 9]).sum()
    assert abs(strict.sum() - 2000) <= 1


NO_FIT = {
    "by-class:nobody=1": "must name one of the groups strict, loose",
    "by-class:strict=11": "must name labels of the data set",
    "pathological:11": r"4000 training records .* at 11 per client",
    "pathological:500,2": "must name the plan's 400 clients in pathological:N,S",
}


@pytest.mark.parametrize("text", NO_FIT)
def test_partitions_that_do_not_fit_are_refused(text):
    with pytest.raises(InputError, match=NO_FIT[text]):
        spread_of(text)


@pytest.mark.parametrize(
    "text", ["iid", "dirichlet:1", "by-class:strict=1", "dominant:20"]
)
def test_more_clients_than_records_are_refused(text):
    few_records = "must not exceed the 300 training records"
    with pytest.raises(InputError, match=few_records):
        spread_of(text, labels=LABELS[:300])


def test_classes_that_do_not_suffice_are_refused():
    few_classes = "must leave records of 5 classes for each client"
    with pytest.raises(InputError, match=few_classes):
        spread_of("pathological:5", labels=LABELS % 4)
    rare = np.repeat(np.arange(6), [1990, 2000, 1, 1, 1, 7])
    no_dominant = "must leave each client a record of its dominant"
    with pytest.raises(InputError, match=no_dominant):
        spread_of("dominant:0", labels=rare)


def test_a_million_clients_hold_records_without_a_list_of_them():
    many = groups_of(500_000)
    spread = spread_of("iid:10", many)
    for value in vars(spread).values():
        assert not isinstance(value, np.ndarray)
    records = np.array([spread.records(client) for client in (0, 7, 999_999)])
    assert records.shape == (3, 10)
    assert len(np.unique(records[0])) == 10
    assert len(np.unique(records)) > 20
    assert_array_equal(records[1], spread.records(7))
    records = np.concatenate([spread.records(client) for client in range(4000)])
    counts = np.bincount(records, minlength=len(LABELS))
    # Each record is held 10 times on average; six deviations of a binomial count.
    assert abs(counts - 10).max() < 6 * np.sqrt(10)
    distribution = spread.label_distribution(spread.members[0], LABELS, 10)
    assert_allclose(distribution, np.bincount(LABELS) / len(LABELS))
    too_large = "must not exceed the 4000 training records in iid:SIZE"
    with pytest.raises(InputError, match=too_large):
        spread_of("iid:4001", many)


def test_records_of_few_clients_are_drawn_once(monkeypatch):
    spread = spread_of("iid:10")
    chosen = np.array([5, 0, CLIENTS - 1])
    expected = [spread.records(client) for client in chosen]
    drawn = []

    def counted(*words, clients):
        drawn.append(len(clients))
        return streams(*words, clients=clients)

    monkeypatch.setattr(of_clients, "streams", counted)
    assert_equal = assert_array_equal
    assert_equal(spread.records_of(chosen), expected)
    assert_equal(spread.records_of(chosen[::-1]), expected[::-1])
    assert_equal(spread.records_of(np.array([7, 0]))[1], expected[1])
    assert drawn == [3, 0, 1]
    monkeypatch.setattr(of_clients, "KEPT_INDICES", 10 * CLIENTS - 1)
    many = spread_of("iid:10")
    assert_equal(many.records_of(chosen), expected)
    assert_equal(many.records_of(chosen), expected)
    assert drawn == [3, 0, 1, 3, 3]


def test_a_shared_record_is_found_after_few_clients():
    many = groups_of(500_000)
    spread = spread_of("iid:10", many)
    record = first_shared_record(spread, len(LABELS))
    # Of 4,000 records no more than 400 clients hold 10 each.
    clients = np.concatenate(spread.members)[:400]
    assert sum(record in spread.records(client) for client in clients) > 1
    pair = groups_of(1)
    few = spread_of("iid:1", pair)
    assert first_shared_record(few, len(LABELS)) is None
    with pytest.raises(InputError, match=r"one client for DPFedAvg, .* found 'iid:10'"):
        require_disjoint("DPFedAvg", scheme("iid:10"), spread, len(LABELS))


@pytest.mark.parametrize("name", ["DPFedAvg", "Robust-HDP", "PFA"])
def test_methods_that_protect_records_refuse_shared_ones(name, short_plan, tmp_path):
    plan = short_plan
    if name == "PFA":  # it protects clients or records, as the plan does
        prepare(Request(plan, name, "digits", tmp_path, partition="iid:40"))
        holdings = {group.name: 40 for group in plan.groups}
        plan = by_record(plan, holdings, weights="population")
    request = Request(plan, name, "digits", tmp_path, partition="iid:40", own_unit=True)
    shared = "partition: must leave each record with one client"
    with pytest.raises(InputError, match=shared):
        prepare(request)


def test_natural_clients_are_whole_people():
    people = default_rng(1).integers(0, 500, len(LABELS))
    spread = partition(scheme("natural"), LABELS, WIDE, seed=3, people=people)
    chosen = [spread.person(client) for client in range(CLIENTS)]
    assert len(set(chosen)) == CLIENTS
    for client, person in enumerate(chosen):
        records = np.flatnonzero(people == person)
        assert_array_equal(spread.records(client), records)
    assert max(chosen) > CLIENTS  # not the first ones
    few_people = r"groups\.clients: must not exceed the 7 people"
    with pytest.raises(InputError, match=few_people):
        partition(scheme("natural"), LABELS, WIDE, seed=3, people=people % 7)
    no_people = "partition: must not be natural for a data set that"
    with pytest.raises(InputError, match=no_people):
        spread_of("natural")


@given(
    sizes=st.lists(st.integers(1, 60), min_size=3, max_size=6),
    clients=st.integers(1, 6),
    classes=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_pathological_keeps_its_limit_for_classes_of_any_size(
    sizes, clients, classes, seed
):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    groups = (GROUPS[0].model_copy(update={"clients": clients}),)
    try:
        spread = partition(scheme(f"pathological:{classes}"), labels, groups, seed)
    except InputError:
        holders = np.minimum(sizes, clients).sum()
        assert holders < clients * classes or len(labels) < clients * classes
        return
    assert len(set(spread.order)) == len(spread.order)
    for client in range(clients):
        assert len(set(labels[spread.records(client)])) == classes


def test_dominant_classes_make_up_the_rest_of_a_client():
    labels = np.arange(4000) % 10
    ten = groups_of(5)
    spread = partition(scheme("dominant:20"), labels, ten, seed=3)
    kinds = []
    for client in range(10):
        records = spread.records(client)
        inside = [np.isin(labels[records], kind).mean() for kind in dominant_sets(10)]
        kinds.append(int(np.argmax(inside)))
        # 80 percent and three tenths of the other 20; six deviations of the latter.
        assert abs(max(inside) - 0.86) < 6 * np.sqrt(0.3 * 0.7 * 0.2 / len(records))
    assert sorted(kinds) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(set(spread.order)) == len(spread.order) > 0.97 * len(labels)
    assert len(set(np.diff(spread.starts))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("text", ["iid:20", "dominant:20%"])
def test_a_run_trains_on_what_clients_hold(text, short_plan, tmp_path):
    request = Request(short_plan, "FedAvg", "digits", tmp_path / "run", partition=text)
    record = execute(request).record
    assert record.partition == text
    assert record.accuracy > 0.2  # a tenth by chance
    chosen = prepare(request).partition
    everybody = np.concatenate(chosen.members)
    sizes = [len(chosen.records(client)) for client in everybody]
    assert_array_equal(chosen.sizes(everybody), sizes)


DIGITS = load("digits")
TENS = groups_of(10)


def test_own_test_records_have_the_client_s_label_mix(monkeypatch):
    labels = DIGITS.train_y.numpy()
    records = np.concatenate(
        [np.flatnonzero(labels == 3)[:30], np.flatnonzero(labels == 8)[:10]]
    )
    members = (np.array([0]), np.array([], np.int64))
    spread = Partition(records, np.array([0, 40]), members)
    monkeypatch.setattr(personal, "MAX_RECORDS", 20)
    rows = personal_test_records(DIGITS, spread, 0, seed=5)
    assert threes_and_eights(rows) == [15, 5]
    assert len(set(rows)) == len(rows) == 20
    # 36 test records are a 3: at 3 of 4, no more than 48 records can follow the mix.
    assert (DIGITS.test_y == 3).sum() == 36
    monkeypatch.setattr(personal, "MAX_RECORDS", 100)
    rows = personal_test_records(DIGITS, spread, 0, seed=5)
    assert threes_and_eights(rows) == [36, 12]


def threes_and_eights(rows):
    """How many test records of some rows have each of the two labels."""
    counts = np.bincount(DIGITS.test_y.numpy()[rows], minlength=10)
    return counts[[3, 8]].tolist()


def test_own_test_depends_on_seed_and_client_alone():
    spread = partition(scheme("iid:40"), DIGITS.train_y.numpy(), TENS, seed=1)

    def rows_of(client, seed):
        return personal_test_records(DIGITS, spread, client, seed=seed).tolist()

    rows = rows_of(3, seed=1)
    assert rows_of(3, seed=1) == rows
    assert rows_of(4, seed=1) != rows
    assert rows_of(3, seed=2) != rows


@pytest.mark.parametrize("max_records", [4, 100])
def test_people_are_tested_on_their_own_records(max_records, monkeypatch):
    monkeypatch.setattr(personal, "MAX_RECORDS", max_records)
    people = np.arange(len(DIGITS.train_y)) % 20
    data = replace(
        DIGITS,
        train_people=people,
        test_people=np.arange(len(DIGITS.test_y)) % 19,
    )
    labels = data.train_y.numpy()
    spread = partition(scheme("natural"), labels, TENS, seed=1, people=people)
    for client in range(20):
        person = spread.person(client)
        rows = personal_test_records(data, spread, client, 1)
        if person == 19:
            # Without test records of this person, those of the label mix.
            assert 0 < len(rows) <= max_records
        else:
            assert len(rows) == min(max_records, (data.test_people == person).sum())
            assert set(data.test_people[rows]) == {person}


def test_a_part_keeps_the_classes_and_the_test_records():
    full = load("digits")
    subset = load("Digits:100")
    assert len(subset.train_y) == 100
    assert subset.name == "digits:100"
    assert torch.equal(subset.test_x, full.test_x)
    shares = np.bincount(full.train_y.numpy()) * 100 / len(full.train_y)
    assert (abs(np.bincount(subset.train_y.numpy()) - shares) <= 1).all()
    assert load("digits:100").digest == subset.digest != full.digest
    assert torch.equal(load(f"digits:{len(full.train_y)}").train_x, full.train_x)
