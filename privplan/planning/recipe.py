"""The default training recipe: how the server uses the noisy mean, without any data.

With the recipe's clipping norm C (``privplan.spec.training``) nearly all updates are
clipped: a release is C (m + n), where m is the mean of unit vectors, |m| at most 1, and
n is noise of norm N = nu sqrt(d), known from the plan. The server moves by eta_s C (m +
n) / 1 per round.

Step: eta_s = L / (C sqrt(1 + N^2)), so that the step of a round, with its noise, has
length at most about L = STEP_LENGTH eta whatever the noise, the cohort and the model's
size. Longer steps lose accuracy to noise that random steps cannot undo, shorter ones do
not arrive within the rounds. In units of the local learning rate eta, because that is
what the spec says of the model's scale.

Average: an exponential moving average of the models takes out noise that the step
leaves; it costs nothing. Server momentum beta is a step longer by 1 / (1 - beta) and
was no better at equal length.

Local momentum changes neither: of a clipped update only the direction is left. It makes
local training go far, which turns that direction towards the client's own records, so
``privplan.spec.training`` decides a shorter local learning rate where the spec names
none.

STEP_LENGTH and the decay are measured on MNIST and scikit-learn's digits:
docs/recipe.md.
"""

from __future__ import annotations

import math
from typing import Any

from privplan.accounting.calibrate import PLD
from privplan.plan import Plan
from privplan.planning.error import Allocation
from privplan.planning.problem import provisioned_noise_multiplier
from privplan.spec.spec import Spec
from privplan.spec.training import (
    LOCAL_RATE,
    UNIT,
    Averaging,
    ServerOptimiser,
    local_rate,
    unit,
    walk,
)

# Length of the server's step in a round over the local learning rate (L / eta).
STEP_LENGTH = 22.0
# The same with correlated noise and its momentum: docs/correlated-noise.md.
CORRELATED_STEP = 28.0
# Decay of the average of the models per round.
DECAY = 0.8
# Line of every plan whose certificate does not pay for tuning.
NOT_TUNED = "not tuned on private data; a choice made by accuracy on them costs privacy"
# A local learning rate is the recipe's own when it is relatively closer than this.
_SAME_RATE = 1.0001


def relative_noise(plan: Plan) -> float:
    """Norm of the mean's noise over the clipping norm (N).

    Correlated noise counts as independent noise that is as harmful.
    """
    relative_std = plan.mean_noise_std / plan.spec.clipping_norm
    return relative_std * math.sqrt(plan.spec.model.parameters) * plan.spec.noise_left


def relative_noise_of(spec: Spec, allocation: Allocation) -> float:
    """``relative_noise`` of an allocation without a plan."""
    multiplier = provisioned_noise_multiplier(spec, allocation)
    return multiplier * math.sqrt(spec.model.parameters) * spec.noise_left


def step_length(spec: Spec) -> float:
    """Length of the server's step without noise over the local learning rate."""
    if len(spec.mixture) == 1:
        return STEP_LENGTH
    return CORRELATED_STEP


def default_rate(spec: Spec, noise: float) -> float:
    """The server's learning rate for a spec whose plan has a relative noise (N)."""
    length = step_length(spec) * unit(spec.local.learning_rate, spec.recipe)
    length *= 1 - spec.server_momentum
    return float(f"{length / (spec.clipping_norm * math.hypot(1.0, noise)):.4g}")


def with_server(plan: Plan) -> Plan:
    """The plan with the default recipe's server and averaging, if its spec has none."""
    spec = plan.spec
    recipe = spec.recipe
    if recipe is None or recipe.source != "default":
        return plan
    decided: dict[str, ServerOptimiser | Averaging] = {}
    if "server" in recipe.decides:
        rate = default_rate(spec, relative_noise(plan))
        server = ServerOptimiser(learning_rate=rate)
        if spec.server_momentum:  # where the noise is correlated over rounds
            server = ServerOptimiser(
                optimizer="momentum", momentum=spec.server_momentum, learning_rate=rate
            )
        decided["server"] = server
    if "averaging" in recipe.decides:
        decided["averaging"] = Averaging(decay=DECAY)
    return plan.model_copy(update={"spec": spec.model_copy(update=decided)})


def recipe_lines(plan: Plan) -> list[str]:
    """What the recipe decided and why, and that nothing was tuned on private data."""
    lines = _decided_lines(plan)
    initial = plan.spec.model.initial
    if initial is not None:
        lines.append(initial.line)
    if plan.guarantee == PLD:
        lines.append(NOT_TUNED)
    return lines


def replaced_lines(data: Any, plan: Plan) -> list[str]:
    """Values in a spec's data that its recipe decides, so that they have no effect."""
    recipe = plan.spec.recipe
    if not isinstance(data, dict) or recipe is None or recipe.source != "default":
        return []
    solved = plan.spec.model_dump(mode="json")
    lines: list[str] = []
    for field in recipe.decides:
        stated = _leaves(_value_of(data, field), field)
        decided = _leaves(_value_of(solved, field), field)
        for name, value in stated.items():
            if value is None or value == decided.get(name):
                continue
            lines.append(
                f"{name}: {value} in the spec is replaced by "
                f"{decided.get(name, 'nothing')}, which the recipe decides; without "
                f"{field} in recipe.decides it is kept"
            )
    return lines


def _value_of(data: Any, path: str) -> Any:
    """The value of a field by its path; None where there is none."""
    for field in path.split("."):
        data = data.get(field) if isinstance(data, dict) else None
    return data


def _leaves(value: Any, path: str) -> dict[str, Any]:
    """Values by their paths, of a value that may be a mapping."""
    if isinstance(value, dict):
        return {f"{path}.{name}": leaf for name, leaf in value.items()}
    return {path: value}


def _decided_lines(plan: Plan) -> list[str]:
    """What the plan's recipe decided and why, one line each; empty without a recipe."""
    spec = plan.spec
    recipe = spec.recipe
    if recipe is None or recipe.source == "none":
        return []
    basis = "without data"
    if recipe.source == "tuned":
        basis = "by runs on public or proxy data"
    fields = ", ".join(recipe.decides) or "nothing"
    lines = [f"recipe {recipe.source}: decided {fields}; {basis}"]
    if recipe.source != "default":
        return lines

    eta = unit(spec.local.learning_rate, recipe)
    rate_in_words = ""
    local_line = _local_line(spec)
    if local_line:
        lines.append(local_line)
        rate_in_words = f" of {eta:g}"
    if "clipping_norm" in recipe.decides:
        lines.append(
            f"clipping norm {spec.clipping_norm:g}: one local step{rate_in_words} at a "
            "gradient of norm 1, so that nearly every update is clipped whatever its "
            "length"
        )
    if spec.server is not None and "server" in recipe.decides:
        momentum = ""
        if spec.server.momentum:
            momentum = f" with momentum {spec.server.momentum:g}, for correlated noise"
        length = step_length(spec)
        lines.append(
            f"server learning rate {spec.server.learning_rate:g}{momentum}: a step of "
            f"length {length * eta:.4g} = {length:g} local learning rates{rate_in_words}, "
            f"signal 1 and noise {relative_noise(plan):.3g} in clipping norms"
        )
    return lines


def _local_line(spec: Spec) -> str:
    """How far local momentum carries a client, where the recipe decides on it."""
    local = spec.local
    length = walk(local.steps, local.momentum)
    comparison = (
        f"{local.steps} steps with momentum {local.momentum:g} go as far as {length:.4g} "
        "without"
    )
    if spec.recipe is not None and LOCAL_RATE in spec.recipe.decides:
        return f"local learning rate {local.learning_rate:g}: {comparison}"
    rate = local_rate(local.steps, local.momentum)
    if local.learning_rate > rate * _SAME_RATE and rate < UNIT:
        return (
            f"local learning rate {local.learning_rate:g}, as given: {comparison}; left "
            f"out, it is {rate:g}"
        )
    return ""
