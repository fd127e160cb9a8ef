"""``privplan app``: a page of sliders and fields for a spec's numbers, beside the plan they make.

The page is a marimo notebook that this module writes; every number on it comes from ``Desk``,
which needs no browser.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from privplan.errors import InputError, PrivplanError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.planning.sweep import spec_data
from privplan.report.protection import guess_lines
from privplan.report.table import Table
from privplan.report.tables import answer
from privplan.spec.changes import with_changes
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.visible import in_html, printable
from privplan.yaml_text import load_yaml

HOST = "127.0.0.1"
READY = "digits-planned"
"""The spec to begin with where none is named."""
_STEPS = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8,
          3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 9)  # fmt: skip
"""Positions of a slider in each factor of ten."""
_REACH = 20.0
"""How many times the spec's number a slider reaches, up and down."""


@dataclass(frozen=True)
class Number:
    """A number of the spec that the page can change."""

    path: str  # such as groups.strict.epsilon
    label: str
    value: float

    def positions(self) -> list[float]:
        """What its slider offers: round values, denser where they are small, and the spec's own."""
        low, high = self.value / _REACH, self.value * _REACH
        places = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        found = {float(f"{step}e{place}") for step in _STEPS for place in places}
        whole = not self.path.endswith(".epsilon")
        found = {
            one
            for one in found
            if low <= one <= high and not (whole and one != int(one))
        }
        return sorted({self.value, *found})

    def nearest(self, text: str) -> float:
        """The position of its slider for what stands in its field."""
        try:
            value = math.log(float(text))
        except ValueError:
            return self.value
        return min(self.positions(), key=lambda one: abs(math.log(one) - value))


def plainly(value: float) -> str:
    """A number as a person writes it, without a power of ten."""
    return np.format_float_positional(value, trim="-")


@dataclass(frozen=True)
class Shown:
    """What the page shows for its numbers: a plan, or why there is none."""

    plan: Plan | None = None
    faults: Mapping[str, str] = field(
        default_factory=dict
    )  # by path; "" of none of them
    spec: str = ""  # the YAML of which ``privplan solve`` makes the plan


class Desk:
    """The numbers of one page and the plan that they make.

    Example:
        >>> desk = Desk.of(None)
        >>> desk.typed["groups.strict.epsilon"] = "-1"
        >>> desk.shown().faults["groups.strict.epsilon"]
        "must be positive, found -1"
    """

    def __init__(
        self, data: dict[str, Any], expect: Callable[[Plan], Plan] | None = None
    ) -> None:
        spec, self._data, self._expect = Spec.parse(data), data, expect
        decided = {*spec.planning.free, *(spec.recipe.decides if spec.recipe else ())}
        numbers = []
        for one, given in zip(spec.groups, data["groups"], strict=True):
            named = f"groups.{one.name}"
            if given.get("epsilon") is not None:
                numbers.append(
                    Number(f"{named}.epsilon", f"{one.name}: epsilon", one.epsilon)
                )
            numbers.append(
                Number(f"{named}.clients", f"{one.name}: clients", one.clients)
            )
        for name in ("rounds", "cohort"):
            if data.get(name) is not None and name not in decided:
                numbers.append(Number(name, name, float(data[name])))
        self.numbers = tuple(numbers)
        self.typed = {one.path: plainly(one.value) for one in numbers}
        """What stands in the field of each number."""

    @property
    def name(self) -> str:
        """Of the spec."""
        return str(self._data["name"])

    @classmethod
    def of(cls, spec: str | None, proxy: str | None = None) -> Desk:
        """The page of a spec (or the spec of a plan or run); a ready one when left out."""
        if spec is None:
            data = load_yaml(preset(READY), "spec")
        else:
            data = spec_data(spec)
            data = Spec.load(spec).plain() if data.get("groups_from") else data
        if proxy is None:
            return cls(data)
        from privplan.forecast.model import forecaster_with, with_forecast

        model = forecaster_with(proxy, None, None)
        return cls(data, lambda plan: with_forecast(plan, model, None))

    def shown(self) -> Shown:
        """The plan of the numbers that stand in the fields, or what is wrong with which."""
        changes: dict[str, float] = {}
        faults: dict[str, str] = {}
        for path, text in self.typed.items():
            try:
                value = float(text)
            except ValueError:
                faults[path] = f"must be a number, found {printable(text)[:40]!r}"
            else:
                whole = math.isfinite(value) and value == int(value)
                changes[path] = int(value) if whole else value
        if faults:
            return Shown(faults=faults)
        data = with_changes(self._data, changes)
        try:
            plan = solve(Spec.parse(data), second_opinion=False)
        except InputError as error:
            lines = [
                (one.field, str(one).removeprefix(f"{one.field}: "))
                for one in error.faults
            ]
            return Shown(faults=self._placed(lines))
        except PrivplanError as error:
            where, _, line = str(error).partition(": ")
            return Shown(faults=self._placed([(where, line)]))
        plan = plan if self._expect is None else self._expect(plan)
        return Shown(
            plan, spec=yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        )

    def _placed(self, lines: list[tuple[str, str]]) -> dict[str, str]:
        """Sentences by the number that they are about."""
        found: dict[str, list[str]] = {}
        for where, line in lines:
            first = line.partition(": ")[0]
            if (
                f"{where}.{first}" in self.typed
            ):  # where only the group is named, then its field
                where, line = f"{where}.{first}", line.removeprefix(f"{first}: ")
            known = where in self.typed
            found.setdefault(where * known, []).append(
                line if known else f"{where}: {line}"
            )
        return {path: "; ".join(one) for path, one in found.items()}


# --- What is shown, as HTML. ---------------------------------------------------------------------

_TITLE = "font-size:1.5rem;font-weight:700;margin-top:2.5rem"
"""Below the button that opens the numbers on a narrow screen."""
_WIDE = "overflow-x:auto;max-width:100%"
_NARROW = """<style>@media (max-width: 40rem) {
table.narrow thead { display: none; }
table.narrow, table.narrow caption, table.narrow tbody { display: block; }
table.narrow tr { display: block; border-bottom: 1px solid; padding: 0.4rem 0; }
table.narrow td { display: flex; justify-content: space-between; gap: 1rem; }
table.narrow td::before { content: attr(data-name); opacity: 0.75; }
}</style>"""
"""A row for each cell of a table on a narrow screen."""
_BAD = "border-left:0.4rem solid #d55e00;padding:0.4rem 0.8rem"


def plan_html(shown: Shown) -> str:
    """The plan in sentences and a table, or why there is none."""
    from privplan.forecast.target import forecast_lines
    from privplan.planning.alternatives import attention_lines

    if shown.plan is None:
        why = in_html(shown.faults.get("", "see beside the number"))
        return f'<p id="state" role="status" style="{_BAD}"><b>There is no plan:</b> {why}</p>'
    lines, table = answer(shown.plan)
    known = [] if shown.plan.forecast is None else forecast_lines(shown.plan)
    guesses = guess_lines(shown.plan)
    said = [*guesses, *lines, *known, *attention_lines(shown.plan)]
    first, *others = (in_html(line[:1].upper() + line[1:]) for line in said)
    text = "".join(f"<p>{one}</p>" for one in others)
    return (
        f'<p id="state" role="status"><b>{first}</b></p>{text}{_table("plan", table)}'
    )


def more_html(shown: Shown) -> str:
    """What one more epsilon of each group buys; nothing of plans without an objective."""
    from privplan.planning.reasons import budget_values

    values = budget_values(shown.plan, more_by=1) if shown.plan else ()
    cells = [
        [one.group, _change(one.objective_gain), _change(one.noise_gain)]
        for one in values
    ]
    caption = "each for its own group alone; of curves within 0.1% of what is certified"
    title, columns = "What one more epsilon buys", ["group", "objective", "noise"]
    return _table("more", Table(title, columns, cells, caption))


def _change(fall: float) -> str:
    return "less than 0.1%" if abs(fall) < 1e-3 else f"{-fall:+.1%}"


def _table(name: str, table: Table) -> str:
    title, columns, rows, caption = table
    if not rows:
        return ""
    side = "padding:0.2rem 0.7rem 0.2rem 0;text-align:"

    def cells(words: list[str], tag: str) -> str:
        return "".join(
            f'<{tag} data-name="{in_html(columns[at])}" '
            f'style="{side}{"right" if at else "left"}">{in_html(one)}</{tag}>'
            for at, one in enumerate(words)
        )

    # What is wider than the page is moved by itself, and never cut.
    whole = f'<div role="region" tabindex="0" aria-label="{in_html(title)}" style="{_WIDE}">'

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return (
        f'{_NARROW}{whole}<table id="{name}" class="narrow" '
        'style="margin-top:1rem"><caption style="text-align:left">'
        f"<b>{in_html(title)}</b></caption><thead><tr>{cells(columns, 'th')}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
        f'<p id="law-{name}" style="font-size:0.8rem">{in_html(caption)}</p>'
    )


def fault_html(path: str, shown: Shown) -> str:
    """What is wrong with a number, to stand beside its field."""
    found = shown.faults.get(path, "")
    style = f'style="{_BAD if found else ""}"'
    return f'<span role="alert" data-path="{in_html(path)}" {style}>{in_html(found)}</span>'


def spec_html(shown: Shown) -> str:
    """The spec of the numbers, selected as a whole by one click."""
    style = "user-select:all;font-size:0.8rem;overflow-x:auto"
    text = f'<pre id="spec" tabindex="0" style="{style}">{in_html(shown.spec)}</pre>'
    said = "The spec with these numbers (one click selects it); save it as spec.yaml, then: "
    return f"<p>{said}<code>privplan solve spec.yaml</code></p>{text}" * bool(
        shown.spec
    )


# --- The page: a slider and a field for each number, and what is shown beside them. --------------
# A slider that moves makes the fields anew, and a field that is changed the sliders, so that
# neither is replaced under the hand that moves it.

NOTEBOOK = """# /// script
# [tool.marimo.display]
# theme = "system"
# ///
import marimo

app = marimo.App(width="full", app_title={title!r})


@app.cell
def _():
    # Before anything that takes long to load.
    import marimo as mo

    mo.Html({heading!r})
    return (mo,)


@app.cell
def _(mo):
    from privplan.contrib import app as page

    desk = page.Desk.of({spec!r}, {proxy!r})
    slid, set_slid = mo.state(0)
    typed, set_typed = mo.state(0)
    def changed(one, set_state):
        def change(value):
            is_number = isinstance(value, float | int)
            desk.typed[one.path] = page.plainly(value) if is_number else value
            set_state(lambda count: count + 1)
        return change
    return changed, desk, page, set_slid, set_typed, slid, typed


@app.cell
def _(changed, desk, mo, set_slid, typed):
    typed()
    sliders = {{
        one.path: mo.ui.slider(
            steps=one.positions(), value=one.nearest(desk.typed[one.path]), full_width=True,
            on_change=changed(one, set_slid), label=one.label,
        )
        for one in desk.numbers
    }}
    return (sliders,)


@app.cell
def _(changed, desk, mo, set_typed, slid):
    slid()
    fields = {{
        one.path: mo.ui.text(
            value=desk.typed[one.path], on_change=changed(one, set_typed), full_width=True,
        )
        for one in desk.numbers
    }}
    return (fields,)


@app.cell
def _(desk, slid, typed):
    slid(), typed()
    shown = desk.shown()
    return (shown,)


@app.cell
def _(desk, fields, mo, page, shown, sliders):
    mo.sidebar(mo.vstack([
        mo.hstack([sliders[one.path], fields[one.path]], widths=[3, 1], align="end")
        if part else mo.Html(page.fault_html(one.path, shown))
        for one in desk.numbers for part in (1, 0)
    ], gap=0.2), width="min(26rem, 92vw)")
    return


@app.cell
def _(mo, page, shown):
    mo.Html(page.plan_html(shown))
    return


@app.cell
def _(mo, page, shown):
    mo.Html(page.more_html(shown))
    return


@app.cell
def _(mo, page, shown):
    mo.Html(page.spec_html(shown))
    return
"""


def serve(
    folder: str, spec: str | None, proxy: str | None, port: int
) -> subprocess.Popen[bytes]:
    """The process that serves the page on this machine, from a notebook in a folder."""
    where = [
        None if one is None else str(Path(one).absolute()) for one in (spec, proxy)
    ]
    notebook = Path(folder) / "app.py"
    name = Desk.of(spec, proxy).name
    heading = f'<h1 style="{_TITLE}">What if: {in_html(name)}</h1>'
    text = NOTEBOOK.format(
        spec=where[0], proxy=where[1], title=f"What if: {name}", heading=heading
    )
    notebook.write_text(text, encoding="utf-8")
    words = ["--quiet", "run", str(notebook), "--headless", "--no-token", "--no-check"]
    quiet = {**os.environ, "MARIMO_SKIP_UPDATE_CHECK": "1"}
    place = ["--host", HOST, "--port", str(port)]
    return subprocess.Popen([sys.executable, "-m", "marimo", *words, *place], env=quiet)


def free_port(port: int) -> int:
    """The port, or one that is free instead of 0."""
    with socket.socket() as heard:
        try:
            heard.bind((HOST, port))
        except OSError:
            raise InputError.one("port", "must be free on this machine", port) from None
        return int(heard.getsockname()[1])


def answers(port: int) -> bool:
    """Whether something listens at the port."""
    with suppress(OSError), socket.create_connection((HOST, port), 0.5):
        return True
    return False
