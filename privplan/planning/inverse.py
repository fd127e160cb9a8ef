"""Inverse questions: what a noise costs in uploads, budgets or rounds, and what uploads buy.

At equal budgets the noise of the mean update falls with the cohort and with every budget, and
grows with the rounds, so one of them is found for a noise by bracketing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from privplan.accounting.search import largest_affordable
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from privplan.planning.allocate import allocate
from privplan.planning.error_terms import Allocation
from privplan.planning.free_choices import decide_free_choices
from privplan.planning.optimised import task_of
from privplan.planning.problem import problem_of, provisioned_noise_multiplier
from privplan.planning.run_limits import above, check_limits, largest_cohort, most_uploads
from privplan.planning.solver import rule_based, solve
from privplan.spec.objectives import is_objective
from privplan.spec.spec import Spec

UNKNOWNS = ("cohort", "epsilon", "rounds")
"""What a noise can be asked in: the fewest clients per round, the strictest budgets, or the most
rounds."""
_TOLERANCE = 1e-3
_MOST_FACTOR = 1e3
_MOST_ROUNDS = 100_000
_NEAR = 0.02
"""Largest factor, as a logarithm, between the weakest budgets that are named and the weakest ones
whose noise can be certified."""


def noise_and_weights(spec: Spec) -> tuple[float, tuple[float, ...]]:
    """Noise of the mean update of a spec's plan, in norm, before certification, and the weights."""
    problem = problem_of(spec)
    if is_objective(spec.planning.ratios):
        found = allocate(task_of(spec, problem))
    else:
        chosen = rule_based(spec, problem)
        found = Allocation(
            chosen.cohorts, chosen.noise, chosen.weights, chosen.release, chosen.status
        )
    multiplier = provisioned_noise_multiplier(spec, found)
    norm = multiplier * spec.clipping_norm * math.sqrt(spec.model.parameters)
    return norm, tuple(float(weight) for weight in found.weights)


def noise_norm(spec: Spec) -> float:
    """Noise of the mean update of a spec's plan, in norm, before certification."""
    return noise_and_weights(spec)[0]


def with_uploads(spec: Spec, uploads: float, *, settled: bool = False) -> Spec:
    """The spec with at most that many uploads over all rounds, used up where they can be.

    The cohort follows from the uploads, unless the spec frees its rounds: then both are planned.

    Args:
        spec: a spec of clients.
        uploads: rounds times cohort, at most.
        settled: whether rounds and cohort are decided at once, for questions about a spec that
            leaves neither open.

    Raises:
        InputError: when the spec fixes its cohort by its ratios, the uploads are too few, or more
            than its own limit on them.
    """
    _require_clients(spec, "max_uploads")
    if not 0 < uploads < math.inf:
        raise InputError.one("max_uploads", "must be positive and finite", uploads)
    if "rounds" not in spec.planning.free and uploads < spec.rounds * len(spec.groups):
        rule = f"must be at least one upload per group and round ({spec.rounds * len(spec.groups)})"
        raise InputError.one("max_uploads", rule, uploads)
    if spec.planning.ratios == "given" or spec.sampling.law.everyone:
        rule = "is for specs with a cohort to choose, not for given ratios or full participation"
        raise InputError.one("max_uploads", rule, uploads)
    limit = spec.planning.max_uploads
    if limit is not None and uploads > limit:
        rule = f"must be at most planning.max_uploads ({limit:g})"
        raise InputError.one("max_uploads", rule, uploads)
    planning = spec.planning.model_dump(mode="json")
    if not is_objective(spec.planning.ratios):
        limited = _changed(spec, planning={**planning, "max_uploads": uploads})
        cohort = largest_cohort(limited, spec.rounds, spec.local.steps)
        return _changed(limited if settled else spec, cohort=cohort)
    free = [*spec.planning.free]
    if not {"rounds", "cohort"} & {*free}:
        free.append("cohort")
    changed = _changed(spec, planning={**planning, "max_uploads": uploads, "free": free})
    return decide_free_choices(changed)[0] if settled else changed


def solve_for_noise(
    spec: Spec, target: float, unknown: str = "cohort", *, second_opinion: bool | None = None
) -> Plan:
    """The plan whose noise of the mean update is at most a target, at the least cost.

    Args:
        spec: a spec of clients, without free rounds, cohort or clipping norm.
        target: noise of the mean update in norm, as plans print it.
        unknown: ``cohort`` for the fewest clients per round, ``epsilon`` for the strictest budgets
            (all times one factor), ``rounds`` for the most rounds.
        second_opinion: as in ``solve``.

    Raises:
        InputError: for a value out of range, or a spec whose unknown is not its own.
        InfeasibleError: with the nearest noise that can be reached.
    """
    _require_clients(spec, "target_noise")
    if not 0 < target < math.inf:
        raise InputError.one("target_noise", "must be positive and finite", target)
    if unknown not in UNKNOWNS:
        raise InputError.one("solve_for", f"must be one of {', '.join(UNKNOWNS)}", unknown)
    _require_fixed(spec, "a target noise")
    ways = _ways(spec, unknown)
    own = _own(spec, unknown)
    found = _within_noise(ways, target, own, second_opinion)
    if found is None:  # the strictest noise of the range may not be certifiable
        low = _certified_end(ways)
        nearest = noise_norm(ways.at(low))
        if nearest > target:
            raise InfeasibleError(
                f"target_noise: {target:g} cannot be reached by {unknown}; the nearest feasible "
                f"noise is {above(nearest, 4)}, at {unknown} {_shown(unknown, ways.value(low))}"
            )
        found = _within_noise(ways._replace(low=low), target, own, second_opinion)
        found = found or (low, solve(ways.at(low), second_opinion=second_opinion))
    argument, plan = found
    uploads = math.floor(plan.spec.rounds * plan.spec.expected_cohort * (1 + 1e-9))
    asked = _shown(unknown, _value(plan.spec, ways.value(argument), unknown))
    note = f"target_noise: {target:g} asks for {unknown} {asked} ({uploads:,} uploads)"
    return plan.model_copy(update={"warnings": (note, *plan.warnings)})


def _within_noise(
    ways: _Ways, target: float, own: float, second_opinion: bool | None
) -> tuple[float, Plan] | None:
    """Argument and plan of the least cost whose noise is at most a target; None without one."""
    try:
        found = largest_affordable(
            lambda argument: noise_norm(ways.at(argument)),
            target,
            start=min(max(own * ways.sign, ways.low), ways.high),
            low=ways.low,
            high=ways.high,
            tolerance=_TOLERANCE,
            integer=ways.integer,
        ).feasible
        if found is None:
            return None
        return found, solve(ways.at(found), second_opinion=second_opinion)
    except InfeasibleError:
        return None


def _certified_end(ways: _Ways) -> float:
    """The argument of least noise of which there is a plan; by bisection where not the end.

    Raises:
        InfeasibleError: of the end, where there is a plan nowhere.
    """
    tried, failed, refused = ways.low, None, None
    while True:
        try:
            solve(ways.at(tried), second_opinion=False)
            break
        except InfeasibleError as error:
            refused = refused or error
            if tried >= ways.high:
                raise refused from None
            failed, tried = tried, min(tried + math.log(2), ways.high)
    while failed is not None and tried - failed > _NEAR:
        middle = (failed + tried) / 2
        try:
            solve(ways.at(middle), second_opinion=False)
            tried = middle
        except InfeasibleError:
            failed = middle
    return tried


class _Ways(NamedTuple):
    """Values of an unknown, by their logarithms times a sign: noise grows with these arguments.

    Attributes:
        make: the spec at a value.
        low: least argument.
        high: largest argument.
        sign: 1 or -1.
        integer: whether values are whole numbers.
    """

    make: Callable[[float], Spec]
    low: float
    high: float
    sign: float
    integer: bool = False

    def value(self, argument: float) -> float:
        """The value of an argument."""
        return math.exp(self.sign * argument)

    def at(self, argument: float) -> Spec:
        """The spec at an argument."""
        return self.make(self.value(argument))


def _ways(spec: Spec, unknown: str) -> _Ways:
    """The values of an unknown within the spec's limits.

    Raises:
        InfeasibleError: when no value is within the limits.
    """
    if unknown == "epsilon":
        if any(group.risk is not None for group in spec.groups):
            rule = "must be cohort or rounds where budgets are risks"
            raise InputError.one("solve_for", rule, unknown)
        check_limits(spec)
        most = math.log(_MOST_FACTOR)
        return _Ways(lambda factor: _scaled(spec, factor), -most, most, -1.0)
    if unknown == "rounds":
        uploads = most_uploads(spec, spec.local.steps) / spec.expected_cohort
        allowed = int(min(spec.planning.max_rounds or _MOST_ROUNDS, uploads, _MOST_ROUNDS))

        def with_rounds(rounds: float) -> Spec:
            return _changed(spec, rounds=max(round(rounds), 1))

        check_limits(with_rounds(allowed))
        return _Ways(with_rounds, 0.0, math.log(max(allowed, 1)), 1.0, integer=True)
    if spec.planning.ratios == "given" or spec.sampling.law.everyone:
        rule = "must be epsilon or rounds with given ratios or full participation"
        raise InputError.one("solve_for", rule, unknown)
    floors = sum((group.min_sampling_ratio or 0.0) * group.clients for group in spec.groups)
    least = max(float(len(spec.groups)), floors)
    most = largest_cohort(spec, spec.rounds, spec.local.steps)

    def with_cohort(cohort: float) -> Spec:
        return _changed(spec, cohort=min(_drawable(spec, max(cohort, least)), most))

    check_limits(with_cohort(most))
    return _Ways(with_cohort, -math.log(most), -math.log(least), -1.0)


def changed_by(
    spec: Spec, field: str, unknown: str
) -> tuple[Callable[[float], Spec], float, float, float]:
    """The spec at a value of an unknown, the logarithms of its ends and of the spec's own value.

    Args:
        spec: a spec of clients, without free rounds, cohort or clipping norm.
        field: the question, for messages.
        unknown: one of UNKNOWNS; ``epsilon`` is a factor on all budgets.

    Raises:
        InputError: for a spec whose unknown is not its own.
    """
    _require_clients(spec, field)
    _require_fixed(spec, field)
    ways = _ways(spec, unknown)
    low, high = sorted((ways.low * ways.sign, ways.high * ways.sign))
    return ways.make, low, high, _own(spec, unknown)


def _require_fixed(spec: Spec, question: str) -> None:
    free = sorted({"rounds", "cohort", "local_steps", "clipping_norm"} & {*spec.planning.free})
    if free:
        raise InputError.one("planning.free", f"must not name them with {question}", free)


def _own(spec: Spec, unknown: str) -> float:
    """Logarithm of the spec's own value of an unknown."""
    if unknown == "epsilon":
        return 0.0
    return math.log(spec.rounds if unknown == "rounds" else spec.expected_cohort)


def _value(decided: Spec, value: float, unknown: str) -> float:
    return value if unknown == "epsilon" else float(getattr(decided, unknown))


def _shown(unknown: str, value: float) -> str:
    return f"x {value:.4g}" if unknown == "epsilon" else f"{value:.6g}"


def _scaled(spec: Spec, factor: float) -> Spec:
    groups = [
        {**group.model_dump(mode="json"), "epsilon": group.epsilon * factor}
        for group in spec.groups
    ]
    return _changed(spec, groups=groups)


def _drawable(spec: Spec, cohort: float) -> float:
    """The cohort, rounded up to a whole number where the law draws whole cohorts."""
    return float(math.ceil(cohort - 1e-9)) if spec.sampling.law.whole_cohorts else cohort


def _require_clients(spec: Spec, field: str) -> None:
    if spec.unit != "client":
        raise InputError.one(field, "is only for unit: client", spec.unit)
    if any(group.noise_multiplier is not None for group in spec.groups):
        rule = "is for calibrated noise; with fixed noise_multiplier change cohort or rounds"
        raise InputError.one(field, rule, "noise_multiplier")


def _changed(spec: Spec, **changes: Any) -> Spec:
    return Spec.parse({**spec.model_dump(mode="json"), **changes})
