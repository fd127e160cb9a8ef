"""The report page of a plan, a run or a comparison: one HTML file that needs no network.

What the page says is gathered here; its sentences are in ``page.html.j2``.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from privplan.accounting.calibrate import PLD
from privplan.errors import InputError, UnsupportedError
from privplan.forecast.target import forecast_lines, reached_line
from privplan.ledger import history_of
from privplan.plan import Plan
from privplan.planning.explain import GroupRisk, risks_of
from privplan.record import PLAN, RECORD
from privplan.report import plots, tables
from privplan.report.style import DARK, LIGHT
from privplan.verification.checks.check import Run
from privplan.verification.verify import Verdict, judge, load_run

NOT_COVERED = (
    "the number of units, the groups and who belongs to which",
    "evaluation results and statistics that were computed without noise",
    "releases of other runs on the same units: see the budget book",
    "side channels of the software: timing, floating-point rounding, logs",
)
"""What no guarantee of this project covers."""


def page_of(source: Path | str, judged: Callable[[Run], Verdict] = judge) -> str:
    """The page of a plan file, a run folder or a comparison's folder, as one HTML document.

    ``judged`` judges a run, by default without executing rounds again.
    """
    where, run, verdict = Path(source), None, None
    methods, compared, answers = [], [], []
    if where.is_file():
        plan, panels = Plan.load(where), []
    elif (where / RECORD).is_file():
        run = load_run(where)
        verdict, plan = judged(run), run.plan
        panels = [plots.verdict_panel(verdict), *plots.score_panels(run.record, plan)]
    else:
        plans = [Plan.load(one) for one in sorted(where.glob(f"*/*/{PLAN}"))]
        if not plans:
            rule = "must be a plan file, a run folder or a comparison's folder"
            raise InputError.one("report", rule, str(source))
        try:
            chapter = import_module("simulate.runs.compare")
        except ImportError as error:
            rule = "of a comparison needs the simulator: pip install 'privplan[simulate]'"
            raise InputError.one("report", rule, str(error)) from None
        methods = chapter.rows_in(where)
        compared = [chapter.printed_table("Methods, best first", methods)]
        compared.append(chapter.given_table(methods))
        answers = chapter.answer(methods)
        best = next((one for one in methods if not one.note), methods[0])
        plan = next(one for one in plans if one.digest == best.verdicts[0].plan_digest)
        panels = plots.comparison_panels(methods)
    spending = plots.spending_panel(plan, run.ledger.records if run else ())
    panels += [spending] if spending else []
    panels += plots.plan_panels(plan)[1 if run else 0 :]  # a verdict has the budgets of its own
    spec = plan.spec.model_dump(mode="json", exclude_defaults=True)
    few = len(plan.groups) <= plots.MOST_GROUPS
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"up": _up, "quote": shlex.quote, "sentence": _sentence}
    page = environment.get_template("page.html.j2").render(
        plan=plan, record=run.record if run else None, verdict=verdict, methods=methods,
        compared=compared, answers=answers, chances=_chances(plan, run, verdict),
        pictures=[(one.title, Markup(one.inline())) for one in panels],
        forecast=forecast_lines(plan), reached=reached_line, not_covered=NOT_COVERED,
        spec=yaml.safe_dump(spec, sort_keys=False, allow_unicode=True) if few else "",
        version=version("privplan"), light=LIGHT, dark=DARK, law=plots.law_of(plan), tables=tables,
    )  # fmt: skip
    return page.lstrip()


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
            name: (history_of(run.ledger.records, name), math.inf if one is None else one)
            for name, one in upper.items()
        }
    try:
        return risks_of(plan, spent) if plan.guarantee == PLD else []
    except UnsupportedError:
        return []
