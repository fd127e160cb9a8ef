"""The rows of a what-if sweep: how a point is solved, what is shown of its plan, and its CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privplan.errors import PrivplanError
from privplan.sensitivity.varying import with_point

if TYPE_CHECKING:
    from privplan.plan import Plan
    from privplan.planning.sweeping import Axes
    from privplan.spec.spec import Spec

COLUMNS = (
    "group", "clients", "epsilon", "delta", "sampling_ratio", "expected_cohort",
    "noise_multiplier", "weight", "epsilon_upper", "accountant", "sampling", "relation",
    "unit", "objective", "value", "noise_std", "noise_norm", "status", "error",
)  # fmt: skip

FORECAST_COLUMNS = (
    "accuracy",
    "accuracy_lower",
    "accuracy_upper",
    "group_accuracy",
    "forecast_distance",
)
"""Further columns of a sweep with forecasts, in [0, 1]."""

DECIDED: dict[str, Callable[[Spec], float | None]] = {
    "rounds": lambda spec: spec.rounds,
    "local_steps": lambda spec: spec.local.steps,
    "epochs": lambda spec: spec.local.epochs,
    "batch_size": lambda spec: spec.local.batch_size,
    "cohort": lambda spec: spec.expected_cohort,
    "clipping_norm": lambda spec: spec.clipping_norm,
}
"""Further columns, of what ``planning.free`` lets the plan of a point decide."""


@dataclass(frozen=True)
class Question:
    """A point of a sweep and how it is answered.

    Attributes:
        data: the spec as plain data.
        point: the varied numbers.
        proxy: path of a table of proxy runs, for a forecast; None without.
        axes: numbers of the budgets between which noise curves are interpolated, as of
            ``privplan.planning.noise_lattice``.
    """

    data: dict[str, Any]
    point: dict[str, float]
    proxy: str | None
    axes: Axes


def solve_point(asked: Question) -> list[dict[str, Any]]:
    """Rows of one point: one per group, or a single row with the reason why there is no plan."""
    from privplan.planning.solver import solve
    from privplan.planning.sweeping import interpolating
    from privplan.spec.spec import Spec

    point = asked.point
    try:
        with interpolating(asked.axes):
            plan = solve(Spec.parse(with_point(asked.data, point)), second_opinion=False)
        forecast = _forecast_of(plan, asked.proxy)
        decided = _decided(asked.data, plan.spec)
    except PrivplanError as error:
        return [{**point, "error": " ".join(str(error).split())}]
    guarantees = {row.group: row for row in plan.certificate if row.guarantee}
    rows = []
    for group in plan.groups:
        fields = group.model_dump(include={*COLUMNS} & set(type(group).model_fields))
        certified = guarantees[group.name]
        rows.append(
            {
                **point,
                **decided,
                "group": group.name,
                **fields,
                "epsilon_upper": certified.epsilon_upper,
                "accountant": certified.accountant,
                "sampling": certified.sampling,
                "relation": str(certified.relation),
                "unit": certified.unit,
                "objective": plan.objective.name,
                "value": plan.objective.value,
                "noise_std": plan.noise_std,
                "noise_norm": plan.noise_std * math.sqrt(plan.spec.model.parameters),
                "status": plan.status,
                **forecast.get(group.name, {}),
            }
        )
    return rows


def _decided(data: dict[str, Any], spec: Spec) -> dict[str, float | None]:
    """What the plan of a spec decided of ``planning.free``, by the names of DECIDED."""
    free = (data.get("planning") or {}).get("free") or ()
    return {name: value(spec) for name, value in DECIDED.items() if name in free}


def _forecast_of(plan: Plan, proxy: str | None) -> dict[str, dict[str, float]]:
    """FORECAST_COLUMNS by group, all groups holding all classes alike; empty without a proxy."""
    if proxy is None:
        return {}
    from privplan.forecast.features import even_coverage, plan_features
    from privplan.forecast.model import forecaster

    model = forecaster(proxy)
    coverage = even_coverage(plan.spec, model.table.classes)
    found = model.forecast(plan_features(plan), coverage, [group.name for group in plan.groups])
    overall = (found.accuracy, found.lower, found.upper)
    return {
        one.group: dict(
            zip(FORECAST_COLUMNS, (*overall, one.accuracy, found.distance), strict=True)
        )
        for one in found.groups
    }


def csv_text(rows: Sequence[dict[str, Any]], first: Sequence[str]) -> str:
    """Rows as tidy CSV, the varied numbers first."""
    import csv
    from io import StringIO

    buffer = StringIO()
    decided, forecast = (
        [name for name in names if any(name in row for row in rows)]
        for names in (DECIDED, FORECAST_COLUMNS)
    )
    columns = list(dict.fromkeys((*first, *decided, *COLUMNS, *forecast)))
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def check_rows(point: dict[str, float], rows: list[dict[str, Any]]) -> None:
    """Check that rows of a journal can be those of a point.

    Raises:
        KeyError, TypeError, ValueError: when they cannot.
    """
    for row in rows:
        varied = [row[name] for name in point]
        numbers = () if "error" in row else (row["weight"], row["noise_norm"])
        known = {*point, *DECIDED, *COLUMNS, *FORECAST_COLUMNS}
        if not {*row} <= known or not all(
            isinstance(value, int | float) for value in (*varied, *numbers)
        ):
            raise ValueError
