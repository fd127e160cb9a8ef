"""The page of ``privplan app``: its numbers are solve's, in fields and in a browser."""

import os
import statistics
from importlib.util import find_spec
from itertools import chain
from shutil import which

import pytest
import yaml

from privplan import preset, solve
from privplan.contrib import app
from privplan.planning.reasons import budget_values
from privplan.report.tables import answer
from tests.command import refused

SPEC = {**preset("digits-planned").plain(), "rounds": 30, "cohort": 60}


@pytest.fixture
def desk():
    return app.Desk(SPEC)


def test_the_plan_of_the_fields_is_that_of_solve(desk):
    assert [number.path for number in desk.numbers[-3:]] == [
        "groups.loose.clients",
        "rounds",
        "cohort",
    ]
    desk.typed |= {
        "groups.strict.epsilon": "1.5",
        "groups.loose.clients": "80",
        "rounds": "40",
    }
    shown = desk.shown()
    expected = solve(yaml.safe_load(shown.spec))
    assert shown.plan.digest == expected.digest
    assert expected.groups["strict"].epsilon == 1.5
    assert expected.groups["loose"].clients == 80
    assert expected.spec.rounds == 40
    assert expected.spec.cohort == 60
    page = app.plan_html(shown)
    for word in chain(*answer(expected)[1][2]):
        assert f">{word}</td>" in page


def test_a_wrong_value_is_a_sentence_beside_its_field_and_no_plan_is_shown(desk):
    wrong = {
        "groups.strict.epsilon": ("-1", "must be greater than 0, found -1"),
        "groups.loose.clients": ("ten<b>", "must be a number, found 'ten<b>'"),
        "rounds": ("2.5", "must be a whole number, found 2.5"),
        "cohort": (
            "1000",
            "must not exceed the population of 300 clients, found 1000.0",
        ),
    }
    for path, (text, sentence) in wrong.items():
        before = desk.typed[path]
        desk.typed[path] = text
        shown = desk.shown()
        assert shown.faults[path].startswith(sentence)
        assert set(shown.faults) == {path}
        assert shown.plan is None
        assert "There is no plan" in app.plan_html(shown)
        assert "<b>" not in app.fault_html(path, shown)
        assert app.spec_html(shown) == app.more_html(shown) == ""
        desk.typed[path] = before
    assert desk.shown().plan is not None
    of_group = desk._placed(
        [("groups.medium", "epsilon: must be more"), ("odd", "is wrong")]
    )
    assert of_group == {"groups.medium.epsilon": "must be more", "": "odd: is wrong"}


def test_sliders_offer_the_own_value_and_the_nearest(desk):
    epsilon = desk.numbers[0]
    rounds = desk.numbers[-2]
    assert {0.1, 1.5, 2, 40} <= set(epsilon.positions())
    assert all(position == int(position) for position in rounds.positions())
    typed = ("1.49", "9999", "x", "-1")
    assert [epsilon.nearest(text) for text in typed] == [1.5, 40, 2, 2]


@pytest.mark.slow
def test_one_more_epsilon_buys_what_two_plans_differ_by():
    plan = solve(SPEC)
    for value in budget_values(plan, more_by=1):
        raised = {"epsilon": plan.groups[value.group].epsilon + 1}
        richer = solve(plan.spec.replace(groups={value.group: raised}))
        gain = 1 - richer.objective.value / plan.objective.value
        assert value.objective_gain == pytest.approx(gain, abs=2e-3)
        gain = 1 - richer.mean_noise_std / plan.mean_noise_std
        assert value.noise_gain == pytest.approx(gain, abs=2e-3)


def test_a_faulty_spec_is_refused_before_anything_is_served(tmp_path):
    pytest.importorskip("marimo")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "rounds": 0}))
    assert "rounds: must be" in refused("app", tmp_path / "spec.yaml")


@pytest.mark.slow
@pytest.mark.skipif(
    not (which("chromium") and find_spec("marimo")), reason="needs Chromium"
)
def test_the_page_answers_moves_with_the_numbers_of_solve(tmp_path):
    from benchmarks.app import move

    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    answers = move(tmp_path / "spec.yaml", tmp_path, 200)
    rows = answer(solve(yaml.safe_load(answers.spec)))[1][2]
    assert answers.cells == list(chain(*rows))
    assert answers.errors == []
    foreign = {host for host in answers.hosts if app.HOST not in host}
    assert foreign <= {"data:", "blob:", "about:"}

    # 300 ms on a quiet machine, and more where others compute.
    load = max(1.0, os.getloadavg()[0] / os.cpu_count())
    assert statistics.median(answers.times) <= 300 * load
