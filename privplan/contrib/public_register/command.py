"""``privplan report``: what was promised, whether it was kept, and how to check it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section, render
from privplan.cli.judging import judging, judging_options, takes_options_of_verify
from privplan.errors import InputError

if TYPE_CHECKING:
    from privplan.verification.run import Run
    from privplan.verification.verdict import Verdict

PAGE_SUFFIXES = (".html", ".htm")


@in_section("verify")
@click.command("report", epilog="Example: privplan report run -o page.html")
@click.argument("sources", metavar="PLAN...|RUN|RESULTS|BOOK", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="FILE", help="File to write.  [html: report.html]"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "json", "markdown"]),
    default="html",
    show_default=True,
    help="json, and markdown of one plan or run, have the fields of public registries.",
)
@click.option(
    "--budget",
    "budgets",
    metavar="GROUP=EPSILON",
    multiple=True,
    help="Of a BOOK: a group's budget over all runs, where it has no account.",
)
@judging_options
@click.pass_context
def command(
    context: click.Context,
    sources: tuple[str, ...],
    output: str | None,
    form: str,
    budgets: tuple[str, ...],
    plan: Path | None,
    rounds: str | None,
    noise_key: Path | None,
) -> None:
    """One page on plans, a RUN, RESULTS (of compare) or a BOOK, for who reads no code.

    It says what was promised to whom, whether it was kept and how strongly that was
    checked, what an attacker could do, what was not checked, and how to reproduce it.
    Several plans stand side by side: who is protected how, and what it costs. Of a
    budget book: who has spent what, and what is left. It needs no network.
    """
    from privplan.bundle import is_bundle
    from privplan.file_kinds import is_book
    from privplan.files import refuse_overwriting, write_text
    from privplan.record import refuse_inside_run

    bundles = [source for source in sources if is_bundle(Path(source))]
    if bundles:
        rule = "must be a plan, a run, results or a book; of a bundle, privplan verify"
        raise InputError.one("report", f"{rule} {bundles[0]}", bundles[0])
    output = output or ("report.html" if form == "html" else None)
    inside = itertools.chain.from_iterable(
        Path(source).rglob("*") for source in sources
    )
    read = [path for path in inside if path.suffix != ".html"]
    refuse_overwriting([*sources, *read], [output])
    if output is not None:
        for source in sources:
            refuse_inside_run(Path(source), Path(output))
    if form == "html" and Path(output or "").suffix not in PAGE_SUFFIXES:
        rule = f"must end in {' or '.join(PAGE_SUFFIXES)}, as the page is HTML"
        raise InputError.one("output", rule, output)
    if budgets and not is_book(sources[0]):
        if not Path(sources[0]).exists():
            raise InputError.one("report", "must exist", sources[0])
        raise InputError.one("budget", "is only for a budget book", budgets[0])
    if len(sources) > 1:
        text = _side_by_side(sources, form)
    elif is_book(sources[0]):
        text = _of_book(sources[0], form, dict(map(_budget, budgets)))
    else:
        if plan is not None and not Path(sources[0]).is_dir():
            rule = "is only for a run; plans stand side by side: report a.json b.json"
            raise InputError.one("plan", rule, str(plan))
        text = _of_one(sources[0], form, judging(context, plan, rounds, noise_key))
    if output is not None:
        write_text(output, text)
        text = f"wrote {output}"
    render.text(text.rstrip("\n"))


def _side_by_side(sources: Sequence[str], form: str) -> str:
    """Several plans."""
    from privplan.contrib.public_register.report import registry_report
    from privplan.report.proposals import (
        loaded_proposals,
        proposals_markdown,
        proposals_page,
    )

    plans = loaded_proposals(sources)
    if form == "json":
        return _json([registry_report(source) for source in sources])
    if form == "html":
        return proposals_page(plans)
    return proposals_markdown(plans)


def _of_book(address: str, form: str, budgets: Mapping[str, float]) -> str:
    """A budget book."""
    from privplan.report.book_page import book_markdown, book_page

    if form == "json":
        rule = "must be html or markdown of a book; privplan book show has json"
        raise InputError.one("format", rule, form)
    return (book_page if form == "html" else book_markdown)(address, budgets)


def _of_one(source: str, form: str, judged: Callable[[Run], Verdict]) -> str:
    """A plan, a run or a comparison."""
    from privplan.contrib.public_register.report import page, registry_report
    from privplan.file_kinds import RESULTS, kind_of
    from privplan.report.page import page_of

    if form == "html":
        return page_of(source, judged)
    if kind_of(source) == RESULTS:
        rule = "must be html of a comparison, whose rows are in its results.csv"
        raise InputError.one("format", rule, form)
    report = registry_report(source, judged)
    if form == "json":
        return _json(report)
    return page(report)


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _budget(text: str) -> tuple[str, float]:
    """A group, with its population if it has one, and its budget."""
    group, _, epsilon = text.rpartition("=")
    budget: float | None = None
    with suppress(ValueError):
        budget = float(epsilon)
    if budget is None or not group:
        raise InputError.one("budget", "must be GROUP=EPSILON", text)
    return group, budget


takes_options_of_verify(command)
