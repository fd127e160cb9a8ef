"""Specs of sampling in turns (``cyclic_poisson:B``): what they may ask for, and their noise.

Noise that is correlated over the B rounds of a cycle goes with them (``privplan.laws.cyclic``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault, InputError
from privplan.laws.cyclic import coefficients, remaining_noise
from privplan.spec.base import BaseSpec
from privplan.spec.objectives import is_objective
from privplan.values import Value

MOMENTUM = 0.5
"""Server momentum of the default recipe where the noise is correlated: docs/correlated-noise.md."""
_OBJECTIVES = ("balanced", "noise")
_FREE = {"ratios", "weights"}


def server_momentum(spec: BaseSpec) -> float:
    """Momentum of the server for which the noise is correlated, in [0, 1).

    That of the spec, or of the default recipe where it is to decide the server; 0 for servers
    without momentum.
    """
    recipe = spec.recipe
    if recipe is not None and recipe.source == "default" and "server" in recipe.decides:
        return MOMENTUM if spec.sampling.law.turns > 1 else 0.0
    return 0.0 if spec.server is None else spec.server.momentum or 0.0


def mixture(spec: BaseSpec) -> tuple[float, ...]:
    """Factors on a round's sum and on those before it in what is released; (1,) without turns."""
    turns = spec.sampling.law.turns
    return (1.0,) if turns == 1 else coefficients(turns, server_momentum(spec))


def refuse_turns(sampling: SamplingLaw, field: str, purpose: str) -> None:
    """Raise InputError for a law by which clients take turns.

    Args:
        sampling: the law.
        field: that names it, for the message.
        purpose: what needs another law.
    """
    if sampling.law.turns > 1:
        rule = f"must be a law under which every round draws from all clients, for {purpose}"
        raise InputError.one(field, rule, str(sampling))


def noise_left(spec: BaseSpec) -> float:
    """Noise of the last model over that of independent noise of the planned size in each round."""
    return remaining_noise(spec.sampling.law.turns, server_momentum(spec), spec.rounds)


def turn_faults(spec: BaseSpec) -> Iterator[Fault]:
    """What a spec whose clients take turns asks for and cannot have, one fault each."""
    law, planning = spec.sampling.law, spec.planning
    turns, under = law.turns, f"under {spec.sampling} sampling"
    if turns == 1:
        return
    if spec.rounds % turns:
        yield Fault("rounds", f"must be a multiple of {turns} {under}", spec.rounds)
    for group in spec.groups:
        if group.clients < turns:
            where, text = f"groups.{group.name}.clients", f"must be {turns} or more {under}"
            yield Fault(where, text, group.clients)
        for field in ("noise_multiplier", "risk"):
            if (value := getattr(group, field, None)) is not None:
                where = f"groups.{group.name}.{field}"
                yield Fault(where, f"must be left out {under}", _plain(value))
    most = spec.population / turns
    if spec.cohort is not None and spec.groups and spec.cohort > most:
        text = f"must be at most the {most:g} clients of a turn {under}"
        yield Fault("cohort", text, spec.cohort)
    if planning.ratios not in _OBJECTIVES:
        text = f"must be {' or '.join(_OBJECTIVES)} {under}"
        yield Fault("planning.ratios", text, planning.ratios)
    if planning.accountant != "pld":
        yield Fault("planning.accountant", f"must be pld {under}", planning.accountant)
    if planning.sparsification != "none":
        yield Fault("planning.sparsification", f"must be none {under}", planning.sparsification)
    for choice in planning.free:
        if choice not in _FREE:
            yield Fault("planning.free", f"can name ratios and weights only {under}", choice)
    if is_objective(planning.ratios):
        for field in ("clipping", "constants"):
            if (value := getattr(planning, field)) is not None:
                yield Fault(f"planning.{field}", f"must be left out {under}", _plain(value))
    for field in ("horizon", "tuning", "groups_from"):
        if (value := getattr(spec, field)) is not None:
            yield Fault(field, f"must be left out {under}", _plain(value))


def _plain(value: Any) -> Any:
    """A field as it is written, without what was left out."""
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, Value) else value
