"""Recipes to try on proxy data: points around the recipe of a plan."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from pydantic import Field

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.values import Count, NonNegative, Positive, Value
from simulate.runs.study import Space

FACTORS = MappingProxyType({"clipping_norm": 4.0, "step": 2.5, "local_rate": 2.0})
"""Largest factor between a recipe that is tried and the default, either way."""
MOMENTA = (0.0, 0.5, 0.8)  # values of the server's momentum
# Values of the decay of averages of models; 0 releases the last model.
DECAYS = (0.0, 0.7, 0.8, 0.9)
LOCAL_DECAYS = (0.98, 0.99, 1.0)  # values of the decay of the local learning rate


class Candidate(Value):
    """A recipe to try.

    Attributes:
        clipping_norm: of updates.
        step: server learning rate over 1 - momentum, times the clipping norm.
        momentum: of the server, in [0, 1).
        decay: of the average of the models; 0 for the last model.
        local_rate: local learning rate.
        local_decay: factor of the local learning rate per round.
        local_steps: of a client in a round.
        server: whether there is a server; a method with its own has no step, momentum
            or average to choose.
    """

    clipping_norm: Positive
    step: Positive
    momentum: NonNegative
    decay: NonNegative
    local_rate: Positive
    local_decay: Positive
    local_steps: Count
    server: bool = Field(True, exclude_if=bool)

    def numbers(self) -> dict[str, float]:
        """The numbers that are chosen, by name."""
        of_server = () if self.server else ("step", "momentum", "decay")
        return self.model_dump(exclude={"server", *of_server})

    def fields(self) -> dict[str, Any]:
        """The fields of a spec that the recipe decides, but for local training."""
        server: dict[str, Any] | None = None
        averaging = None
        if self.server:
            rate = float(f"{self.step * (1 - self.momentum) / self.clipping_norm:.4g}")
            server = {"optimizer": "sgd", "learning_rate": rate}
            if self.momentum:
                server["optimizer"] = "momentum"
                server["momentum"] = self.momentum
            if self.decay:
                averaging = {"method": "ema", "decay": self.decay}
        return {
            "clipping_norm": self.clipping_norm,
            "server": server,
            "averaging": averaging,
        }

    def local(self, data: dict[str, Any]) -> dict[str, Any]:
        """Local training of a spec's plain data with the candidate's numbers."""
        local = {
            **(data.get("local") or {}),
            "learning_rate": self.local_rate,
            "learning_rate_decay": self.local_decay,
            "steps": self.local_steps,
        }
        return {name: value for name, value in local.items() if value is not None}

    def applied(self, data: dict[str, Any]) -> dict[str, Any]:
        """A spec's plain data with the candidate; no other recipe is decided for it."""
        return {**data, **self.fields(), "local": self.local(data), "recipe": "none"}


def default_candidate(plan: Plan, *, own_server: bool = False) -> Candidate:
    """The recipe of a solved plan.

    Args:
        plan: whose recipe it is.
        own_server: whether the algorithm has a server of its own.

    Raises:
        InputError: for an optimiser or an average that is not tuned.
    """
    spec = plan.spec
    momentum = 0.0
    rate = 1.0
    if spec.server is not None:
        if spec.server.optimizer not in ("sgd", "momentum"):
            rule = "must be sgd or momentum, or left out, to be tuned"
            raise InputError.one("server.optimizer", rule, spec.server.optimizer)
        momentum = spec.server.momentum or 0.0
        rate = spec.server.learning_rate or 1.0
    decay = 0.0
    if spec.averaging is not None:
        if spec.averaging.method != "ema":
            rule = "must be ema to be tuned"
            raise InputError.one("averaging.method", rule, spec.averaging.method)
        decay = spec.averaging.decay or 0.0
    return Candidate(
        clipping_norm=spec.clipping_norm,
        step=rate * spec.clipping_norm / (1 - momentum),
        momentum=momentum,
        decay=decay,
        local_rate=spec.local.learning_rate,
        local_decay=spec.local.learning_rate_decay,
        local_steps=spec.local.steps,
        server=not own_server,
    )


def space(default: Candidate) -> Space:
    """The recipes to try around the default one; local work at most doubles."""
    middle = default.numbers()
    steps = default.local_steps
    choices = {
        "momentum": MOMENTA,
        "decay": DECAYS,
        "local_decay": LOCAL_DECAYS,
        "local_steps": (max(1, round(steps / 2)), 2 * steps),
    }
    varied: dict[str, tuple[float, float] | list[Any]] = {}
    for name, factor in FACTORS.items():
        if name in middle:
            varied[name] = (middle[name] / factor, middle[name] * factor)
    for name, values in choices.items():
        if name in middle:
            varied[name] = sorted({middle[name], *values})
    return varied
