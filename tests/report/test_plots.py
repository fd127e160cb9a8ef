"""Pictures of plans and sweeps: names and values can be read, and curves are inside the axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from privplan.report import plots
from privplan.report.plots import plan_picture, shortened, sweep_picture
from tests.verification import honest_run


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn."""
    figures: list[Figure] = []
    picture = plots.picture

    def noted(figure: Figure, form: str) -> bytes:
        figures.append(figure)
        return picture(figure, form)

    monkeypatch.setattr(plots, "picture", noted)
    return figures


def boxes(figure: Figure) -> Iterator[tuple[Text, Bbox]]:
    """All words of a figure and where they stand."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # the layout is that of the canvas
    renderer = canvas.get_renderer()
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            yield text, text.get_window_extent(renderer)


def area(one: Bbox, other: Bbox) -> float:
    """Area of both, in square pixels."""
    found = Bbox.intersection(one, other)
    return 0.0 if found is None else float(found.width * found.height)


@pytest.mark.parametrize("count", [1, 3, 10, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("own", [False, True])
def test_names_and_values_of_many_groups_do_not_overlap(
    drawn: list[Figure], count: int, own: bool
) -> None:
    plan = honest_run.plan()
    groups = tuple(
        plan.groups[0].model_copy(
            update={
                "name": f"a group with a name of more than forty letters, {number}",
                "epsilon": 0.1 * 1.4**number,
                "delta": 10.0 ** -(3 + number % 3) if own else 1e-3,
            }
        )
        for number in range(count)
    )
    row = plan.certificate[0]
    spent = tuple(
        row.model_copy(update={"group": one.name, "epsilon_upper": 0.9 * one.epsilon})
        for one in groups
    )
    assert plan_picture(plan.model_copy(update={"groups": groups, "certificate": spent}))
    [figure] = drawn
    ticks = {label for axes in figure.axes for label in axes.get_xticklabels()}
    named = [(text.get_text(), box) for text, box in boxes(figure) if text not in ticks]
    assert {shortened(one.name) for one in groups} <= {text for text, _ in named}
    assert len({shortened(one.name) for one in groups}) == count
    for text, box in named:
        assert figure.bbox.padded(1).containsx(box.x0), text
        assert figure.bbox.padded(1).containsx(box.x1), text
    for (one, here), (other, there) in itertools.combinations(named, 2):
        assert area(here, there) < 4, (one, other)


@pytest.mark.parametrize("value", [0.0, 0.154, 1e-9])
def test_a_flat_curve_is_inside_and_equal_factors_have_a_logarithmic_axis(
    drawn: list[Figure], value: float
) -> None:
    rows: list[dict[str, Any]] = [
        {"x": x, "group": "all", "noise_norm": value, "weight": 1.0} for x in (0.1, 1.0, 10.0)
    ]
    for logarithmic in (True, False):
        assert sweep_picture(rows, ["x"], logarithmic=logarithmic)
        for axes in drawn[-1].axes:
            [line] = axes.lines
            low, high = axes.get_ylim()
            assert low <= line.get_ydata()[0] < high  # type: ignore[index, operator]
            assert axes.get_xscale() == ("log" if logarithmic else "linear")
            assert not any("mathdefault" in label.get_text() for label in axes.get_xticklabels())
