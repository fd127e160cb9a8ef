"""The report page of a plan, a run or a comparison: one HTML file that needs no network.

What the page says is gathered here; its sentences are in ``page.html.j2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from privplan.accounting.calibrate import PLD
from privplan.errors import InputError, UnsupportedError
from privplan.forecast.target import forecast_lines, reached_line
from privplan.ledger import history_of
from privplan.plan import Plan
from privplan.planning.risks import GroupRisk, risks_of
from privplan.record import PLAN, RECORD, RunRecord
from privplan.report import plots, reproduce, scores, tables
from privplan.report.style import DARK, LIGHT, Panel
from privplan.verification.promise import require_certified
from privplan.verification.run import Run
from privplan.verification.verdict import Verdict
from privplan.verification.verify import judge, load_run
from privplan.visible import KEPT_LINES, printable

NOT_COVERED = (
    "the number of units, the groups and who belongs to which",
    "evaluation results and statistics that were computed without noise",
    "releases of other runs on the same units: see the budget book",
    "side channels of the software: timing, floating-point rounding, logs",
)
"""What no guarantee of this project covers."""

OWN_MODULE = (
    "initial values and frozen buffers of the own module: they count as public, so what was "
    "computed in them from clients' records is released without noise"
)
"""What else is not covered where a run trained a module of its user."""


def not_covered(record: RunRecord | None) -> list[str]:
    """What no guarantee covers, of a run or of a plan."""
    return [
        *NOT_COVERED,
        *([OWN_MODULE] if record and reproduce.has_own_model(record) else []),
    ]


@dataclass(frozen=True)
class Promise:
    """A plan that the page is about, and whom its budgets protect."""

    plan: Plan
    chances: Sequence[GroupRisk]  # what the best attacker may reach; empty if unknown
    methods: Sequence[str] = ()  # of a comparison, those that protect this plan's units
    whose: str = ""  # a method whose plan it is, where methods plan for themselves

    @property
    def law(self) -> str:
        """What an epsilon of the plan depends on besides its group."""
        return plots.law_of(self.plan)


@dataclass
class Content:
    """What is on the page."""

    promises: list[Promise]  # of a comparison one for each unit that methods protect
    panels: list[Panel] = field(default_factory=list)
    run: Run | None = None
    verdict: Verdict | None = None
    methods: Sequence[Any] = ()  # rows of a comparison
    leaders: Sequence[Any] = ()  # of a comparison, for each unit the method that leads
    kept: str = ""  # how many methods kept every budget, by unit
    compared: Sequence[tables.Table] = ()
    answers: Sequence[str] = ()
    commands: Sequence[str] = ()
    withheld: bool = False  # whether the page shows no score

    @property
    def plan(self) -> Plan:
        """The first of the plans."""
        return self.promises[0].plan

    @property
    def record(self) -> RunRecord | None:
        """Of the run."""
        return None if self.run is None else self.run.record


def page_of(source: Path | str, judged: Callable[[Run], Verdict] = judge) -> str:
    """The page of a plan file, a run folder or a comparison's folder, as one HTML document.

    ``judged`` judges a run, by default without executing rounds again.
    """
    where = Path(source)
    if where.is_file():
        content = _of_plan(require_certified(Plan.load(where)))
    elif (where / RECORD).is_file():
        content = _of_run(load_run(where), judged)
    else:
        content = _of_comparison(where)
    return _rendered(content)


def _of_plan(plan: Plan) -> Content:
    panels = [*_spending(plan), *plots.plan_panels(plan)]
    promise = Promise(plan, _chances(plan, None, None))
    return Content([promise], panels, commands=reproduce.of_plan())


def _of_run(run: Run, judged: Callable[[Run], Verdict]) -> Content:
    verdict, plan = judged(run), run.plan
    withheld = scores.are_withheld(run.record)
    panels = [plots.verdict_panel(verdict)]
    if not withheld:
        panels += plots.score_panels(run.record, plan)
    panels += _spending(plan, run)
    panels += plots.plan_panels(plan)[1:]  # the verdict has the budgets of its own
    return Content(
        [Promise(plan, _chances(plan, run, verdict))],
        panels,
        run=run,
        verdict=verdict,
        commands=reproduce.of_run(run.record),
        withheld=withheld,
    )


def _of_comparison(folder: Path) -> Content:
    plans = [Plan.load(path) for path in sorted(folder.glob(f"*/*/{PLAN}"))]
    if not plans:
        rule = "must be a plan file, a run folder or a comparison's folder"
        raise InputError.one("report", rule, str(folder))
    try:
        comparison_rows = import_module("simulate.runs.rows")
        leading = import_module("simulate.runs.leader")
        method_tables = import_module("simulate.runs.tables")
    except ImportError as error:
        rule = "of a comparison needs the simulator: pip install 'privplan[simulate]'"
        raise InputError.one("report", rule, str(error)) from None
    methods = comparison_rows.rows_in(folder)
    withheld = any(
        scores.are_withheld(record) for row in methods for record in row.records
    )
    if withheld:  # their order would be that of their scores
        methods = sorted(methods, key=lambda row: str(row.algorithm))
    units = leading.by_unit(methods)
    # Methods that protect nobody have a plan of the others' budgets, which promises
    # nothing.
    private = {unit: rows for unit, rows in units.items() if unit != "none"} or units
    leaders = (
        {}
        if withheld
        else {unit: leading.leader(rows) for unit, rows in private.items()}
    )
    by_digest = {plan.digest: plan for plan in plans}
    promises = []
    for unit, rows in private.items():
        leads = leaders.get(unit)
        kept = [row for row in rows if row.keeps]
        chosen = leads.row if leads else [*kept, *rows][0]
        plan = by_digest[chosen.verdicts[0].plan_digest]
        names = [row.algorithm for row in rows]
        promises.append(
            Promise(plan, _chances(plan, None, None), names, chosen.algorithm)
        )
    compared, panels = [], []
    for whose, rows in leading.units_apart(methods).items():
        compared.append(
            method_tables.printed_table(f"{whose}results", rows, scores=not withheld)
        )
        panels += [] if withheld else _named(plots.comparison_panels(rows), whose)
    for promise in promises:
        drawn = [*_spending(promise.plan), *plots.plan_panels(promise.plan)]
        panels += _named(drawn, f"{promise.plan.unit}s: " if len(promises) > 1 else "")
    return Content(
        promises,
        panels,
        methods=methods,
        leaders=[leads for leads in leaders.values() if leads is not None],
        kept=leading.kept_line(methods),
        compared=[*compared, method_tables.setup_table(methods)],
        answers=() if withheld else leading.answer(methods),
        commands=reproduce.of_comparison(
            methods[0].records, [row.algorithm for row in methods]
        ),
        withheld=withheld,
    )


def _named(panels: Sequence[Panel], whose: str) -> list[Panel]:
    """Panels whose titles begin with whose they are."""
    return [replace(panel, title=f"{whose}{panel.title}") for panel in panels]


def _spending(plan: Plan, run: Run | None = None) -> list[Panel]:
    """The budget over the rounds of a plan or of a run, where it is known."""
    panel = plots.spending_panel(plan, run.ledger.records if run else ())
    return [] if panel is None else [panel]


def _rendered(content: Content) -> str:
    """The page as HTML."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_seen,
    )
    environment.filters |= {"up": _up, "sentence": _sentence}
    record = content.record
    page = environment.get_template("page.html.j2").render(
        **{
            name: getattr(content, name)
            for name in ("promises", "verdict", "methods", "leaders")
        },
        **{
            name: getattr(content, name)
            for name in ("kept", "compared", "answers", "commands")
        },
        plan=content.plan,
        record=record,
        state="open" if content.verdict is None else content.verdict.outcome,
        rehearsed=_is_rehearsal(content),
        simulated=_is_simulation(content),
        withheld=scores.WITHHELD if content.withheld else "",
        pictures=[(panel.title, Markup(panel.inline())) for panel in content.panels],
        forecast=forecast_lines(content.plan),
        reached=[] if content.withheld else _reached(content),
        not_covered=not_covered(record),
        notes=[] if record is None else reproduce.notes_of(record),
        spec=_spec_text(content.plan),
        version=version("privplan"),
        light=LIGHT,
        dark=DARK,
        tables=tables,
    )
    return page.lstrip()


def _seen(value: Any) -> Any:
    """What the template prints, with escapes for letters that cannot be seen."""
    return printable(value, KEPT_LINES) if type(value) is str else value


def _verdicts(content: Content) -> list[Verdict]:
    """Of the run, or of all runs of a comparison."""
    if content.verdict is not None:
        return [content.verdict]
    return [verdict for row in content.methods for verdict in row.verdicts]


def _is_rehearsal(content: Content) -> bool:
    return any(verdict.outcome == "rehearsal" for verdict in _verdicts(content))


def _is_simulation(content: Content) -> bool:
    return any(verdict.simulation_only for verdict in _verdicts(content))


def _reached(content: Content) -> list[str]:
    """The forecast beside what a run, or the plan's own method in a comparison, reached."""
    lines = []
    if content.verdict is not None and content.record is not None:
        accuracy, dataset = content.verdict.accuracy, content.record.dataset
        lines.append(reached_line(content.plan, accuracy, dataset))
    for row in content.methods:
        if row.algorithm == "planned":
            lines.append(reached_line(content.plan, row.mean, row.records[0].dataset))
    return [line for line in lines if line]


def _spec_text(plan: Plan) -> str:
    """The spec as YAML, which solved again gives the plan; empty for one with many groups."""
    if len(plan.groups) > plots.MOST_GROUPS:
        return ""
    data = plan.spec.model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if printable(text, KEPT_LINES) == text:
        return text
    return yaml.safe_dump(
        data, sort_keys=False
    )  # YAML has escapes of its own, which are read back


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _up(value: float, digits: int = 1) -> str:
    """An upper bound, rounded up."""
    return f"{math.ceil(value * 10**digits) / 10**digits:g}"


def _chances(plan: Plan, run: Run | None, verdict: Verdict | None) -> list[GroupRisk]:
    """What the best attacker may reach, by the ledger of a run or as planned; empty if unknown."""
    spent = None
    if run is not None and verdict is not None:
        upper = {one.group: one.realised_upper for one in verdict.groups}
        spent = {
            name: (
                history_of(run.ledger.records, name),
                math.inf if one is None else one,
            )
            for name, one in upper.items()
        }
    try:
        return risks_of(plan, spent) if plan.guarantee == PLD else []
    except UnsupportedError:
        return []
