"""What a run starts from, and the streams that follow from its seed or key."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from privplan.accounting.release import SamplingLaw
from privplan.plan import Plan
from privplan.secure_stream import NoiseKey
from simulate.own_parts import RunParts
from simulate.recipe import Recipe
from simulate.replay.draws import MASK, SAMPLING, stream


@dataclass(frozen=True)
class World:
    """What a run starts from."""

    plan: Plan
    recipe: Recipe
    numbers: Mapping[str, float]  # hyperparameters by name
    parts: RunParts  # data, partition, model and metric
    seed: int
    # secret of cohorts, noise and Poisson batches; None for those of the seed
    key: NoiseKey | None = None
    secret: bool = False  # whether there is such a key, which is not known
    discrete: bool = False  # whether sums and noise are on a grid
    scheme: object = 3  # how cohorts and noise follow from the seed: 1 is from it alone

    def source(self, purpose: int, *indices: int) -> Any:
        """The generator of a private stream, from its start."""
        if self.key:
            return self.key.stream(purpose, *indices)
        if self.scheme == 1:
            return stream(self.seed, purpose, *indices)
        if purpose == SAMPLING:
            name = self.plan.groups[indices[1]].name
        else:
            name = ""
        return stream(self._private[name], purpose, *indices)

    @cached_property
    def _private(self) -> dict[str, int]:
        """Seeds of cohorts by group, and of noise: 128 bits of a hash, by name."""
        text = f"privplan private seed v3\n{self.seed}\n{self.plan.spec_digest}\n"
        names = ("", *(group.name for group in self.plan.groups))
        hashes = {
            name: hashlib.sha256(f"{text}{name}".encode()).hexdigest() for name in names
        }
        return {name: int(digest[:32], 16) for name, digest in hashes.items()}

    @property
    def clips(self) -> bool:
        """Whether updates are clipped."""
        return self.recipe.noisy or bool(self.numbers.get("clipped"))

    def released(self, round_: int) -> np.ndarray:
        """The coordinates that leave clients in a round, sorted."""
        size = self.parts.model.parameters
        if self.recipe.masked:
            count = max(1, round(self.numbers["kept"] * size))
            drawn = stream(self.seed, MASK, round_, 0)
            return np.sort(drawn.choice(size, size=count, replace=False, shuffle=False))
        shared = np.arange(size)
        if self.recipe.local == "head":
            return np.delete(shared, shared[self.parts.model.head])
        return shared

    @property
    def before(self) -> int:
        """How many earlier rounds a round builds on, beside the server's state."""
        rounds = self.plan.spec.rounds
        if self.recipe.personal:
            return rounds
        return len(mixture(self.plan)) - 1


def mixture(plan: Plan, round_: int = 1) -> tuple[float, ...]:
    """Factors on the last B sums: the plan's, cut where those on one exceed norm 1."""
    spec = plan.spec
    factors, norms = _mixtures(spec.sampling, spec.server_momentum, spec.rounds)
    index = min(round_, len(factors)) - 1
    return tuple(
        factor / norms[max(0, index - lag)] for lag, factor in enumerate(factors[index])
    )


@lru_cache
def _mixtures(
    law: SamplingLaw, momentum: float, rounds: int
) -> tuple[list[tuple[float, ...]], list[float]]:
    """A law's factors in each round, and the norm of the factors on each sum, or 1."""
    factors = [
        law.law.mixture(momentum, rounds, number) for number in range(1, rounds + 1)
    ]
    bands = len(factors[0])
    norms = list[float]()
    for first_round in range(rounds):
        later = factors[first_round : first_round + bands]
        on_sum = [row[lag] for lag, row in enumerate(later)]
        norms.append(max(1.0, math.hypot(*on_sum)))
    return factors, norms
