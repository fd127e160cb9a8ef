"""The public report of a plan and of a run holds every field, and its page the same numbers."""

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
    report, solved = registry_report(plan), Plan.load(plan)
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
    assert any("seeded" in one for one in report["not_covered"])
    assert "## Evidence" in page(report)
    bounds = re.findall(r" ([\d.]+) to ([\d.]+) \|", page(report))  # rounded outwards
    kinds = ("epsilon_planned", "epsilon_realised")
    exact = [one[kind] for one in report["guarantee"]["groups"] for kind in kinds]
    for (low, high), (least, most) in zip(bounds, exact, strict=True):
        assert float(low) <= least <= most <= float(high) < most + 1e-4
    missing = [
        c.name for c in judge(load_run(plan.parent / "run"), 0).checks if c.missing
    ]
    assert {"replay", "audit"} <= set(missing)
    assert report["evidence"]["not_shown"] == missing
    assert f"- not shown: {', '.join(missing)}" in page(report)


@pytest.mark.parametrize("form", ["json", "markdown"])
def test_the_command_writes_each_format(plan, tmp_path, form):
    output = tmp_path / "public"
    answer("report", plan, "--format", form, "-o", output)
    report, text = registry_report(plan), output.read_text()
    assert {"guarantee", "mechanism", "adversary", "adaptivity", "not_covered"} <= set(
        report
    )
    assert (json.loads(text) == report) if form == "json" else (text == page(report))
