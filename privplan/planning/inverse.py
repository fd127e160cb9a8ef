"""Inverse questions: what targets cost in uploads, budgets, rounds or clients; what uploads buy.

An answer is the cheapest value of one unknown whose plan meets every target. For the noise or the
accuracy alone it is found by bracketing from the spec's own value. Other targets need not change in
one direction (ratios of an objective may give up noise for less bias; what a group counts may stay
the same), so values over the whole range are tried, and ends of those that meet them refined.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from privplan.accounting.bracketing import largest_affordable
from privplan.errors import Fault, InfeasibleError, InputError, did_you_mean
from privplan.plan import Plan
from privplan.planning.noise import upper_bounds_only
from privplan.planning.problem import (
    above,
    check_limits,
    fewest_clients,
    largest_cohort,
    respecified,
)
from privplan.planning.solver import solve
from privplan.spec.planning import is_objective
from privplan.spec.spec import Spec

TARGETS = ("noise", "objective", "accuracy")
"""What can be asked of a plan: at most that noise or objective, at least that accuracy."""
OF_GROUP = ("counts", "noise_multiplier", "accuracy")
"""What can be asked of a group: at most that noise, at least that count or accuracy."""
_AT_LEAST = frozenset({"counts", "accuracy"})
UNKNOWNS = {
    "cohort": "fewer clients",
    "epsilon": "stricter budgets",
    "rounds": "more rounds",
    "clients": "fewer clients",
}
"""What targets can be asked in, and what lies beyond the cheap end of the search."""
_OF_GROUP = {
    "epsilon": "a stricter budget",
    "delta": "a smaller delta",
    "clients": "fewer clients",
}
_OPEN = frozenset({"sampling", "rounds", "cohort", "clipping_norm"})
_MOST_FACTOR = {"epsilon": 1e3, "delta": 1e6, "clients": 1e2}
"""Largest factor between a budget or a number of clients and the spec's, in either direction."""
_FORECAST = 64.0  # the same where an accuracy is forecast
_MOST_DELTA = 0.5
_MOST_ROUNDS = 100_000
_TOLERANCE = 1e-3
_AT_END = 1e-9
_TRIED = 24  # values, evenly spaced in logarithms, that are tried where bracketing does not serve
_NEAR = (
    0.01  # relative distance of values at which the search around the best of them ends
)
_ALIKE = (
    1e-4  # relative difference below which the unknown does not change what is found
)


@dataclass(frozen=True)
class Unknown:
    """Values of a field by their logarithms times a sign, so that larger arguments cost less."""

    name: str
    make: Callable[
        [float], Spec
    ]  # the spec at a value; of epsilon, at a factor on all of them
    low: float
    high: float
    own: float  # argument of the spec's own value
    sign: float
    limited: bool = (
        False  # whether a limit of the spec ends the arguments, not the search
    )

    def at(self, argument: float) -> Spec:
        """The spec at an argument."""
        return self.make(math.exp(self.sign * argument))

    def shown(self, argument: float) -> str:
        """The unknown with its value at an argument."""
        if self.name == "epsilon":
            return f"epsilon x {math.exp(self.sign * argument):.4g}"
        if self.name == "clients":
            return f"clients {self.at(argument).population}"
        group, _, field = self.name.rpartition(".")
        spec = self.at(argument)
        value = getattr(
            next((one for one in spec.groups if one.name == group), spec), field
        )
        return f"{self.name} {value:.6g}"


def unknown_of(
    spec: Spec, name: str, question: str, *, most_rounds: bool = False
) -> Unknown:
    """The values of an unknown within the spec's limits; fewer rounds cost less, or more do."""
    require_clients(spec, question)
    groups = [f"{group.name}.{field}" for group in spec.groups for field in _OF_GROUP]
    if name not in UNKNOWNS and name not in groups:
        rule = f"must be one of {', '.join(UNKNOWNS)} or GROUP. with {', '.join(_OF_GROUP)}"
        raise InputError.one("solve_for", rule + did_you_mean(name, groups), name)
    if free := sorted(_OPEN & {*spec.planning.free}):
        raise InputError.one(
            "planning.free", f"must not name them with {question}", free
        )
    law, fixed = spec.sampling.law, spec.planning.ratios == "given" or spec.everyone
    if name in ("epsilon", "clients") or name not in UNKNOWNS:
        return _of_groups(spec, name)
    if name == "rounds" or spec.everyone:
        spec.require("solve_for rounds", "solve_for", name)
    if name == "rounds":
        return _rounds(spec, fixed, most_rounds)
    if fixed:
        rule = "must be epsilon or rounds with given ratios or full participation"
        raise InputError.one("solve_for", rule, name)
    floors = sum(map(spec.least_cohort, spec.groups))
    least, most = (
        max(float(len(spec.groups)), floors),
        largest_cohort(spec, spec.rounds),
    )

    def with_cohort(cohort: float) -> Spec:
        cohort = max(cohort, least)
        cohort = float(math.ceil(cohort - 1e-9)) if law.whole_cohorts else cohort
        return respecified(spec, cohort=min(cohort, most))

    check_limits(with_cohort(most))
    own, ends = -math.log(spec.expected_cohort), (-math.log(most), -math.log(least))
    return Unknown(name, with_cohort, *ends, own, -1.0)


def _rounds(spec: Spec, fixed: bool, most_rounds: bool) -> Unknown:
    """Numbers of rounds, with fewer clients where the uploads of more rounds exceed a limit."""
    cohort, uploads = spec.expected_cohort, spec.planning.max_uploads or math.inf
    searched = min(spec.planning.max_rounds or _MOST_ROUNDS, _MOST_ROUNDS)

    def fewest_uploads(rounds: int) -> float:
        return rounds * (cohort if fixed else min(fewest_clients(spec, rounds), cohort))

    def with_rounds(rounds: float) -> Spec:
        whole = max(round(rounds), 1)
        if fixed or whole * cohort <= uploads:
            return respecified(spec, rounds=whole)
        return respecified(
            spec, rounds=whole, cohort=min(largest_cohort(spec, whole), cohort)
        )

    allowed = bisect_right(range(1, searched + 1), uploads, key=fewest_uploads)
    for rounds in (1, allowed):
        check_limits(with_rounds(rounds))
    last, own = math.log(max(allowed, 1)), math.log(spec.rounds)
    if not most_rounds:
        return Unknown("rounds", with_rounds, -last, 0.0, -own, -1.0)
    return Unknown(
        "rounds", with_rounds, 0.0, last, own, 1.0, limited=allowed < _MOST_ROUNDS
    )


def _of_groups(spec: Spec, name: str) -> Unknown:
    """Factors on all epsilons or clients, or a group's epsilon, delta or clients."""
    group, _, field = name.rpartition(".")
    changed = [one for one in spec.groups if group in ("", one.name)]
    if field != "clients" and any(one.risk is not None for one in changed):
        raise InputError.one(
            "solve_for", "must be cohort or rounds where budgets are risks", name
        )
    if spec.groups_from is not None and (group or field == "clients"):
        rule = "must be cohort, epsilon or rounds with groups_from"
        raise InputError.one("solve_for", rule, name)
    check_limits(spec)
    own = 1.0
    if group:
        own = {
            "clients": changed[0].clients,
            "delta": spec.delta_of(changed[0]),
            "epsilon": changed[0].epsilon,
        }[field]

    def with_value(value: float) -> Spec:
        found = []
        for one in spec.groups:
            data = one.model_dump(mode="json")
            if not group and field == "clients":
                data["clients"] = math.ceil(one.clients * value - 1e-9)
            elif not group:
                data["epsilon"] = one.epsilon * value
            elif one.name == group:
                data[field] = math.ceil(value - 1e-9) if field == "clients" else value
            found.append(data)
        return respecified(spec, groups=found)

    most = math.log(_MOST_FACTOR[field])
    least = max(
        -math.log(own) - most,
        math.log(1 / _MOST_DELTA) if field == "delta" else -math.inf,
    )
    return Unknown(name, with_value, least, most - math.log(own), -math.log(own), -1.0)


def require_clients(spec: Spec, field: str) -> None:
    """Raises InputError for a spec of records or of fixed noise multipliers."""
    if spec.unit != "client":
        raise InputError.one(field, "is only for unit: client", spec.unit)
    if any(group.noise_multiplier is not None for group in spec.groups):
        rule = "is for calibrated noise; with fixed noise_multiplier change cohort or rounds"
        raise InputError.one(field, rule, "noise_multiplier")


# --- What targets cost. --------------------------------------------------------------------------


def _reached(plan: Plan, name: str) -> float:
    """What a plan reaches of a target."""
    group, _, field = name.rpartition(".")
    expected = plan.forecast
    if field == "accuracy":
        assert expected is not None
        every = {one.group: one.accuracy for one in expected.groups}
        return 100 * (every[group] if group else expected.accuracy)
    if not group:
        root = math.sqrt(plan.spec.model.parameters)
        return (
            plan.objective.value if name == "objective" else plan.mean_noise_std * root
        )
    one = plan.group(group)
    if field == "counts":
        return one.weight * plan.spec.population / one.clients
    return one.noise_multiplier


def _excess(name: str, found: float, goal: float) -> float:
    """At most 1 where a target is met."""
    if name.endswith("accuracy"):
        return (100 - found) / (100 - goal)
    return goal / max(found, 1e-300) if name.endswith("counts") else found / goal


def _check(spec: Spec, targets: Mapping[str, float], forecasts: bool) -> None:
    known = [
        *TARGETS,
        *(f"{one.name}.{field}" for one in spec.groups for field in OF_GROUP),
    ]
    faults = []
    for name, goal in targets.items():
        shown, percent = f"{name}={goal:g}", name.rpartition(".")[2] == "accuracy"
        if name not in known:
            rule = f"must be one of {', '.join(TARGETS)}, uploads or GROUP. with "
            rule += ", ".join(OF_GROUP) + did_you_mean(name, known)
            faults.append(Fault("for", rule, shown))
        elif not 0 < goal < (100 if percent else math.inf):
            rule = (
                "must be in (0, 100) percent"
                if percent
                else "must be positive and finite"
            )
            faults.append(Fault("for", rule, shown))
        elif percent and not forecasts:
            faults.append(Fault("for", "needs --forecast PROXY", shown))
    if faults:
        raise InputError(faults)


def solve_for(
    spec: Spec,
    targets: Mapping[str, float],
    unknown: str = "",
    *,
    forecast: Callable[[Plan], Plan] | None = None,
    second_opinion: bool | None = None,
) -> Plan:
    """The plan that meets every target at the least cost in one unknown.

    Args:
        spec: the planning problem.
        targets: numbers of ``TARGETS``, and of ``OF_GROUP`` after the name of a group and a dot.
        unknown: one of ``UNKNOWNS`` (``clients`` are those of all groups in the spec's
            proportions), or ``GROUP.epsilon``, ``GROUP.delta`` or ``GROUP.clients``;
            epsilon where an accuracy is asked for, the cohort otherwise, when left out.
        forecast: gives a plan its forecast, where an accuracy is asked for.
        second_opinion: as in ``solve``.

    Raises:
        InfeasibleError: with what comes nearest, where no value meets them.
    """
    _check(spec, targets, forecast is not None)
    fewest = any(name.endswith("accuracy") for name in targets)
    unknown = unknown or ("epsilon" if fewest else "cohort")
    asked = ", ".join(f"{name}={goal:g}" for name, goal in targets.items())
    values = unknown_of(spec, unknown, f"--for {asked}", most_rounds=not fewest)
    if fewest:  # forecasts far from their runs say little
        near = values.own - math.log(_FORECAST), values.own + math.log(_FORECAST)
        values = replace(
            values, low=max(values.low, near[0]), high=min(values.high, near[1])
        )
    plans: dict[float, Plan] = {}
    costs: dict[float, float] = {}
    refused: list[InfeasibleError | InputError] = []

    def cost(argument: float) -> float:
        """The largest excess of a plan; inf where there is none."""
        if argument not in costs:
            costs[argument] = math.inf
            try:
                with upper_bounds_only():
                    plan = solve(values.at(argument), second_opinion=False)
            except (InfeasibleError, InputError) as error:
                refused.append(error)
            else:
                plans[argument] = plan = plan if forecast is None else forecast(plan)
                gaps = (
                    _excess(name, _reached(plan, name), goal)
                    for name, goal in targets.items()
                )
                costs[argument] = max(gaps)
        return costs[argument]

    argument, last = None, None
    if [*targets] in (["noise"], ["accuracy"]) and unknown in UNKNOWNS:
        argument = largest_affordable(
            cost,
            1.0,
            start=min(max(values.own, values.low), values.high),
            low=values.low,
            high=values.high,
            tolerance=_TOLERANCE,
            integer=unknown == "rounds" and values.sign > 0,
        )
    if argument is None:
        argument, last = tried(values, cost)
        if not plans:
            raise refused[0]
        if costs[argument] > 1:
            found = [costs[one] for one in plans]
            alike = max(found) - min(found) < _ALIKE * min(found)
            raise InfeasibleError(
                f"for: {asked} cannot be met by {unknown}"
                + f"; {unknown} does not change that" * alike
                + f"; the nearest is {', '.join(_near(plans[argument], targets))} at "
                + values.shown(argument)
            )
    plan = solve(values.at(argument), second_opinion=second_opinion)
    uploads = math.floor(plan.spec.rounds * plan.spec.expected_cohort * (1 + 1e-9))
    note = f"for: {asked} asks for {values.shown(argument)} ({uploads:,} uploads)"
    if argument >= values.high - _AT_END:
        beyond = UNKNOWNS.get(unknown) or _OF_GROUP[unknown.rpartition(".")[2]]
        beyond = f"where the search ends; {beyond} may meet it, too"
        note += f", {'the most that the limits allow' if values.limited else beyond}"
    if last is not None:
        note += f"; it is met up to {values.shown(last)}"
    plan = plan if forecast is None else forecast(plan)
    return plan.model_copy(update={"warnings": (note, *plan.warnings)})


def _near(plan: Plan, names: Iterable[str]) -> list[str]:
    """What a plan reaches, rounded to where it is still met."""
    found = ((name, _reached(plan, name)) for name in names)
    return [
        f"{name}={math.floor(one * 1e4) / 1e4:g}" if name.rpartition(".")[2] in _AT_LEAST
        else f"{name}={above(one, 4)}"
        for name, one in found
    ]  # fmt: skip


def tried(
    values: Unknown, cost: Callable[[float], float]
) -> tuple[float, float | None]:
    """The cheapest argument of cost 1 or less, else the nearest; and where that ends, if it does.

    By arguments over the whole range, where none is found by those around the least, and by
    bisection between the arguments on both sides of an end.
    """
    step = (values.high - values.low) / _TRIED
    points = [values.low + step * at for at in range(_TRIED)] + [values.high]
    best = min(points, key=cost)
    while cost(best) > 1 and step > _NEAR and cost(best) < math.inf:
        step /= 2
        points += [
            min(max(best + way * step, values.low), values.high) for way in (-1, 1)
        ]
        best = min(points, key=cost)
    goal = max(cost(best) * (1 + _ALIKE), 1.0) if cost(best) > 1 else 1.0

    def end(met: float, other: float) -> float:
        while abs(other - met) > _TOLERANCE:
            middle = (met + other) / 2
            met, other = (middle, other) if cost(middle) <= goal else (met, middle)
        return met

    points.sort()
    kept = [cost(one) <= goal for one in points]
    last = len(points) - 1 - kept[::-1].index(True) if any(kept) else 0
    before = [at for at in range(last) if not kept[at]]
    cheapest = (
        points[last]
        if last == len(points) - 1 or not any(kept)
        else end(*points[last : last + 2])
    )
    if not before or goal > 1:
        return cheapest, None
    return cheapest, end(points[before[-1] + 1], points[before[-1]])


# --- What uploads buy. ---------------------------------------------------------------------------


def with_uploads(spec: Spec, uploads: float) -> Spec:
    """The spec with at most so many uploads in all, which decide the cohort (or rounds, too)."""
    require_clients(spec, "max_uploads")
    if not 0 < uploads < math.inf:
        raise InputError.one("max_uploads", "must be positive and finite", uploads)
    if spec.planning.ratios == "given" or spec.everyone:
        rule = "is for specs with a cohort to choose, not for given ratios or full participation"
        raise InputError.one("max_uploads", rule, uploads)
    spec.require("max_uploads", "max_uploads", uploads)
    fewest = spec.rounds * fewest_clients(spec, spec.rounds)
    if "rounds" not in spec.planning.free and uploads < fewest:
        raise InfeasibleError(
            f"max_uploads: {uploads:g} is below the fewest of {spec.rounds} rounds for "
            f"{len(spec.groups)} groups; the nearest feasible value is {above(fewest)}"
        )
    limit = spec.planning.max_uploads
    if limit is not None and uploads > limit:
        rule = f"must be at most planning.max_uploads ({limit:g})"
        raise InputError.one("max_uploads", rule, uploads)
    if not is_objective(spec.planning.ratios):
        limited = respecified(spec, planning={"max_uploads": uploads})
        return respecified(spec, cohort=largest_cohort(limited, spec.rounds))
    free = [*spec.planning.free]
    if not {"rounds", "cohort"} & {*free}:
        free.append("cohort")
    return respecified(spec, planning={"max_uploads": uploads, "free": free})
