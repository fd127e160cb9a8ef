"""The what-if page: one HTML file with sliders over a computed grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from privplan.planning.sweep import DECIDED
from privplan.report.style import DARK, LIGHT
from privplan.report.sweeps import sweep_caption
from privplan.spec.changes import with_changes
from privplan.visible import printable, printable_data

# A sign that cannot be seen: it cuts the text of a spec where a varied number stands.
_CUT = "\u2063"


def slider_page(
    data: dict[str, Any], paths: Sequence[str], rows: Sequence[dict[str, Any]]
) -> str:
    """The page of a sweep, with a slider for each varied number.

    Args:
        data: the spec as plain data.
        paths: the fields that vary.
        rows: of the sweep, one per point and group.
    """
    axes = []
    for path in paths:
        values = list(dict.fromkeys(row[path] for row in rows))
        name = path.removeprefix("groups.").replace(".", " ")
        axes.append({"name": name, "values": values, "texts": list(_texts(values))})
    points = itertools.groupby(rows, key=lambda row: [row[path] for path in paths])
    grid = {
        "axes": axes,
        "points": [list(rows_of_point) for _, rows_of_point in points],
        "decided": [name for name in DECIDED if name not in paths],
        "law": sweep_caption(rows),
        "spec": _cut_spec(data, paths),
    }
    files = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=files, autoescape=True, undefined=StrictUndefined)
    page = environment.get_template("slider_page.html.j2")
    return page.render(
        name=printable(str(data["name"])),
        grid=printable_data(grid),
        light=LIGHT,
        dark=DARK,
    )


def _texts(values: Iterable[float]) -> Iterable[str]:
    """Numbers as YAML has them; whole ones without a point."""
    for value in values:
        number = int(value) if value == int(value) else value
        yield yaml.safe_dump(number).split()[0]


def _cut_spec(data: dict[str, Any], paths: Sequence[str]) -> list[str]:
    """The text of a spec: a part, the position of a varied number, a part, and so on.

    The page puts the number of its slider there.
    """
    marks = [f"{_CUT}{position}{_CUT}" for position in range(len(paths))]
    marked = with_changes(data, dict(zip(paths, marks, strict=True)))
    text = yaml.safe_dump(marked, sort_keys=False)
    for mark in marks:
        written = yaml.safe_dump(mark).splitlines()[0]  # with escapes, in quotes
        text = text.replace(written, mark)
    return text.split(_CUT)
