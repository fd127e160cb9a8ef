"""Plans side by side: guesses and costs are those of each plan, pictures come first."""

import json
import math

import pytest

from privplan.planning.recipe import relative_noise
from privplan.planning.risks import risks_of
from privplan.planning.solver import solve
from privplan.report.proposals import loaded_proposals, proposals_page
from privplan.spec.spec import Spec
from tests.command import answer, refused
from tests.planning.problems import spec_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two plans of different names, and one that has the name of the first."""
    base = tmp_path_factory.mktemp("proposals")
    for file, name, epsilon in (
        ("a", "today", 1),
        ("b", "laxer", 3),
        ("c", "today", 2),
    ):
        data = {**spec_data(), "name": name, "person": "patient"}
        data["groups"][0] |= {"epsilon": epsilon}
        solve(Spec.parse(data)).save(base / f"{file}.json")
    return base


def test_the_table_has_the_numbers_of_each_plan(folder):
    plans = loaded_proposals([folder / "a.json", folder / "b.json"])
    assert list(plans) == ["today", "laxer"]
    written = answer(
        "report", folder / "a.json", folder / "b.json", "--format", "markdown"
    )
    for name, plan in plans.items():
        for risk in risks_of(plan):
            right = f"{math.ceil(10 * (50 + 50 * risk.curve.advantage)) / 10:g}"
            group = plan.group(risk.group)
            clients = f"{group.clients:,}"
            row = f"| {group.name} | {name} | patient | {clients} | {right} |"
            assert row in written
            sentence = f"right at most {right} times of 100 instead of 50"
            assert sentence in written
        rounds = plan.spec.rounds
        cohort = plan.spec.expected_cohort
        noise = relative_noise(plan)
        assert f"| {name} | {rounds} | {cohort:g} | {noise:.4g} |" in written


def test_pictures_come_first_then_tables_then_text(folder):
    page = proposals_page(loaded_proposals([folder / "a.json", folder / "b.json"]))
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    places = [page.index(mark) for mark in ("<svg", "<table>", "<h2>today</h2>")]
    assert places == sorted(places)
    assert page.rindex("<svg") < places[1]
    # The words that only specialists know are explained beside the first table.
    explained = page.index("Epsilon: the odds of any guess")
    assert places[1] < explained < page.index("What it costs")
    for term in ("delta:", "clipping norm:", "pld:"):
        assert term in page[explained : explained + 600]


def test_plans_of_one_name_have_those_of_their_files(folder):
    plans = loaded_proposals([folder / "a.json", folder / "c.json"])
    assert list(plans) == ["a", "c"]


def test_the_command_refuses_what_no_page_can_show(folder):
    plan = folder / "a.json"
    assert "must name each plan once" in refused("report", plan, plan)
    assert "must be plan files" in refused("report", plan, folder)
    assert "only for a budget book" in refused("report", plan, "--budget", "a=1")


def test_json_holds_the_report_of_each_plan(folder):
    words = ["report", folder / "a.json", folder / "b.json", "--format", "json"]
    reports = json.loads(answer(*words))
    budgets = [report["guarantee"]["groups"][0]["epsilon_budget"] for report in reports]
    assert budgets == [1, 3]
