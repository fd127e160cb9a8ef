"""The plot of a run: its panels, and what they show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageColor

import privplan
from privplan.io.text import load_yaml
from privplan.plan import Plan
from privplan.record import RoundMetrics, RunRecord
from privplan.spec.presets import preset
from simulate.runs import canvas, plots


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


def test_the_plot_shows_rounds_groups_and_what_was_spent(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[tuple[int, float, str]] = []
    curves: list[tuple[list[int], list[float]]] = []
    monkeypatch.setattr(
        plots.Panel,
        "bar",
        lambda panel, number, value, width, colour, label="": bars.append((number, value, label)),
    )
    monkeypatch.setattr(
        plots.Panel, "curve", lambda panel, across, up, colour: curves.append((across, up))
    )
    spent = {"strict": 1.9, "medium": 5.5, "loose": math.inf}
    plots.accuracy_by_round(tmp_path / "a.png", _record(plan), plan, spent)
    assert curves == [([20, 40, 60], [20.0, 40.0, 60.0])]
    assert bars[:3] == [(0, 60.0, "60.0"), (1, 61.0, "61.0"), (2, 62.0, "62.0")]
    assert [value for _, value, label in bars[3:] if not label] == [2.0, 6.0, 12.0]
    assert [label for _, _, label in bars[3:] if label] == ["1.9", "5.5", "infinite"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 61.2, [0, 20, 40, 60]),
        (0, 0.002, [0, 0.0005, 0.001, 0.0015, 0.002]),
        (10.97, 86.5, [20, 40, 60, 80]),
        (-3, 3, [-2, 0, 2]),
        (4, 4, [4]),
    ],
)
def test_ticks_are_few_and_round(low: float, high: float, expected: list[float]) -> None:
    assert canvas.ticks(low, high) == pytest.approx(expected)


def test_the_picture_holds_bars_curves_and_many_names(plan: Plan, tmp_path: Path) -> None:
    many = plan.model_copy(update={"groups": tuple(
        plan.groups[0].model_copy(update={"name": f"a group of clients, number {index} $x$"})
        for index in range(40)
    )})  # fmt: skip
    found = {group.name: 0.5 for group in many.groups}
    record = _record(many, accuracy_by_group=found)
    plots.accuracy_by_round(tmp_path / "a.png", record, many, {})
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (plots.WIDTH, plots.HEIGHT)
        shown = {colour for _, colour in picture.getcolors(10**6)}
    assert {ImageColor.getrgb(one) for one in (plots.BLUE, plots.GREY, plots.ORANGE)} <= shown
    own = tuple(RoundMetrics(round=r, accuracy=None, loss=None) for r in (1, 2))
    record = _record(
        plan, configuration={"metric": "r2"}, metrics=own, accuracy_by_group={"strict": -0.5}
    )
    plots.accuracy_by_round(tmp_path / "b.png", record, plan, {})
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


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
