"""The what-if page: one HTML file with sliders over a computed grid, without a server."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from privplan.planning.sweep import DECIDED
from privplan.report.style import DARK, LIGHT
from privplan.report.tables import sweep_caption
from privplan.spec.changes import with_changes
from privplan.visible import printable, printable_data


def slider_page(
    data: dict[str, Any], paths: Sequence[str], rows: Sequence[dict[str, Any]]
) -> str:
    """The page of a sweep of a spec's plain data: a slider for each of ``paths``."""
    values = [list(dict.fromkeys(row[path] for row in rows)) for path in paths]
    each = itertools.groupby(rows, key=lambda row: [row[path] for path in paths])
    # The spec is cut where a varied number stands; the page puts the number of its slider there.
    marks = [f"\u2063{at}\u2063" for at in range(len(paths))]
    text = yaml.safe_dump(
        with_changes(data, dict(zip(paths, marks, strict=True))), sort_keys=False
    )
    for mark in marks:
        text = text.replace(yaml.safe_dump(mark).splitlines()[0], mark)
    grid = {
        "axes": [
            {
                "name": path.removeprefix("groups.").replace(".", " "),
                "values": one,
                "texts": [
                    yaml.safe_dump(int(v) if v == int(v) else v).split()[0] for v in one
                ],
            }
            for path, one in zip(paths, values, strict=True)
        ],
        "points": [list(found) for _, found in each],
        "decided": [name for name in DECIDED if name not in paths],
        "law": sweep_caption(rows),
        "spec": text.split("\u2063"),  # text, place of an axis, text, ...
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
