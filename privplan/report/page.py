"""The report page of a plan, a run or a comparison: one HTML file without a network.

What the page says is gathered here; its sentences are in ``page.html.j2``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from privplan.errors import InputError
from privplan.forecast.target import forecast_lines, reached_line
from privplan.ledger import history_of
from privplan.plan import Plan
from privplan.planning.risks import GroupRisk
from privplan.record import PLAN, RECORD, RunRecord
from privplan.report import plots, reproduce, scores, tables, verdicts
from privplan.report.attacked import attacked_table
from privplan.report.document import document
from privplan.report.panels import MOST_GROUPS
from privplan.report.protection import (
    GUESSED,
    attack_table,
    discovered,
    right_guesses,
    risks_where_known,
)
from privplan.report.style import Panel
from privplan.report.table import Table
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
    uncovered = list(NOT_COVERED)
    if record and reproduce.has_own_model(record):
        uncovered.append(OWN_MODULE)
    return uncovered


@dataclass(frozen=True)
class Promise:
    """A plan that the page is about, and whom its budgets protect.

    Attributes:
        chances: what the best attacker may reach; empty if unknown.
        methods: of a comparison, those that protect this plan's units.
        whose: a method whose plan it is, where methods plan for themselves.
    """

    plan: Plan
    chances: Sequence[GroupRisk]
    methods: Sequence[str] = ()
    whose: str = ""

    @property
    def law(self) -> str:
        """What an epsilon of the plan depends on besides its group."""
        return plots.law_of(self.plan)

    def attack_table(self, is_of_run: bool) -> Table:
        """What no attack exceeds, by group."""
        if is_of_run:
            source = "the releases in the ledger"
        else:
            source = "the planned releases"
        if self.whose:
            source += f" of {self.whose}"
        law = f"{source} ({self.law}; {self.plan.identity})"
        return attack_table(self.plan, self.chances, law)


@dataclass
class Content:
    """What is on the page.

    Attributes:
        promises: of a comparison one for each unit that methods protect.
        methods: rows of a comparison.
        leaders: of a comparison, for each unit the method that leads.
        budgets_kept: how many methods kept every budget, by unit.
        compared: tables of a comparison.
        answers: what a comparison says of scores.
        together: what its runs on the same people spend together, by group.
        commands: that reproduce what the page is about.
        withheld: whether the page shows no score.
        attacked: what attacks read from the run's releases, where it was attacked.
    """

    promises: list[Promise]
    panels: list[Panel] = field(default_factory=list)
    run: Run | None = None
    verdict: Verdict | None = None
    methods: Sequence[Any] = ()
    leaders: Sequence[Any] = ()
    budgets_kept: str = ""
    compared: Sequence[Table] = ()
    answers: Sequence[str] = ()
    together: Sequence[str] = ()
    commands: Sequence[str] = ()
    withheld: bool = False
    attacked: Table | None = None

    @property
    def plan(self) -> Plan:
        """The first of the plans."""
        return self.promises[0].plan

    @property
    def record(self) -> RunRecord | None:
        """Of the run."""
        if self.run is None:
            return None
        return self.run.record

    @property
    def verdicts(self) -> list[Verdict]:
        """Of the run, or of all runs of a comparison."""
        if self.verdict is not None:
            return [self.verdict]
        all_verdicts: list[Verdict] = []
        for row in self.methods:
            all_verdicts += row.verdicts
        return all_verdicts


def page_of(source: Path | str, judged: Callable[[Run], Verdict] = judge) -> str:
    """The page of a plan, a run or a comparison, as one HTML document.

    Args:
        source: a plan file, a run folder or a comparison's folder.
        judged: judges a run, by default without executing rounds again.

    Raises:
        InputError: when it is none of these.
    """
    where = Path(source)
    if where.is_file():
        content = _of_plan(Plan.load(where))
    elif (where / RECORD).is_file():
        content = _of_run(load_run(where), judged)
    else:
        content = _of_comparison(where)
    return _rendered(content)


def _of_plan(plan: Plan) -> Content:
    panels = [*_spending(plan), *plots.plan_panels(plan)]
    promise = Promise(plan, _chances(plan))
    return Content([promise], panels, commands=reproduce.of_plan())


def _of_run(run: Run, judged: Callable[[Run], Verdict]) -> Content:
    verdict = judged(run)
    plan = run.plan
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
        attacked=None if run.folder is None else attacked_table(run.folder),
    )


@dataclass(frozen=True)
class _Comparison:
    """Methods side by side, and the modules of the simulator that tell of them.

    Attributes:
        methods: rows of the comparison.
        withheld: whether the page shows no score.
        leading: says which method leads.
        tables: makes its tables.
        spent: says what its runs spend together.
    """

    methods: Sequence[Any]
    withheld: bool
    leading: Any
    tables: Any
    spent: Any

    @property
    def private_units(self) -> Mapping[str, Any]:
        """Methods by the unit that they protect, but for those that protect nobody.

        These have a plan of the others' budgets, which promises nothing.
        """
        units: dict[str, Any] = self.leading.by_unit(self.methods)
        private = {unit: rows for unit, rows in units.items() if unit != "none"}
        return private or units

    @property
    def leaders(self) -> Mapping[str, Any]:
        """The method that leads for each unit; empty where scores are withheld."""
        if self.withheld:
            return {}
        units = self.private_units.items()
        return {unit: self.leading.leader(rows) for unit, rows in units}


def _loaded_comparison(folder: Path) -> _Comparison:
    try:
        comparison_rows = import_module("simulate.runs.rows")
        leading = import_module("simulate.runs.leader")
        method_tables = import_module("simulate.runs.tables")
        spent = import_module("simulate.runs.together")
    except ImportError as error:
        rule = "of a comparison needs the simulator: pip install 'privplan[simulate]'"
        raise InputError.one("report", rule, str(error)) from None
    methods = comparison_rows.rows_in(folder)
    records = itertools.chain.from_iterable(row.records for row in methods)
    withheld = any(map(scores.are_withheld, records))
    if withheld:  # their order would be that of their scores
        methods = sorted(methods, key=lambda row: str(row.algorithm))
    return _Comparison(methods, withheld, leading, method_tables, spent)


def _of_comparison(folder: Path) -> Content:
    plans = [Plan.load(path) for path in sorted(folder.glob(f"*/*/{PLAN}"))]
    if not plans:
        rule = (
            "must be a plan file, a run folder, a comparison's folder or a budget book"
        )
        raise InputError.one("report", rule, str(folder))
    comparison = _loaded_comparison(folder)
    methods = comparison.methods
    leaders = comparison.leaders
    by_digest = {plan.digest: plan for plan in plans}
    promises = [
        _promise_of_methods(rows, leaders.get(unit), by_digest)
        for unit, rows in comparison.private_units.items()
    ]
    return Content(
        promises,
        _panels_of_methods(comparison, promises),
        methods=methods,
        leaders=[leader for leader in leaders.values() if leader is not None],
        budgets_kept=comparison.leading.kept_line(methods),
        compared=_tables_of_methods(comparison),
        answers=() if comparison.withheld else comparison.leading.answer(methods),
        together=list(
            comparison.spent.together(comparison.spent.of_own_people(folder))
        ),
        commands=reproduce.of_comparison(
            methods[0].records, [row.algorithm for row in methods]
        ),
        withheld=comparison.withheld,
    )


def _panels_of_methods(
    comparison: _Comparison, promises: Sequence[Promise]
) -> list[Panel]:
    """Scores of methods, apart by the unit that they protect, and what is promised."""
    panels: list[Panel] = []
    if not comparison.withheld:
        units = comparison.leading.units_apart(comparison.methods)
        for whose, rows in units.items():
            panels += _named(plots.comparison_panels(rows), whose)
    for promise in promises:
        promised = [*_spending(promise.plan), *plots.plan_panels(promise.plan)]
        whose = f"{promise.plan.unit}s: " if len(promises) > 1 else ""
        panels += _named(promised, whose)
    return panels


def _tables_of_methods(comparison: _Comparison) -> list[Table]:
    """What methods reached, apart by the unit that they protect, and how they ran."""
    compared = []
    for whose, rows in comparison.leading.units_apart(comparison.methods).items():
        title = f"{whose}results"
        scored = not comparison.withheld
        compared.append(comparison.tables.printed_table(title, rows, scores=scored))
    return [*compared, comparison.tables.setup_table(comparison.methods)]


def _promise_of_methods(
    rows: Sequence[Any], leader: Any, plans: Mapping[str, Plan]
) -> Promise:
    """What is promised to a unit, by the method that leads or one that kept it."""
    keeping = [row for row in rows if row.keeps]
    chosen = leader.row if leader else [*keeping, *rows][0]
    plan = plans[chosen.verdicts[0].plan_digest]
    names = [row.algorithm for row in rows]
    return Promise(plan, _chances(plan), names, chosen.algorithm)


def _named(panels: Sequence[Panel], whose: str) -> list[Panel]:
    """Panels whose titles begin with whose they are."""
    return [replace(panel, title=f"{whose}{panel.title}") for panel in panels]


def _spending(plan: Plan, run: Run | None = None) -> list[Panel]:
    """The budget over the rounds of a plan or of a run, where it is known."""
    panel = plots.spending_panel(plan, run.ledger.records if run else ())
    if panel is None:
        return []
    return [panel]


def _rendered(content: Content) -> str:
    """The page as HTML."""
    record = content.record
    return document(
        "page.html.j2",
        promises=content.promises,
        verdict=content.verdict,
        methods=content.methods,
        leaders=content.leaders,
        kept=content.budgets_kept,
        compared=content.compared,
        answers=content.answers,
        together=content.together,
        commands=content.commands,
        attacked=content.attacked,
        plan=content.plan,
        record=record,
        state="open" if content.verdict is None else content.verdict.outcome,
        rehearsed=any(verdict.outcome == "rehearsal" for verdict in content.verdicts),
        simulated=any(verdict.simulation_only for verdict in content.verdicts),
        withheld=scores.WITHHELD if content.withheld else "",
        panels=content.panels,
        forecast=forecast_lines(content.plan),
        reached=[] if content.withheld else _reached(content),
        not_covered=not_covered(record),
        notes=[] if record is None else reproduce.notes_of(record),
        spec=_spec_text(content.plan),
        tables=tables,
        verdicts=verdicts,
        guessed=GUESSED,
        right_guesses=right_guesses,
        discovered=discovered,
    )


def _reached(content: Content) -> list[str]:
    """The forecast beside what a run, or a comparison's planned method, reached."""
    lines = []
    if content.verdict is not None and content.record is not None:
        accuracy = content.verdict.accuracy
        dataset = content.record.dataset
        lines.append(reached_line(content.plan, accuracy, dataset))
    for row in content.methods:
        if row.algorithm == "planned":
            lines.append(reached_line(content.plan, row.mean, row.records[0].dataset))
    return [line for line in lines if line]


def _spec_text(plan: Plan) -> str:
    """The spec as YAML, which solved again gives the plan; empty for many groups."""
    if len(plan.groups) > MOST_GROUPS:
        return ""
    data = plan.spec.model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if printable(text, KEPT_LINES) == text:
        return text
    # YAML has escapes of its own, which are read back.
    return yaml.safe_dump(data, sort_keys=False)


def _chances(
    plan: Plan, run: Run | None = None, verdict: Verdict | None = None
) -> list[GroupRisk]:
    """What the best attacker may reach; empty if unknown.

    Args:
        plan: whose planned releases count without a run.
        run: whose ledger counts.
        verdict: on the run.
    """
    spent = None
    if run is not None and verdict is not None:
        spent = {}
        for group in verdict.groups:
            upper = group.realised_upper
            history = history_of(run.ledger.records, group.group)
            spent[group.group] = (history, math.inf if upper is None else upper)
    return risks_where_known(plan, spent)
