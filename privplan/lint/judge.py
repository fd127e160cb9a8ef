"""The verdict of lint: bounds on epsilon per group beside the claims, and all alarms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from privplan.accounting.accountant import Interval
from privplan.accounting.release import Relation
from privplan.errors import Fault, InputError
from privplan.lint.bounds import epsilon
from privplan.lint.reading import FRAMEWORKS, Alarm, Claim, Mechanism, Options, Reading
from privplan.lint.source import load, refuse_foreign

ALARMS = 6
"""Exit code of a file with alarms."""
_UNBOUNDED = frozenset(
    {
        "aggregation",
        "evaluation",
        "half-precision",
        "modulus",
        "no-clipping",
        "noise-before-clipping",
        "private-weights",
        "server-step",
        "unfiltered",
        "unpaid-clipping",
        "fresh-accountant",
    }
)
"""Alarms about a loss for which no upper bound is known."""
_PHRASES = {
    "fixed_size": "fixed-size cohort, drawn without replacement",
    "poisson": "Poisson sampling",
    "full": "full participation",
    "with_replacement": "independent draws with replacement",
    "shuffle": "shuffled batches, each unit once per epoch",
    "round_robin": "units in turn, no sampling",
}


@dataclass(frozen=True)
class Row:
    """Bounds on the epsilon of a group under one relation; None where not determined."""

    group: str
    relation: Relation
    delta: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Report:
    """What lint found in a file."""

    path: str
    framework: str
    mechanisms: tuple[Mechanism, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    alarms: tuple[Alarm, ...]
    notes: tuple[str, ...]
    undetermined: tuple[str, ...]

    @property
    def excluded(self) -> tuple[str, ...]:
        """Alarms whose loss the upper bounds do not include."""
        return _unbounded(self.alarms)

    @property
    def exit_code(self) -> int:
        """0 without an alarm, else ``ALARMS``."""
        return ALARMS if self.alarms else 0

    def plain(self) -> dict[str, Any]:
        """Plain data for strict JSON; infinite bounds are the string ``inf``."""
        data = {"format": "privplan.lint/1", "exit_code": self.exit_code, **asdict(self)}
        data["upper_bounds_exclude"] = list(self.excluded)
        for one in data["mechanisms"]:
            one["sampling"] = law_phrase(one["law"])
        plain: dict[str, Any] = _strict(data)
        return plain


def _unbounded(alarms: Iterable[Alarm]) -> tuple[str, ...]:
    """Codes of the alarms whose loss no upper bound includes."""
    return tuple(dict.fromkeys(one.code for one in alarms if one.code in _UNBOUNDED))


def law_phrase(law: str | None) -> str:
    """A sampling law in words."""
    return _PHRASES.get(law or "", law or "not determined")


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _strict(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def lint(path: str, of: str, options: Options) -> Report:
    """Read a file of a framework and judge it.

    Args:
        path: script, configuration or log.
        of: name of the framework.
        options: values that precede those of the file.

    Raises:
        InputError: when an option is out of range, the framework is unknown, or the file cannot
            be read or has nothing of it.
    """
    _check(options)
    name = FRAMEWORKS.name_of(of)
    source = load(path)
    reading = FRAMEWORKS.get(name)(source, options)
    shows = bool(reading.mechanisms or reading.claims or reading.alarms)
    refuse_foreign(source, name, shows=shows)
    if not shows:
        reading.unknown("mechanism", f"the file shows no privacy mechanism of {name}")
    return judge(reading, options, path, name)


def _check(options: Options) -> None:
    faults = []
    if options.population is not None and options.population < 1:
        faults.append(Fault("population", "must be 1 or more", options.population))
    if options.rounds is not None and not 1 <= options.rounds <= 10**9:
        faults.append(Fault("rounds", "must be in [1, 1e9]", options.rounds))
    if options.delta is not None and not 1e-30 <= options.delta < 1:
        faults.append(Fault("delta", "must be in [1e-30, 1)", options.delta))
    if faults:
        raise InputError(faults)


def judge(reading: Reading, options: Options, path: str, framework: str) -> Report:
    """Bounds on epsilon for every mechanism, compared with every claim."""
    delta = options.delta or reading.delta
    if delta is None:
        delta = next((claim.delta for claim in reading.claims if claim.delta), None)
    mechanisms = [_with_options(one, options) for one in reading.mechanisms]
    rows: list[Row] = []
    notes = list(reading.conditions)
    for one in mechanisms:
        _missing(reading, one, delta)
        for relation in relations(one):
            found = _epsilon(one, one.rounds, delta, relation)
            lower, upper = (found.lower, found.upper) if found else (None, None)
            at = delta if one.known_epsilon is None else delta or 0.0
            rows.append(Row(one.group, relation, at, lower, upper))
        for claim in reading.claims:
            _compare(reading, notes, one, claim, delta)
        if one.noise is not None and one.noise[0] == 0:
            reading.alarm("no-noise", f"group {one.group}: the release has no noise")
        _delta_alarm(reading, one, delta)
    return Report(
        path,
        framework,
        tuple(mechanisms),
        tuple(rows),
        tuple(reading.claims),
        tuple(reading.alarms),
        tuple(notes),
        tuple(reading.undetermined),
    )


def _with_options(one: Mechanism, options: Options) -> Mechanism:
    population = options.population or one.population
    ratio = one.ratio if one.cohort is None or population is None else None
    rounds = options.rounds or one.rounds
    return replace(one, population=population, ratio=ratio, rounds=rounds)


def relations(one: Mechanism) -> tuple[Relation, ...]:
    """The relations under which a mechanism is accounted; the first is that of plain claims."""
    if one.law == "with_replacement":
        return (Relation.ADD_REMOVE,)
    if one.known_epsilon is not None:
        return (Relation.REPLACE_ONE,)
    if one.law in ("shuffle", "round_robin") or one.local:
        return Relation.ZERO_OUT, Relation.REPLACE_ONE
    if one.law == "fixed_size" and one.sampling_ratio == 1:
        return Relation.ZERO_OUT, Relation.ADD_REMOVE, Relation.REPLACE_ONE
    return Relation.ADD_REMOVE, Relation.REPLACE_ONE


def _epsilon(
    one: Mechanism, rounds: int | None, delta: float | None, relation: Relation
) -> Interval | None:
    if one.known_epsilon is not None:
        delta = delta or 0.0
    if rounds is None or delta is None:
        return None
    return epsilon(one, rounds, delta, relation)


def _missing(reading: Reading, one: Mechanism, delta: float | None) -> None:
    """Name the values without which epsilon is not determined."""
    values: dict[str, object] = {
        "noise multiplier": one.noise,
        "sampling law": one.law,
        "rounds": one.rounds,
    }
    if one.known_epsilon is not None:
        values = {"rounds": one.rounds}
    elif one.sampling_ratio is None:
        values["cohort" if one.cohort is None else "population"] = None
    if one.known_epsilon is None:
        values["delta"] = delta
    for name, value in values.items():
        if value is None and not any(line.startswith(name) for line in reading.undetermined):
            reading.unknown(name, "not in the file as a constant; give it as an option")


def _compare(
    reading: Reading, notes: list[str], one: Mechanism, claim: Claim, delta: float | None
) -> None:
    """An alarm where the claim is below the lower bound; a note on how it compares otherwise."""
    relation = claim.relation or relations(one)[0]
    if relation == Relation.ADD_REMOVE and relation not in relations(one)[:1]:
        relation = relations(one)[0]
    at, rounds = claim.delta or delta, claim.releases or one.rounds
    found = _epsilon(one, rounds, at, relation)
    if found is None:
        reading.unknown(f"claim {claim.epsilon:.6g}", f"{claim.source}: cannot be compared")
        return
    said = f"{claim.source} says epsilon {claim.epsilon:.6g}"
    if claim.delta is None:
        said += f" (its delta is not stated; compared at {at or 0:.4g})"
    truth = f"[{found.lower:.6g}, {found.upper:.6g}] ({law_phrase(one.law)}, {relation})"
    slack = 1e-3 * max(claim.epsilon, 1e-3)
    if claim.epsilon + slack < found.lower:
        reading.alarm("understated", f"{said}; the releases cost {truth}")
    elif outside := ", ".join(
        dict.fromkeys(a.code for a in reading.alarms if a.code in _UNBOUNDED)
    ):
        notes.append(
            f"{said}: not shown to hold; the releases cost {truth}, and neither includes the loss "
            f"by {outside}"
        )
    elif claim.epsilon >= found.upper:
        loose = claim.epsilon > 1.01 * found.upper
        notes.append(f"{said}: holds; {'the tight value is' if loose else 'bounds'} {truth}")
    else:
        notes.append(f"{said}: not shown to hold, nor to fail; bounds {truth}")


def _delta_alarm(reading: Reading, one: Mechanism, delta: float | None) -> None:
    for found in {delta, *(claim.delta for claim in reading.claims)} - {None}:
        if one.population and found is not None and found >= 1 / one.population:
            reading.alarm(
                "delta",
                f"delta {found:g} is not below 1/n = {1 / one.population:.4g}: publishing one "
                f"{one.unit} in full would satisfy it",
            )
