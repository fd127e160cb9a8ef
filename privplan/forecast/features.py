"""Features of a plan that a forecast of its accuracy rests on; they need no data."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.recipe import DECAY, default_rate, relative_noise
from privplan.spec.spec import Spec
from privplan.spec.training import Augmentation
from privplan.values import Count, NonNegative, Positive, Value, is_none

# The curve divides by the noise.
_LEAST_NOISE = 1e-6


class PlanFeatures(Value):
    """How a plan trains and with how much noise.

    Attributes:
        rounds: T.
        noise: norm of the noise of the mean update over the clipping norm (N).
        clipping_norm: C.
        travel: local steps times mean local rate: an update's length at gradients of
            norm 1.
        rate: server learning rate over 1 - momentum.
        averaged: models in the released average; 1 for the last model.
        parameters: length of the model (d).
        weights: of each group in the mean update, summing to 1.
        clients: expected per round; None where unknown.
        initial: digest of the parameters before round 1.
        augmentation: random changes of images.
        correlated: whether noise is, over rounds.
    """

    rounds: Count
    noise: NonNegative
    clipping_norm: Positive
    travel: Positive
    rate: Positive
    averaged: Positive
    parameters: Count
    weights: tuple[NonNegative, ...]
    clients: Positive | None = Field(None, exclude_if=is_none)
    initial: str | None = Field(None, exclude_if=is_none)
    augmentation: Augmentation | None = Field(None, exclude_if=is_none)
    correlated: bool = Field(False, exclude_if=lambda value: not value)

    @property
    def kind(self) -> tuple[object, ...]:
        """What no distance between numbers describes."""
        return self.parameters, self.initial, self.augmentation, self.correlated

    @property
    def noise_step(self) -> float:
        """Length of the noise in a step of the server."""
        return self.rate * self.clipping_norm * max(self.noise, _LEAST_NOISE)


def plan_features(plan: Plan) -> PlanFeatures:
    """Features of a solved plan."""
    spec = plan.spec
    if spec.unit != "client":
        raise InputError.one("forecast", "is only for unit: client", spec.unit)
    noise = relative_noise(plan)
    # What the default recipe decides when the run begins.
    recipe = spec.recipe
    is_default = recipe is not None and recipe.source == "default"
    open_fields = recipe.decides if recipe is not None and is_default else ()
    decays = spec.local.learning_rate_decay ** np.arange(spec.rounds)
    return PlanFeatures(
        rounds=spec.rounds,
        noise=noise,
        clipping_norm=spec.clipping_norm,
        travel=spec.local.steps * spec.local.learning_rate * float(decays.mean()),
        rate=_server_rate(spec, noise, is_open="server" in open_fields),
        averaged=_averaged_models(spec, is_open="averaging" in open_fields),
        parameters=spec.model.parameters,
        weights=tuple(group.weight for group in plan.groups),
        clients=spec.expected_cohort,
        initial=None if spec.model.initial is None else spec.model.initial.sha256,
        augmentation=spec.local.augmentation,
        correlated=len(spec.mixture) > 1,
    )


def _server_rate(spec: Spec, noise: float, *, is_open: bool) -> float:
    """Length of the server's steps over that of mean updates, in the long run."""
    server = spec.server
    if is_open:
        return default_rate(spec, noise) / (1 - spec.server_momentum)
    if server is None:
        return 1.0
    rate = (server.learning_rate or 1.0) / (1 - (server.momentum or 0.0))
    if server.optimizer not in ("sgd", "momentum"):
        # An adaptive optimiser: a step of about the rate in each coordinate.
        length = math.sqrt(spec.model.parameters) / math.hypot(1.0, noise)
        rate *= length / spec.clipping_norm
    return rate


def _averaged_models(spec: Spec, *, is_open: bool) -> float:
    """Models in the released average."""
    averaging = spec.averaging
    if is_open:
        return 1 / (1 - DECAY)
    if averaging is None:
        return 1.0
    if averaging.method == "ema":
        return 1 / (1 - (averaging.decay or 0.0))
    return max(1.0, (averaging.fraction or 0.0) * spec.rounds)
