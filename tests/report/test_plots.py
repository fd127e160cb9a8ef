"""Pictures say what they show, in colours that can be read, without overlaps."""

import importlib
import math
import re
from dataclasses import fields
from itertools import pairwise

import pytest
from matplotlib.text import Text

import privplan
from privplan.planning.solver import solve
from privplan.report.panels import EpsilonRow, Row, epsilon_panel, rows_panel
from privplan.report.plots import _distinct, plan_panels, spending_panel
from privplan.report.style import (
    DARK,
    LIGHT,
    LineEnd,
    figure,
    name_lines,
    picture,
    styled,
)
from privplan.report.views import _VIEWS, view_of
from privplan.spec.presets import preset
from privplan.values import Shown


def test_names_of_methods_stay_distinct_where_they_are_shortened():
    names = ["GDPFed+ with recipe", "GDPFed+ without recipe", "planned"]
    shortened = _distinct(names)
    assert len({*shortened}) == 3
    assert shortened[2] == "planned"
    assert _distinct(names[:1] + names[2:]) == ["GDPFed+ wi…ecipe", "planned"]


@pytest.fixture(scope="module")
def plan():
    import yaml

    from privplan.spec.spec import Spec

    return solve(Spec.parse(yaml.safe_load(preset("digits-planned"))))


def _luminance(colour):
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [
        s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares
    ]
    return sum(
        weight * s for weight, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )


def contrast(colour, ground):
    """The ratio of WCAG 2.1."""
    low, high = sorted((_luminance(colour), _luminance(ground)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_of_text_has_the_contrast_of_wcag_aa(theme):
    for colour in (theme.ink, theme.quiet, *theme.series):
        assert contrast(colour, theme.ground) >= 4.5, colour
    colours = [getattr(theme, field.name) for field in fields(theme)]
    assert len(set(colours)) == len(colours)


def test_names_of_lines_that_end_at_one_place_are_moved_apart():
    with styled(LIGHT):
        page = figure(4.6, 3.0)
        axes = page.subplots()
        axes.set_ylim(0, 100)
        ends = [
            LineEnd(1.0, 50.0 + number / 10, f"line {number}", "#000000")
            for number in range(6)
        ]
        name_lines(axes, ends)
        page.draw_without_rendering()
        # Those of the texts, without the lines to them.
        boxes = [Text.get_window_extent(text) for text in axes.texts]
    boxes.sort(key=lambda box: float(box.y0))
    assert len(boxes) == 6
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))


def test_spending_ends_at_the_certificate(plan):
    panel = spending_panel(plan)
    assert panel is not None
    for row in plan.certificate:
        if row.guarantee:
            upper = f"{math.ceil(row.epsilon_upper * 1e4) / 1e4:g}"
            assert f"{row.group} {upper}" in re.split(r"; |: |\.$", panel.alt)


def test_a_broken_budget_is_never_rounded_to_a_kept_one():
    rows = [EpsilonRow("a", 2.0, 1.99999, 2.00001), EpsilonRow("b", 1.0, 0.0, math.inf)]
    alt = epsilon_panel(
        "verdict", "spent", rows, "delta 1e-05, poisson, add_remove, pld"
    ).alt
    assert "a 1.9999–2.0001 of 2" in alt
    assert "b no bound, budget 1" in alt


def test_an_inline_picture_has_its_text_the_colours_of_the_page_and_no_address(plan):
    for panel in plan_panels(plan):
        text = panel.inline()
        assert f'aria-label="{panel.alt.replace(chr(39), "&#x27;")}"' in text
        assert ">strict<" in text
        assert not re.search(r"#[0-9a-f]{6}\b", re.sub(r'(href="|url\()#\w+', "", text))
        assert not re.search(r'(href|src)="(?!#)', text)
        assert "Sans" not in text


@pytest.mark.parametrize(
    ("form", "magic"), [("png", b"\x89PNG"), ("svg", b"<?x"), ("pdf", b"%P")]
)
def test_a_picture_has_its_format(plan, form, magic):
    content = picture(plan_panels(plan)[:1], form, theme=DARK)
    assert content.startswith(magic)
    if form == "svg":
        assert DARK.ground in content.decode()


def test_every_value_that_python_shows_has_a_view():
    importlib.import_module("simulate.training")  # which has some of them

    def classes_below(parent):
        for child in parent.__subclasses__():
            yield child
            yield from classes_below(child)

    for shown in classes_below(Shown):
        if shown.__module__.startswith(("privplan.", "simulate.")):
            is_listed = any(base.__name__ in _VIEWS for base in shown.__mro__)
            is_internal = shown.__repr__ is not Shown.__repr__
            assert is_listed or is_internal or hasattr(shown, "view"), shown


@pytest.mark.parametrize("ends", [[math.nan], [0.5, math.nan], [math.inf, math.nan]])
def test_rows_without_a_finite_score_are_drawn(ends):
    """Such as methods in a folder of deployments, which nobody tested."""
    rows = [Row(f"method {place}", end, "") for place, end in enumerate(ends)]
    panel = rows_panel("ranking", "Methods", "score", rows, lambda axes, theme: None)
    assert picture([panel], "svg").startswith(b"<?xml")


def test_a_picture_of_upper_bounds_shows_no_approximation():
    """Of this mechanism gdp says less than what pld proves to be a lower bound."""
    certificate = privplan.account(
        noise_multiplier=1.5,
        sampling_ratio=0.02,
        rounds=50,
        delta=1e-4,
        accountants=["pld", "rdp", "gdp", "closed_form"],
    )
    rows = {row.accountant: row for row in certificate}
    assert rows["gdp"].epsilon_upper < rows["pld"].epsilon_lower
    view = view_of(certificate)
    [panel] = view.panels()
    for name in ("pld", "rdp"):
        assert f"all {name}" in panel.alt
    for name in ("gdp", "closed_form"):
        assert name not in panel.alt
    [line] = [line for line in view.lines if "no bound" in line]
    assert "gdp (approximation), closed_form (published formula, no bound" in line
