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
from privplan.streams import NoiseKey
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

    def source(self, purpose: int, *at: int) -> Any:
        """The generator of a private stream, from its start."""
        if self.key:
            return self.key.stream(purpose, *at)
        name = self.plan.groups[at[1]].name if purpose == SAMPLING else ""
        return stream(self.seed if self.scheme == 1 else self._private[name], purpose, *at)

    @cached_property
    def _private(self) -> dict[str, int]:
        """Seeds of cohorts by group, and of noise: 128 bits of a hash of seed, spec and name."""
        text = f"privplan private seed v3\n{self.seed}\n{self.plan.spec_digest}\n"
        names = ("", *(one.name for one in self.plan.groups))
        hashes = {name: hashlib.sha256(f"{text}{name}".encode()).hexdigest() for name in names}
        return {name: int(found[:32], 16) for name, found in hashes.items()}

    @property
    def clips(self) -> bool:
        """Whether updates are clipped."""
        return self.recipe.noisy or bool(self.numbers.get("clipped"))

    def released(self, round_: int) -> np.ndarray:
        """The coordinates that leave clients in a round, sorted."""
        size, head = self.parts.model.parameters, self.parts.model.head
        if self.recipe.masked:
            count = max(1, round(self.numbers["kept"] * size))
            drawn = stream(self.seed, MASK, round_, 0)
            return np.sort(drawn.choice(size, size=count, replace=False, shuffle=False))
        shared = np.arange(size)
        return np.delete(shared, shared[head]) if self.recipe.local == "head" else shared

    @property
    def before(self) -> int:
        """How many earlier rounds a round depends on beside the model and the server's state."""
        rounds = self.plan.spec.rounds
        return rounds if self.recipe.personal else len(mixture(self.plan)) - 1


def mixture(plan: Plan, round_: int = 1) -> tuple[float, ...]:
    """Factors on the last B sums: the plan's, if those on one sum have norm 1 at most."""
    own, norms = _mixtures(plan.spec.sampling, plan.spec.server_momentum, plan.spec.rounds)
    at = min(round_, len(own)) - 1
    return tuple(one / norms[max(0, at - k)] for k, one in enumerate(own[at]))


@lru_cache
def _mixtures(law: SamplingLaw, momentum: float, rounds: int) -> tuple[list[Any], list[float]]:
    own = [law.law.mixture(momentum, rounds, at + 1) for at in range(rounds)]
    columns = ([row[k] for k, row in enumerate(own[u : u + len(own[0])])] for u in range(rounds))
    return own, [max(1.0, math.hypot(*one)) for one in columns]
