"""The plot of a run: its panels, and what they show."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

import privplan
from privplan.files import load_yaml
from privplan.plan import Plan
from privplan.record import RoundMetrics, RunRecord
from privplan.spec.presets import preset
from simulate.runs import plots


@pytest.fixture(scope="module")
def plan() -> Plan:
    return privplan.solve(privplan.Spec.parse(load_yaml(preset("digits"), "spec")))


def _record(plan: Plan, **changes: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "plan_digest": plan.digest, "algorithm": "planned", "dataset": "digits",
        "partition": "iid", "model": "mlp-digits", "seed": 1, "device": "cpu",
        "configuration": {}, "versions": {}, "status": "complete", "rounds_done": 60,
        "metrics": tuple(RoundMetrics(round=r, accuracy=r / 100, loss=1.0) for r in (20, 40, 60)),
        "accuracy": 0.6, "accuracy_by_class": {},
        "accuracy_by_group": {"strict": 0.60, "medium": 0.61, "loose": 0.62},
        "wall_seconds": 1.0,
    }  # fmt: skip
    return RunRecord(**{**fields, **changes})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    figures: list[Any] = []
    monkeypatch.setattr(plots, "_write", lambda path, figure: figures.append(figure))
    return figures


def test_the_plot_shows_rounds_groups_and_what_was_spent(plan: Plan, drawn: list[Any]) -> None:
    spent = {"strict": 1.9, "medium": 5.5, "loose": math.inf}
    plots.accuracy_by_round(Path("a.png"), _record(plan), plan, spent)
    curve, groups, budgets = drawn[0].axes
    assert list(curve.lines[0].get_xdata()) == [20, 40, 60]
    assert curve.get_xlim()[0] == 0
    boxes = [bar.get_window_extent() for bar in groups.patches]
    assert len(boxes) == 3
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
    assert [text.get_text() for text in groups.texts] == ["60.0", "61.0", "62.0"]
    assert [text.get_text() for text in budgets.texts] == ["1.9", "5.5", "infinite"]
    assert [bar.get_height() for bar in budgets.patches[:3]] == [2.0, 6.0, 12.0]


def test_the_plot_is_written_without_accuracy_of_groups(plan: Plan, tmp_path: Path) -> None:
    record = _record(plan, accuracy_by_group={})
    plots.accuracy_by_round(tmp_path / "a.png", record, plan, {})
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_curves_of_a_comparison_start_at_their_first_evaluation(
    plan: Plan, drawn: list[Any]
) -> None:
    plots.comparison(Path("a.png"), {"one": [_record(plan)], "two": [_record(plan)]}, "title")
    [axes] = drawn[0].axes
    assert axes.get_xlim()[0] == 0
    assert [line.get_xdata()[0] for line in axes.lines] == [20, 20]
