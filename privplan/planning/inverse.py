"""Inverse questions: what a noise costs in uploads, budgets or rounds, and what uploads buy.

At equal budgets the noise of the mean update falls with every budget and grows with the rounds, so
one of them is found for a noise by bracketing. With the cohort it falls at equal ratios; ratios of
an objective may give it up for less bias or sampling error, so cohorts over the whole range are
looked at before a noise is refused.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from privplan.accounting.gdp import largest_affordable
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from privplan.planning.choices import decide_free_choices, task_of
from privplan.planning.error import Allocation
from privplan.planning.problem import (
    above,
    check_limits,
    fewest_clients,
    largest_cohort,
    problem_of,
    provisioned_noise_multiplier,
)
from privplan.planning.search import allocate
from privplan.planning.solver import rule_based, solve
from privplan.spec.objectives import is_objective
from privplan.spec.spec import Spec

# -------------------------------------------------------------------------------------------------
# The unknowns of inverse questions: what a spec is at a value of its cohort, rounds or budgets.

UNKNOWNS = ("cohort", "epsilon", "rounds")
"""What a noise can be asked in: the fewest clients per round, the strictest budgets, or the most
rounds."""
OPEN = frozenset({"rounds", "cohort", "clipping_norm"})
"""Free choices that an inverse question must not leave open."""
_MOST_FACTOR = 1e3
_MOST_ROUNDS = 100_000


class Ways(NamedTuple):
    """Values of an unknown, by their logarithms times a sign: noise grows with these arguments.

    Attributes:
        make: the spec at a value.
        low: least argument.
        high: largest argument.
        sign: 1 or -1.
        integer: whether values are whole numbers.
        cohorts: whether the cohort changes with the values, with which noise may rise or fall.
        limited: whether a limit of the spec ends the values, not the search.
    """

    make: Callable[[float], Spec]
    low: float
    high: float
    sign: float
    integer: bool = False
    cohorts: bool = False
    limited: bool = False

    def value(self, argument: float) -> float:
        """The value of an argument."""
        return math.exp(self.sign * argument)

    def at(self, argument: float) -> Spec:
        """The spec at an argument."""
        return self.make(self.value(argument))


def ways_of(spec: Spec, unknown: str) -> Ways:
    """The values of an unknown within the spec's limits."""
    if unknown == "epsilon":
        if any(group.risk is not None for group in spec.groups):
            rule = "must be cohort or rounds where budgets are risks"
            raise InputError.one("solve_for", rule, unknown)
        check_limits(spec)
        most = math.log(_MOST_FACTOR)
        return Ways(lambda factor: _scaled(spec, factor), -most, most, -1.0)
    if unknown == "rounds":
        return _rounds(spec)
    if spec.planning.ratios == "given" or spec.sampling.law.everyone:
        rule = "must be epsilon or rounds with given ratios or full participation"
        raise InputError.one("solve_for", rule, unknown)
    floors = sum(
        (group.min_sampling_ratio or 0.0) * spec.sampling.law.drawable(group.clients)
        for group in spec.groups
    )
    least = max(float(len(spec.groups)), floors)
    most = largest_cohort(spec, spec.rounds)

    def with_cohort(cohort: float) -> Spec:
        return respecified(spec, cohort=min(_drawable(spec, max(cohort, least)), most))

    check_limits(with_cohort(most))
    return Ways(with_cohort, -math.log(most), -math.log(least), -1.0, cohorts=True)


def _rounds(spec: Spec) -> Ways:
    """Numbers of rounds, with fewer clients where the uploads of more rounds exceed a limit."""
    spec.sampling.law.require("solve_for rounds", "solve_for", "rounds")
    cohort, uploads = spec.expected_cohort, spec.planning.max_uploads or math.inf
    fixed = spec.planning.ratios == "given" or spec.sampling.law.everyone
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
    return Ways(
        with_rounds,
        0.0,
        math.log(max(allowed, 1)),
        1.0,
        integer=True,
        cohorts=not fixed and allowed * cohort > uploads,
        limited=allowed < _MOST_ROUNDS,
    )


def changed_by(
    spec: Spec, field: str, unknown: str
) -> tuple[Callable[[float], Spec], float, float, float]:
    """The spec at a value of an unknown, the logarithms of its ends and of the spec's own value."""
    require_clients(spec, field)
    require_fixed(spec, field)
    ways = ways_of(spec, unknown)
    low, high = sorted((ways.low * ways.sign, ways.high * ways.sign))
    return ways.make, low, high, own_value(spec, unknown)


def require_fixed(spec: Spec, question: str) -> None:
    """Raises InputError for a spec that leaves rounds, cohort, steps or clipping norm open."""
    free = sorted(OPEN & {*spec.planning.free})
    if free:
        raise InputError.one("planning.free", f"must not name them with {question}", free)


def own_value(spec: Spec, unknown: str) -> float:
    """Logarithm of the spec's own value of an unknown."""
    if unknown == "epsilon":
        return 0.0
    return math.log(spec.rounds if unknown == "rounds" else spec.expected_cohort)


def value_of(decided: Spec, value: float, unknown: str) -> float:
    """The value of an unknown in a decided spec; a factor for ``epsilon``."""
    return value if unknown == "epsilon" else float(getattr(decided, unknown))


def shown_value(unknown: str, value: float) -> str:
    """The value of an unknown as messages show it."""
    return f"x {value:.4g}" if unknown == "epsilon" else f"{value:.6g}"


def _scaled(spec: Spec, factor: float) -> Spec:
    groups = [
        {**group.model_dump(mode="json"), "epsilon": group.epsilon * factor}
        for group in spec.groups
    ]
    return respecified(spec, groups=groups)


def _drawable(spec: Spec, cohort: float) -> float:
    """The cohort, rounded up to a whole number where the law draws whole cohorts."""
    return float(math.ceil(cohort - 1e-9)) if spec.sampling.law.whole_cohorts else cohort


def require_clients(spec: Spec, field: str) -> None:
    """Raises InputError for a spec of records or of fixed noise multipliers."""
    if spec.unit != "client":
        raise InputError.one(field, "is only for unit: client", spec.unit)
    if any(group.noise_multiplier is not None for group in spec.groups):
        rule = "is for calibrated noise; with fixed noise_multiplier change cohort or rounds"
        raise InputError.one(field, rule, "noise_multiplier")


def respecified(spec: Spec, **changes: Any) -> Spec:
    """The spec with some fields changed."""
    return Spec.parse({**spec.model_dump(mode="json"), **changes})


# --- Inverse questions: what a noise costs in uploads, budgets or rounds, and what uploads buy. --

_TOLERANCE = 1e-3
_AT_END = 1e-9
_BEYOND = {"cohort": "fewer clients", "epsilon": "stricter budgets", "rounds": "more rounds"}
"""What lies beyond the end of the search."""
_SCANNED = 24
"""Cohorts, evenly spaced in logarithms, that are looked at before a noise is refused."""
_NEAR_LEAST = 0.01
"""Relative distance of cohorts at which the search around the best of them ends."""
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


def with_uploads(spec: Spec, uploads: float, *, unknown: str | None = None) -> Spec:
    """The spec with at most that many uploads over all rounds, used up where they can be.

    The cohort follows from the uploads, unless the spec frees its rounds: then both are planned.
    """
    require_clients(spec, "max_uploads")
    if not 0 < uploads < math.inf:
        raise InputError.one("max_uploads", "must be positive and finite", uploads)
    if spec.planning.ratios == "given" or spec.sampling.law.everyone:
        rule = "is for specs with a cohort to choose, not for given ratios or full participation"
        raise InputError.one("max_uploads", rule, uploads)
    spec.sampling.law.require("max_uploads", "max_uploads", uploads)
    rounds = 1 if unknown == "rounds" else spec.rounds
    fewest = rounds * fewest_clients(spec, rounds)
    if "rounds" not in spec.planning.free and uploads < fewest:
        number = "one round" if rounds == 1 else f"{rounds} rounds"
        raise InfeasibleError(
            f"max_uploads: {uploads:g} is below the fewest of {number} for "
            f"{len(spec.groups)} groups; the nearest feasible value is {above(fewest)}"
        )
    limit = spec.planning.max_uploads
    if limit is not None and uploads > limit:
        rule = f"must be at most planning.max_uploads ({limit:g})"
        raise InputError.one("max_uploads", rule, uploads)
    planning = spec.planning.model_dump(mode="json")
    limited = respecified(spec, planning={**planning, "max_uploads": uploads})
    if unknown == "rounds" and not OPEN & {*spec.planning.free}:
        return respecified(limited, cohort=largest_cohort(limited, 1))
    if not is_objective(spec.planning.ratios):
        cohort = largest_cohort(limited, spec.rounds)
        return respecified(spec if unknown is None else limited, cohort=cohort)
    free = [*spec.planning.free]
    if not {"rounds", "cohort"} & {*free}:
        free.append("cohort")
    changed = respecified(spec, planning={**planning, "max_uploads": uploads, "free": free})
    if unknown is None:
        return changed
    decided = decide_free_choices(changed)[0]
    if unknown != "rounds":
        return decided
    return respecified(decided, cohort=largest_cohort(decided, 1))


def solve_for_noise(
    spec: Spec, target: float, unknown: str = "cohort", *, second_opinion: bool | None = None
) -> Plan:
    """The plan whose noise of the mean update is at most a target, at the least cost."""
    require_clients(spec, "target_noise")
    if not 0 < target < math.inf:
        raise InputError.one("target_noise", "must be positive and finite", target)
    if unknown not in UNKNOWNS:
        raise InputError.one("solve_for", f"must be one of {', '.join(UNKNOWNS)}", unknown)
    require_fixed(spec, "a target noise")
    ways = ways_of(spec, unknown)
    own = own_value(spec, unknown)
    found = _within_noise(ways, target, own, second_opinion)
    if found is None:  # the strictest noise of the range may not be certifiable
        low = _certified_end(ways)
        low, nearest = _quietest(ways._replace(low=low))
        if nearest > target:
            if unknown == "epsilon":  # larger budgets than can be spent buy no less noise
                least = _within_noise(ways, float(above(nearest, 4)), own, False)
                low = low if least is None else least[0]
            at = shown_value(unknown, ways.value(low))
            raise InfeasibleError(
                f"target_noise: {target:g} cannot be reached by {unknown}; the nearest feasible "
                f"noise is {above(nearest, 4)}, at {unknown} {at}"
            )
        found = _within_noise(ways._replace(low=low), target, own, second_opinion)
        found = found or (low, solve(ways.at(low), second_opinion=second_opinion))
    argument, plan = found
    uploads = math.floor(plan.spec.rounds * plan.spec.expected_cohort * (1 + 1e-9))
    asked = shown_value(unknown, value_of(plan.spec, ways.value(argument), unknown))
    note = f"target_noise: {target:g} asks for {unknown} {asked} ({uploads:,} uploads)"
    if argument >= ways.high - _AT_END:
        beyond = f"where the search ends; {_BEYOND[unknown]} may reach it, too"
        note += f", {'the most that the limits allow' if ways.limited else beyond}"
    return plan.model_copy(update={"warnings": (note, *plan.warnings)})


def _within_noise(
    ways: Ways, target: float, own: float, second_opinion: bool | None
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


def _quietest(ways: Ways) -> tuple[float, float]:
    """The argument of least noise, and that noise; by a scan where noise may rise with cohorts."""

    def noise(argument: float) -> float:
        try:
            return noise_norm(ways.at(argument))
        except InfeasibleError:
            return math.inf

    least = ways.low, noise_norm(ways.at(ways.low))
    if not ways.cohorts:
        return least
    step = (ways.high - ways.low) / _SCANNED
    for place in range(1, _SCANNED + 1):
        argument = ways.low + step * place
        least = min(least, (argument, noise(argument)), key=lambda found: found[1])
    while step > _NEAR_LEAST:
        step /= 2
        beside = [min(max(least[0] + way * step, ways.low), ways.high) for way in (-1, 1)]
        tried = [(argument, noise(argument)) for argument in beside]
        least = min([least, *tried], key=lambda found: found[1])
    return least


def _certified_end(ways: Ways) -> float:
    """The argument of least noise of which there is a plan; by bisection where not the end."""
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
