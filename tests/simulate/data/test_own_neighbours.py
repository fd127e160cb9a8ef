"""Neighbouring own data: what one client is or has prepares nobody else's training."""

import numpy as np
import pytest
import torch

from privplan.errors import InputError
from simulate.data.own import Data
from simulate.engine.batches import batches
from simulate.local.sgd import PADDING
from tests.simulate.own_runs import CLIENTS, plan

RECORDS = 6
STEPS = 4
SIZE = 2


def records_of(name, count=RECORDS):
    """Records of a client, which are its name's alone."""
    number = sum(map(ord, name))
    return np.arange(count)[:, None] + np.full((count, 4), 100.0 * number)


def data_of(names, counts):
    """Data of clients in their order, with so many records of each."""
    sizes = [counts.get(name, RECORDS) for name in names]
    parts = [records_of(name, size) for name, size in zip(names, sizes, strict=True)]
    x = np.concatenate(parts)
    client = np.repeat(names, sizes)
    groups = {name: name[:-3] for name in names}
    y = np.arange(len(x)) % 2
    return Data(x.astype("f4"), y, client=client, group=groups)


def training_of(data, groups):
    """Inputs of the mini-batches of each client in one round, by its name."""
    dataset, assigned = data.prepared(groups)
    clients = np.concatenate(assigned.members)
    drawn = {"seed": 5, "round_": 3, "steps": STEPS, "size": SIZE}
    x, labels = batches(dataset, assigned, clients, device=torch.device("cpu"), **drawn)
    # Rows without a record hold any record, and enter no loss.
    x[labels == PADDING] = 0
    names = np.concatenate(assigned.names)
    return dict(zip(map(str, names), x, strict=True))


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return plan(tmp_path_factory.mktemp("plan")).groups


@pytest.mark.parametrize("neighbour", ["more records", "another name"])
def test_all_others_train_on_the_same_mini_batches(groups, neighbour):
    """With one stream for all, and clients by their numbers, most of them changed."""
    names = []
    for group in groups:
        names += [f"{group.name}{number:03}" for number in range(group.clients)]
    # The first client of the first group.
    first = names[0]
    before = training_of(data_of(names, {}), groups)
    if neighbour == "more records":
        after = training_of(data_of(names, {first: RECORDS + 5}), groups)
        changed = {first}
    else:
        # Sorted last, so that all others of its group have another number.
        last = first[:-3] + "999"
        after = training_of(data_of([last, *names[1:]], {}), groups)
        changed = {first, last}
    unchanged = before.keys() - changed
    assert unchanged == after.keys() - changed
    assert len(unchanged) == CLIENTS - 1
    for name in unchanged:
        assert torch.equal(before[name], after[name]), name


def test_what_others_would_decide_is_asked_for_before_secure_noise():
    x = np.zeros((4, 2), "f4")
    texts = Data(x, ["ill", "well", "ill", "well"])
    with pytest.raises(InputError) as error:
        texts.require_separate_preparation(by_record=True)
    fields = [fault.field for fault in error.value.faults]
    assert fields == ["data.client", "data.classes", "data.test"]
    people = {"client": list("aabb"), "classes": ["ill", "well"]}
    named = Data(x, ["ill", "well", "ill", "well"], **people)
    named.require_separate_preparation(by_record=False)
    tested = Data(x, [0, 1, 0, 1], client=list("aabb"), test=Data(x, [0, 1, 0, 1]))
    tested.require_separate_preparation(by_record=True)
