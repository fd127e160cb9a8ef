"""The unknowns of inverse questions: what a spec is at a value of its cohort, rounds or budgets."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from privplan.errors import InputError
from privplan.planning.problem import drawable_clients
from privplan.planning.run_limits import (
    check_limits,
    fewest_clients,
    largest_cohort,
    most_uploads,
)
from privplan.spec.spec import Spec

UNKNOWNS = ("cohort", "epsilon", "rounds")
"""What a noise can be asked in: the fewest clients per round, the strictest budgets, or the most
rounds."""
OPEN = frozenset({"rounds", "cohort", "local_steps", "clipping_norm"})
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
        return Ways(lambda factor: _scaled(spec, factor), -most, most, -1.0)
    if unknown == "rounds":
        return _rounds(spec)
    if spec.planning.ratios == "given" or spec.sampling.law.everyone:
        rule = "must be epsilon or rounds with given ratios or full participation"
        raise InputError.one("solve_for", rule, unknown)
    floors = sum(
        (group.min_sampling_ratio or 0.0) * drawable_clients(spec, group.clients)
        for group in spec.groups
    )
    least = max(float(len(spec.groups)), floors)
    most = largest_cohort(spec, spec.rounds, spec.local.steps)

    def with_cohort(cohort: float) -> Spec:
        return respecified(spec, cohort=min(_drawable(spec, max(cohort, least)), most))

    check_limits(with_cohort(most))
    return Ways(with_cohort, -math.log(most), -math.log(least), -1.0, cohorts=True)


def _rounds(spec: Spec) -> Ways:
    """Numbers of rounds, with fewer clients where the uploads of more rounds exceed a limit.

    Raises:
        InfeasibleError: when no number of rounds is within the limits.
    """
    if spec.sampling.law.turns > 1:
        rule = f"must be cohort or epsilon under {spec.sampling} sampling"
        raise InputError.one("solve_for", rule, "rounds")
    cohort, steps = spec.expected_cohort, spec.local.steps
    uploads = most_uploads(spec, steps)
    fixed = spec.planning.ratios == "given" or spec.sampling.law.everyone
    searched = min(spec.planning.max_rounds or _MOST_ROUNDS, _MOST_ROUNDS)

    def fewest_uploads(rounds: int) -> float:
        return rounds * (cohort if fixed else min(fewest_clients(spec, rounds), cohort))

    def with_rounds(rounds: float) -> Spec:
        whole = max(round(rounds), 1)
        if fixed or whole * cohort <= uploads:
            return respecified(spec, rounds=whole)
        return respecified(
            spec, rounds=whole, cohort=min(largest_cohort(spec, whole, steps), cohort)
        )

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
    """The spec at a value of an unknown, the logarithms of its ends and of the spec's own value.

    Args:
        spec: a spec of clients, without free rounds, cohort or clipping norm.
        field: the question, for messages.
        unknown: one of UNKNOWNS; ``epsilon`` is a factor on all budgets.

    Raises:
        InputError: for a spec whose unknown is not its own.
    """
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
