"""Neighbouring own data: what one client is or has prepares nobody else's training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import privplan
import simulate
from privplan.errors import InputError
from privplan.ledger import read_ledger
from simulate.data.own import Data
from simulate.engine.batches import batches
from simulate.local.sgd import PADDING
from simulate.models.objective import Objective
from simulate.models.own import OwnModel
from simulate.models.own_checks import probe_of
from simulate.runs.request import Request, prepare, require_own_or_published
from simulate.tasks import objective_of
from tests.simulate.own_runs import CLIENTS, SPEC, Net, arrays, plan
from tests.simulate.own_runs import data as own_data

RECORDS = 6
STEPS = 4
SIZE = 2
UNNAMED = {"client": None, "group": None}


def records_of(name, count=RECORDS):
    """Records of a client, which are its name's alone."""
    number = sum(map(ord, name))
    return np.arange(count)[:, None] + np.full((count, 4), 100.0 * number)


def data_of(names, counts):
    """Data of clients in their order, with so many records of each."""
    sizes = [counts.get(name, RECORDS) for name in names]
    records = [records_of(name, size) for name, size in zip(names, sizes, strict=True)]
    x = np.concatenate(records)
    client = np.repeat(names, sizes)
    groups = {name: name[:-3] for name in names}
    y = np.arange(len(x)) % 2
    return Data(x.astype("f4"), y, client=client, group=groups)


def names_of(groups):
    """Names of the clients of each group, in the order of their numbers."""
    names = []
    for group in groups:
        names += [f"{group.name}{number:03}" for number in range(group.clients)]
    return names


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
    names = names_of(groups)
    # The first client of the first group.
    first_client = names[0]
    before = training_of(data_of(names, {}), groups)
    if neighbour == "more records":
        after = training_of(data_of(names, {first_client: RECORDS + 5}), groups)
        changed = {first_client}
    else:
        # Sorted last, so that all others of its group have another number.
        last_client = first_client[:-3] + "999"
        after = training_of(data_of([last_client, *names[1:]], {}), groups)
        changed = {first_client, last_client}
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


@pytest.mark.parametrize("noise", ["secure", "secure-discrete"])
def test_people_of_a_data_set_that_files_may_fill_get_no_secure_noise(tmp_path, noise):
    """They are numbered by who else is in the files, which anybody may have written."""
    request = Request(
        plan(tmp_path), "planned", "femnist", tmp_path / "run", seed=1, noise=noise
    )
    with pytest.raises(InputError, match="must be seeded on a data set whose files"):
        require_own_or_published(request, by_record=False)
    require_own_or_published(replace(request, dataset="digits"), by_record=False)


def test_rows_without_a_record_hold_nobodys(groups):
    """The first record of all, if it overflows, would spoil everybody's padding."""
    names = names_of(groups)
    data = data_of(names, dict.fromkeys(names, SIZE + 1))
    dataset, assigned = data.prepared(groups)
    drawn = {"seed": 5, "round_": 3, "steps": STEPS, "size": SIZE}
    clients = np.arange(CLIENTS)
    x, labels = batches(dataset, assigned, clients, device=torch.device("cpu"), **drawn)
    is_padding = labels == PADDING
    assert is_padding.any()
    assert not x[is_padding].any()
    assert x[~is_padding].any()


class Pairs:
    """A data set of pairs, of which reading gives what a function makes of a row."""

    def __init__(self, record):
        self.record = record

    def __len__(self):
        return 4

    def __getitem__(self, row):
        return self.record(row), row % 2


def test_a_data_set_is_read_alike_whoever_is_in_it():
    draws = iter(range(100))
    with pytest.raises(InputError, match="the same record each time it is read"):
        Data(Pairs(lambda row: np.full(3, next(draws), "f4")))
    kinds = ("u1", "f4")
    with pytest.raises(InputError, match="must have records of one type"):
        Data(Pairs(lambda row: np.ones(3, kinds[row == 3])))
    with pytest.raises(
        InputError, match=r"must have whole numbers or names, found 2\.5"
    ):
        Data(np.ones((3, 2)), [0, 1, 0], client=[1.0, 2.0, 2.5])


def texts_model():
    """Sums of embedded tokens, of which 0 is padding; dropout of such a sum is 0."""
    embedding = nn.EmbeddingBag(30, 2, mode="sum", padding_idx=0)
    return nn.Sequential(embedding, nn.Dropout(0.5))


def test_an_absent_client_s_texts_change_no_bit_of_a_round(tmp_path):
    """Dropout, which texts of padding alone hide, is for all others as before."""
    spec = yaml.safe_load(SPEC)
    spec |= {"rounds": 1, "model": {"name": "texts", "parameters": 60}}
    solved = privplan.solve(spec)
    # The first records of all are client 0's.
    order = np.argsort(arrays()["client"], kind="stable")
    fields = {name: values[order] for name, values in arrays().items()}
    fields["x"] = np.random.default_rng(0).integers(1, 30, (400, 6))
    is_first = fields["client"][:, None] == 0
    padded = {**fields, "x": np.where(is_first, 0, fields["x"])}
    releases = []
    for name, values in (("a", fields), ("b", padded)):
        simulate.train(
            solved,
            data=own_data(**values),
            model=texts_model,
            noise="seeded",
            seed=5,
            folder=tmp_path / name,
        )
        releases.append((tmp_path / name / "vectors.bin").read_bytes())
    for share in read_ledger(tmp_path / "a", solved.digest).records[0].shares:
        assert 0 not in share.participants
    assert releases[0] == releases[1]


@pytest.mark.parametrize("task", ["multi-class", "regression"])
def test_a_module_is_tried_on_constants(task):
    """Neither inputs, labels nor targets are of records."""
    probes = []
    for scale in (1, 7):
        x = np.full((400, 3), scale)
        data = own_data(x=x, y=scale * arrays()["y"], task=task, **UNNAMED)
        dataset, _ = data.prepared(())
        probes.append(probe_of(dataset, objective_of(task, None, dataset.targets)))
    first_probe, second_probe = probes
    assert torch.equal(first_probe.x, second_probe.x)
    assert first_probe.x.any(1).all()
    targets = [probe.objective.targets_of(probe.y) for probe in probes]
    assert torch.equal(*targets)


class Hidden(nn.Linear):
    """A layer that begins at 0, where no draw shows; a part is in no branch taken."""

    def __init__(self, then):
        super().__init__(4, 2)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        self.then = then

    def forward(self, x):
        outputs = super().forward(x)
        return outputs if isinstance(self.then, nn.Module) else self.then(outputs)


def hidden(then, loss=nn.functional.cross_entropy):
    dataset, _ = own_data(**UNNAMED).prepared(())
    model = OwnModel(Hidden(then), {}, "Hidden")
    return model.model("hidden", dataset, objective=Objective(loss))


def attended(outputs):
    """Attention, which could draw and does not."""
    values = outputs[:, None, None]
    return nn.functional.scaled_dot_product_attention(values, values, values)[:, 0, 0]


def test_draws_are_found_where_outputs_hide_them():
    assert hidden(nn.functional.dropout).stochastic
    assert hidden(nn.Dropout()).stochastic
    assert not hidden(nn.Dropout(0.0)).stochastic
    assert not hidden(attended).stochastic
    with pytest.raises(InputError, match="must draw random numbers with torch only"):
        # No generator can be given to this operation.
        hidden(lambda outputs: outputs * torch.randint_like(outputs, 2))
    with pytest.raises(InputError, match="must give the same loss each time"):
        hidden(nn.Identity(), drawing_loss)


def drawing_loss(outputs, targets):
    """A loss whose draws come from the one stream of the process."""
    return nn.functional.cross_entropy(outputs * torch.rand(1), targets)


class Dropping(Net):
    """A module with dropout."""

    def forward(self, x):
        return super().forward(nn.functional.dropout(x, training=self.training))


def test_random_losses_and_layers_are_refused_where_they_couple(tmp_path):
    solved = plan(tmp_path)
    # The client with the fewest records would decide everybody's noise.
    request = Request(
        solved,
        "DPFedAvg",
        "mine",
        tmp_path / "c",
        own_data=own_data(test=own_data()),
        own_model=OwnModel(Net, {}, "Net", False),
        own_unit=True,
    )
    with pytest.raises(InputError, match="the client with the fewest records"):
        prepare(request)
    spec = yaml.safe_load(SPEC)
    del spec["cohort"], spec["planning"]
    spec |= {"unit": "record", "local": {"epochs": 1, "batch_size": 5}}
    for group in spec["groups"]:
        group["records"] = 10
    of_records = privplan.solve(spec)
    tested = own_data(test=own_data())
    with pytest.raises(InputError, match="must draw no random numbers"):
        simulate.train(
            of_records,
            model=Dropping,
            data=tested,
            algorithm="DPFedAvg",
            folder=tmp_path / "b",
        )
    spec["local"]["augmentation"] = {"shift": 1}
    with pytest.raises(InputError, match="only for unit: client, as one record more"):
        privplan.solve(spec)


def test_one_client_s_id_changes_how_no_other_is_written():
    """A column of whole numbers becomes one of floating point by one that is none."""
    columns = {"x": [0.0, 1.0, 2.0], "y": [0, 1, 0]}
    options = {"label": "y", "client": "id", "statistics": "none"}
    integers = Data.from_table({**columns, "id": [1, 2, 2]}, **options)
    floating = Data.from_table({**columns, "id": [1.0, 2.0, 2.0]}, **options)
    assert list(integers.client) == list(floating.client)
    with pytest.raises(
        InputError, match=r"whole number in id, found '2\.5 in record 1"
    ):
        Data.from_table({**columns, "id": [1.0, 2.5, 2.0]}, **options)
