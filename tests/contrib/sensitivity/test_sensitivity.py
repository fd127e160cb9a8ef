"""Sensitivity tests: algorithms pass, planted faults fail, the page's example runs."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulate.algorithms.registry import ALGORITHMS
from simulate.contrib import sensitivity
from simulate.contrib.sensitivity.__main__ import command
from simulate.contrib.sensitivity.neighbours import SensitivityReport, Violation
from tests.contrib.sensitivity.planted import PLANTED, RULES
from tests.sabotage.bench import patched

QUICK = ("planned", "CENTAUR")
QUICK_FAULTS = (
    "scaled after clipping",
    "clipping skipped for non-finite norms",
    "head sent in clear",
    "personal parameters released",
    "personal state mixed between clients",
    "step divided by the realised cohort",
    "accuracy on private records",
    "rescaled by the cohort's maximum after clipping",
)


def failed_rules(fault):
    with patched(fault.patches):
        experiment = fault.breaks(
            sensitivity.bench_experiment(
                fault.algorithm, sensitivity.bench_plans()["per group"]
            )
        )
        report = sensitivity.check_experiment(experiment)
    return {violation.rule: violation.found for violation in report.violations}


@pytest.mark.parametrize("name", QUICK)
def test_an_algorithm_keeps_its_claims(name):
    plans = {
        key: sensitivity.bench_plans()[key]
        for key in ("per group", "adaptive clipping")
    }
    for report in sensitivity.check_sensitivity(name, plans):
        assert report.passed, report.violations
        assert report.compared >= 30
        # The bound is reached.
        assert report.largest_ratio == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_keeps_its_claims_under_every_plan(name):
    for report in sensitivity.check_sensitivity(name):
        assert report.passed, report.violations
        bounded = report.unit != "none" and name != "Local-only"
        assert (report.largest_ratio is not None) == bounded


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK_FAULTS)
def test_a_planted_fault_is_found(name):
    [(fault, rule)] = [pair for pair in PLANTED if pair[0].name == name]
    assert rule in failed_rules(fault)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "rule"), PLANTED, ids=lambda part: getattr(part, "name", part)
)
def test_every_planted_fault_is_found(fault, rule):
    assert rule in failed_rules(fault)


def test_every_named_fault_exists():
    assert set(RULES) <= {fault.name for fault, _ in PLANTED}
    assert len(PLANTED) >= 25


PAGE = (Path(__file__).parents[3] / "docs" / "sensitivity-tests.md").read_text()
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_the_example_runs(capsys):
    exec(compile(EXAMPLE, "sensitivity-tests.md", "exec"), {})
    assert "per group 57 84 1.000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("violations", "code"),
    [((), 0), ((Violation("model", "strict, removed", "7 differ"),), 4)],
)
def test_the_command_answers_with_an_exit_code(monkeypatch, violations, code):
    report = SensitivityReport(
        "planned", "per group", "client", 45, 66, 0.99, violations
    )
    monkeypatch.setattr(
        "simulate.contrib.sensitivity.__main__.check_sensitivity",
        lambda *arguments, **options: (report,),
    )
    done = CliRunner().invoke(command, ["Planned"])
    assert done.exit_code == code
    line = "planned (per group): model: strict, removed: 7 differ"
    assert (line in done.output) == bool(code)
