"""Bounds on the epsilon of a mechanism as executed, also for laws that no plan uses.

``fixed_size``, ``poisson`` and ``full`` are composed by the project's accountant. The others are:

- ``with_replacement``: m independent uniform draws from n. Given the draws of the other units,
  the sums of neighbours (the unit absent) differ by at most 2 C per draw of the unit, and the
  number of these draws is binomial(m, 1/n): a mixture of Gaussians, which dominates (vectors
  reduce to scalars: Choquette-Choo et al. 2024, "Privacy Amplification for Matrix Mechanisms",
  arXiv 2310.15526).
- ``shuffle``: each unit in exactly one batch of every epoch. From above as if every unit were in
  a known batch. From below the sum of all releases, which is Gaussian, and the largest release
  of the first epoch (Chua et al. 2024, arXiv 2403.17673).
- ``round_robin``: each unit in known rounds, so that nothing is amplified.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from privplan.accounting.accountant import Interval, accountant, at_most, outwards
from privplan.accounting.gdp import epsilon_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.contrib.lint.reading import (
    FRAMEWORKS,
    Alarm,
    Claim,
    Mechanism,
    Options,
    Reading,
    unread_claims,
    unsettle,
)
from privplan.contrib.lint.script import Source, load
from privplan.errors import Fault, InputError, PrivplanError
from privplan.files import refuse_other_kind

_SPENT_ON_TAILS = 1e-3
_GRID = 400


def epsilon(mechanism: Mechanism, rounds: int, delta: float, relation: Relation) -> Interval | None:
    """Bounds on the composed epsilon; None where a value that they need is not determined."""
    if mechanism.known_epsilon is not None:
        return Interval(0.0, mechanism.known_epsilon * rounds)
    ratio = mechanism.sampling_ratio
    if mechanism.noise is None or mechanism.law is None or ratio is None:
        return None
    low, high = mechanism.noise
    if low == 0:
        return Interval(math.inf, math.inf)
    most = _bounds(mechanism, low, ratio, rounds, delta, relation)
    least = most if low == high else _bounds(mechanism, high, ratio, rounds, delta, relation)
    return Interval(least.lower, most.upper)


def _bounds(
    mechanism: Mechanism, noise: float, ratio: float, rounds: int, delta: float, relation: Relation
) -> Interval:
    distance = 2.0 if relation == Relation.REPLACE_ONE else 1.0
    if mechanism.law == "with_replacement":
        return _with_replacement(mechanism, noise, rounds, delta)
    if mechanism.law == "shuffle":
        return _shuffled(noise / distance, ratio, rounds, delta)
    if mechanism.law == "round_robin":
        mu = distance * math.sqrt(max(1, math.floor(ratio * rounds))) / noise
        most = distance * math.sqrt(max(1, math.ceil(ratio * rounds))) / noise
        return Interval(epsilon_of(mu, delta), epsilon_of(most, delta))
    law = SamplingLaw(str(mechanism.law))
    history = History.repeated(Release(noise, ratio, law), rounds)
    try:
        return accountant("pld").epsilon(history, delta, relation)
    except PrivplanError:  # too little noise to compose
        return _little_noise(noise / law.law.sensitivity(relation), ratio, rounds, delta)


def _little_noise(noise: float, ratio: float, rounds: int, delta: float) -> Interval:
    """One sampled release from below, all releases without sampling from above.

    The hockey-stick divergence of a sampled release is ``ratio`` times that of the release
    itself at ``log(1 + (e^epsilon - 1) / ratio)``.
    """
    upper = epsilon_of(math.sqrt(rounds) / noise, delta)
    if delta >= ratio:
        return Interval(0.0, upper)
    single = epsilon_of(1 / noise, delta / ratio)
    below = math.log1p(ratio * math.expm1(single)) if single < 600 else single + math.log(ratio)
    return Interval(min(below, upper), upper)


def _with_replacement(mechanism: Mechanism, noise: float, rounds: int, delta: float) -> Interval:
    """From below every unit that is drawn counts once, from above the mixture itself.

    A unit is drawn at least once with probability ``1 - (1 - 1/n)^m``; a mixture grows with its
    shifts. From above the rare numbers of draws are added to delta.
    """
    draws, units = round(mechanism.cohort or 0), int(mechanism.population or 1)
    drawn = -math.expm1(draws * math.log1p(-1 / units)) if units > 1 else 1.0
    lower = _composed(noise, drawn, rounds, delta)
    from scipy.stats import binom  # slow to import

    most = max(1, int(binom.isf(delta * _SPENT_ON_TAILS / rounds, draws, 1 / units)))
    missing = rounds * float(binom.sf(most, draws, 1 / units))
    from dp_accounting.pld import privacy_loss_distribution as pld

    chances = binom.pmf(np.arange(most + 1), draws, 1 / units)
    chances[0] = 1 - float(chances[1:].sum())
    spread = drawn * math.sqrt(math.expm1(min((2 / noise) ** 2, 50.0)) * rounds)
    mixture = pld.from_mixture_gaussian_mechanism(
        noise,
        [2.0 * k for k in range(most + 1)],
        list(chances),
        value_discretization_interval=min(1e-2, max(1e-4, spread / math.sqrt(rounds) / 50)),
    )
    upper = float(mixture.self_compose(rounds).get_epsilon_for_delta(delta - missing))
    return Interval(min(lower, upper), upper)


def _composed(noise: float, ratio: float, rounds: int, delta: float) -> float:
    """Lower bound of a unit that takes part with this probability and displaces another one."""
    history = History.repeated(Release(noise, ratio, SamplingLaw.FIXED_SIZE), rounds)
    try:
        return accountant("pld").epsilon(history, delta, Relation.ADD_REMOVE).lower
    except PrivplanError:
        return _little_noise(noise / 2, ratio, rounds, delta).lower


def _shuffled(noise: float, ratio: float, rounds: int, delta: float) -> Interval:
    batches = max(1, round(1 / ratio))
    epochs = max(1, math.ceil(rounds / batches))
    whole = rounds // batches
    upper = epsilon_of(math.sqrt(epochs) / noise, delta)
    lower = epsilon_of(math.sqrt(whole / batches) / noise, delta) if whole else 0.0
    if whole:
        lower = max(lower, _largest_release(noise, batches, delta))
    return Interval(min(lower, upper), upper)


def _largest_release(noise: float, batches: int, delta: float) -> float:
    """Lower bound from the event that the largest release of an epoch exceeds a threshold."""
    at = np.linspace(-2 * noise, 2 + 8 * noise, _GRID)
    none = batches * log_ndtr(at / noise)
    shifted = (batches - 1) * log_ndtr(at / noise) + log_ndtr((at - 1) / noise)
    without, with_unit = -np.expm1(none), -np.expm1(shifted)
    usable = (with_unit > delta) & (without > 0)
    if not usable.any():
        return 0.0
    return float(np.log((with_unit[usable] - delta) / without[usable]).max(initial=0.0))


# --- The verdict of lint: bounds on epsilon per group beside the claims, and all alarms. ---------

UNDETERMINED, ALARMS = 5, 6
"""Exit codes of a file with a value that is not determined, and of one with alarms."""
_UNBOUNDED = frozenset({
    "aggregation", "evaluation", "half-precision", "modulus", "no-clipping", "no-noise",
    "noise-before-clipping", "private-weights", "server-step", "unfiltered", "unpaid-clipping",
    "fresh-accountant",
})  # fmt: skip
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
        """``ALARMS``, or ``UNDETERMINED``, or 0 where every value is known and no claim open."""
        if self.alarms:
            return ALARMS
        known = self.rows and all(row.upper is not None for row in self.rows)
        return 0 if known and not self.undetermined else UNDETERMINED

    def plain(self) -> dict[str, Any]:
        """Plain data for strict JSON; infinite bounds are the string ``inf``."""
        data = {"format": "privplan.contrib.lint/1", "exit_code": self.exit_code, **asdict(self)}
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
    """Read a file of a framework and judge it."""
    _check(options)
    name = FRAMEWORKS.name_of(of)
    source = load(path)
    reading = FRAMEWORKS.get(name)(source, options)
    unsettle(source, reading)
    unread_claims(source, reading)
    shows = bool(reading.mechanisms or reading.claims or reading.alarms)
    _refuse_foreign(source, name, shows=shows)
    if not shows:
        reading.unknown("mechanism", f"the file shows no privacy mechanism of {name}")
    return judge(reading, options, path, name)


_NAMES = {"flower": "flower|flwr", "opacus": "opacus|privacy_?engine"}
"""How a framework is named in its files, where not by its own name."""


def _refuse_foreign(source: Source, framework: str, *, shows: bool) -> None:
    """Refuse a configuration or a log in which nothing is of the framework."""
    if source.script is not None:
        return
    data = source.data
    if isinstance(data, dict) and ("rounds" not in data or {"groups", "groups_from"} & data.keys()):
        refuse_other_kind(data, f"a configuration of {framework}", "file")
    named = re.search(_NAMES.get(framework, re.escape(framework)), source.text, re.IGNORECASE)
    if not shows and named is None:
        rule = f"must be a script, a configuration or a log of {framework}, and shows nothing of it"
        raise InputError.one("file", rule, source.path)


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
    groups = [one.group for one in mechanisms]
    several = {group for group in groups if groups.count(group) > 1}
    for group in sorted(several):
        text = f"{groups.count(group)} mechanisms are of group {group}: what they cost adds up"
        reading.unknown("epsilon", text)
    for one in mechanisms:
        _missing(reading, one, delta)
        for relation in relations(one):
            found = _epsilon(one, one.rounds, delta, relation)
            lower, upper = (found.lower, found.upper) if found else (None, None)
            at = delta if one.known_epsilon is None else delta or 0.0
            rows.append(Row(one.group, relation, at, lower, upper))
        for claim in reading.claims:
            _compare(reading, notes, one, claim, delta, beside=one.group in several)
        if one.noise is not None and one.noise[0] == 0:
            reading.alarm("no-noise", f"group {one.group}: the release has no noise")
        _delta_alarm(reading, one, delta)
    return Report(
        path, framework, tuple(mechanisms), tuple(rows), tuple(reading.claims),
        tuple(reading.alarms), tuple(notes), tuple(reading.undetermined),
    )  # fmt: skip


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
    reading: Reading, notes: list[str], one: Mechanism, claim: Claim, delta: float | None,
    *, beside: bool,
) -> None:  # fmt: skip
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
    ends = f"{outwards(found.lower, False, 6):.12g}, {at_most(found.upper, 6)}"
    truth = f"[{ends}] ({law_phrase(one.law)}, {relation})"
    slack = 1e-3 * max(claim.epsilon, 1e-3)
    if claim.epsilon + slack < found.lower:
        reading.alarm("understated", f"{said}; the releases cost {truth}")
    elif outside := ", ".join(_unbounded(reading.alarms)):
        notes.append(
            f"{said}: not shown to hold; the releases cost {truth}, and neither includes the loss "
            f"by {outside}"
        )
    elif beside or any(line.startswith("rounds") for line in reading.undetermined):
        notes.append(f"{said}: not shown to hold; what is determined costs {truth}")
    elif claim.epsilon >= found.upper:
        loose = claim.epsilon > 1.01 * found.upper
        notes.append(f"{said}: holds; {'the tight value is' if loose else 'bounds'} {truth}")
    elif found.upper <= 1.01 * found.lower:  # the cost is determined, the claim beside it open
        notes.append(f"{said}: not shown to hold, nor to fail; bounds {truth}")
    else:
        reading.unknown("claim", f"{said}: not shown to hold, nor to fail; bounds {truth}")


def _delta_alarm(reading: Reading, one: Mechanism, delta: float | None) -> None:
    for found in {delta, *(claim.delta for claim in reading.claims)} - {None}:
        if one.population and found is not None and found >= 1 / one.population:
            text = f"delta {found:g} is not below 1/n = {1 / one.population:.4g}: publishing one "
            text += f"{one.unit} in full would satisfy it"
            reading.alarm("delta", text)
