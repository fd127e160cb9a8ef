"""Faults of what a client adds to a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from simulate.components import GroupSum, Noise, Released, Transform, TransformContext
from simulate.engine import loop
from simulate.engine.experiment import Experiment
from simulate.transforms import clip
from tests.sabotage.fault import Break, Fault, with_components

Apply = Callable[[Tensor, TransformContext], tuple[Tensor, Tensor | None]]
REACH = 50
"""Factor that lifts a norm above any bound of these runs."""


def clipped_by(change: Callable[[Apply, Experiment], Apply]) -> Break:
    """Change what the clipping does; it still claims its bound."""

    def breaks(experiment: Experiment) -> Experiment:
        parts = tuple(
            replace(part, apply=change(part.apply, experiment)) if part.name == "clip" else part
            for part in experiment.algorithm.transforms
        )
        return with_components(experiment, transforms=parts)

    return breaks


def _one_client(honest: Apply, experiment: Experiment) -> Apply:
    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        clipped, long = honest(updates, context)
        largest = updates.norm(dim=1).argmax()
        return clipped.index_copy(0, largest[None], updates[largest][None]), long

    return apply


def _where(skipped: Callable[[TransformContext], bool]) -> Callable[[Apply, Experiment], Apply]:
    def change(honest: Apply, experiment: Experiment) -> Apply:
        def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
            return (updates, None) if skipped(context) else honest(updates, context)

        return apply

    return change


def _half_median(honest: Apply, experiment: Experiment) -> Apply:
    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        return clip(float(updates.norm(dim=1).median()) / 2).apply(updates, context)

    return apply


def _by_learning_rate(experiment: Experiment) -> Experiment:
    """Clients divide what they send by the learning rate, to send gradients."""

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        return updates / experiment.learning_rate(context.round), None

    part = Transform("by learning rate", apply, lambda before, group: before)
    return with_components(experiment, transforms=(*experiment.algorithm.transforms, part))


def _after_the_noise(experiment: Experiment) -> Experiment:
    """The sum of whole updates is noised first, and shortened then."""
    mechanism = experiment.algorithm.mechanism

    def release(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        releases = mechanism.release(round_, sums, weights, noise)
        return tuple(_shortened(one, part) for one, part in zip(releases, sums, strict=True))

    def _shortened(one: Released, part: GroupSum) -> Released:
        most = (part.bound or 0.0) * part.group.expected_cohort
        return replace(one, vector=one.vector * (most / one.vector.norm()).clamp(max=1.0))

    unclipped = clipped_by(_where(lambda context: True))(experiment)
    return with_components(unclipped, mechanism=replace(mechanism, release=release))


def _everything(experiment: Experiment, round_: int) -> None:
    """All coordinates are released, the personal ones too."""
    return None


def _largest_gradients(experiment: Experiment, round_: int) -> Tensor:
    """A mask as large as the public one, on the pixels that the private images use most."""
    pixels = experiment.data.train_x.flatten(1).double().mean(0).numpy()
    size = len(HONEST_SUPPORT(experiment, round_))
    return torch.from_numpy(np.sort(np.argsort(-np.resize(pixels, experiment.dimension))[:size]))


HONEST_SUPPORT = loop.released_coordinates

CONTRIBUTIONS = (
    Fault(
        "clipping skipped for one client",
        "In each round the client with the longest update sends it whole.", "clipping",
        "exceeds its bound", breaks=clipped_by(_one_client),
    ),
    Fault(
        "clipping skipped for one group", "The strict group's updates are not clipped.", "clipping",
        "strict: an update of norm",
        breaks=clipped_by(_where(lambda context: context.group.name == "strict")),
    ),
    Fault(
        "clipping skipped in one round", "In round 5 nothing is clipped.", "clipping", "round 5",
        breaks=clipped_by(_where(lambda context: context.round == 5)),
    ),
    Fault(
        "clip after noise", "Whole updates are summed and noised, and the noisy sum is clipped.",
        "clipping", "exceeds its bound", breaks=_after_the_noise,
    ),
    Fault(
        "median clip not booked",
        "Updates are clipped at half the median of the round's norms, which nobody paid for.",
        "clipping", "the threshold was another one", breaks=clipped_by(_half_median),
    ),
    Fault(
        "learning-rate-weighted after clipping",
        "Clipped updates are divided by the learning rate before they are summed.", "clipping",
        "exceeds its bound", breaks=_by_learning_rate,
    ),
    Fault(
        "personal parameters released",
        "The heads that should stay at the clients are in the sums.", "coordinates",
        "coordinates left the clients", patches=((loop, "released_coordinates", _everything),),
        algorithm="CENTAUR",
    ),
    Fault(
        "data-dependent mask booked as public",
        "The mask keeps the coordinates of the pixels that the private images use most.",
        "coordinates", "depend on data",
        patches=((loop, "released_coordinates", _largest_gradients),), algorithm="Fed-SMP",
    ),
)  # fmt: skip
