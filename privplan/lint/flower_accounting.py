"""Flower's own accounting: what its accountant prints, and the noise of ``LocalDpMod``.

Source: flwr 1.42, ``supercore.privacy_accounting`` and ``clientapp.mod.localdp_mod``.
"""

from __future__ import annotations

import math
from typing import Any

from privplan.accounting.release import Relation
from privplan.lint.expressions import Call, Name, number, whole
from privplan.lint.reading import Claim, Mechanism, Reading


def config_of(accountant: Any) -> Call | None:
    """The ``PrivacyConfig`` of an accountant that is made in the file."""
    if not isinstance(accountant, Call):
        return None
    config = accountant.argument("config", 0)
    return config if isinstance(config, Call) else None


def add_claim(
    reading: Reading,
    config: Call,
    noise: float | None,
    sampled: int | None,
    rounds: int | None,
    call: Call,
) -> None:
    """What Flower's accountant prints, computed as it does."""
    delta = number(config.argument("target_delta", 0))
    population = whole(config.argument("population_size", 1))
    relation = _member(config.argument("neighboring_relation", 2))
    method = _member(config.argument("sampling_method", 3))
    reading.delta = reading.delta or delta
    values = (delta, population, noise, sampled, rounds)
    if method is None or relation is None or any(one is None for one in values):
        reading.unknown("Flower's own epsilon", "an argument of its accountant is not a constant")
        return
    said = flower_epsilon(noise or 0, sampled or 1, population or 1, rounds or 1, method, relation,
                          delta or 0.5)  # fmt: skip
    under = Relation.REPLACE_ONE if relation == "replace_one" else Relation.ADD_REMOVE
    source = f"Flower's accountant ({method.replace('_', '-')}, {relation.replace('_', '-')})"
    reading.claims.append(Claim(said, delta, under, source))


def _member(value: Any) -> str | None:
    """The normalised name of an enumeration's member, written as a name or as its text."""
    text = value.last if isinstance(value, Name) else value
    return text.lower().replace("-", "_") if isinstance(text, str) else None


def flower_epsilon(
    noise: float, sampled: int, population: int, rounds: int, method: str, relation: str,
    delta: float,
) -> float:  # fmt: skip
    """The epsilon that Flower 1.42's accountant (RDP of dp-accounting) prints."""
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event: Any = dp_accounting.GaussianDpEvent(noise)
    if method == "poisson":
        event = dp_accounting.PoissonSampledDpEvent(sampled / population, event)
    elif method == "without_replacement":
        event = dp_accounting.SampledWithoutReplacementDpEvent(population, sampled, event)
    kind = dp_accounting.NeighboringRelation
    under = kind.REPLACE_ONE if relation == "replace_one" else kind.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(neighboring_relation=under)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


def add_local(
    reading: Reading,
    group: str,
    clip: float | None,
    sensitivity: float | None,
    epsilon: float | None,
    delta: float | None,
    rounds: int | None,
    source: str,
) -> None:
    """A client's own Gaussian of standard deviation s sqrt(2 ln(1.25/delta)) / epsilon."""
    noise = None
    if clip and sensitivity is not None and epsilon and delta and delta < 1:
        deviation = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        noise = (deviation / clip, deviation / clip)
    reading.mechanisms.append(
        Mechanism(
            group=group,
            unit="client",
            protects="a client's whole update, from the server and everyone else",
            law="full",
            noise=noise,
            rounds=rounds,
            local=True,
        )
    )
    if epsilon is not None:
        reading.claims.append(Claim(epsilon, delta, None, source))
    reading.delta = reading.delta or delta
