"""Inverse questions: what a noise costs in uploads, budgets or rounds, and what uploads buy.

An answer is the cheapest value of one unknown whose plan has at most a given noise (or error). It
is found by bracketing from the spec's own value; where that finds none, values over the whole
range are tried: ratios of an objective may give up noise for less bias, so that noise can rise
with the cohort, and the strictest noise of a range may not be certifiable.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from privplan.accounting.gdp import largest_affordable
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from privplan.planning.assemble import mean_noise
from privplan.planning.problem import (
    above,
    check_limits,
    fewest_clients,
    largest_cohort,
    problem_of,
    respecified,
)
from privplan.planning.solver import decide, solve
from privplan.spec.planning import is_objective
from privplan.spec.spec import Spec

UNKNOWNS = {"cohort": "fewer clients", "epsilon": "stricter budgets", "rounds": "more rounds"}
"""What a noise can be asked in, and what lies beyond the cheap end of the search."""
_OPEN = frozenset({"rounds", "cohort", "clipping_norm"})
_MOST_FACTOR = 1e3
_MOST_ROUNDS = 100_000
_TOLERANCE = 1e-3
_AT_END = 1e-9
_TRIED = 24
"""Values, evenly spaced in logarithms, that are tried before a target is refused."""
_NEAR = 0.01
"""Relative distance of values at which the search around the best of them ends."""


@dataclass(frozen=True)
class Unknown:
    """Values of a field by their logarithms times a sign, so that larger arguments cost less."""

    name: str
    make: Callable[[float], Spec]  # the spec at a value; of epsilon, at a factor on all of them
    low: float
    high: float
    own: float  # argument of the spec's own value
    sign: float
    rises: bool = True  # whether noise never falls with the argument
    limited: bool = False  # whether a limit of the spec ends the arguments, not the search

    def at(self, argument: float) -> Spec:
        """The spec at an argument."""
        return self.make(math.exp(self.sign * argument))

    def shown(self, argument: float) -> str:
        """The unknown with its value at an argument."""
        if self.name == "epsilon":
            return f"epsilon x {math.exp(self.sign * argument):.4g}"
        return f"{self.name} {getattr(self.at(argument), self.name):.6g}"

    def cheapest(self, value: Callable[[Spec], float], goal: float) -> float | None:
        """The largest argument found whose value is at most a goal; None without one."""

        def cost(argument: float) -> float:
            try:
                return value(self.at(argument))
            except InfeasibleError:
                return math.inf

        start = min(max(self.own, self.low), self.high)
        return largest_affordable(
            cost,
            goal,
            start=start,
            low=self.low,
            high=self.high,
            tolerance=_TOLERANCE,
            integer=self.name == "rounds" and self.sign > 0,
        ).feasible

    def least(self, value: Callable[[Spec], float]) -> tuple[float, float]:
        """The argument of the least value, and that value, by values over the whole range."""
        refused: list[InfeasibleError] = []

        def found(argument: float) -> tuple[float, float]:
            argument = min(max(argument, self.low), self.high)
            try:
                return value(self.at(argument)), argument
            except InfeasibleError as error:
                refused.append(error)
                return math.inf, argument

        best = found(self.low)
        if not self.rises or math.isinf(best[0]):
            step = (self.high - self.low) / _TRIED
            best = min([best, *(found(self.low + step * at) for at in range(1, _TRIED + 1))])
            while step > _NEAR:
                step /= 2
                best = min(best, found(best[1] - step), found(best[1] + step))
        if math.isinf(best[0]):
            raise refused[0]
        return best[1], best[0]


def unknown_of(spec: Spec, name: str, question: str, *, most_rounds: bool = False) -> Unknown:
    """The values of an unknown within the spec's limits; fewer rounds cost less, or more do."""
    require_clients(spec, question)
    if name not in UNKNOWNS:
        raise InputError.one("solve_for", f"must be one of {', '.join(UNKNOWNS)}", name)
    if free := sorted(_OPEN & {*spec.planning.free}):
        raise InputError.one("planning.free", f"must not name them with {question}", free)
    law, fixed = spec.sampling.law, spec.planning.ratios == "given" or spec.sampling.law.everyone
    if name == "epsilon":
        if any(group.risk is not None for group in spec.groups):
            rule = "must be cohort or rounds where budgets are risks"
            raise InputError.one("solve_for", rule, name)
        check_limits(spec)
        most = math.log(_MOST_FACTOR)
        return Unknown(name, lambda factor: _scaled(spec, factor), -most, most, 0.0, -1.0)
    if name == "rounds":
        law.require("solve_for rounds", "solve_for", "rounds")
        return _rounds(spec, fixed, most_rounds)
    if fixed:
        rule = "must be epsilon or rounds with given ratios or full participation"
        raise InputError.one("solve_for", rule, name)
    floors = sum(
        (group.min_sampling_ratio or 0.0) * law.drawable(group.clients) for group in spec.groups
    )
    least, most = max(float(len(spec.groups)), floors), largest_cohort(spec, spec.rounds)

    def with_cohort(cohort: float) -> Spec:
        cohort = max(cohort, least)
        cohort = float(math.ceil(cohort - 1e-9)) if law.whole_cohorts else cohort
        return respecified(spec, cohort=min(cohort, most))

    check_limits(with_cohort(most))
    own, ends = -math.log(spec.expected_cohort), (-math.log(most), -math.log(least))
    return Unknown(name, with_cohort, *ends, own, -1.0, rises=False)


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
        return respecified(spec, rounds=whole, cohort=min(largest_cohort(spec, whole), cohort))

    allowed = bisect_right(range(1, searched + 1), uploads, key=fewest_uploads)
    for rounds in (1, allowed):
        check_limits(with_rounds(rounds))
    last, own = math.log(max(allowed, 1)), math.log(spec.rounds)
    if not most_rounds:
        return Unknown("rounds", with_rounds, -last, 0.0, -own, -1.0, rises=False)
    return Unknown(
        "rounds",
        with_rounds,
        0.0,
        last,
        own,
        1.0,
        rises=fixed or allowed * cohort <= uploads,
        limited=allowed < _MOST_ROUNDS,
    )


def _scaled(spec: Spec, factor: float) -> Spec:
    groups = [
        {**group.model_dump(mode="json"), "epsilon": group.epsilon * factor}
        for group in spec.groups
    ]
    return respecified(spec, groups=groups)


def require_clients(spec: Spec, field: str) -> None:
    """Raises InputError for a spec of records or of fixed noise multipliers."""
    if spec.unit != "client":
        raise InputError.one(field, "is only for unit: client", spec.unit)
    if any(group.noise_multiplier is not None for group in spec.groups):
        rule = "is for calibrated noise; with fixed noise_multiplier change cohort or rounds"
        raise InputError.one(field, rule, "noise_multiplier")


# --- What a noise costs. -------------------------------------------------------------------------


def noise_and_weights(spec: Spec) -> tuple[float, tuple[float, ...]]:
    """Noise of the mean update of a spec's plan, in norm, before certification, and the weights."""
    chosen = decide(spec, problem_of(spec))
    norm = mean_noise(spec, chosen) * math.sqrt(spec.model.parameters)
    return norm, tuple(float(weight) for weight in chosen.weights)


def noise_norm(spec: Spec) -> float:
    """Noise of the mean update of a spec's plan, in norm, before certification."""
    return noise_and_weights(spec)[0]


def _certified_noise(spec: Spec) -> float:
    plan = solve(spec, second_opinion=False)
    return plan.mean_noise_std * math.sqrt(spec.model.parameters)


def solve_for_noise(
    spec: Spec, target: float, unknown: str = "cohort", *, second_opinion: bool | None = None
) -> Plan:
    """The plan whose noise of the mean update is at most a target, at the least cost."""
    if not 0 < target < math.inf:
        raise InputError.one("target_noise", "must be positive and finite", target)
    values = unknown_of(spec, unknown, "target_noise", most_rounds=True)
    plan, argument = None, values.cheapest(noise_norm, target)
    if argument is not None:
        with suppress(InfeasibleError):  # its noise may not be certifiable
            plan = solve(values.at(argument), second_opinion=second_opinion)
    if argument is None or plan is None:
        low, nearest = values.least(_certified_noise)
        values = replace(values, low=low, own=low)
        goal = max(target, float(above(nearest, 4)))
        argument = values.cheapest(noise_norm, goal)  # a part of the largest budgets may do
        argument = low if argument is None else argument
        if goal > target:
            raise InfeasibleError(
                f"target_noise: {target:g} cannot be reached by {unknown}; the nearest feasible "
                f"noise is {goal:g}, at {values.shown(argument)}"
            )
        plan = solve(values.at(argument), second_opinion=second_opinion)
    uploads = math.floor(plan.spec.rounds * plan.spec.expected_cohort * (1 + 1e-9))
    note = f"target_noise: {target:g} asks for {values.shown(argument)} ({uploads:,} uploads)"
    if argument >= values.high - _AT_END:
        beyond = f"where the search ends; {UNKNOWNS[unknown]} may reach it, too"
        note += f", {'the most that the limits allow' if values.limited else beyond}"
    return plan.model_copy(update={"warnings": (note, *plan.warnings)})


# --- What uploads buy. ---------------------------------------------------------------------------


def with_uploads(spec: Spec, uploads: float) -> Spec:
    """The spec with at most so many uploads in all, which decide the cohort (or rounds, too)."""
    require_clients(spec, "max_uploads")
    if not 0 < uploads < math.inf:
        raise InputError.one("max_uploads", "must be positive and finite", uploads)
    if spec.planning.ratios == "given" or spec.sampling.law.everyone:
        rule = "is for specs with a cohort to choose, not for given ratios or full participation"
        raise InputError.one("max_uploads", rule, uploads)
    spec.sampling.law.require("max_uploads", "max_uploads", uploads)
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
