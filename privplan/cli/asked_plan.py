"""What ``privplan solve`` is asked (targets, forecasts, limits, past runs), and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from privplan.errors import InputError

if TYPE_CHECKING:
    from privplan.book.rules import Rule
    from privplan.plan import Plan
    from privplan.spec.spec import Spec


class Inverse(NamedTuple):
    """What is asked in the other direction: options of the command."""

    target_noise: float | None
    solve_for: str | None
    max_uploads: float | None
    target_accuracy: float | None = None
    forecast: str | None = None
    anchor: str | None = None
    coverage: str | None = None


class PastRuns(NamedTuple):
    """Where past runs are, whose they are, and how they are composed: options of the command."""

    address: str
    population: str
    rule: Rule | None


def planned(
    problem: Spec,
    spec: str,
    outputs: Sequence[str | None],
    second_opinion: bool | None,
    book: PastRuns | None,
    asked: Inverse,
) -> Plan:
    """The plan of the spec, from what a book leaves when there is one."""
    from privplan.io.files import refuse_overwriting
    from privplan.planning.solver import solve

    inputs = [path for path in (asked.forecast, asked.coverage) if path is not None]
    refuse_overwriting([*problem.sources(spec), *inputs], outputs)
    for option, value in (
        ("target_accuracy", asked.target_accuracy),
        ("anchor", asked.anchor),
        ("coverage", asked.coverage),
    ):
        if value is not None and asked.forecast is None:
            raise InputError.one(option, "needs --forecast PROXY", value)
    if asked.target_accuracy is not None and (book is not None or asked.target_noise is not None):
        other = "--from-book" if book is not None else "--target-noise"
        raise InputError.one("target_accuracy", f"cannot go with {other}", asked.target_accuracy)
    if asked.forecast is not None:
        return _forecast(problem, spec, second_opinion, book, asked)
    if asked.max_uploads is not None:
        from privplan.planning.inverse import with_uploads

        unknown = None if asked.target_noise is None else asked.solve_for or "cohort"
        problem = with_uploads(problem, asked.max_uploads, unknown=unknown)
    if book is None and asked.target_noise is None:
        return solve(problem, second_opinion=second_opinion)
    if book is None:
        from privplan.planning.inverse import solve_for_noise

        return solve_for_noise(
            problem,
            asked.target_noise or 0.0,
            asked.solve_for or "cohort",
            second_opinion=second_opinion,
        )
    if asked.target_noise is not None:
        raise InputError.one("target_noise", "cannot go with --from-book", asked.target_noise)
    from privplan.book.database import address_of, shown
    from privplan.book.replan import solve_at

    refuse_overwriting([shown(address_of(book.address))], outputs)
    return solve_at(problem, *book, second_opinion=second_opinion)


def _forecast(
    problem: Spec,
    spec: str,
    second_opinion: bool | None,
    book: PastRuns | None,
    asked: Inverse,
) -> Plan:
    """The plan with its forecast; for the target accuracy where one is asked for."""
    from privplan.forecast.model import forecaster_with, with_forecast
    from privplan.forecast.table import read_coverage
    from privplan.forecast.target import solve_for_accuracy

    model = forecaster_with(str(asked.forecast), asked.anchor, asked.coverage)
    coverage = read_coverage(asked.coverage, problem, model.table.classes)
    if asked.target_accuracy is None:
        without = asked._replace(forecast=None, anchor=None, coverage=None)
        plan = planned(problem, spec, (), second_opinion, book, without)
        return with_forecast(plan, model, coverage)
    if asked.max_uploads is not None:
        from privplan.planning.inverse import with_uploads

        unknown = asked.solve_for or "epsilon"
        problem = with_uploads(problem, asked.max_uploads, unknown=unknown)
    return solve_for_accuracy(
        problem,
        asked.target_accuracy,
        model,
        coverage,
        asked.solve_for or "epsilon",
        second_opinion=second_opinion,
    )
