"""The what-if page: one HTML file with sliders over a computed grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from privplan.accounting.release import Relation, named_unit
from privplan.planning.sweep import DECIDED
from privplan.report.document import document
from privplan.report.protection import GUESSED
from privplan.report.sweeps import sweep_caption
from privplan.spec.changes import stated_number, with_changes
from privplan.visible import printable_data

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
        axes.append(
            {
                "name": path.removeprefix("groups.").replace(".", " "),
                "values": values,
                "texts": list(_texts(values)),
                "start": _place_of(stated_number(data, path), values),
            }
        )
    points = itertools.groupby(rows, key=lambda row: [row[path] for path in paths])
    grid = {
        "axes": axes,
        "points": [list(rows_of_point) for _, rows_of_point in points],
        "decided": [name for name in DECIDED if name not in paths],
        "law": sweep_caption(rows, data.get("person")),
        "whom": _whom(data),
        "guessed": GUESSED[data.get("relation", Relation.ADD_REMOVE)],
        "spec": _cut_spec(data, paths),
    }
    return document(
        "slider_page.html.j2",
        name=str(data["name"]),
        grid=printable_data(grid),
    )


def _place_of(number: float | None, values: Sequence[float]) -> int:
    """Where a slider opens: at the spec's own number, else in the middle."""
    if number in values:
        return values.index(number)
    return (len(values) - 1) // 2


def _whom(data: Mapping[str, Any]) -> str:
    """Whom the budgets of a spec protect, as a word."""
    contributions = [group.get("contributions", 1) for group in data.get("groups", ())]
    unit = data.get("unit", "client")
    return named_unit(unit, data.get("person"), max(contributions, default=1))


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
