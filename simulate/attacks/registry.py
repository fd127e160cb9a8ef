"""Attacks by name.

A module of this package registers its attacks with ``register``; other distributions declare an
entry point of the group ``privplan.attacks``, whose value is an ``Attack``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from privplan.registry import Registry
from simulate.attacks.view import View


@dataclass(frozen=True)
class Options:
    """Settings of the attacks; an attack ignores those that it does not have.

    Attributes:
        steps: steps of an iterative attack.
        restarts: random starts, of which the one with the smallest objective is used.
        records: most records that are reconstructed from one release.
        seed: seed of the starts.
        rog_network: TorchScript file of ROG's network; empty without.
    """

    steps: int = 1000
    restarts: int = 1
    records: int = 10
    seed: int = 0
    rog_network: str = ""


@dataclass(frozen=True)
class Guess:
    """What an attack found in one release.

    Attributes:
        images: reconstructed pixels in [0, 1], shape [n, channels, height, width]; None when the
            attack reconstructs none.
        labels: inferred labels [n]; None when the attack infers none.
        numbers: further findings by name, such as residuals.
        note: why nothing was found; empty otherwise.
    """

    images: Tensor | None = None
    labels: Tensor | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


Reconstruct = Callable[[Sequence[View], Options, Callable[[int, int], None]], Sequence[Guess]]
"""(views, options, progress in steps) to one guess per view."""


@dataclass(frozen=True)
class Attack:
    """A reconstruction attack.

    Attributes:
        reconstruct: the attack.
        iterative: whether ``Options.steps`` applies.
        source: where it was published.
    """

    reconstruct: Reconstruct
    iterative: bool
    source: str


def _as_attack(component: object) -> Attack:
    """The attack that an entry point names.

    Raises:
        TypeError: when it is not an attack.
    """
    if not isinstance(component, Attack):
        raise TypeError(f"must be an Attack, found {type(component).__name__}")
    return component


ATTACKS: Registry[Attack] = Registry("attack", "privplan.attacks", "simulate.attacks", _as_attack)


def register(name: str, *, iterative: bool, source: str) -> Callable[[Reconstruct], Reconstruct]:
    """A decorator that registers a reconstruction attack under a name."""

    def decorate(reconstruct: Reconstruct) -> Reconstruct:
        ATTACKS.register(name, Attack(reconstruct, iterative, source))
        return reconstruct

    return decorate


def generator(options: Options, *indices: int) -> torch.Generator:
    """The random generator of one start of an attack."""
    mixed = hash((options.seed, *indices)) % (2**63)
    return torch.Generator().manual_seed(mixed)
