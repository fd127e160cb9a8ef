"""What a comparison says first, and its table for a paper."""

from types import SimpleNamespace

import pytest

import privplan
from privplan import processes
from privplan.errors import InputError
from privplan.spec.presets import preset
from privplan.yaml_text import load_yaml
from simulate.runs.compare import compare
from simulate.runs.leader import answer, kept_line, leader, units_apart
from simulate.runs.request import Request
from simulate.runs.rows import ComparisonRow
from simulate.runs.tables import latex
from tests.simulate.replay.runs import short_plan


def _row(name, scores, outcome="kept", upper=1.0, unit="client"):
    law = {
        "sampling": "poisson",
        "relation": "add_remove",
        "accountant": "pld",
        "delta": 1e-3,
    }
    group = SimpleNamespace(
        group="a_b", realised_upper=upper, name="sums", reason="why", **law
    )
    records = [
        SimpleNamespace(accuracy=score, metric="accuracy", accuracy_by_group={})
        for score in scores
    ]
    verdict = SimpleNamespace(
        outcome=outcome,
        groups=[group],
        not_finite=False,
        plan_digest="0123456789ab",
        noise="seeded",
        level=outcome,
        failed=[group],
        algorithm=name,
    )
    return ComparisonRow(name, unit, tuple(records), (verdict,) * len(scores), ())


@pytest.mark.parametrize(
    ("competitors", "sentences"),
    [
        ([], ["planned, 80.00%"]),
        ([_row("GDPFed+", [0.7, 0.71])], ["planned, 80.00%"]),
        (
            [_row("GDPFed+", [0.7, 0.89])],
            ["seeds decide no best method: planned, 80.00%, and GDP"],
        ),
        (
            [_row("FedAvg", [0.9, 0.9], "broken", None)],
            ["planned", "90.00% without noise"],
        ),
        ([_row("Local-only", [0.9, 0.9], upper=0.0)], ["planned", "no plan pays here"]),
        (
            [_row("it", [0.9, 0.9], "broken")],
            ["planned", "0/2 kept", "it: NOT kept: sums: why"],
        ),
    ],
)
def test_the_answer_names_the_best_and_what_is_above_it(competitors, sentences):
    lines = answer([_row("planned", [0.79, 0.81]), *competitors])
    for words, line in zip(sentences, lines, strict=True):
        assert words in line


def test_methods_of_two_units_are_not_compared():
    rows = [
        _row("planned", [0.79, 0.81]),
        _row("GDPFed+", [0.6, 0.6]),
        _row("Robust-HDP", [0.9, 0.91], unit="record"),
        _row("FedAvg", [0.95, 0.95], "broken", None, unit="none"),
    ]
    lines = answer(rows)
    assert lines[0] == (
        "of those that protect each client, the most accurate that keeps the budgets: "
        "planned, 80.00%"
    )
    assert not any("Robust-HDP" in line for line in lines[:2])
    assert lines[2].endswith(
        "protect each record, the only one that keeps the budgets: Robust-HDP, 90.50%"
    )
    assert kept_line(rows) == (
        "2 of 2 methods that protect each client; "
        "1 of 1 method that protects each record; 1 method protects nobody"
    )
    client, record, nobody = units_apart(rows).values()
    assert client == rows[:2]
    assert record == [rows[2]]
    assert nobody == [rows[3]]
    one_unit = [row for row in rows if row.unit != "record"]
    assert list(units_apart(one_unit).values()) == [one_unit]


def test_one_seed_and_near_means_decide_no_best_method():
    undecided = [
        [_row("planned", [0.8]), _row("GDPFed+", [0.5])],
        [_row("planned", [0.8, 0.9]), _row("GDPFed+", [0.7, 0.95])],
    ]
    for rows in undecided:
        assert leader(rows).rivals == ("GDPFed+",)
    decided = leader([_row("planned", [0.8, 0.81]), _row("GDPFed+", [0.5, 0.51])])
    assert decided.is_best


def test_nothing_is_best_where_no_budget_is_kept_or_a_score_is_missing():
    assert answer([_row("FedAvg", [0.9], "broken", None)]) == []
    assert answer([_row("planned", [0.9]), _row("GDPFed+", [None])]) == []


def test_the_tabular_has_a_cell_for_each_column_and_escapes_names():
    lines = latex([_row("DP_Fed", [0.5])]).splitlines()
    head, row = (line for line in lines if line.startswith(("algorithm", "DP")))
    assert head.count("&") == row.count("&") == lines[0].rpartition("{")[2].count("r")
    assert row.startswith(r"DP\_Fed &")
    assert r"a\_b epsilon" in head


@pytest.mark.slow
def test_one_seed_is_one_run(tmp_path):
    base = Request(short_plan(), "planned", "digits", tmp_path / "results")
    with pytest.raises(InputError, match="seeds: must differ from each other"):
        compare(base, ["planned"], [1, 1])
    assert not (tmp_path / "results").exists()


def test_a_cluster_reports_the_rounds_of_each_finished_run(tmp_path):
    data = load_yaml(preset("digits-planned"), "spec") | {"rounds": 2}
    plan = privplan.solve(privplan.Spec.parse(data))
    base = Request(plan, "", "digits", tmp_path)
    reports = []

    def elsewhere(work, tasks):
        for task in tasks:
            with processes.spread_by(elsewhere):
                yield work(task)

    with processes.spread_by(elsewhere):
        compare(base, ["FedAvg"], [0, 1], 1, lambda *report: reports.append(report))
    assert reports == [(0, 4), (2, 4), (4, 4)]
