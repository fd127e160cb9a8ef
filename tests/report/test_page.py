"""The report page says what is known, by itself: nothing is requested."""

import html
import json
import math
import re
import shutil
from importlib.util import find_spec

import pytest
import yaml

from privplan.plan import Plan
from privplan.planning.risks import risks_of
from privplan.planning.solver import solve
from privplan.report.page import page_of
from privplan.report.style import Panel
from privplan.spec.spec import Spec
from tests.book.runs import full, run
from tests.command import answer, refused

BROWSER = shutil.which("chromium")


def text_of(page):
    bare = re.sub(r"<style>.*?</style>|<(?!/?b>)[^>]*>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("</?b>", "", bare)).split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A kept run, a broken one, a plan, and a comparison of two methods."""
    base = tmp_path_factory.mktemp("report")
    Plan.load(run(base / "run") / "plan.json").save(base / "plan.json")
    full(base / "broken", 0.01)
    for name, source in (("planned", "run"), ("FedAvg", "broken")):
        record = (
            shutil.copytree(base / source, base / "results" / name / "seed-1")
            / "record.json"
        )
        record.write_text(
            json.dumps({**json.loads(record.read_text()), "algorithm": name})
        )
    return base


@pytest.fixture
def undrawn(monkeypatch):
    """Pages without pictures, which take most of the time."""
    monkeypatch.setattr(Panel, "inline", lambda panel: "")


@pytest.fixture
def words_of(folder, undrawn):
    """Reads the words of a page."""
    return lambda name: text_of(page_of(folder / name))


def test_a_page_needs_nothing_else_and_can_be_read_aloud(folder):
    page = page_of(folder / "run")
    assert page.startswith("<!DOCTYPE html>")
    assert len(page) < 500_000
    assert not re.search(r'<script|(?:href|src)="(?!#|data:,)|url\((?!#)|@import', page)
    pictures = re.findall(r"<svg[^>]*>", page)
    assert len(pictures) == page.count("<figcaption>") >= 5
    for element in pictures:
        assert re.search('role="img" aria-label="[^"]+"', element)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert re.findall(r"<h(\d)", page) == ["1", *["2"] * page.count("<h2")]
    assert page.count("<th ") == page.count("<th scope=")


def test_the_page_of_a_plan_has_its_budgets_and_an_attackers_chances(folder, words_of):
    plan = Plan.load(folder / "plan.json")
    words = words_of("plan.json")
    assert "A plan: nothing was released yet." in words
    for group, risk in zip(plan.groups, risks_of(plan), strict=True):
        assert (
            f"epsilon {group.epsilon:g} for {group.name} ({group.clients} clients)"
            in words
        )
        right = math.ceil(10 * (50 + 50 * risk.curve.advantage)) / 10
        caught = math.ceil(10 * 100 * risk.curve.true_positives[1]) / 10
        advantage = math.ceil(1000 * risk.curve.advantage) / 1000
        chances = f"{right:g} {advantage:g} {caught:g} "
        planned = plan.certificate.of(group.name).epsilon
        epsilons = f"{group.epsilon:g} {math.ceil(100 * planned) / 100:g}"
        assert f"{group.name} {group.clients} {epsilons} {chances}" in words


def test_the_page_alone_reproduces_the_plan(tmp_path, undrawn):
    hostile = '<script>alert("x")</script> & #0072b2'
    spec = {
        "name": hostile,
        "groups": [
            {"name": "a", "clients": 80, "epsilon": 1.5},
            {"name": "b", "clients": 20, "epsilon": 4},
        ],
        "rounds": 20,
        "cohort": 20,
        "model": {"name": "own", "parameters": 100},
    }
    plan = solve(Spec.parse(spec))
    plan.save(tmp_path / "plan.json")
    page = page_of(tmp_path / "plan.json")
    assert "<script" not in page
    assert plan.digest in page
    [source] = re.findall(r'<code id="spec">(.*?)</code>', page, flags=re.DOTALL)
    again = Spec.parse(yaml.safe_load(html.unescape(source)))
    assert solve(again).digest == plan.digest


def test_a_verdict_is_said_in_its_own_words(words_of):
    of_kept = words_of("run")
    of_broken = words_of("broken")
    assert "NOT kept" not in of_kept
    assert "The promises were kept" in of_kept
    assert "For this page no round was executed again" in of_kept
    assert "The promises were NOT kept" in of_broken
    for words in (of_kept, of_broken):
        assert "Not covered: releases of other runs on the same units" in words


def test_a_comparison_says_who_kept_the_budgets(words_of):
    words = words_of("results")
    assert "The only method that kept every budget: planned." in words
    assert "1 of 1 method that protects each client; 1 method protects nobody." in words
    assert "FedAvg is not shown to keep every budget: 1 broken of 1 runs." in words
    assert re.search(r"privplan compare plan.json --algorithms \S*planned", words)


def test_the_command_writes_a_page_and_refuses_other_input(folder, tmp_path, undrawn):
    page = tmp_path / "page.html"
    assert answer("report", folder / "plan.json", "-o", page).strip() == f"wrote {page}"
    assert page.read_text() == page_of(folder / "plan.json")
    answer(
        "report",
        folder / "run",
        "--plan",
        folder / "plan.json",
        "--rounds",
        "0",
        "-o",
        page,
    )
    assert "is the approved one" in page.read_text()
    for arguments, rule in (
        (
            [tmp_path],
            "report: must be a plan file, a run folder, a comparison's folder or a",
        ),
        ([folder / "plan.json", "--format", "pdf"], "'pdf' is not one of"),
        ([folder / "run", "-o", folder / "run" / "ledger.jsonl"], "output: must be"),
        ([folder / "run", "--rounds", "some"], "rounds: must be all or a whole number"),
    ):
        assert rule in refused("report", *arguments)


@pytest.mark.slow
@pytest.mark.skipif(not (BROWSER and find_spec("websockets")), reason="needs Chromium")
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("name", ["plan.json", "run", "results"])
def test_in_a_browser_nothing_is_requested_and_nothing_sticks_out(
    folder, tmp_path, name, width
):
    from benchmarks.app import Browser

    page = tmp_path / "page.html"
    page.write_text(page_of(folder / name))
    with Browser(tmp_path / "profile", width) as browser:
        browser.visit(page.as_uri())
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert set(browser.requests) - {"data:,"} == {page.as_uri()}
        assert browser.errors == []
