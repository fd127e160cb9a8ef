"""Decides rounds, epochs, batch sizes and clipping norm of plans that protect records.

With gamma = sum_i w_i eta E_i the length of a round's step, the descent lemma of docs/planning.md
bounds the mean squared gradient over T rounds by

    2 (F_0 - F*) / (gamma T) + (L_n V_noise + L_s V_batches) / gamma + bias^2.

V_noise and V_batches are the variances of the mean update by DP noise and by the draw of batches
(Malekmohammadi, Yu and Cao 2024, Eq. 3 and 7), L_n and L_s the curvatures that they meet, and bias
the mean excess of a pilot's gradient norms over the clipping norm. More steps shorten the first
term and cost noise; larger batches need fewer steps and less noise; a smaller norm has less noise
and more bias. The choices are improved in turn; noise comes from RDP until they are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from privplan.planning.free_choices import minimiser
from privplan.planning.group_noise import single_group
from privplan.planning.noise_model import exact_noise
from privplan.planning.objectives import clip_bias
from privplan.planning.problem import problem_of
from privplan.planning.record_level import single_weights, turns
from privplan.planning.update_noise import local_steps, update_variance
from privplan.spec.planning import RECORD_FREE
from privplan.spec.spec import Spec

_EPOCHS = (1, 2, 3, 4, 6, 8, 12)
_FACTORS = 9
_SWEEPS = 3


def decide_record_choices(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """Returns the spec with its free choices decided, and notes on them.

    Raises:
        InfeasibleError: when a budget cannot be met at a candidate.
    """
    free = [name for name in RECORD_FREE if name in spec.planning.free]
    if not free:
        return spec, ()
    kept = [name for name in spec.planning.free if name not in RECORD_FREE]
    decided = _with(spec, planning={**spec.planning.model_dump(mode="json"), "free": kept})
    most = spec.planning.max_rounds or 10 * spec.rounds
    best = math.inf
    for _ in range(_SWEEPS):
        for name in free:
            decided = _STEPS[name](decided, most)
        error = run_error(decided)
        if error > best * (1 - 1e-3):
            break
        best = error
    return decided, tuple(f"planning.free: {name} is {_shown(decided, name)}" for name in free)


def run_error(spec: Spec) -> float:
    """The bound of the module's docstring for a spec with constants."""
    constants = spec.planning.constants
    assert constants is not None  # free choices require them
    problem, times = problem_of(spec), turns(spec)
    clients = np.asarray(problem.clients, dtype=float)
    lengths, noise, batches = [], [], []
    for m, group in enumerate(spec.groups):
        records, batch = group.records or 1, spec.batch_size_of(group)
        steps = local_steps(records, batch, spec.local.epochs or 1)
        one = replace(single_group(problem, m), rounds=steps * times)
        z = exact_noise(one, 0, min(batch / records, 1.0), "rdp")
        rate, clip = spec.local.learning_rate, spec.clipping_norm
        lengths.append(rate * steps)
        gradient = spec.model.parameters * (clip * z / batch) ** 2
        noise.append(update_variance(steps, rate, gradient))
        batches.append(update_variance(steps, rate, clip**2 / batch))
    weights = single_weights(spec, np.array(noise))
    share = round(spec.expected_cohort) / spec.population
    length = float(np.sum(clients * weights * np.array(lengths)))
    squares = clients * weights**2 / share
    random = (constants.noise_curvature or constants.smoothness) * float(squares @ np.array(noise))
    random += (constants.sampling_curvature or constants.smoothness) * float(
        squares @ np.array(batches)
    )
    progress = 2 * constants.initial_gap / (length * spec.rounds)
    return progress + random / length + clip_bias(spec) ** 2


def _rounds(spec: Spec, most: int) -> Spec:
    def at(log_rounds: float) -> Spec:
        return _with(spec, rounds=max(round(math.exp(log_rounds)), 1))

    return at(minimiser(lambda x: run_error(at(x)), 0.0, math.log(most)))


def _epochs(spec: Spec, most: int) -> Spec:
    local = spec.local.model_dump(mode="json")
    return min(
        (_with(spec, local={**local, "epochs": epochs}) for epochs in _EPOCHS), key=run_error
    )


def _batch_size(spec: Spec, most: int) -> Spec:
    """All batches times one factor, up to all records."""
    sizes = np.array([spec.batch_size_of(group) for group in spec.groups], dtype=float)
    records = np.array([group.records or 1 for group in spec.groups], dtype=float)
    factors = np.geomspace(1 / sizes.min(), float(np.max(records / sizes)), _FACTORS)

    def at(factor: float) -> Spec:
        groups = [
            {**group.model_dump(mode="json"), "batch_size": int(np.clip(round(b * factor), 1, n))}
            for group, b, n in zip(spec.groups, sizes, records, strict=True)
        ]
        return _with(spec, groups=groups)

    return min((at(float(factor)) for factor in (1.0, *factors)), key=run_error)


def _clipping_norm(spec: Spec, most: int) -> Spec:
    norms = np.asarray(spec.planning.update_norms, dtype=float)

    def at(log_clip: float) -> Spec:
        return _with(spec, clipping_norm=math.exp(log_clip))

    low, high = math.log(norms.max() / 30), math.log(norms.max())
    return at(minimiser(lambda x: run_error(at(x)), low, high))


_STEPS: dict[str, Callable[[Spec, int], Spec]] = {
    "rounds": _rounds,
    "epochs": _epochs,
    "batch_size": _batch_size,
    "clipping_norm": _clipping_norm,
}


def _shown(spec: Spec, name: str) -> str:
    if name == "epochs":
        return f"{spec.local.epochs or 1}"
    if name == "batch_size":
        sizes = dict.fromkeys(spec.batch_size_of(group) for group in spec.groups)
        return ", ".join(map(str, sizes))
    return f"{getattr(spec, name):g}"


def _with(spec: Spec, **changes: Any) -> Spec:
    return Spec.parse({**spec.model_dump(mode="json"), **changes})
