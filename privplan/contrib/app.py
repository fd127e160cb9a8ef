"""``privplan app``: a page of sliders and fields for a spec's numbers, and their plan.

The page is a marimo notebook that this module writes; every number on it comes from
``Desk``, which needs no browser.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
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
_STEPS = (
    1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8,
    3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5,
    7, 7.5, 8, 9,
)  # fmt: skip
"""Positions of a slider in each factor of ten."""
_REACH = 20.0
"""How many times the spec's number a slider reaches, up and down."""
_KEPT_LETTERS = 40
"""Of what is typed and no number, so many letters are shown."""


@dataclass(frozen=True)
class Number:
    """A number of the spec that the page can change.

    Attributes:
        path: its place, such as ``groups.strict.epsilon``.
        label: what the page calls it.
        value: the spec's.
    """

    path: str
    label: str
    value: float

    def positions(self) -> list[float]:
        """What its slider offers: round values, and the spec's.

        Round values are denser where they are small. All but epsilons are whole.
        """
        low = self.value / _REACH
        high = self.value * _REACH
        is_whole = not self.path.endswith(".epsilon")
        positions = {self.value}
        for place in range(math.floor(math.log10(low)), math.ceil(math.log10(high))):
            for step in _STEPS:
                value = float(f"{step}e{place}")
                fits = not is_whole or value == int(value)
                if fits and low <= value <= high:
                    positions.add(value)
        return sorted(positions)

    def nearest(self, text: str) -> float:
        """The position of its slider for what stands in its field."""
        try:
            log_value = math.log(float(text))
        except ValueError:
            return self.value

        def distance(position: float) -> float:
            return abs(math.log(position) - log_value)

        return min(self.positions(), key=distance)


def plainly(value: float) -> str:
    """A number as a person writes it, without a power of ten."""
    return np.format_float_positional(value, trim="-")


@dataclass(frozen=True)
class Shown:
    """What the page shows for its numbers: a plan, or why there is none.

    Attributes:
        plan: of the numbers; None where there is none.
        faults: by path of the number; what is wrong with none of them by "".
        spec: the YAML of which ``privplan solve`` makes the plan.
    """

    plan: Plan | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    spec: str = ""


@lru_cache(maxsize=64)
def _solved(spec: str) -> Plan:
    """The plan of a spec, as JSON; each visit of a page asks for the same ones."""
    return solve(Spec.parse(json.loads(spec)), second_opinion=False)


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
        self._data = data
        self._expect = expect
        self.numbers = tuple(_numbers_of(data))
        self.typed = {number.path: plainly(number.value) for number in self.numbers}
        """What stands in the field of each number."""

    @property
    def name(self) -> str:
        """Of the spec."""
        return str(self._data["name"])

    @classmethod
    def of(cls, spec: str | None, proxy: str | None = None) -> Desk:
        """The page of a spec, a plan or a run; a ready spec when left out."""
        if spec is None:
            data = load_yaml(preset(READY), "spec")
        else:
            data = spec_data(spec)
            if data.get("groups_from"):
                data = Spec.load(spec).plain()
        if proxy is None:
            return cls(data)
        from privplan.forecast.model import forecaster_with, with_forecast

        model = forecaster_with(proxy, None, None)
        return cls(data, lambda plan: with_forecast(plan, model, None))

    def shown(self) -> Shown:
        """The plan of the numbers in the fields, or what is wrong with them."""
        changes: dict[str, float] = {}
        faults: dict[str, str] = {}
        for path, text in self.typed.items():
            try:
                value = float(text)
            except ValueError:
                typed = printable(text)[:_KEPT_LETTERS]
                faults[path] = f"must be a number, found {typed!r}"
                continue
            is_whole = math.isfinite(value) and value == int(value)
            changes[path] = int(value) if is_whole else value
        if faults:
            return Shown(faults=faults)
        data = with_changes(self._data, changes)
        try:
            plan = _solved(json.dumps(data))
        except InputError as error:
            lines = [
                (fault.field, str(fault).removeprefix(f"{fault.field}: "))
                for fault in error.faults
            ]
            return Shown(faults=self._placed(lines))
        except PrivplanError as error:
            path, _, line = str(error).partition(": ")
            return Shown(faults=self._placed([(path, line)]))
        if self._expect is not None:
            plan = self._expect(plan)
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        return Shown(plan, spec=text)

    def _placed(self, lines: list[tuple[str, str]]) -> dict[str, str]:
        """Sentences by the number that they are about.

        Args:
            lines: paths, and what is wrong there.
        """
        sentences: dict[str, list[str]] = {}
        for path, line in lines:
            # Where only the group is named, its field begins the line.
            group_field = line.partition(": ")[0]
            path_of_field = f"{path}.{group_field}"
            if path_of_field in self.typed:
                rule = line.removeprefix(f"{group_field}: ")
                sentences.setdefault(path_of_field, []).append(rule)
            elif path in self.typed:
                sentences.setdefault(path, []).append(line)
            else:
                sentences.setdefault("", []).append(f"{path}: {line}")
        return {path: "; ".join(of_path) for path, of_path in sentences.items()}


def _numbers_of(data: dict[str, Any]) -> list[Number]:
    """The numbers that a spec states, and that no recipe or search decides."""
    spec = Spec.parse(data)
    numbers: list[Number] = []
    for group, stated in zip(spec.groups, data["groups"], strict=True):
        path = f"groups.{group.name}"
        if stated.get("epsilon") is not None:
            label = f"{group.name}: epsilon"
            numbers.append(Number(f"{path}.epsilon", label, group.epsilon))
        label = f"{group.name}: clients"
        numbers.append(Number(f"{path}.clients", label, group.clients))

    decided: set[str] = {*spec.planning.free}
    if spec.recipe is not None:
        decided |= {*spec.recipe.decides}
    for name in ("rounds", "cohort"):
        if data.get(name) is not None and name not in decided:
            numbers.append(Number(name, name, float(data[name])))
    return numbers


# --- What is shown, as HTML. ----------------------------------------------------------

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
        return (
            f'<p id="state" role="status" style="{_BAD}"><b>There is no plan:</b> '
            f"{why}</p>"
        )
    answers, table = answer(shown.plan)
    sentences = [*guess_lines(shown.plan), *answers]
    if shown.plan.forecast is not None:
        sentences += forecast_lines(shown.plan)
    sentences += attention_lines(shown.plan)

    # The first is the answer; the others explain it.
    first, *explanations = [
        in_html(sentence[:1].upper() + sentence[1:]) for sentence in sentences
    ]
    text = "".join(f"<p>{sentence}</p>" for sentence in explanations)
    return (
        f'<p id="state" role="status"><b>{first}</b></p>{text}{_table("plan", table)}'
    )


def more_html(shown: Shown) -> str:
    """What one more epsilon of each group buys, where the plan has an objective."""
    from privplan.planning.reasons import budget_values

    values = budget_values(shown.plan, more_by=1) if shown.plan else ()
    cells = [
        [value.group, _change(value.objective_gain), _change(value.noise_gain)]
        for value in values
    ]
    title = "What one more epsilon buys"
    columns = ["group", "objective", "noise"]
    caption = "each for its own group alone; of curves within 0.1% of what is certified"
    return _table("more", Table(title, columns, cells, caption))


def _change(fall: float) -> str:
    if abs(fall) < 1e-3:
        return "less than 0.1%"
    return f"{-fall:+.1%}"


def _table(name: str, table: Table) -> str:
    title, columns, rows, caption = table
    if not rows:
        return ""
    side = "padding:0.2rem 0.7rem 0.2rem 0;text-align:"

    def cells(words: list[str], tag: str) -> str:
        """A row; its first cell is a name, the others are numbers."""
        texts: list[str] = []
        for index, word in enumerate(words):
            align = "right" if index else "left"
            texts.append(
                f'<{tag} data-name="{in_html(columns[index])}" '
                f'style="{side}{align}">{in_html(word)}</{tag}>'
            )
        return "".join(texts)

    # What is wider than the page is moved by itself, and never cut.
    region = (
        f'<div role="region" tabindex="0" aria-label="{in_html(title)}" '
        f'style="{_WIDE}">'
    )
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return (
        f'{_NARROW}{region}<table id="{name}" class="narrow" '
        'style="margin-top:1rem"><caption style="text-align:left">'
        f"<b>{in_html(title)}</b></caption><thead><tr>{cells(columns, 'th')}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
        f'<p id="law-{name}" style="font-size:0.8rem">{in_html(caption)}</p>'
    )


def fault_html(path: str, shown: Shown) -> str:
    """What is wrong with a number, to stand beside its field."""
    fault = shown.faults.get(path, "")
    style = f'style="{_BAD if fault else ""}"'
    return f'<span role="alert" data-path="{in_html(path)}" {style}>{in_html(fault)}</span>'


def spec_html(shown: Shown) -> str:
    """The spec of the numbers, if any, selected as a whole by one click."""
    if not shown.spec:
        return ""
    style = "user-select:all;font-size:0.8rem;overflow-x:auto"
    return (
        "<p>The spec with these numbers (one click selects it); save it as spec.yaml, "
        "then: <code>privplan solve spec.yaml</code></p>"
        f'<pre id="spec" tabindex="0" style="{style}">{in_html(shown.spec)}</pre>'
    )


def spoken(label: str) -> str:
    """A label that screen readers say, and that takes no room beside its slider's."""
    style = "position:absolute;width:1px;height:1px;overflow:hidden"
    return f'<span style="{style}">{in_html(label)}</span>'


# --- The page: a slider and a field for each number, and what is shown beside them. ---
# A slider that moves makes the fields anew, and a field that is changed the sliders, so
# that neither is replaced under the hand that moves it.

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
def _(changed, desk, mo, page, set_typed, slid):
    slid()
    fields = {{
        one.path: mo.ui.text(
            value=desk.typed[one.path], on_change=changed(one, set_typed), full_width=True,
            label=page.spoken(one.label),
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


PREPARED = """
import json, runpy, sys
from privplan.contrib.app import prepare

prepare(*json.loads(sys.argv.pop(1)))
runpy.run_module("marimo", run_name="__main__")
"""
"""The server: it loads what the page needs, and solves its plan, before it listens."""


def prepare(spec: str | None, proxy: str | None) -> None:
    """Compute what the page of a spec shows first, which the first visit then finds.

    A notebook that is served runs in a thread of the server, so that it finds what is
    loaded and solved here.
    """
    plan_html(Desk.of(spec, proxy).shown())


def serve(
    folder: str, spec: str | None, proxy: str | None, port: int
) -> subprocess.Popen[bytes]:
    """The process that serves the page on this machine, from a notebook in a folder."""
    # The notebook runs in another folder.
    spec_path = None if spec is None else str(Path(spec).absolute())
    proxy_path = None if proxy is None else str(Path(proxy).absolute())
    name = Desk.of(spec, proxy).name
    text = NOTEBOOK.format(
        spec=spec_path,
        proxy=proxy_path,
        title=f"What if: {name}",
        heading=f'<h1 style="{_TITLE}">What if: {in_html(name)}</h1>',
    )
    notebook = Path(folder) / "app.py"
    notebook.write_text(text, encoding="utf-8")

    words = ["--quiet", "run", str(notebook), "--headless", "--no-token", "--no-check"]
    sources = json.dumps([spec_path, proxy_path])
    address = ["--host", HOST, "--port", str(port)]
    environment = {**os.environ, "MARIMO_SKIP_UPDATE_CHECK": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", PREPARED, sources, *words, *address], env=environment
    )


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
