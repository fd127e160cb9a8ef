"""Inverse questions: what targets cost, and what uploads buy.

Targets cost uploads, budgets, rounds or clients. An answer is the cheapest value of
one unknown whose plan meets every target. For the noise or the accuracy alone it is
found by bracketing from the spec's own value. Other targets need not change in one
direction (ratios of an objective may give up noise for less bias; what a group counts
may stay the same), so values over the whole range are tried, and the ends of those that
meet every target are refined.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from privplan.accounting.bracketing import largest_affordable
from privplan.errors import Fault, InfeasibleError, InputError, did_you_mean
from privplan.plan import Plan
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
"""Free choices of a plan that would move while the unknown does."""
_MAX_FACTOR = {"epsilon": 1e3, "delta": 1e6, "clients": 1e2}
"""Largest factor between a budget or a number of clients and the spec's, both ways."""
_MAX_FORECAST_FACTOR = (
    64.0  # the same for an accuracy: far from its runs it says little
)
_MAX_DELTA = 0.5  # a guarantee that may fail half of the time protects nobody
_MAX_ROUNDS = 100_000  # beyond any published training of this kind
_TOLERANCE = 1e-3  # relative, of the answer: finer than the noise of a forecast
_AT_END = 1e-9  # rounding of logarithms at the end of a range
_TRIED = (
    24  # values, evenly spaced in logarithms, tried where bracketing does not serve
)
_NEAR = 0.01  # relative distance of values at which the search around the best ends
_ALIKE = 1e-4  # relative difference below which the unknown does not change an excess
_WHOLE = 1e-9  # below the next whole number by so little, a value is that number


@dataclass(frozen=True)
class Unknown:
    """Values of a field by their logarithms times a sign: larger arguments cost less.

    Attributes:
        name: one of ``UNKNOWNS``, or a field after the name of a group and a dot.
        make: the spec at a value; of epsilon and clients, at a factor on all of them.
        low: smallest argument, the costliest value.
        high: largest argument, the cheapest value.
        start: argument of the spec's value.
        sign: -1 where larger values cost more, 1 where they cost less.
        limited: whether a limit of the spec ends the arguments, not the search.
    """

    name: str
    make: Callable[[float], Spec]
    low: float
    high: float
    start: float
    sign: float
    limited: bool = False

    def spec_at(self, argument: float) -> Spec:
        """The spec at an argument."""
        return self.make(math.exp(self.sign * argument))

    def shown(self, argument: float) -> str:
        """The unknown with its value at an argument."""
        if self.name == "epsilon":
            return f"epsilon x {math.exp(self.sign * argument):.4g}"
        spec = self.spec_at(argument)
        if self.name == "clients":
            return f"clients {spec.population}"

        group_name, _, field = self.name.rpartition(".")
        holder = next(
            (group for group in spec.groups if group.name == group_name), spec
        )
        return f"{self.name} {getattr(holder, field):.6g}"


def unknown_of(
    spec: Spec, name: str, question: str, *, most_rounds: bool = False
) -> Unknown:
    """The values of an unknown within the spec's limits.

    Args:
        spec: the planning problem.
        name: the unknown, as in ``solve_for``.
        question: what is asked, for messages.
        most_rounds: whether more rounds cost less, where otherwise fewer do.

    Raises:
        InputError: for an unknown that the spec does not have or decides by itself.
    """
    require_clients(spec, question)
    group_fields = _names_of_groups(spec, tuple(_OF_GROUP))
    if name not in UNKNOWNS and name not in group_fields:
        rule = (
            f"must be one of {', '.join(UNKNOWNS)} or GROUP. with "
            f"{', '.join(_OF_GROUP)}{did_you_mean(name, group_fields)}"
        )
        raise InputError.one("solve_for", rule, name)
    if free := sorted(_OPEN & {*spec.planning.free}):
        rule = f"must not name them with {question}"
        raise InputError.one("planning.free", rule, free)

    if name in ("epsilon", "clients") or name not in UNKNOWNS:
        return _of_groups(spec, name)
    if name == "rounds" or spec.everyone:
        spec.require("solve_for rounds", "solve_for", name)
    cohort_is_fixed = spec.planning.ratios == "given" or spec.everyone
    if name == "rounds":
        return _rounds(spec, cohort_is_fixed, most_rounds)
    if cohort_is_fixed:
        rule = "must be epsilon or rounds with given ratios or full participation"
        raise InputError.one("solve_for", rule, name)
    return _cohorts(spec)


def _names_of_groups(spec: Spec, fields: Iterable[str]) -> list[str]:
    """``GROUP.FIELD`` for each group and field."""
    names: list[str] = []
    for group in spec.groups:
        names += [f"{group.name}.{field}" for field in fields]
    return names


def _cohorts(spec: Spec) -> Unknown:
    """Sizes of the cohort, in expected clients of a round: a larger one costs more."""
    floors = sum(map(spec.least_cohort, spec.groups))
    smallest = max(float(len(spec.groups)), floors)
    largest = largest_cohort(spec, spec.rounds)

    def with_cohort(cohort: float) -> Spec:
        """The spec with an expected cohort, within what laws and limits allow.

        A law of whole cohorts takes the next whole number.
        """
        cohort = max(cohort, smallest)
        if spec.sampling.law.whole_cohorts:
            cohort = float(math.ceil(cohort - _WHOLE))
        return respecified(spec, cohort=min(cohort, largest))

    check_limits(with_cohort(largest))
    return Unknown(
        "cohort",
        with_cohort,
        low=-math.log(largest),
        high=-math.log(smallest),
        start=-math.log(spec.expected_cohort),
        sign=-1.0,
    )


def _rounds(spec: Spec, cohort_is_fixed: bool, most_rounds: bool) -> Unknown:
    """Numbers of rounds, with fewer clients where a limit on uploads asks for it."""
    cohort = spec.expected_cohort
    max_uploads = spec.planning.max_uploads or math.inf
    searched = min(spec.planning.max_rounds or _MAX_ROUNDS, _MAX_ROUNDS)

    def fewest_uploads(rounds: int) -> float:
        """The fewest uploads of all clients that so many rounds need."""
        if cohort_is_fixed:
            return rounds * cohort
        return rounds * min(fewest_clients(spec, rounds), cohort)

    def with_rounds(rounds: float) -> Spec:
        """The spec with whole rounds, and fewer clients where uploads ask for it."""
        whole_rounds = max(round(rounds), 1)
        if cohort_is_fixed or whole_rounds * cohort <= max_uploads:
            return respecified(spec, rounds=whole_rounds)
        clients = min(largest_cohort(spec, whole_rounds), cohort)
        return respecified(spec, rounds=whole_rounds, cohort=clients)

    allowed = bisect_right(range(1, searched + 1), max_uploads, key=fewest_uploads)
    for rounds in (1, allowed):
        check_limits(with_rounds(rounds))

    log_allowed = math.log(max(allowed, 1))
    start = math.log(spec.rounds)
    if not most_rounds:
        return Unknown("rounds", with_rounds, -log_allowed, 0.0, -start, -1.0)
    limited = allowed < _MAX_ROUNDS
    return Unknown("rounds", with_rounds, 0.0, log_allowed, start, 1.0, limited=limited)


def _of_groups(spec: Spec, name: str) -> Unknown:
    """Factors on all epsilons or clients, or a group's epsilon, delta or clients."""
    group_name, _, field = name.rpartition(".")
    changed = [group for group in spec.groups if group_name in ("", group.name)]
    if field != "clients" and any(group.risk is not None for group in changed):
        rule = "must be cohort or rounds where budgets are risks"
        raise InputError.one("solve_for", rule, name)
    if spec.groups_from is not None and (group_name or field == "clients"):
        rule = "must be cohort, epsilon or rounds with groups_from"
        raise InputError.one("solve_for", rule, name)
    check_limits(spec)

    # All groups change by a factor; a single group by its value.
    start = 1.0
    if group_name and field == "clients":
        start = changed[0].clients
    elif group_name and field == "delta":
        start = spec.delta_of(changed[0])
    elif group_name:
        start = changed[0].epsilon

    def with_value(value: float) -> Spec:
        """The spec with a value for the groups that change.

        A factor on every group's epsilon or clients, or the value itself of a single
        group. Clients are whole numbers: the next one up.
        """
        groups = []
        for group in spec.groups:
            data = group.model_dump(mode="json")
            if not group_name and field == "clients":
                data["clients"] = math.ceil(group.clients * value - _WHOLE)
            elif not group_name:
                data["epsilon"] = group.epsilon * value
            elif group.name == group_name and field == "clients":
                data["clients"] = math.ceil(value - _WHOLE)
            elif group.name == group_name:
                data[field] = value
            groups.append(data)
        return respecified(spec, groups=groups)

    log_factor = math.log(_MAX_FACTOR[field])
    low = -math.log(start) - log_factor
    if field == "delta":
        low = max(low, math.log(1 / _MAX_DELTA))
    high = log_factor - math.log(start)
    return Unknown(name, with_value, low, high, -math.log(start), -1.0)


def require_clients(spec: Spec, field: str) -> None:
    """Raises InputError for a spec of records or of fixed noise multipliers."""
    if spec.unit != "client":
        raise InputError.one(field, "is only for unit: client", spec.unit)
    if any(group.noise_multiplier is not None for group in spec.groups):
        rule = (
            "is for calibrated noise; with fixed noise_multiplier change cohort or "
            "rounds"
        )
        raise InputError.one(field, rule, "noise_multiplier")


# --- What targets cost. ---------------------------------------------------------------


def _reached(plan: Plan, name: str) -> float:
    """What a plan reaches of a target; of an accuracy, in percent."""
    group_name, _, field = name.rpartition(".")
    if field == "accuracy":
        expected = plan.forecast
        assert expected is not None
        if not group_name:
            return 100 * expected.accuracy
        accuracies = {group.group: group.accuracy for group in expected.groups}
        return 100 * accuracies[group_name]

    if name == "objective":
        return plan.objective.value
    if not group_name:
        # The norm of the noise of a mean: its deviation per coordinate times sqrt(d).
        return plan.mean_noise_std * math.sqrt(plan.spec.model.parameters)

    group = plan.group(group_name)
    if field == "counts":
        # 1 where a client of the group counts as much as a client on average.
        return group.weight * plan.spec.population / group.clients
    return group.noise_multiplier


def _excess(name: str, reached: float, goal: float) -> float:
    """At most 1 where a target is met."""
    if name.endswith("accuracy"):
        return (100 - reached) / (100 - goal)
    if name.endswith("counts"):
        return goal / max(
            reached, 1e-300
        )  # a group that counts nothing misses any goal
    return reached / goal


def _check(spec: Spec, targets: Mapping[str, float], forecasts: bool) -> None:
    """Raises InputError with every target that nobody can meet or measure."""
    names = [*TARGETS, *_names_of_groups(spec, OF_GROUP)]
    faults: list[Fault] = []
    for name, goal in targets.items():
        target = f"{name}={goal:g}"
        is_percent = name.rpartition(".")[2] == "accuracy"
        if name not in names:
            rule = (
                f"must be one of {', '.join(TARGETS)}, uploads or GROUP. with "
                f"{', '.join(OF_GROUP)}{did_you_mean(name, names)}"
            )
            faults.append(Fault("for", rule, target))
        elif is_percent and not 1 <= goal < 100:
            rule = "must be a percentage from 1 to below 100"
            # Whoever means a share would get a plan for less than one percent.
            if 0 < goal < 1:
                rule += f"; {goal:g} is less than 1%: write {name}={100 * goal:g}"
            faults.append(Fault("for", rule, target))
        elif not 0 < goal < math.inf:
            faults.append(Fault("for", "must be positive and finite", target))
        elif is_percent and not forecasts:
            faults.append(Fault("for", "needs --forecast PROXY", target))
    if faults:
        raise InputError(faults)


class _Trials:
    """The plans at the values that were tried, and by how much each misses the targets.

    Attributes:
        plans: by argument, where there is a plan.
        excesses: the largest of a plan's, by argument; infinite where there is no plan.
        refusals: why there is none, in the order tried.
    """

    def __init__(
        self,
        values: Unknown,
        targets: Mapping[str, float],
        forecast: Callable[[Plan], Plan] | None,
    ) -> None:
        self._values = values
        self._targets = targets
        self._forecast = forecast
        self.plans: dict[float, Plan] = {}
        self.excesses: dict[float, float] = {}
        self.refusals: list[InfeasibleError | InputError] = []

    def excess(self, argument: float) -> float:
        """The largest excess of the plan at an argument; infinite without a plan."""
        if argument not in self.excesses:
            self.excesses[argument] = math.inf
            try:
                plan = solve(self._values.spec_at(argument), second_opinion=False)
            except (InfeasibleError, InputError) as error:
                self.refusals.append(error)
                return math.inf
            if self._forecast is not None:
                plan = self._forecast(plan)
            self.plans[argument] = plan
            self.excesses[argument] = max(
                _excess(name, _reached(plan, name), goal)
                for name, goal in self._targets.items()
            )
        return self.excesses[argument]

    def are_alike(self) -> bool:
        """Whether the unknown changes no excess by more than rounding."""
        excesses = [self.excesses[argument] for argument in self.plans]
        return max(excesses) - min(excesses) < _ALIKE * min(excesses)


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
        targets: numbers of ``TARGETS``, and of ``OF_GROUP`` after the name of a group
            and a dot.
        unknown: one of ``UNKNOWNS`` (``clients`` are those of all groups in the spec's
            proportions), or ``GROUP.epsilon``, ``GROUP.delta`` or ``GROUP.clients``;
            epsilon where an accuracy is asked for, the cohort otherwise, when left out.
        forecast: gives a plan its forecast, where an accuracy is asked for.
        second_opinion: as in ``solve``.

    Raises:
        InputError: for a target or an unknown that the spec does not have.
        InfeasibleError: with what comes nearest, where no value meets them.
    """
    _check(spec, targets, forecast is not None)
    for_accuracy = any(name.endswith("accuracy") for name in targets)
    if not unknown:
        unknown = "epsilon" if for_accuracy else "cohort"
    question = ", ".join(f"{name}={goal:g}" for name, goal in targets.items())
    values = unknown_of(
        spec, unknown, f"--for {question}", most_rounds=not for_accuracy
    )
    if for_accuracy:
        distance = math.log(_MAX_FORECAST_FACTOR)
        low = max(values.low, values.start - distance)
        high = min(values.high, values.start + distance)
        values = replace(values, low=low, high=high)

    # Of the noise or the accuracy alone a costlier value has no larger excess.
    trials = _Trials(values, targets, forecast)
    stretch = None
    if [*targets] in (["noise"], ["accuracy"]) and unknown in UNKNOWNS:
        bracketed = largest_affordable(
            trials.excess,
            1.0,
            start=min(max(values.start, values.low), values.high),
            low=values.low,
            high=values.high,
            tolerance=_TOLERANCE,
            integer=unknown == "rounds" and values.sign > 0,
        )
        if bracketed is not None:
            stretch = Stretch(bracketed, None)
    if stretch is None:
        stretch = tried(values, trials.excess)
        _require_met(trials, values, stretch.cheapest, targets, question)

    plan = solve(values.spec_at(stretch.cheapest), second_opinion=second_opinion)
    note = _answer(plan, values, stretch, question)
    if "noise" in targets:
        note += _noise_in_both_units(plan)
    if forecast is not None:
        plan = forecast(plan)
    return plan.model_copy(update={"warnings": (note, *plan.warnings)})


def _require_met(
    trials: _Trials,
    values: Unknown,
    nearest: float,
    targets: Iterable[str],
    question: str,
) -> None:
    """Raises why there is no plan, or what comes nearest to the targets."""
    if not trials.plans:
        raise trials.refusals[0]
    if trials.excesses[nearest] <= 1:
        return
    message = f"for: {question} cannot be met by {values.name}"
    if trials.are_alike():
        message += f"; {values.name} does not change that"
    reached = ", ".join(_near(trials.plans[nearest], targets))
    raise InfeasibleError(
        f"{message}; the nearest is {reached} at {values.shown(nearest)}"
    )


def _answer(plan: Plan, values: Unknown, stretch: Stretch, question: str) -> str:
    """The note of a plan that answers a question."""
    uploads = math.floor(plan.spec.rounds * plan.spec.expected_cohort * (1 + 1e-9))
    note = (
        f"for: {question} asks for {values.shown(stretch.cheapest)} "
        f"({uploads:,} uploads)"
    )
    if stretch.cheapest >= values.high - _AT_END and values.limited:
        note += ", the most that the limits allow"
    elif stretch.cheapest >= values.high - _AT_END:
        beyond = UNKNOWNS.get(values.name)
        if beyond is None:
            beyond = _OF_GROUP[values.name.rpartition(".")[2]]
        note += f", where the search ends; {beyond} may meet it, too"
    elif values.name == "clients" and _is_whole_cohort(plan.spec):
        cohort = plan.spec.expected_cohort
        note += f", the fewest for a cohort of {cohort:g}; a smaller one may need fewer"
    if stretch.costliest is not None:
        note += f"; it is met up to {values.shown(stretch.costliest)}"
    return note


def _is_whole_cohort(spec: Spec) -> bool:
    """Whether a round takes all clients, up to what the search rounds."""
    rounded = len(spec.groups) + _TOLERANCE * spec.population
    return spec.population - rounded <= spec.expected_cohort


def _noise_in_both_units(plan: Plan) -> str:
    """The noise of the mean as it is asked for, in norm, and as ``solve`` shows it."""
    norm = _reached(plan, "noise")
    clipping_norms = norm / plan.spec.clipping_norm
    return f"; noise is {norm:.4g} in norm, {clipping_norms:.4g} clipping norms"


def _near(plan: Plan, names: Iterable[str]) -> list[str]:
    """What a plan reaches, rounded to where it is still met."""
    texts: list[str] = []
    for name in names:
        reached = _reached(plan, name)
        if name.rpartition(".")[2] in _AT_LEAST:
            texts.append(f"{name}={math.floor(reached * 1e4) / 1e4:g}")
        else:
            texts.append(f"{name}={above(reached, 4)}")
    return texts


class Stretch(NamedTuple):
    """Arguments next to each other that meet the targets.

    Attributes:
        cheapest: the largest of them.
        costliest: the smallest, where costlier arguments do not meet the targets.
    """

    cheapest: float
    costliest: float | None


def tried(values: Unknown, cost: Callable[[float], float]) -> Stretch:
    """The cheapest stretch of arguments of cost 1 or less, else the nearest argument.

    Arguments over the whole range are tried; where none of them is met, those around
    the nearest, too. The ends are found by bisection between neighbours.
    """
    spacing = (values.high - values.low) / _TRIED
    arguments = [values.low + spacing * index for index in range(_TRIED)]
    arguments.append(values.high)
    best = min(arguments, key=cost)

    # A narrow stretch may lie between two of them: look closer around the best.
    while 1 < cost(best) < math.inf and spacing > _NEAR:
        spacing /= 2
        arguments.append(max(best - spacing, values.low))
        arguments.append(min(best + spacing, values.high))
        best = min(arguments, key=cost)

    # Where none is met, the cheapest of those that are as near as the nearest is named.
    goal = 1.0
    if cost(best) > 1:
        goal = cost(best) * (1 + _ALIKE)

    def end(met: float, missed: float) -> float:
        """The last argument that is met, on the way from one to its neighbour."""
        while abs(missed - met) > _TOLERANCE:
            middle = (met + missed) / 2
            if cost(middle) <= goal:
                met = middle
            else:
                missed = middle
        return met

    arguments.sort()
    is_met = [cost(argument) <= goal for argument in arguments]
    last_met = max(index for index, met in enumerate(is_met) if met)
    cheapest = arguments[last_met]
    if last_met + 1 < len(arguments):
        cheapest = end(arguments[last_met], arguments[last_met + 1])

    missed_before = [index for index in range(last_met) if not is_met[index]]
    if not missed_before or goal > 1:
        return Stretch(cheapest, None)
    neighbour = missed_before[-1]
    return Stretch(cheapest, end(arguments[neighbour + 1], arguments[neighbour]))


# --- What uploads buy. ----------------------------------------------------------------


def with_uploads(spec: Spec, uploads: float) -> Spec:
    """The spec with at most so many uploads in all, which decide its cohort.

    Under an objective they decide the rounds, too, where the spec leaves them free.

    Raises:
        InputError: for uploads out of range, or a spec without a cohort to choose.
        InfeasibleError: where every group's fewest clients upload more.
    """
    require_clients(spec, "max_uploads")
    if not 0 < uploads < math.inf:
        raise InputError.one("max_uploads", "must be positive and finite", uploads)
    spec.require("max_uploads", "max_uploads", uploads)
    if spec.planning.ratios == "given" or spec.everyone:
        rule = (
            "is for specs with a cohort to choose, not for given ratios or full "
            "participation"
        )
        raise InputError.one("max_uploads", rule, uploads)

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

    # A fixed rule takes all that the uploads allow; an objective may take fewer.
    if not is_objective(spec.planning.ratios):
        limited = respecified(spec, planning={"max_uploads": uploads})
        return respecified(spec, cohort=largest_cohort(limited, spec.rounds))
    free = [*spec.planning.free]
    if "rounds" not in free and "cohort" not in free:
        free.append("cohort")
    return respecified(spec, planning={"max_uploads": uploads, "free": free})
