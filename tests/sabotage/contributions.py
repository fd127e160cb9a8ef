"""Faults of what a client adds to a sum."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from simulate.components import Transform, TransformContext
from simulate.engine import loop
from simulate.transforms import clip
from tests.sabotage.fault import Fault, each_released, with_components

Clipped = tuple[Tensor, Tensor | None]
Apply = Callable[[Tensor, TransformContext], Clipped]


def clipped_by(change):
    """Change what the clipping does by the honest one; it still claims its bound."""

    def breaks(experiment):
        parts = tuple(
            replace(part, apply=partial(change, part.apply))
            if part.name == "clip"
            else part
            for part in experiment.algorithm.transforms
        )
        return with_components(experiment, transforms=parts)

    return breaks


def _one_client(honest, updates, context):
    clipped, long = honest(updates, context)
    largest = updates.norm(dim=1).argmax()
    return clipped.index_copy(0, largest[None], updates[largest][None]), long


def unclipped(skipped):
    """Clip nothing of some groups and rounds."""
    return clipped_by(
        lambda honest, updates, context: (
            (updates, None) if skipped(context) else honest(updates, context)
        )
    )


def _half_median(honest, updates, context):
    return clip(float(updates.norm(dim=1).median()) / 2).apply(updates, context)


def _by_learning_rate(experiment):
    """Clients divide what they send by the learning rate, to send gradients."""

    def apply(updates, context):
        return updates / experiment.learning_rate(context.round), None

    part = Transform("by learning rate", apply, lambda before, group: before)
    return with_components(
        experiment, transforms=(*experiment.algorithm.transforms, part)
    )


def _after_the_noise(experiment):
    """The sum of whole updates is noised first, and shortened then."""

    def shortened(release, part):
        max_norm = (part.bound or 0.0) * part.group.expected_cohort
        factor = (max_norm / release.vector.norm()).clamp(max=1.0)
        return replace(release, vector=release.vector * factor)

    return each_released(shortened)(unclipped(lambda context: True)(experiment))


def _everything(experiment, round_):
    """All coordinates are released, the personal ones too."""
    return None


def _largest_gradients(experiment, round_):
    """A mask as large as the public one, on the pixels that private images use most."""
    pixels = experiment.data.train_x.flatten(1).double().mean(0).numpy()
    size = len(HONEST_SUPPORT(experiment, round_))
    return torch.from_numpy(
        np.sort(np.argsort(-np.resize(pixels, experiment.dimension))[:size])
    )


HONEST_SUPPORT = loop.released_coordinates

CONTRIBUTIONS = (
    Fault(
        "clipping skipped for one client",
        "In each round the client with the longest update sends it whole.",
        check="clipping",
        words="exceeds its bound",
        breaks=clipped_by(_one_client),
    ),
    Fault(
        "clipping skipped for one group",
        "The strict group's updates are not clipped.",
        check="clipping",
        words="strict: an update of norm",
        breaks=unclipped(lambda context: context.group.name == "strict"),
    ),
    Fault(
        "clipping skipped in one round",
        "In round 5 nothing is clipped.",
        check="clipping",
        words="round 5",
        breaks=unclipped(lambda context: context.round == 5),
    ),
    Fault(
        "clip after noise",
        "Whole updates are summed and noised, and the noisy sum is clipped.",
        check="clipping",
        words="exceeds its bound",
        breaks=_after_the_noise,
    ),
    Fault(
        "median clip not booked",
        "Updates are clipped at half the median of the round's norms, which nobody paid for.",
        check="clipping",
        words="the threshold was another one",
        breaks=clipped_by(_half_median),
    ),
    Fault(
        "learning-rate-weighted after clipping",
        "Clipped updates are divided by the learning rate before they are summed.",
        check="clipping",
        words="exceeds its bound",
        breaks=_by_learning_rate,
    ),
    Fault(
        "personal parameters released",
        "The heads that should stay at the clients are in the sums.",
        check="coordinates",
        words="coordinates left the clients",
        patches=((loop, "released_coordinates", _everything),),
        algorithm="CENTAUR",
    ),
    Fault(
        "data-dependent mask booked as public",
        "The mask keeps the coordinates of the pixels that the private images use most.",
        check="coordinates",
        words="depend on data",
        patches=((loop, "released_coordinates", _largest_gradients),),
        algorithm="Fed-SMP",
    ),
)
