"""Every kind of plan and run has a report that says only what holds for it."""

import html
import json
import re
from pathlib import Path

import pytest
import yaml

import simulate
from privplan.guard import Guard
from privplan.planning.solver import solve
from privplan.report.page import OWN_MODULE, page_of
from privplan.report.scores import WITHHELD
from privplan.report.style import Panel
from privplan.spec.spec import Spec
from simulate.runs.together import of_own_people, together
from tests.command import answer
from tests.guard import plans
from tests.simulate.own_runs import SPEC, Net, data
from tests.simulate.own_runs import arrays as own_arrays

STORED = Path(__file__).parents[1] / "golden" / "stored"
STORED_RUNS = sorted(str(path.relative_to(STORED)) for path in STORED.glob("v*/run-*"))
STORED_PLANS = sorted(
    str(path.relative_to(STORED)) for path in STORED.glob("v*/*.json")
)
LAWS = (
    "poisson",
    "fixed_size",
    "full",
    "cyclic_poisson:2",
    "capped_poisson:6",
    "random_allocation:2",
    "cyclic_allocation:2:3",
    "min_separation:2",
    "banded_separation:2",
)
QUICK_LAWS = ("poisson", "full", "min_separation:2", "banded_separation:2")
TURNS = (
    "random_allocation",
    "cyclic_allocation",
    "min_separation",
    "banded_separation",
)
"""Laws that decide the cohort themselves."""


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Pages without drawings, which take most of the time; their words stay."""
    monkeypatch.setattr(
        Panel, "inline", lambda panel: f"<svg>{html.escape(panel.alt)}</svg>"
    )


def words_of(page):
    bare = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(bare).split())


def reported(source):
    """The words of the page; the register's tests have those of Markdown."""
    fields = json.loads(answer("report", source, "--format", "json"))
    assert len(fields["plan_digest"]) == 64
    return words_of(page_of(source))


# The quick tests read a run and a plan of each version, and a run of each kind.
SLOW_NAMES = (
    "v0.1.0/run-fixed",
    "v0.2.0-dev/run-gdpfed",
    "v0.2.0-dev/run-fixed",
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW_NAMES else ())
        for name in (*STORED_RUNS, *STORED_PLANS)
    ],
)
def test_plans_and_runs_of_earlier_versions(name):
    assert "How to reproduce" in reported(STORED / name)


def test_a_guarded_run_is_judged_and_has_no_commands_that_train_it(tmp_path):
    plan = plans.two_groups()
    with Guard(plan, tmp_path / "guard") as guard:
        plans.train(guard)
        guard.finish()
    words = reported(tmp_path / "guard")
    assert "privplan verify run --plan plan.json" in words
    assert "privplan simulate" not in words
    assert plan.digest in words


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(law, marks=[] if law in QUICK_LAWS else [pytest.mark.slow])
        for law in LAWS
    ],
)
def test_runs_of_every_law(law, tmp_path):
    fields = yaml.safe_load(SPEC) | {"sampling": law, "rounds": 6}
    fields["cohort"] = 20 if law == "full" else 6
    if law.startswith(TURNS):
        del fields["cohort"]
    plan = solve(Spec.parse(fields))
    simulate.train(plan, model=Net, data=data(), folder=tmp_path / "run")
    assert law.partition(":")[0] in reported(tmp_path / "run")


def test_a_rehearsal_on_own_data_shows_neither_protection_nor_scores(tmp_path):
    plan = solve(Spec.parse(yaml.safe_load(SPEC)))
    run = simulate.train(
        plan, model=Net, data=data(), folder=tmp_path / "run", noise="seeded"
    )
    page = page_of(tmp_path / "run")
    words = words_of(page)
    assert '<div class="state rehearsal">' in page
    assert "A rehearsal: nothing here protected anybody." in words
    assert "The promises were kept" not in words
    assert WITHHELD in words
    assert OWN_MODULE in words
    assert OWN_MODULE in answer("report", tmp_path / "run", "--format", "json")
    scores = [run.record.accuracy, *run.record.accuracy_by_group.values()]
    for score in scores:
        for shown in (f"{100 * score:.1f}", f"{100 * score:.2f}", f"{score:.4g}"):
            assert not re.search(rf"(?<![\d.]){re.escape(shown)}(?![\d.])", words), (
                shown
            )


@pytest.mark.parametrize(("people", "withheld"), [("members", True), ("others", False)])
def test_scores_on_records_of_no_client_are_shown(people, withheld, tmp_path):
    plan = solve(Spec.parse(yaml.safe_load(SPEC)))
    arrays = own_arrays()
    test = simulate.Data(arrays["x"], arrays["y"])
    records = data(test=test, test_of_others=people == "others")
    simulate.train(plan, model=Net, data=records, folder=tmp_path / "run")
    assert (WITHHELD in words_of(page_of(tmp_path / "run"))) == withheld


def test_a_comparison_on_own_data_has_no_scores_and_no_order_of_them(tmp_path):
    plan = solve(Spec.parse(yaml.safe_load(SPEC)))
    methods = ["planned", "DP-FedAvg"]
    rows = simulate.compare(
        plan, methods, seeds=1, folder=tmp_path / "results", data=data(), model=Net
    )
    words = words_of(page_of(tmp_path / "results"))
    assert WITHHELD in words
    assert not re.search(r"\bBest of|\bmean\b.* sd |acc\.", words)
    for row in rows:
        shown = re.escape(f"{100 * row.mean:.2f}")
        assert not re.search(rf"(?<![\d.]){shown}(?![\d.])", words)
    # Both runs are of the same people: what stands of one is not all they lose.
    [strict, _] = together(of_own_people(tmp_path / "results"))
    assert strict.startswith("strict: 2 runs on the same people, together epsilon")
    assert f"All runs together. {strict}" in words.replace(
        "What stands here of promises and attackers is of one run alone. Who sees "
        "several learns more: ",
        "",
    )


def test_a_comparison_of_two_units_keeps_them_apart(tmp_path):
    model = {"name": "mlp-digits", "parameters": 2410}
    plan = solve(Spec.parse(yaml.safe_load(SPEC) | {"model": model}))
    methods = ["planned", "GDPFed+", "DPFedAvg"]
    simulate.compare(plan, methods, seeds=1, folder=tmp_path / "results")
    words = words_of(page_of(tmp_path / "results"))
    promises = re.findall(r"and to whom, by (.*?)\. Each (client|single record)", words)
    assert [unit for _, unit in promises] == ["client", "single record"]
    assert {*promises[0][0].split(", ")} == {"planned", "GDPFed+"}
    assert promises[1][0] == "DPFedAvg"
    assert "These seeds decide no best method that protects each client." in words
    assert "Best of" not in words
    counts = "2 of 2 methods that protect each client; 1 of 1 method that protects each record"
    assert f"Kept every budget in every run, as recorded: {counts}." in words
    for whose in ("client", "record"):
        assert f"methods that protect each {whose}: results" in words
        assert f"methods that protect each {whose}: Methods by mean score" in words
        assert f"No attack on one {whose} exceeds" in words
