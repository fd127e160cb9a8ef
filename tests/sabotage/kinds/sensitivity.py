"""Faults of sensitivity: what a client adds to a sum after or without clipping."""

import torch

from simulate.components import Transform
from simulate.engine import cohort
from simulate.norms import add_sum
from simulate.transforms import clip
from tests.sabotage.contributions import clipped_by
from tests.sabotage.fault import EXTERNAL, Fault, with_components

WHY = "the loop measures each update before the sum, and not what the sum adds"


def summed(change):
    """Change a chunk's updates [K, k] between all measurements and the sum."""

    def add(total, updates):
        add_sum(total, change(updates))

    return ((cohort, "add_sum", add),)


def before_clipping(change):
    """Change the updates [K, k] of a chunk before they are clipped."""

    def breaks(experiment):
        def apply(updates, context):
            return change(updates), None

        transform = Transform("change", apply, lambda bound, group: bound)
        return with_components(
            experiment, transforms=(transform, *experiment.algorithm.transforms)
        )

    return breaks


def _by_size(updates):
    return updates * torch.linspace(0.5, 3, len(updates))[:, None]


def _by_median(updates):
    norms = updates.norm(dim=1)
    return updates * (norms.median() / norms.mean())


def _one_ten_times(updates):
    return torch.cat([updates, updates[:1].repeat(9, 1)])


def _by_layers(honest, updates, context):
    clipped_layers = [
        honest(layer, context)[0] for layer in (updates[:, :2080], updates[:, 2080:])
    ]
    return torch.cat(clipped_layers, 1), None


def _largest_coordinate(honest, updates, context):
    return updates.clamp(-0.5, 0.5), None


def _mean_norm(honest, updates, context):
    return updates * (0.5 / updates.norm(dim=1).mean()).clamp(max=1), None


def _twice_the_bound(honest, updates, context):
    return clip(1.0).apply(updates, context)


FAULTS = (
    Fault(
        "scaled after clipping",
        "Clipped updates are multiplied by 1.5 while they are summed.",
        patches=summed(lambda updates: 1.5 * updates),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "updates added twice",
        "Each update is added to the sum twice.",
        patches=summed(lambda updates: torch.cat([updates, updates])),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "updates added five times",
        "Each update is added to the sum five times, as by a retried request.",
        check="sums bounded",
        words="in total",
        patches=summed(lambda updates: updates.repeat(5, 1)),
    ),
    Fault(
        "weighted by size inside the sum",
        "Clipped updates are weighted by 0.5 to 3 while they are summed.",
        patches=summed(_by_size),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "rescaled by a private median",
        "Clipped updates are multiplied by the median of their norms over the mean.",
        patches=summed(_by_median),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "centred by the cohort mean",
        "The mean of the updates is subtracted from each before it is clipped.",
        breaks=before_clipping(lambda updates: updates - updates.mean(0)),
        author=EXTERNAL,
        level="replayed",
        why="each summand is within its bound; that it depends on other clients shows nowhere",
    ),
    Fault(
        "one update added ten times",
        "The first update of each chunk is added ten times.",
        patches=summed(_one_ten_times),
        level="replayed",
        why=WHY,
    ),
    Fault(
        "clipped by layers",
        "Each of two parts is clipped at the bound of the whole update.",
        check="clipping",
        words="exceeds its bound",
        breaks=clipped_by(_by_layers),
    ),
    Fault(
        "coordinates clipped",
        "Coordinates are clipped at the bound on the norm.",
        check="clipping",
        words="exceeds its bound",
        breaks=clipped_by(_largest_coordinate),
    ),
    Fault(
        "clipped by the mean norm",
        "All updates of a chunk are scaled by one factor, "
        "for which their mean norm is the bound.",
        check="clipping",
        words="exceeds its bound",
        breaks=clipped_by(_mean_norm),
    ),
    Fault(
        "clipped at twice the bound",
        "Updates are clipped at twice the bound that is booked.",
        check="clipping",
        words="exceeds its bound",
        breaks=clipped_by(_twice_the_bound),
    ),
)
