"""Faults of independence: within a release, across groups and rounds, of the sum."""

import math

import numpy as np
import torch
from torch import Tensor

from tests.sabotage.fault import EXTERNAL, Fault, released
from tests.sabotage.kinds.distribution import fresh, standard
from tests.sabotage.noise import Change


def remembering(change):
    """Change the noise (in deviations), by the round and the group's earlier noise."""

    def breaks(experiment):
        before: dict[str, list[Tensor]] = {}

        def changed(z, released_sum, group_sum):
            past = before.setdefault(group_sum.group.name, [])
            past.append(change(z, released_sum.record.round, past))
            return past[-1]

        return standard(changed)(experiment)

    return breaks


def _across_groups(experiment):
    shared: dict[int, Tensor] = {}
    return standard(
        lambda z, released_sum, group_sum: shared.setdefault(
            released_sum.record.round, z
        )
    )(experiment)


def _tiled(z, released_sum, group_sum):
    half = len(z) // 2
    return torch.cat([z[:half], z[:half], z[2 * half :]])


def _along_the_sum(z, released_sum, group_sum):
    direction = group_sum.total / group_sum.total.norm()
    along = z @ direction
    return z + (along.abs() - along) * direction


def _anticorrelated(z, round_, past):
    return z if not past else math.sqrt(0.75) * z - 0.5 * past[-1]


def _mostly_first(z, round_, past):
    return z if not past else math.sqrt(0.19) * z + 0.9 * past[0]


def _fixed_part(z, released_sum, group_sum):
    fixed = np.random.default_rng(len(z)).standard_normal(len(z))
    return math.sqrt(0.75) * z + 0.5 * torch.from_numpy(fixed)


def _pool(z, round_, past):
    return z if len(past) < 5 else past[round_ % 5] * (1 + 1e-4 * round_)


def _every_fourth_cancels(z, round_, past):
    return z if round_ % 4 else -(past[-1] + past[-2] + past[-3]) / math.sqrt(3)


def _reversed(z, round_, past):
    return past[-1].flip(0) if round_ % 2 == 0 else z


def _permuted(z, round_, past):
    if not past:
        return z
    return past[0][
        torch.randperm(len(z), generator=torch.Generator().manual_seed(round_))
    ]


def _seeded_by(words):
    """Generators of the noise that do not depend on the run's seed."""

    def release(honest, round_, sums, weights, noise):
        def generator_of(index):
            return np.random.Generator(np.random.Philox(words(round_, index)))

        return honest.release(round_, sums, weights, generator_of)

    return released(release)


def _from_another_generator(z, released_sum, group_sum):
    return torch.from_numpy(fresh(released_sum, group_sum).standard_normal(len(z)))


FROM_ELSEWHERE: Change = _from_another_generator
CHECK = "noise independence"
SEED = "the seed's"

FAULTS = (
    Fault(
        "noise repeated within a release",
        "The second half of the noise vector is the first half again.",
        check=CHECK,
        words="coordinates 1205 apart",
        breaks=standard(_tiled),
        author=EXTERNAL,
    ),
    Fault(
        "one noise vector for all groups of a round",
        "The groups' releases of a round have the same noise, each with its own deviation.",
        check=CHECK,
        words="correlation 1",
        breaks=_across_groups,
        author=EXTERNAL,
    ),
    Fault(
        "noise anti-correlated across rounds",
        "Half of the noise of the round before is subtracted, the variance is right.",
        check=CHECK,
        words="correlation -",
        breaks=remembering(_anticorrelated),
        author=EXTERNAL,
    ),
    Fault(
        "most of the noise is that of the first round",
        "The noise is 0.9 of the first round's and a fresh part, the variance is right.",
        check=CHECK,
        words="correlation",
        breaks=remembering(_mostly_first),
    ),
    Fault(
        "a fixed part in the noise",
        "A quarter of the variance is a vector that is the same in each round and each run.",
        check=CHECK,
        words="correlation",
        breaks=standard(_fixed_part),
    ),
    Fault(
        "a pool of five noise vectors",
        "Five noise vectors are used in turn, scaled by some millionths.",
        check=CHECK,
        words="correlation 1 of their noise",
        breaks=remembering(_pool),
    ),
    Fault(
        "noise cancelled in every fourth round",
        "Every fourth round has the negative sum of the three before, the variance is right.",
        check=CHECK,
        words="correlation",
        breaks=remembering(_every_fourth_cancels),
    ),
    Fault(
        "noise reversed in every second round",
        "Every second round has the noise of the round before, in reverse order.",
        check="noise regenerated",
        words=SEED,
        breaks=remembering(_reversed),
    ),
    Fault(
        "noise permuted from round to round",
        "Every round has the first round's noise, in another order.",
        check="noise regenerated",
        words=SEED,
        breaks=remembering(_permuted),
    ),
    Fault(
        "noise turned towards the sum",
        "The noise never points against the clean sum.",
        check=CHECK,
        words="correlated with the clean sum",
        breaks=standard(_along_the_sum),
    ),
    Fault(
        "noise seeded by the round",
        "The generators of the noise depend on round and group, and not on the run.",
        check="noise regenerated",
        words="did not stand where the seed puts it",
        breaks=_seeded_by(lambda round_, index: [round_, index]),
        author=EXTERNAL,
    ),
    Fault(
        "noise from another generator",
        "The booked state is the seed's, and the noise is from a generator with a fixed seed.",
        check="noise regenerated",
        words=SEED,
        breaks=standard(FROM_ELSEWHERE),
    ),
)
