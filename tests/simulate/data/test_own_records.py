"""Own records: groups of people who are only tested, codes, one record per person."""

import numpy as np
import pytest
import torch
from torch import nn

import simulate
from privplan.errors import InputError
from simulate.data.own import Data
from simulate.data.own_files import from_table
from simulate.models.objective import CROSS_ENTROPY
from simulate.models.own import OwnModel
from simulate.models.own_checks import probe_of
from tests.simulate.own_runs import Net, data, plan

STRANGERS = 30


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    return plan(tmp_path_factory.mktemp("plan")).groups


def strangers(group, first_number=100):
    """Test records of people who have no training records, one each."""
    x = np.random.default_rng(1).normal(size=(STRANGERS, 4))
    client = first_number + np.arange(STRANGERS)
    return simulate.Data(x, (x[:, 0] > 0).astype(int), client=client, group=group)


def test_people_who_are_only_tested_count_in_the_group_that_they_name(groups, caplog):
    named = np.where(np.arange(STRANGERS) < 10, "strict", "loose")
    dataset, _ = data(test=strangers(named)).prepared(groups)
    assert dataset.test_groups.tolist() == named.tolist()
    assert not caplog.records
    dataset, _ = data(test=strangers(None)).prepared(groups)
    assert set(dataset.test_groups) == {""}
    assert f"{STRANGERS} of {STRANGERS} test records" in caplog.text


def test_a_mapping_of_all_people_names_those_who_are_only_tested(groups):
    of_all = {
        **dict.fromkeys(range(12), "strict"),
        **dict.fromkeys(range(12, 20), "loose"),
    }
    of_all |= dict.fromkeys(range(100, 100 + STRANGERS), "loose")
    dataset, _ = data(group=of_all, test=strangers(None)).prepared(groups)
    assert set(dataset.test_groups) == {"loose"}


def test_groups_of_test_records_are_those_of_plan_and_training(groups):
    with pytest.raises(InputError, match="must be one of the plan's groups loose, st"):
        data(test=strangers(["others"] * STRANGERS)).prepared(groups)
    # Clients 0 to 11 are strict in training.
    with pytest.raises(InputError, match="must be strict for 0, as in training"):
        data(test=strangers(["loose"] * STRANGERS, first_number=0)).prepared(groups)


def test_one_record_per_person_asks_for_test_records():
    with pytest.raises(InputError, match="clients of one record each"):
        data(client=np.arange(400), group=None, test_share=0.001).split()


class Ward(nn.Module):
    """An embedding of a code, beside a number."""

    def __init__(self, wards=3):
        super().__init__()
        self.ward = nn.Embedding(wards, 2)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        return self.last(torch.cat([x[:, :1], self.ward(x[:, 1].long())], 1))


TABLE = {
    "age": [50.0, 60.0, 40.0, 50.0],
    "ward": ["2", "0", "1", "0"],
    "ill": [0, 1, 0, 1],
}
AGE = {"age": {"mean": 50, "std": 10}}


def table(**changes):
    options = {"label": "ill", "statistics": AGE, "codes": ["ward"], "test_share": 0.5}
    return from_table(TABLE, **{**options, **changes})


def test_columns_are_named_in_a_list_or_with_commas_between():
    assert table(features="age,ward", codes="ward").records.tolist() == (
        table(features=["age", "ward"]).records.tolist()
    )


def test_labels_are_of_the_task():
    answers = {**TABLE, "ill": ["no", "yes", "no", "yes"]}
    options = {"label": "ill", "statistics": AGE, "codes": ["ward"]}
    with pytest.raises(InputError, match="task: must be one of"):
        from_table(answers, task="classification", **options)
    with pytest.raises(InputError, match="for binary; multi-class takes names"):
        from_table(answers, task="binary", **options)


def test_codes_are_inputs_as_they_are():
    coded = table()
    assert coded.codes == [1]
    assert coded.records.tolist() == [[0, 2], [1, 0], [-1, 1], [0, 0]]
    dataset, _ = coded.prepared(())
    # None of the codes of a record.
    assert probe_of(dataset, CROSS_ENTROPY).x[:, 1].tolist() == [0, 1, 0]
    OwnModel(Ward, {}, "Ward").check(coded)
    only = table(features=["ward"], statistics=None)
    assert only.records.dtype == torch.int64


def test_an_embedding_that_is_too_small_is_refused_before_training():
    rule = "numbers up to 2, which a record has; whoever sees this refusal knows"
    with pytest.raises(InputError, match=rule):
        OwnModel(Ward, {"wards": 2}, "Ward").check(table())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": ["wards"]}, "codes: must be among the features age, ward"),
        ({"codes": ["age"], "statistics": {"ward": AGE["age"]}}, None),
        ({"codes": ["age", "ward"], "features": ["age"]}, "must be among the features"),
        ({"statistics": None}, "--codes names columns of codes"),
    ],
)
def test_wrong_codes_are_named(changes, message):
    if message is None:
        assert table(**changes).codes == [0]
        return
    with pytest.raises(InputError, match=message):
        table(**changes)


@pytest.mark.parametrize("wrong", [[0.5], [-1.0], [2.0**24]])
def test_codes_are_whole_numbers_that_floats_hold(wrong):
    with pytest.raises(InputError, match="codes: must be whole numbers from 0"):
        simulate.Data([[1.0], wrong], [0, 1], codes=(0,))
    with pytest.raises(InputError, match="codes: must be below 1 inputs"):
        simulate.Data([[1.0], wrong], [0, 1], codes=(1,))


def test_a_metric_that_fails_does_so_before_the_first_round(tmp_path):
    rounds = []
    with pytest.raises(InputError, match="metric: must compute a number"):
        simulate.train(
            plan(tmp_path),
            data=data(),
            model=Net,
            metric=lambda outputs, targets: outputs[:, 7],
            folder=tmp_path / "run",
            report=lambda done, total: rounds.append(done),
        )
    assert not rounds
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("alike", ["s5 ", "ｓ5"])
def test_clients_that_look_alike_are_refused(alike):
    client = ["s5"] * 399 + [alike]
    with pytest.raises(InputError, match="must not look like 's5'"):
        data(client=client, group=None)
    client = ["s5"] * 399 + ["S5"]
    assert len(set(data(client=client, group=None).clients)) == 2


def test_a_value_of_own_data_shows_no_record():
    data = Data(np.full((4, 2), 0.123), [0, 1, 0, 1], client=["ann", "ann", "bo", "cy"])
    assert repr(data) == "Data: 4 records of 2, 3 named clients"


def test_statistics_of_a_table_may_be_a_file(tmp_path):
    path = tmp_path / "statistics.json"
    path.write_text('{"age": {"mean": 50, "std": 10}}')
    table = {"age": [40, 60, 50], "ill": [0, 1, 1]}
    for statistics in (path, str(path), {"age": {"mean": 50, "std": 10}}):
        data = Data.from_table(table, label="ill", statistics=statistics)
        assert data.records.flatten().tolist() == [-1, 1, 0]
    plain = Data.from_table(table, label="ill", statistics="none")
    assert plain.records.flatten().tolist() == [40, 60, 50]


def test_missing_numbers_without_a_fill_are_counted(caplog):
    columns = {"age": [30.0, None, 50.0, None], "ill": [0, 1, 0, 1]}
    stated = {"age": {"mean": 40.0, "std": 10.0}}
    records = from_table(columns, label="ill", statistics=stated).x
    assert records[:, 0].tolist() == [-1.0, 0.0, 1.0, 0.0]
    assert "age is missing in 2 records, and counts as its mean" in caplog.text
    caplog.clear()
    stated["age"]["fill"] = 30.0
    assert from_table(columns, label="ill", statistics=stated).x[1, 0] == -1
    assert not caplog.text
    with pytest.raises(InputError, match="statistics: must be a mapping of columns"):
        from_table(columns, label="ill", statistics=object())
