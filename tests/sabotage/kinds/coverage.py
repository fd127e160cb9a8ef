"""Faults of coverage: noise of the right energy in total misses some coordinates."""

import torch

from tests.sabotage.fault import EXTERNAL, Fault
from tests.sabotage.kinds.distribution import standard

HEAD = slice(2080, 2410)
HEAD_BIAS = slice(2400, 2410)
BIAS = slice(2048, 2080)  # layers of the model of the bench


def without(part_of):
    """No noise on some coordinates, more on the others, the same energy in total."""

    def change(z, released, group_sum):
        silent = z.clone()
        silent[part_of] = 0
        return silent * (z.norm() / silent.norm()) if silent.any() else silent

    return change


def _random_twentieth(z, released, group_sum):
    chosen = torch.rand(len(z), generator=torch.Generator().manual_seed(7)) < 0.05
    silent = z.masked_fill(chosen, 0.0)
    return silent * (z.norm() / silent.norm())


def _uneven(z, released, group_sum):
    factors = torch.where(torch.arange(len(z)) % 2 == 0, 0.5, 1.75**0.5)
    return z * factors.double()


def _falling(z, released, group_sum):
    falling = z * torch.linspace(1.4, 0.6, len(z), dtype=torch.float64)
    return falling * (z.norm() / falling.norm())


def _shared_draws(z, released, group_sum):
    return z[torch.arange(len(z)) // 2 * 2]


FAULTS = (
    Fault(
        "no noise on the last layer",
        "The head is released without noise, and the other layers with more.",
        check="noise coverage",
        words="layer",
        breaks=standard(without(HEAD)),
        author=EXTERNAL,
    ),
    Fault(
        "no noise on the head's bias",
        "Ten coordinates have no noise, the others more.",
        check="noise coverage",
        words="layer 4",
        breaks=standard(without(HEAD_BIAS)),
    ),
    Fault(
        "no noise on a hidden bias",
        "The bias of the first layer has no noise, the other coordinates more.",
        check="noise coverage",
        words="layer 2",
        breaks=standard(without(BIAS)),
    ),
    Fault(
        "no noise on a twentieth of the coordinates",
        "A random twentieth of the coordinates has no noise, the others more.",
        check="noise distribution",
        words="pairs of equal noise",
        breaks=standard(_random_twentieth),
        author=EXTERNAL,
    ),
    Fault(
        "less noise on every second coordinate",
        "Half of the coordinates have half of the deviation, the others more.",
        check="noise distribution",
        words="from the normal law",
        breaks=standard(_uneven),
        author=EXTERNAL,
    ),
    Fault(
        "noise that falls along the vector",
        "The deviation falls from the first coordinate to the last; the total is right.",
        check="noise coverage",
        words="recorded deviation",
        breaks=standard(_falling),
    ),
    Fault(
        "one draw for two coordinates",
        "Neighbouring coordinates share one draw, whose difference has no noise.",
        check="noise independence",
        words="coordinates 1 apart",
        breaks=standard(_shared_draws),
    ),
)
