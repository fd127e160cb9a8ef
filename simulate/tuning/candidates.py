"""Recipes to try: points around the recipe of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.values import Count, NonNegative, Positive, Value
from simulate.data.dataset import Dataset

SPREAD = 4.0
"""Largest factor between a recipe that is tried and the default recipe, in either direction."""
MOMENTA = (0.0, 0.0, 0.5, 0.8)
"""Values of the server's momentum, by frequency."""
DECAYS = (0.0, 0.7, 0.8, 0.9)
"""Values of the decay of averages; 0 releases the last model."""
LOCAL_DECAYS = (0.98, 0.99, 1.0)
"""Values of the decay of the local learning rate."""
SHIFTS = (0, 1, 2)
"""Values of the largest random shift of images, in pixels of 28 x 28."""


class Candidate(Value):
    """A recipe to try.

    Attributes:
        clipping_norm: C, in units of an update.
        step: server learning rate over 1 - momentum, times C.
        momentum: momentum of the server.
        decay: decay of the average of the models.
        local_rate: local learning rate.
        local_decay: its factor per round.
        local_steps: local steps.
        shift: most pixels by which images are moved at random in training.
        server: whether the recipe has a server; a method with its own has no step, momentum or
            average to choose.
    """

    clipping_norm: Positive
    step: Positive
    momentum: NonNegative
    decay: NonNegative
    local_rate: Positive
    local_decay: Positive
    local_steps: Count
    shift: Annotated[int, Field(ge=0)] = 0
    server: bool = Field(True, exclude_if=bool)

    def numbers(self) -> dict[str, float]:
        """The numbers that are chosen, by name; a shift only where there is one."""
        server = () if self.server else ("step", "momentum", "decay")
        return self.model_dump(exclude={"server", *server, *(() if self.shift else ("shift",))})

    def fields(self) -> dict[str, Any]:
        """The fields of a spec that the recipe decides, but for local training."""
        if not self.server:
            return {"clipping_norm": self.clipping_norm, "server": None, "averaging": None}
        rate = float(f"{self.step * (1 - self.momentum) / self.clipping_norm:.4g}")
        server: dict[str, Any] = {"optimizer": "sgd", "learning_rate": rate}
        if self.momentum:
            server = {"optimizer": "momentum", "learning_rate": rate, "momentum": self.momentum}
        averaging = {"method": "ema", "decay": self.decay} if self.decay else None
        return {"clipping_norm": self.clipping_norm, "server": server, "averaging": averaging}

    def applied(self, data: dict[str, Any]) -> dict[str, Any]:
        """A spec's plain data with the candidate; no other recipe is decided for them."""
        return {**data, **self.fields(), "local": self.local(data), "recipe": "none"}

    def local(self, data: dict[str, Any]) -> dict[str, Any]:
        """Local training of a spec's plain data with the candidate's numbers."""
        local = data.get("local") or {}
        augmentation = {**(local.get("augmentation") or {}), "shift": self.shift or None}
        augmentation = {name: value for name, value in augmentation.items() if value is not None}
        local = {
            **local,
            "learning_rate": self.local_rate,
            "learning_rate_decay": self.local_decay,
            "steps": self.local_steps,
            "augmentation": augmentation or None,
        }
        return {name: value for name, value in local.items() if value is not None}

    def features(self) -> list[float]:
        """Coordinates of the recipe for a surrogate, each of scale about 1."""
        logs = (self.clipping_norm, self.step, self.local_rate, self.local_steps)
        rest = (1 - self.momentum, 1 - self.decay)
        return [*map(float, np.log([*logs, *rest])), 30 * (1 - self.local_decay), self.shift]


def default_candidate(plan: Plan, *, own_server: bool = False) -> Candidate:
    """The recipe of a solved plan.

    Args:
        plan: the plan.
        own_server: whether the method that trains has its own server.

    Raises:
        InputError: for a server or an average that a candidate cannot be.
    """
    spec, server, averaging = plan.spec, plan.spec.server, plan.spec.averaging
    if server is not None and server.optimizer not in ("sgd", "momentum"):
        rule = "must be sgd or momentum, or left out, to be tuned"
        raise InputError.one("server.optimizer", rule, server.optimizer)
    if averaging is not None and averaging.method != "ema":
        raise InputError.one("averaging.method", "must be ema to be tuned", averaging.method)
    momentum = 0.0 if server is None else server.momentum or 0.0
    rate = 1.0 if server is None else server.learning_rate or 1.0
    return Candidate(
        clipping_norm=spec.clipping_norm,
        step=rate * spec.clipping_norm / (1 - momentum),
        momentum=momentum,
        decay=0.0 if averaging is None else averaging.decay or 0.0,
        local_rate=spec.local.learning_rate,
        local_decay=spec.local.learning_rate_decay,
        local_steps=spec.local.steps,
        shift=0 if spec.local.augmentation is None else spec.local.augmentation.numbers[0],
        server=not own_server,
    )


def draws(
    default: Candidate, source: np.random.Generator, shifts: Sequence[int]
) -> Iterator[Candidate]:
    """Endless random recipes around the default one; local work at most doubles.

    Args:
        default: the recipe in the middle.
        source: where the recipes are drawn from.
        shifts: largest shifts of images to draw from; none to keep that of the default recipe.
    """

    def near(value: float, factor: float = SPREAD) -> float:
        return float(f"{value * factor ** source.uniform(-1, 1):.3g}")

    own, of_shifts = not default.server, source.spawn(1)[0]
    while True:
        yield Candidate(
            server=default.server,
            clipping_norm=near(default.clipping_norm),
            step=default.step if own else near(default.step, 2.5),
            momentum=default.momentum if own else float(source.choice(MOMENTA)),
            decay=default.decay if own else float(source.choice(DECAYS)),
            local_rate=near(default.local_rate, 2.0),
            local_decay=float(source.choice(LOCAL_DECAYS)),
            local_steps=max(1, round(default.local_steps * source.choice([0.5, 1, 2]))),
            shift=int(of_shifts.choice(shifts)) if len(shifts) else default.shift,
        )


def shifts_of(data: Dataset) -> tuple[int, ...]:
    """Largest shifts to try on images, in proportion to their sides; none for other records."""
    if data.kind != "image" or len(data.shape) != 3:
        return ()
    side = min(data.shape[1:])
    return tuple(dict.fromkeys(round(shift * side / 28) for shift in SHIFTS))
