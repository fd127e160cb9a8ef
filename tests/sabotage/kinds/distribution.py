"""Faults of the noise's law: other laws of equal variance, grids, truncation."""

import numpy as np
import torch

from tests.sabotage.fault import EXTERNAL, Fault
from tests.sabotage.noise import evidence_of_drawn, hidden, noised


def fresh(released, group_sum):
    """A generator that is neither the run's nor the same for two releases."""
    words = [ord(letter) for letter in group_sum.group.name]
    return np.random.default_rng([released.record.round, *words])


def standard(change, book=evidence_of_drawn):
    """Change the noise in units of its recorded standard deviation."""

    def scaled(noise, released, group_sum):
        std = released.record.noise_std
        return change(noise / std, released, group_sum) * std

    return noised(scaled, book)


def _laplace(z, released, group_sum):
    return torch.from_numpy(fresh(released, group_sum).laplace(0, 0.5**0.5, len(z)))


def _uniform(z, released, group_sum):
    return torch.from_numpy(
        fresh(released, group_sum).uniform(-(3**0.5), 3**0.5, len(z))
    )


def _student(z, released, group_sum):
    return torch.from_numpy(
        fresh(released, group_sum).standard_t(5, len(z)) * (3 / 5) ** 0.5
    )


def _smaller(z, released, group_sum):
    second = torch.from_numpy(fresh(released, group_sum).standard_normal(len(z)))
    return z if z.norm() < second.norm() else second


def _truncated(limit):
    def change(z, released, group_sum):
        inside = torch.from_numpy(
            fresh(released, group_sum).uniform(-limit, limit, len(z))
        )
        return torch.where(z.abs() > limit, inside, z)

    return change


LAW = "from the normal law"
GRID = "pairs of equal noise"

FAULTS = (
    Fault(
        "Laplace noise of equal variance",
        "The noise has the Laplace law with the recorded deviation.",
        check="noise distribution",
        words=LAW,
        breaks=standard(_laplace),
        author=EXTERNAL,
    ),
    Fault(
        "uniform noise of equal variance",
        "The noise is uniform with the recorded deviation.",
        check="noise distribution",
        words=LAW,
        breaks=standard(_uniform),
    ),
    Fault(
        "Student noise of equal variance",
        "The noise has Student's law of 5 degrees of freedom, "
        "scaled to the recorded deviation.",
        check="noise distribution",
        words=LAW,
        breaks=standard(_student),
    ),
    Fault(
        "noise rounded to a coarse grid",
        "The noise is rounded to multiples of a twentieth of its deviation.",
        check="noise distribution",
        words=GRID,
        breaks=standard(lambda z, released, group_sum: (z * 20).round() / 20),
        author=EXTERNAL,
    ),
    Fault(
        "noise rounded to a fine grid",
        "The noise is rounded to multiples of a thousandth of its deviation.",
        check="noise distribution",
        words=GRID,
        breaks=standard(lambda z, released, group_sum: (z * 1000).round() / 1000),
    ),
    Fault(
        "noise in half precision",
        "The noise is drawn as 16-bit floating-point numbers.",
        check="noise distribution",
        words=GRID,
        breaks=standard(lambda z, released, group_sum: z.half().double()),
    ),
    Fault(
        "noise truncated at 3 deviations",
        "Coordinates of the noise beyond 3 deviations are drawn again, inside.",
        check="noise distribution",
        words="beyond 3 deviations",
        breaks=standard(_truncated(3)),
    ),
    Fault(
        "noise truncated at 4 deviations",
        "Coordinates of the noise beyond 4 deviations are drawn again, inside.",
        check="noise regenerated",
        words="the seed's",
        breaks=standard(_truncated(4)),
        author=EXTERNAL,
    ),
    Fault(
        "noise 0.7% too small",
        "The noise has 0.993 of the recorded deviation, under the evidence of the full one.",
        check="noise regenerated",
        words="0.993",
        breaks=noised(lambda noise, released, group_sum: 0.993 * noise, hidden),
        author=EXTERNAL,
    ),
    Fault(
        "the smaller of two draws",
        "Two noise vectors are drawn, and the shorter one is added.",
        check="noise regenerated",
        words="the seed's",
        breaks=standard(_smaller),
        author=EXTERNAL,
    ),
)
