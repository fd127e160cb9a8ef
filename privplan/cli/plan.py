"""``privplan`` solve, explain, verify, init and what-if: a plan and its verdict."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import PROVE, meaning, render
from privplan.cli.folders import FolderPath
from privplan.cli.judging import judging, judging_options, keep
from privplan.errors import InputError
from privplan.files import write_text
from privplan.spec.presets import DEFAULT, PRESETS, preset

if TYPE_CHECKING:
    from privplan.book.composition import BookRule as Rule
    from privplan.plan import Plan
    from privplan.proof import Finding
    from privplan.report.style import Panel
    from privplan.report.table import Table
    from privplan.spec.spec import Spec
    from privplan.verification.run import Run
    from privplan.verification.verdict import Verdict


class _Target(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A target and its number, such as ``accuracy=80``."""

    name = "NAME=NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Name and number."""
        name, _, number = str(value).rpartition("=")
        try:
            return name, float(number)
        except ValueError:
            if param is None:
                field = "for"
            else:
                field = str(param.opts[0]).removeprefix("--")
            raise InputError.one(field, "must be NAME=NUMBER", value) from None


@dataclass(frozen=True)
class _Question:
    """What ``solve`` is asked beside the spec; fields are its options.

    Attributes:
        targets: what is solved backwards, by name, without ``uploads``.
        uploads: the most over all rounds.
        solve_for: the unknown of the targets.
        proxy: file of the table of proxy runs.
        known_accuracy: an anchor, ``PLAN=PERCENT``.
        coverage: file of the classes that each group holds.
        book: address of the budget book; empty for the usual one.
        population: whose groups these are, in the book.
        rule: how the book composes runs.
    """

    targets: dict[str, float]
    uploads: float | None
    solve_for: str | None
    proxy: str | None
    known_accuracy: str | None
    coverage: str | None
    book: str | None
    population: str | None
    rule: Rule | None

    @classmethod
    def of(cls, targets: tuple[tuple[str, float], ...], **options: Any) -> _Question:
        """The question of the command line's options, which have to fit together."""
        numbers = dict(targets)
        uploads = numbers.pop("uploads", None)
        question = cls(numbers, uploads, **options)
        question.check(targets)
        return question

    def check(self, targets: tuple[tuple[str, float], ...]) -> None:
        """Raise InputError for an option without the one that it needs."""
        has_proxy = self.proxy is not None
        has_book = self.book is not None
        needs = {
            "solve_for": ("a --for, such as noise=0.5", bool(self.targets)),
            "known_accuracy": ("--forecast PROXY", has_proxy),
            "coverage": ("--forecast PROXY", has_proxy),
            "population": ("--from-book", has_book),
            "rule": ("--from-book", has_book),
        }
        for option, (need, is_met) in needs.items():
            value = getattr(self, option)
            if value is not None and not is_met:
                raise InputError.one(option, f"needs {need}", value)

        shown = ", ".join(f"{name}={value:g}" for name, value in targets)
        if has_book and targets:
            raise InputError.one("for", "cannot go with --from-book", shown)
        has_uploads = self.uploads is not None
        is_repeated = len(targets) > len(self.targets) + has_uploads
        if is_repeated or (self.targets and has_uploads):
            text = (
                "must name each target once, and uploads alone (planning.max_uploads "
                "limits them)"
            )
            raise InputError.one("for", text, shown)

    def inputs(self, problem: Spec, spec: str) -> list[str | Path]:
        """Files that are read, and so may not be written."""
        inputs: list[str | Path] = [*problem.sources(spec)]
        inputs += [path for path in (self.proxy, self.coverage) if path is not None]
        if self.book is not None:
            from privplan.book.database import address_of
            from privplan.book.database import shown as shown_address

            inputs.append(shown_address(address_of(self.book)))
        return inputs

    def expectation(self, problem: Spec) -> Callable[[Plan], Plan] | None:
        """What gives a plan its forecast; None without proxy runs."""
        if self.proxy is None:
            return None
        from privplan.forecast.coverage import read_coverage
        from privplan.forecast.model import forecaster_with, with_forecast

        model = forecaster_with(self.proxy, self.known_accuracy, self.coverage)
        proxy = model.table
        coverage = read_coverage(self.coverage, problem, proxy.classes, proxy.skew)
        return partial(with_forecast, model=model, coverage=coverage)

    def plan(self, problem: Spec, expect: Callable[[Plan], Plan] | None) -> Plan:
        """The plan that answers, with its forecast where there are proxy runs."""
        if self.targets:
            from privplan.planning.inverse import solve_for

            unknown = self.solve_for or ""
            plan = solve_for(problem, self.targets, unknown, forecast=expect)
        elif self.book is not None:
            from privplan.book.replan import solve_at

            plan = solve_at(problem, self.book, self.population or "", self.rule)
        else:
            from privplan.planning.inverse import with_uploads
            from privplan.planning.solver import solve

            if self.uploads is not None:
                problem = with_uploads(problem, self.uploads)
            plan = solve(problem)
        if expect is not None and plan.forecast is None:
            plan = expect(plan)
        return plan


@click.command(
    name="solve",
    epilog="Example: privplan solve spec.yaml --for noise=0.1 -o plan.json",
)
@click.argument("spec", metavar="SPEC")
@click.option(
    "-o", "--output", metavar="PLAN", help="Write the plan there (plan.json)."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--details", is_flag=True, help="Show certificate, terms, status and recipe, too."
)
@click.option("--plot", metavar="PNG", help="Draw the plan into that picture.")
@click.option(
    "--for",
    "targets",
    type=_Target(),
    multiple=True,
    help="Solve backwards, at the least --solve-for; may be repeated. At most: noise=NORM of the "
    "mean update, objective=X, GROUP.noise_multiplier=X. At least: GROUP.counts=X (weight over its "
    "share of the clients), accuracy=PERCENT, GROUP.accuracy=PERCENT, by the --forecast. Alone: "
    "uploads=N, at most so many over all rounds, and the cohort follows.",
)
@click.option(
    "--solve-for",
    metavar="UNKNOWN",
    help="With --for: the fewest clients per round (cohort), the strictest budgets (epsilon: all "
    "times one factor, the default with an accuracy), the most rounds (with an accuracy the "
    "fewest), or of one group the least GROUP.epsilon, GROUP.delta or GROUP.clients.",
)
@click.option(
    "--forecast",
    metavar="PROXY",
    help="Forecast the accuracy from that table of proxy runs (privplan proxy forecast).",
)
@click.option(
    "--known-accuracy",
    metavar="PLAN=PERCENT",
    help="With --forecast: an accuracy that you know and the plan that reached it.",
)
@click.option(
    "--coverage",
    metavar="FILE",
    help="With --forecast: a JSON file, which classes each group holds. When left out, the "
    "interval covers groups alike and a strictest group that alone holds some.",
)
@click.option(
    "--from-book",
    "book",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="Start from what the budget book says is left: the spec's epsilons are budgets over all "
    "runs. A file or SQLAlchemy address, PRIVPLAN_BOOK when left out; write SPEC before it.",
)
@click.option(
    "--population",
    metavar="NAME",
    help="With --from-book: whose groups these are, in the book.",
)
@click.option(
    "--rule",
    type=click.Choice(["renyi", "gaussian", "exact"]),
    help="With --from-book: renyi, gaussian, a filter for a run chosen after seeing earlier ones "
    "(default: the rule of the group's account, or the filter that fits the first run); exact, for "
    "runs that were all fixed before the first result.",
)
@click.option("--prove", is_flag=True, help=PROVE)
def solve_command(
    spec: str,
    output: str | None,
    form: str,
    details: bool,
    plot: str | None,
    targets: tuple[tuple[str, float], ...],
    solve_for: str | None,
    forecast: str | None,
    known_accuracy: str | None,
    coverage: str | None,
    book: str | None,
    population: str | None,
    rule: Rule | None,
    prove: bool,
) -> None:
    """Solve SPEC: the plan and its certificate.

    Nothing is written when solving fails. Exit code 3: there is no such plan.
    """
    from privplan.file_kinds import spec_mapping
    from privplan.files import read_text, refuse_overwriting
    from privplan.planning.alternatives import attention_lines
    from privplan.planning.recipe import replaced_lines
    from privplan.proven import proof_program, with_proofs
    from privplan.record import refuse_inside_runs
    from privplan.spec.spec import Spec

    if prove:
        proof_program()  # refused before anything is solved where it is missing
    text = read_text(spec, "spec")
    data = spec_mapping(text, spec)
    problem = Spec.of_text(text, spec)
    question = _Question.of(
        targets,
        solve_for=solve_for,
        proxy=forecast,
        known_accuracy=known_accuracy,
        coverage=coverage,
        book=book,
        population=population,
        rule=rule,
    )

    # Files that are read stay; a picture of an unknown kind is refused before solving.
    refuse_overwriting(question.inputs(problem, spec), (output, plot))
    refuse_inside_runs(output, plot)
    if plot is not None:
        from privplan.report.style import picture_name

        picture_name(plot)
    expect = question.expectation(problem)
    with render.watched():
        solved = question.plan(problem, expect)

    findings: dict[str, Finding] = {}
    if prove:
        solved, findings = with_proofs(solved)
    replaced = None
    if output is not None:
        replaced = _replaced(solved, Path(output))
        solved.save(output)
    if plot is not None:
        solved.plot().save(plot)
    if form == "json":
        render.text(solved.to_json().rstrip("\n"))
    else:
        _show(solved, expect, findings if prove else None, details)
        for path in (output, plot):
            if path is not None:
                render.text(f"wrote {path}")
        _show_next(solved, output, details)

    warnings = [*solved.warnings, *attention_lines(solved)]
    if replaced is not None:
        warnings.append(replaced)
    warnings += replaced_lines(data, solved)
    initial = solved.spec.model.initial
    if initial is not None:
        warnings += initial.warnings()
    for warning in warnings:
        render.warn(warning)


def _replaced(plan: Plan, output: Path) -> str | None:
    """That a plan takes the place of a plan for another spec; else None."""
    from privplan.plan import Plan

    # What is there is replaced, whatever it is.
    with suppress(InputError):
        earlier = Plan.load(output)
        if earlier.spec.name != plan.spec.name:
            return (
                f"replaced {output}, which was plan {earlier.digest[:12]} of spec "
                f"{earlier.spec.name}"
            )
    return None


def _show(
    plan: Plan,
    expect: Callable[[Plan], Plan] | None,
    findings: dict[str, Finding] | None,
    details: bool,
) -> None:
    """Print a plan.

    Args:
        plan: what was solved.
        expect: what gives a plan its forecast, where there are proxy runs.
        findings: of proofs by group; None where nothing was to be proven.
        details: whether to show certificate, terms, status and recipe, too.
    """
    from privplan.forecast.target import forecast_lines
    from privplan.planning.alternatives import alternatives
    from privplan.planning.floors import floor_lines
    from privplan.planning.unspent import unspent_lines
    from privplan.proven import lines as unproven_lines
    from privplan.report import tables

    compared = alternatives(plan, expect)
    sentences, table = tables.answer(plan, compared)
    for line in (*sentences, *floor_lines(plan), *unspent_lines(plan)):
        render.text(line)
    render.table(*table)
    if plan.compared_laws:
        render.table(*tables.laws_table(plan.compared_laws))
    if details:
        render.table(*tables.plan_table(plan))
    proofs = findings or {}
    if details or findings is not None:
        certificate = tables.certificate_table(plan.certificate, plan.identity, proofs)
        render.table(*certificate)
    for line in unproven_lines(proofs):
        render.text(line)
    if compared and (details or expect is not None):
        render.table(*tables.alternatives_table(compared, plan))
    if any(group.risk is not None for group in plan.spec.groups):
        from privplan.planning.risks import risks_of

        render.table(*tables.risk_table(risks_of(plan), plan))
    if details:
        for line in tables.plan_lines(plan):
            render.text(line)
    for line in forecast_lines(plan):
        render.text(line)


def _show_next(plan: Plan, output: str | None, details: bool) -> None:
    """Print what to do with a plan."""
    written = "PLAN" if output is None else shlex.quote(output)
    method = "planned" if plan.unit == "client" else "NAME"
    options = plan.spec.model.options
    render.text(
        f"next: privplan simulate {written} --algorithm {method}{options} -o run"
    )
    if not details:
        render.text("certificate, terms and status: --details")


# --- ``privplan explain``: the bounds behind a plan, term by term. --------------------


def _refuse_what_is_no_plan(plan: str) -> None:
    """Raise InputError for a run folder or a number in place of a plan's file."""
    if Path(plan).is_dir():
        # What the plan of a run gives is not what the run gave.
        rule = (
            "must be the file of a plan, which a run has as RUN/plan.json; what a run "
            "spent: privplan verify RUN"
        )
        raise InputError.one("plan", rule, plan)
    if not plan.endswith(".json") and not Path(plan).exists():
        number = plan if plan.replace(".", "", 1).isdecimal() else "2"
        rule = f"must be a plan; what an epsilon means: explain --epsilon {number}"
        raise InputError.one("plan", rule, plan)


@click.command(name="explain", epilog="Example: privplan explain plan.json")
@click.argument("plan", metavar="[PLAN]", required=False)
@click.option("--epsilon", type=float, help="Say instead what this epsilon means.")
@click.option(
    "--delta",
    type=float,
    default=meaning.DELTA,
    show_default=True,
    help="Delta of that epsilon.",
)
@click.option(
    "--set",
    "constants",
    type=_Target(),
    multiple=True,
    help="A constant of the bounds that no field states, such as alpha_bar=0.5.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def explain_command(
    context: click.Context,
    plan: str | None,
    epsilon: float | None,
    delta: float,
    constants: tuple[tuple[str, float], ...],
    form: str,
) -> None:
    """Say what PLAN gives whom and why, then each term of its bounds, as a formula.

    With --epsilon and without a plan: what such a guarantee means to a person.
    """
    if (plan is None) == (epsilon is None):
        rule = "must be one of PLAN and --epsilon, such as --epsilon 2"
        raise InputError.one("explain", rule, plan)
    if plan is None:
        assert epsilon is not None
        meaning.show(epsilon, delta, form)
        return
    only_meaning = "is only for --epsilon; a plan has its own, and in Python "
    only_meaning += "account(plan.history(GROUP), delta=...) asks at another"
    render.refuse_options(context, ["delta"], only_meaning)
    _refuse_what_is_no_plan(plan)
    from privplan.accounting.calibrate import PLD
    from privplan.plan import Plan
    from privplan.planning.bounds import SYMPY_RULE, has_formulas
    from privplan.planning.explain import explain
    from privplan.report.tables import explanation

    solved = Plan.load(plan)
    # Sentences and risks need no formulas; who asks for terms by name does.
    is_asked = form == "json" or bool(constants) or solved.unit == "record"
    with_terms = is_asked or has_formulas()
    rows = explain(solved, dict(constants)) if with_terms else []
    if form == "json":
        render.data([vars(row) for row in rows])
        return
    for line in explanation(solved):
        render.text(line)
    if solved.guarantee == PLD:  # these are of a single run
        from privplan.errors import UnsupportedError
        from privplan.planning.risks import risks_of
        from privplan.report.tables import risk_table

        try:
            render.table(*risk_table(risks_of(solved), solved))
        except UnsupportedError as error:
            render.text(f"no risks: {error}")
    if not with_terms:
        render.text(f"the bounds by which papers plan: {SYMPY_RULE}")
        return
    render.text("The bounds by which papers plan, each term as a formula and a number:")
    lacking = []
    for name in dict.fromkeys(row.bound for row in rows):
        terms = [row for row in rows if row.bound == name]
        if all(row.value is None for row in terms):
            lacking.append(name)
            continue
        cells = [[row.term, row.formula, row.cell] for row in terms]
        render.table(f"{name}: {terms[0].source}", ["term", "formula", "value"], cells)
    if lacking:
        render.text(
            f"constants are missing for: {', '.join(lacking)} (--set NAME=VALUE states "
            "them, --format json names them)"
        )


# --- ``privplan verify``: what a run really spent, and whether it kept its plan. ------


WORKPLACE = (
    "the run folder is the trainer's workplace and not for publication; privplan "
    "publish writes what may be published"
)
_OF_RUNS = "must be left out for a bundle, of which nothing can be executed"
_UNVERIFIED = 5  # exit code: nothing failed, but evidence is missing
_NO_FOLDERS = (".zip", ".tar", ".gz", ".tgz", ".jsonl")
"""Endings of files that hold a run folder or a part of it."""


@click.command("verify", epilog="Example: privplan verify run")
@click.argument("run", type=click.Path(path_type=Path))
@judging_options
@click.option(
    "--require",
    type=click.Choice(["executed"]),
    help="Exit code 5 unless rounds were executed again.",
)
@click.option("--prove", is_flag=True, help=PROVE)
@click.option("--details", is_flag=True, help="Show every check.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def verify_command(
    ctx: click.Context,
    run: Path,
    plan: Path | None,
    rounds: str | None,
    require: str | None,
    noise_key: Path | None,
    prove: bool,
    details: bool,
    form: str,
) -> None:
    """Recompute what RUN (a run folder) spent from its ledger alone; write the verdict.

    Where simulator and data are found, rounds are executed again first and compared.
    Exit code 0: kept. 4: broken; each failed check says why. 5: unverified: no check
    failed, but evidence is missing; each check that is not shown names it; or a
    rehearsal on own data, whose seeded noise protects nobody. Of a plan file: what it
    promises, and 5. Of a bundle: what its publisher says, and 5.
    """
    from privplan.bundle import is_bundle
    from privplan.proven import plain, proof_program
    from privplan.verification.verify import load_run, proven_of

    if prove:
        proof_program()  # refused before anything is judged where it is missing
    judged = judging(ctx, plan, rounds, noise_key)
    if run.is_file():
        _show_promise(run, form)
        ctx.exit(_UNVERIFIED)
    if is_bundle(run):
        render.refuse_options(ctx, ("rounds", "noise_key", "prove"), _OF_RUNS)
        _show_bundle(run, plan, form)
        ctx.exit(_UNVERIFIED)

    loaded = load_run(run)
    verdict = judged(loaded)
    keep(verdict.save, run)
    findings: dict[str, Finding] = {}
    if prove:
        findings = proven_of(loaded, verdict)
    if form == "json":
        data = verdict.model_dump(mode="json")
        if prove:
            data["proven"] = plain(findings)
        render.data(data)
    else:
        _show_verdict(loaded, verdict, findings, details)
    if require is not None and verdict.level == "recorded":
        ctx.exit(_UNVERIFIED)
    ctx.exit(verdict.exit_code)


def _show_promise(path: Path, form: str) -> None:
    """Print what a plan file promises.

    Raises:
        InputError: for a file of another kind.
    """
    from privplan.plan import Plan
    from privplan.report import tables

    if path.suffix in _NO_FOLDERS:
        rule = "must be a run folder, unpacked, or a plan"
        raise InputError.one("run", rule, path.name)
    line = tables.promise_line(Plan.load(path))
    if form == "json":
        render.data({"outcome": "unverified", "reason": line})
    else:
        render.text(line)


def _show_bundle(folder: Path, plan: Path | None, form: str) -> None:
    """Print what the publisher of a bundle says, once it is of the reader's plan."""
    from privplan.publishing import read_bundle

    published = read_bundle(folder, plan=plan).verdict
    if form == "json":
        render.data(published.model_dump(mode="json"))
    else:
        render.text(f"a bundle, whose publisher says: {published.line}")
        if plan is not None:
            render.text(f"its plan is the one of {plan}")
        render.text(
            "its model is not checked here; who has its run folder can execute a "
            "simulation again"
        )


def _show_verdict(
    run: Run, verdict: Verdict, findings: dict[str, Finding], details: bool
) -> None:
    """Print the verdict on a run, with what proofs found by group."""
    from privplan.proven import lines as unproven_lines
    from privplan.record import ACCURACY
    from privplan.report import verdicts

    render.text(verdicts.headline(verdict))
    render.text(verdicts.worst_line(verdict))
    if details:
        render.table(*verdicts.check_table(verdict))
    render.table(*verdicts.group_table(verdict, findings=findings))
    if any(group.audit for group in verdict.groups):
        render.table(*verdicts.audit_table(verdict))

    lines: list[str | None] = []
    if verdict.metric == ACCURACY:
        lines.append(verdicts.class_line(verdict))
    if verdict.metric == ACCURACY and run.plan.forecast is not None:
        from privplan.forecast.target import reached_line

        lines.append(reached_line(run.plan, verdict.accuracy, run.record.dataset))
    initial = run.plan.spec.model.initial
    if initial is not None:
        lines.append(initial.line)
    lines += verdicts.closing_lines(verdict)
    lines += unproven_lines(findings)
    for line in filter(None, lines):
        render.text(line)

    if not details:
        passed = sum(check.passed for check in verdict.checks)
        absent = [
            check.name for check in verdict.checks if check.outcome == "not shown"
        ]
        not_shown = ""
        if absent:
            names = ", ".join(absent)
            not_shown = f", {names} not shown (the run has no evidence for it)"
        render.text(
            f"{passed} of {len(verdict.checks)} checks passed{not_shown}; --details "
            "shows each"
        )
    render.text(WORKPLACE)


# --- ``privplan init``: a commented spec to start from. -------------------------------


@click.command(
    name="init", epilog="Example: privplan init --preset digits -o spec.yaml"
)
@click.option(
    "--preset",
    "name",
    metavar="NAME",
    help=f"One of: {', '.join(PRESETS)}; {DEFAULT} when left out.",
)
@click.option(
    "-o", "--output", metavar="SPEC", help="File to write; standard output if left out."
)
@click.option("--schema", is_flag=True, help="Write the JSON schema of a spec instead.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.pass_context
def init_command(
    ctx: click.Context,
    /,
    name: str | None,
    output: str | None,
    schema: bool,
    force: bool,
) -> None:
    """Write a commented spec to start from, or the schema of a spec."""
    interview = ctx.meta.get("privplan.interview")
    if name is not None and (schema or interview):
        instead = "schema" if schema else "interactive"
        raise InputError.one("preset", f"must be left out with --{instead}", name)
    if output is not None and Path(output).is_dir():
        raise InputError.one("output", "must be a file, not a folder", output)
    if output is not None and Path(output).exists() and not force:
        rule = "must not exist yet; --force replaces it"
        raise InputError.one("output", rule, output)

    if schema:
        from privplan.spec.spec import Spec

        text = json.dumps(Spec.model_json_schema(), indent=1) + "\n"
    elif interview:
        text = interview()
    else:
        text = preset(DEFAULT if name is None else name)
    if output is None:
        render.text(text.rstrip("\n"))
        return
    # Its comment says how to solve the file that is written.
    command = f"privplan solve {shlex.quote(output)}"
    write_text(output, text.replace("privplan solve spec.yaml", command))
    render.text(f"wrote {output}")


# --- ``privplan what-if``: how a plan changes with the numbers of its spec. -----------

PICTURE = "what-if.png"
FRONTIER = "frontier.png"


@click.command(
    name="what-if",
    epilog='Example: privplan what-if spec.yaml "strict=0.5,1,2" rounds=20,40 --html page.html',
)
@click.argument("spec", metavar="SPEC")
@click.argument("named", metavar="[NAME=VALUE,...]", nargs=-1)
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="PATH=FROM:TO:COUNT[:log]",
    help="A number of the spec, for example groups.strict.epsilon=0.1:2:20 (strict in short); may "
    "be repeated for other numbers. Values of whole numbers are rounded; each occurs once.",
)
@click.option(
    "--without",
    "left_out",
    multiple=True,
    metavar="GROUP",
    help="With and without that group (its clients 0), with the same clients per round: what it "
    "costs the others.",
)
@click.option(
    "--frontier",
    "with_frontier",
    is_flag=True,
    help="Instead of --vary: noise against rounds, cohort, epsilons and groups; shadow prices.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "-o",
    "--output",
    "folder",
    type=FolderPath("; --html PAGE writes a page"),
    metavar="FOLDER",
    help="Folder for table, plot and journal.",
)
@click.option(
    "--html", metavar="PAGE", help="One HTML file with a slider for each number."
)
@click.option(
    "--workers", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes."
)
def what_if_command(
    spec: str,
    named: tuple[str, ...],
    varied: tuple[str, ...],
    left_out: tuple[str, ...],
    with_frontier: bool,
    form: str,
    folder: Path | None,
    html: str | None,
    workers: int,
) -> None:
    """Solve SPEC with some of its numbers varied: what each group spends, and noise.

    SPEC may also be a plan or a run folder. Where values are named, or with --html,
    what an attacker can reach is shown, too.
    """
    varied = (*named, *varied)
    if with_frontier == bool(varied or left_out):
        rule = (
            "exactly one of NAME=VALUE,... (or --vary, --without) and --frontier must be "
            "named"
        )
        raise InputError.one("vary", rule, "both" if with_frontier else "neither")
    if with_frontier and html is not None:
        raise InputError.one("html", "cannot go with --frontier", html)
    from privplan.files import write_bytes
    from privplan.report import style

    if folder is not None:
        style.refuse_without_matplotlib(str(folder))
    if with_frontier:
        answer = _frontier(spec)
    else:
        with_chances = bool(named) or html is not None
        answer = _swept(spec, varied, left_out, folder, html, with_chances, workers)
    if folder is not None and answer.panels:
        picture = style.picture(answer.panels, columns=2)
        write_bytes(folder / answer.files[-1], picture)
    if form == "json":
        render.data(answer.rows)
    else:
        render.table(*answer.table)
        if folder is not None:
            paths = [str(folder / file) for file in answer.files]
            render.text(f"wrote {' and '.join(paths)}")
        if html is not None:
            render.text(f"wrote {html}")
    for line in answer.warnings:
        render.warn(line)


@dataclass(frozen=True)
class _Answer:
    """What ``what-if`` shows.

    Attributes:
        rows: plain data, one row per group and point.
        table: title, columns and cells.
        panels: those of the picture.
        files: names of what a folder receives; the picture's is the last.
        warnings: lines.
    """

    rows: list[dict[str, Any]]
    table: Table
    panels: Sequence[Panel]
    files: list[str]
    warnings: list[str]


def _frontier(spec: str) -> _Answer:
    """Noise against rounds, cohort, epsilons and groups of a spec."""
    from privplan.planning.frontier import frontier, unscaled_lines
    from privplan.planning.sweep import spec_data
    from privplan.report import plots, sweeps
    from privplan.spec.spec import Spec

    problem = Spec.parse(spec_data(spec))
    with render.progress("frontier") as progress:
        points = frontier(problem, progress)
    return _Answer(
        rows=[point.plain() for point in points],
        table=sweeps.frontier_table(problem.name, points),
        panels=plots.frontier_panels(points),
        files=[FRONTIER],
        warnings=unscaled_lines(problem),
    )


def _swept(
    spec: str,
    varied: tuple[str, ...],
    left_out: tuple[str, ...],
    folder: Path | None,
    html: str | None,
    with_chances: bool,
    workers: int,
) -> _Answer:
    """The plans of a spec with some of its numbers varied.

    Args:
        spec: file of a spec or plan, or a run folder.
        varied: numbers of the spec and their values.
        left_out: groups with and without which the spec is solved.
        folder: where the table and the journal are stored.
        html: page with sliders to write.
        with_chances: whether an attacker's chances are shown.
        workers: processes.
    """
    from privplan.planning import sweep
    from privplan.report import plots, sweeps

    varies = [sweep.parse_vary(text) for text in varied]
    data = sweep.spec_data(spec)
    varies = [replace(vary, path=sweep.in_full(data, vary.path)) for vary in varies]
    varies += sweep.with_and_without(data, left_out)
    paths = [vary.path for vary in varies]
    if html is not None:
        from privplan.files import refuse_overwriting
        from privplan.report.slider_page import slider_page

        refuse_overwriting([spec], [html])
        # The sliders open at the numbers of the spec itself.
        varies = [sweep.with_stated(data, vary) for vary in varies]
    with render.progress("what-if") as progress:
        rows = sweep.sweep(
            data,
            varies,
            folder,
            chances=with_chances,
            workers=workers,
            progress=progress,
        )
    if html is not None:
        write_text(html, slider_page(data, paths, rows))
    # The first number is the horizontal axis.
    is_logarithmic = bool(varied) and varied[0].endswith(":log")
    return _Answer(
        rows=rows,
        table=sweeps.sweep_table(rows, paths, data.get("person")),
        panels=plots.sweep_panels(rows, paths, logarithmic=is_logarithmic),
        files=[sweep.TABLE, PICTURE],
        warnings=sweeps.hidden_lines(rows, paths),
    )
