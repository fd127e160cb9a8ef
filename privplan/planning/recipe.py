"""The default training recipe: how the server uses the noisy mean, decided without any data.

With the recipe's clipping norm C (``privplan.spec.recipe``) nearly every update is clipped, so a
release is C (m + n): m the mean of unit vectors, |m| at most 1, and n noise of norm
N = nu sqrt(d), known from the plan. The server moves by eta_s C (m + n) / 1 per round.

Step: eta_s = L / (C sqrt(1 + N^2)), so that the step of a round, with its noise, has length at
most about L = STEP_LENGTH eta whatever the noise, the cohort and the model's size. Longer steps
lose accuracy to noise that random steps cannot undo, shorter ones do not arrive within the rounds.
In units of the local learning rate eta, because that is what the spec says of the model's scale.

Average: an exponential moving average of the models takes out noise that the step leaves; it costs
nothing. Server momentum beta is a step longer by 1 / (1 - beta) and was no better at equal length.

Local momentum changes neither: of a clipped update only the direction is left. It makes local
training go far, which turns that direction towards the client's own records, so
``privplan.spec.recipe`` decides a shorter local learning rate where the spec names none.

STEP_LENGTH and the decay are measured on MNIST and scikit-learn's digits: docs/recipe.md.
"""

from __future__ import annotations

import math
from typing import Any

from privplan.plan import Plan
from privplan.spec.recipe import (
    LOCAL_RATE,
    UNIT,
    TuningEvidence,
    fields_digest,
    local_rate,
    unit,
    walk,
)
from privplan.spec.server import Averaging, ServerOptimiser
from privplan.spec.spec import Spec
from privplan.spec.turns import noise_left, server_momentum

STEP_LENGTH = 22.0
"""Length of the server's step in a round over the local learning rate (L / eta)."""
CORRELATED_STEP = 28.0
"""The same with correlated noise and the momentum that goes with it: docs/correlated-noise.md."""
FAR = 1.5
"""Largest ratio between a plan's rounds or noise and those of its recipe's tuning."""
NOT_TUNED = "not tuned on private data; a choice made by accuracy on them costs privacy"
"""Line of every plan whose certificate does not pay for tuning."""
DECAY = 0.8
"""Decay of the average of the models per round."""
HALF_WORTH = 5.0
"""Local steps of which the direction of an update is worth half of what most can be worth."""
LASTING = 100.0
"""Rounds after which further ones only make up for their own noise, where local steps are free:
T rounds count as T / (1 + T / LASTING). Both are fitted to digits and text: docs/recipe.md."""
MOST_LOCAL_STEPS = 60
"""Most local steps that a plan chooses; more were not tried."""
FEW_ROUNDS = 22
"""Rounds with which the local steps that a plan chooses lost 2.1 points to fewer ones on digits;
with 23 they were within 0.3 points of the best: docs/recipe.md."""


def worth(steps: int) -> float:
    """Square of the signal in an update's direction by local steps, over that of many: g^2.

    Args:
        steps: local steps (tau).
    """
    return steps / (steps + HALF_WORTH)


def relative_noise(plan: Plan) -> float:
    """Norm of the noise of the mean update over the clipping norm (N).

    That of independent noise which would leave as much in the last model, where it is correlated.
    """
    raw = plan.noise_std / plan.spec.clipping_norm * math.sqrt(plan.spec.model.parameters)
    return raw * noise_left(plan.spec)


def server_learning_rate(plan: Plan) -> float:
    """Learning rate of the server in the default recipe (eta_s)."""
    return default_rate(plan.spec, relative_noise(plan))


def step_length(spec: Spec) -> float:
    """Length of the server's step without noise over the local learning rate."""
    return STEP_LENGTH if spec.sampling.law.turns == 1 else CORRELATED_STEP


def default_rate(spec: Spec, noise: float) -> float:
    """The same for a spec whose plan has a relative noise (N)."""
    length = step_length(spec) * unit(spec.local.learning_rate, spec.recipe)
    length *= 1 - server_momentum(spec)
    return float(f"{length / (spec.clipping_norm * math.hypot(1.0, noise)):.4g}")


def with_server(plan: Plan) -> Plan:
    """Returns the plan with server and averaging where its spec leaves them to the default recipe.

    Neither changes sampling, noise, weights or the certificate.

    Args:
        plan: a solved plan.
    """
    recipe = plan.spec.recipe
    if recipe is None or recipe.source != "default":
        return plan
    decided: dict[str, ServerOptimiser | Averaging] = {}
    if "server" in recipe.decides:
        decided["server"] = _server(plan)
    if "averaging" in recipe.decides:
        decided["averaging"] = Averaging(decay=DECAY)
    return plan.model_copy(update={"spec": plan.spec.model_copy(update=decided)})


def _server(plan: Plan) -> ServerOptimiser:
    """Plain steps, or with momentum where the noise is correlated over rounds."""
    rate = server_learning_rate(plan)
    if plan.spec.sampling.law.turns == 1:
        return ServerOptimiser(learning_rate=rate)
    kept = server_momentum(plan.spec)
    return ServerOptimiser(optimizer="momentum", momentum=kept, learning_rate=rate)


def recipe_lines(plan: Plan) -> list[str]:
    """What the plan's recipe decided and why, and that nothing was tuned on private data."""
    initial = plan.spec.model.initial
    start = [] if initial is None else [initial.line]
    return [*_decided(plan), *start, *([NOT_TUNED] if plan.spec.tuning is None else [])]


def decides_given(data: Any, spec: Spec) -> bool:
    """Whether a spec holds a value of a field that its default recipe decides.

    Args:
        data: plain data of the spec, as it was read.
        spec: the spec.
    """
    recipe = spec.recipe
    if recipe is None or recipe.source != "default":
        return False
    return any(_at(data, field) is not None for field in recipe.decides)


def replaced_lines(data: Any, plan: Plan) -> list[str]:
    """Values that stand in a spec and are not those of its plan, since the recipe decides them.

    A solved spec names its decided fields, so a value that is changed by hand there has no effect.

    Args:
        data: plain data of the spec, as it was read.
        plan: its plan.
    """
    recipe = plan.spec.recipe
    if not isinstance(data, dict) or recipe is None or recipe.source != "default":
        return []
    solved, lines = plan.spec.model_dump(mode="json"), []
    for field in recipe.decides:
        given, decided = (_leaves(_at(one, field), field) for one in (data, solved))
        lines += [
            f"{name}: {value} in the spec is replaced by {decided.get(name, 'nothing')}, which the "
            f"recipe decides; without {field} in recipe.decides it is kept"
            for name, value in given.items()
            if value is not None and value != decided.get(name)
        ]
    return lines


def _at(data: Any, path: str) -> Any:
    """The value of a field by its path; None where there is none."""
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _leaves(value: Any, path: str) -> dict[str, Any]:
    """Values by their paths, of a value that may be a mapping."""
    if isinstance(value, dict):
        return {f"{path}.{name}": one for name, one in value.items()}
    return {path: value}


def _decided(plan: Plan) -> list[str]:
    """What the plan's recipe decided and why, one line each; empty without a recipe."""
    spec, recipe = plan.spec, plan.spec.recipe
    if recipe is None or (recipe.source == "none" and recipe.evidence is None):
        return []
    noise, lines = relative_noise(plan), []
    basis = "without data"
    if recipe.evidence is not None:
        found, changed = recipe.evidence, _changed(spec, recipe.evidence)
        basis = f"{found.runs} runs on {found.dataset} ({found.partition})"
        basis = (
            f"the {changed} changed since the {basis} that chose it; run privplan tune again"
            if changed
            else f"{basis}, where it reached {found.accuracy:.2%} and the recipe before "
            f"{found.default_accuracy:.2%}, {found.seeds} seeds"
        )
    what = f"decided {', '.join(recipe.decides) or 'nothing'}"
    if recipe.source == "none" and recipe.evidence is not None:
        what = f"fields as given, tuned for {recipe.evidence.algorithm}"
    lines.append(f"recipe {recipe.source}: {what}; {basis}")
    eta, of = unit(spec.local.learning_rate, recipe), ""
    if recipe.source == "default" and (local := _local_line(spec)):
        lines.append(local)
        of = f" of {eta:g}"
    if recipe.source == "default" and "clipping_norm" in recipe.decides:
        lines.append(
            f"clipping norm {spec.clipping_norm:g}: one local step{of} at a gradient of norm 1, so "
            "that nearly every update is clipped whatever its length"
        )
    if recipe.source == "default" and spec.server is not None and "server" in recipe.decides:
        lines.append(
            f"server learning rate {spec.server.learning_rate:g}{_momentum(spec)}: a step of "
            f"length {step_length(spec) * eta:.4g} = {step_length(spec):g} local learning rates"
            f"{of}, "
            f"signal 1 and noise {noise:.3g} in clipping norms"
        )
    return [*lines, *_extrapolation(plan)]


def _momentum(spec: Spec) -> str:
    kept = None if spec.server is None else spec.server.momentum
    return f" with momentum {kept:g}, for correlated noise" if kept else ""


def _changed(spec: Spec, evidence: TuningEvidence) -> str:
    """What is not as it was when the recipe was tuned, with its verb; empty when all is."""
    found = []
    if evidence.recipe not in (None, fields_digest(spec.model_dump(mode="json"))):
        found.append("recipe")
    if evidence.model not in (None, spec.model.name):
        found.append(f"model ({evidence.model} then)")
    verb = "was" if len(found) == 1 else "were"
    return f"{' and the '.join(found)} {verb}" if found else ""


def _local_line(spec: Spec) -> str:
    """How far local momentum carries a client, where the recipe decides the rate or would."""
    local, decides = spec.local, () if spec.recipe is None else spec.recipe.decides
    length = walk(local.steps, local.momentum)
    far = f"{local.steps} steps with momentum {local.momentum:g} go as far as {length:.4g} without"
    rate = local_rate(local.steps, local.momentum)
    if LOCAL_RATE in decides:
        return f"local learning rate {local.learning_rate:g}: {far}"
    if local.learning_rate > rate * 1.0001 and rate < UNIT:
        given = f"local learning rate {local.learning_rate:g}, as given"
        return f"{given}: {far}; left out, it is {rate:g}"
    return ""


def _extrapolation(plan: Plan) -> list[str]:
    """Where the plan is far from the one that its recipe was tuned for, one line per number."""
    found = None if plan.spec.recipe is None else plan.spec.recipe.evidence
    if found is None:
        return []
    pairs = {
        "rounds": (float(plan.spec.rounds), float(found.rounds)),
        "noise of the mean update over the clipping norm": (relative_noise(plan), found.noise),
    }
    return [
        f"extrapolates: {name} {value:.4g}, tuned at {tuned:.4g}; run privplan tune again"
        for name, (value, tuned) in pairs.items()
        if not tuned / FAR <= value <= tuned * FAR
    ]
