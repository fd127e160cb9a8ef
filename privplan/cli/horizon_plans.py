"""A spec with a horizon in ``privplan solve``: the plans of all its models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privplan.cli import render
from privplan.errors import InputError

if TYPE_CHECKING:
    from privplan.plan import Plan
    from privplan.spec.spec import Spec


def solve_horizon_spec(
    problem: Spec,
    path: str,
    output: str | None,
    form: str,
    options: dict[str, Any],
    second_opinion: bool | None,
) -> tuple[Plan, ...]:
    """Solve a spec with a horizon, write the horizon and each run's plan, and show them."""
    from privplan.files import refuse_overwriting
    from privplan.planning.choices import NOT_TUNED
    from privplan.planning.horizon import plan_path, solve_horizon
    from privplan.report.tables import certificate_table, horizon_table

    for option, value in options.items():
        if value is not None:
            raise InputError.one(option, "cannot go with a horizon", value)
    models = problem.horizon.all_models() if problem.horizon is not None else ()
    outputs = [output, *(str(plan_path(output, model)) for model in models)] if output else []
    refuse_overwriting(problem.sources(path), outputs)
    planned = solve_horizon(problem, second_opinion=second_opinion)
    written = planned.save(output) if output is not None else []
    if form == "json":
        render.data(planned.plain())
    else:
        render.table(*horizon_table(planned))
        render.table(*certificate_table(planned))
        render.text(NOT_TUNED)
        for one in written:
            render.text(f"wrote {one}")
    for warning in dict.fromkeys(line for plan in planned.plans for line in plan.warnings):
        render.warn(warning)
    return planned.plans
