"""Public reports of plans and runs have every field; their pages the same numbers."""

import json
import re
from pathlib import Path

import pytest

from privplan.contrib.public_register.report import page, registry_report
from privplan.plan import Plan
from privplan.verification.verify import judge, load_run
from tests.book.runs import run
from tests.command import answer


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    Plan.load(Path(run(path.parent / "run", 1)) / "plan.json").save(path)
    return path


def test_a_plan_is_reported_as_not_executed(plan):
    report = registry_report(plan)
    solved = Plan.load(plan)
    assert report["status"] == "plan, not executed"
    assert report["evidence"] is None
    assert report["mechanism"]["law"] == str(solved.spec.sampling)
    for group, row in zip(solved.groups, report["guarantee"]["groups"], strict=True):
        assert row["epsilon_budget"] == group.epsilon
        assert row["epsilon_planned"][1] <= group.epsilon
        assert row["epsilon_realised"] is None
    assert f"| {solved.groups[0].clients} |" in page(report)


def test_a_run_is_reported_with_its_verdict(plan):
    report = registry_report(plan.parent / "run")
    assert report["status"].startswith("run, verdict ")
    assert any("seeded" in sentence for sentence in report["not_covered"])
    assert "## Evidence" in page(report)

    # The page has the planned and the realised bounds of each group, rounded outwards.
    shown = re.findall(r" ([\d.]+) to ([\d.]+) \|", page(report))
    exact = []
    for row in report["guarantee"]["groups"]:
        exact += [row["epsilon_planned"], row["epsilon_realised"]]
    for (low, high), (lower, upper) in zip(shown, exact, strict=True):
        assert float(low) <= lower <= upper <= float(high) < upper + 1e-4

    verdict = judge(load_run(plan.parent / "run"), 0)
    missing = [check.name for check in verdict.checks if check.missing]
    assert {"replay", "audit"} <= set(missing)
    assert report["evidence"]["not_shown"] == missing
    assert f"- not shown: {', '.join(missing)}" in page(report)


@pytest.mark.parametrize("form", ["json", "markdown"])
def test_the_command_writes_each_format(plan, tmp_path, form):
    output = tmp_path / "public"
    answer("report", plan, "--format", form, "-o", output)
    report = registry_report(plan)
    text = output.read_text()
    assert {"guarantee", "mechanism", "adversary", "adaptivity", "not_covered"} <= set(
        report
    )
    if form == "json":
        assert json.loads(text) == report
    else:
        assert text == page(report)
