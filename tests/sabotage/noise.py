"""Faults of the noise and of what it is added to."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from privplan.record import ReleaseRecord
from privplan.streams import Purpose
from simulate.components import GroupSum, Released
from simulate.mechanisms import unprotected
from tests.sabotage.fault import Fault, each_released, released, with_components

Change = Callable[[Tensor, Released, GroupSum], Tensor]
"""(noise, honest release, sum) to the noise that is really added."""
Book = Callable[[ReleaseRecord, Tensor], ReleaseRecord]
"""(honest record, noise that is really added) to the record that is written."""


def evidence_of_drawn(record, noise):
    """The evidence is of what was really drawn."""
    return record.model_copy(update={"noise_sum_squares": float(noise.square().sum())})


def hidden(record, noise):
    """The evidence is of the noise that should have been drawn."""
    return record


def rebooked(record, noise):
    """The deviation that was really used stands in the record too."""
    drawn = evidence_of_drawn(record, noise)
    squares = float(noise.square().sum())
    factor = math.sqrt(squares / record.noise_sum_squares)
    return drawn.model_copy(update={"noise_std": record.noise_std * factor})


def noised(change, book=evidence_of_drawn):
    """Change the noise of each group's sum."""

    def changed(honest_release, group_sum):
        honest_noise = honest_release.vector.double() - group_sum.total
        noise = change(honest_noise, honest_release, group_sum)
        return replace(
            honest_release,
            vector=(group_sum.total + noise).float(),
            record=book(honest_release.record, noise),
        )

    return each_released(changed)


def _half_of_the_coordinates(noise, honest_release, group_sum):
    return noise.index_fill(0, torch.arange(0, len(noise), 2), 0.0)


def _undone():
    """In every second round the negative of the noise of the round before."""
    previous_noise: dict[str, Tensor] = {}

    def change(noise, honest_release, group_sum):
        name = group_sum.group.name
        if honest_release.record.round % 2 == 0:
            return -previous_noise[name]
        previous_noise[name] = noise
        return noise

    return change


def _shares(noise, honest_release, group_sum):
    # The others drop out and take their noise with them.
    reported = len(group_sum.participants) * 0.7
    return noise * math.sqrt(min(1.0, reported / group_sum.group.expected_cohort))


def _next_group(honest, round_, sums, weights, noise):
    multipliers = [group_sum.group.noise_multiplier for group_sum in sums]
    shifted = [*multipliers[1:], multipliers[0]]
    wrong = []
    for group_sum, multiplier in zip(sums, shifted, strict=True):
        group = group_sum.group.model_copy(update={"noise_multiplier": multiplier})
        wrong.append(replace(group_sum, group=group))
    return honest.release(round_, wrong, weights, noise)


def _same_noise(experiment):
    def release(honest, round_, sums, weights, noise):
        again = partial(experiment.private_stream, Purpose.NOISE, 1)
        return honest.release(round_, sums, weights, again)

    return released(release)(experiment)


def _mean_of_who_came(experiment):
    def change(noise, honest_release, group_sum):
        mean = group_sum.total * (
            group_sum.group.expected_cohort / max(1, len(group_sum.participants)) - 1
        )
        return noise + mean

    return noised(change, hidden)(experiment)


def _unprotected(experiment):
    return with_components(experiment, mechanism=replace(unprotected(), joint=False))


def _in_the_clear_too(honest, round_, sums, weights, noise):
    releases = honest.release(round_, sums, weights, noise)
    return (*releases, *unprotected().release(round_, sums[:1], weights, noise))


NOISE = (
    Fault(
        "noise halved",
        "The noise is drawn with half of the deviation that is booked.",
        check="noise drawn",
        words="drawn with",
        breaks=noised(lambda noise, noisy, group_sum: noise / 2),
    ),
    Fault(
        "noise halved, evidence forged",
        "The same, and the mechanism reports the squares of the full noise.",
        check="sums",
        words="a rest of",
        breaks=noised(lambda noise, noisy, group_sum: noise / 2, hidden),
    ),
    Fault(
        "noise halved and booked",
        "The noise has half of the planned deviation, and the ledger says so.",
        check="noise planned",
        words="noise multiplier",
        breaks=noised(lambda noise, noisy, group_sum: noise / 2, rebooked),
    ),
    Fault(
        "variance for deviation",
        "The variance of the noise is taken for its standard deviation.",
        check="noise drawn",
        words="drawn with",
        breaks=noised(
            lambda noise, noisy, group_sum: noise * min(1.0, noisy.record.noise_std)
        ),
    ),
    Fault(
        "wrong group's noise",
        "Each group gets the noise multiplier of the next one.",
        check="noise planned",
        words="noise multiplier",
        breaks=released(_next_group),
    ),
    Fault(
        "noise on half of the coordinates",
        "Every second coordinate is released without noise.",
        check="noise drawn",
        words="drawn with",
        breaks=noised(_half_of_the_coordinates),
    ),
    Fault(
        "no noise, booked as Gaussian",
        "The sum is released as it is, under the evidence of honest noise.",
        check="sums",
        words="a rest of",
        breaks=noised(lambda noise, noisy, group_sum: noise * 0, hidden),
    ),
    Fault(
        "no noise",
        "The sums are released as they are, and the ledger says so.",
        check="budget",
        words="epsilon infinite",
        breaks=_unprotected,
    ),
    Fault(
        "released in the clear too",
        "Beside the noisy sums one group's sum leaves without noise, for a log.",
        check="budget",
        words="epsilon infinite",
        breaks=released(_in_the_clear_too),
    ),
    Fault(
        "noise reused between rounds",
        "The stream of the noise is named without the round.",
        check="noise fresh",
        words="the generator stood where it did in round 1",
        breaks=_same_noise,
    ),
    Fault(
        "noise undone in the next round",
        "Every second round adds the negative of the noise before it.",
        check="noise fresh",
        words="the noise is that of round 1 again",
        breaks=lambda experiment: noised(_undone())(experiment),
    ),
    Fault(
        "dropouts unprovisioned",
        "Clients add equal shares of the noise, and those who drop out take theirs along.",
        check="noise planned",
        words="noise multiplier",
        breaks=noised(_shares, rebooked),
    ),
    Fault(
        "sum divided by the realised cohort",
        "The sum becomes a mean over who came before the noise is added.",
        check="noise regenerated",
        words="the seed's",
        breaks=_mean_of_who_came,
    ),
)
