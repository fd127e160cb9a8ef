"""Methods with one noisy sum in which a group's bound, or its ratio, follows its budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from privplan.plan import Plan, Segment
from privplan.streams import Purpose, stream
from simulate.algorithm import Algorithm
from simulate.transforms import clip, own_clip
from tests.simulate import small, tiny
from tests.simulate.case import Case

BOUNDS = (2.5, 10.0)  # times the noise multipliers 2 and 0.5 of the tiny world: 5 both times
RATIOS = (0.25, 0.5, 0.75)
HALF, FULL = (0.15, 0.3, 0.45), (0.3, 0.6, 0.9)  # one round and two of them have the mean above


def changed(plan: Plan, changes: Sequence[dict[str, object]]) -> Plan:
    """The plan with other fields of its groups."""
    pairs = zip(plan.groups, changes, strict=True)
    groups = tuple(group.model_copy(update=change) for group, change in pairs)
    return plan.model_copy(update={"groups": groups})


def by_ratio(ratios: Sequence[float]) -> list[dict[str, object]]:
    """Fields of groups that take part by these ratios."""
    return [{"sampling_ratio": one, "expected_cohort": one * small.CLIENTS} for one in ratios]


def by_round(*stretches: tuple[int, Sequence[float]]) -> Plan:
    """Groups whose ratios move: rounds and the ratios of the groups in them."""
    segments = [
        tuple(
            Segment(rounds=rounds, sampling_ratio=ratios[m], noise_multiplier=1e-15)
            for rounds, ratios in stretches
        )
        for m in range(len(RATIOS))
    ]
    fields = by_ratio(RATIOS)
    return changed(
        small.plan(), [{**one, "segments": own} for one, own in zip(fields, segments, strict=True)]
    )


def check_bounds(algorithm: Algorithm) -> None:
    """Clipped to 2.5: (1.5, 2) twice; to 10: (3, 4) and (6, 8); noise of deviation 5 on all."""
    world = tiny.setting(replace(algorithm, local=tiny.LOCAL))
    step, [record], _ = tiny.one_round(world)
    total = np.array([2 * 1.5 + 3 + 6, 2 * 2.0 + 4 + 8]) + tiny.noise(0, 5.0)
    np.testing.assert_allclose(step, total / 4, rtol=1e-5)
    assert [share.clip_bound for share in record.shares] == list(BOUNDS)
    faced = [record.release_for(share).noise_multiplier for share in record.shares]
    np.testing.assert_allclose(faced, tiny.SIGMAS, rtol=1e-12)


def check_ratios(*ratios: Sequence[float]) -> Callable[[Algorithm], None]:
    """Compare with plain SGD of cohorts drawn here, by the groups' ratios in each round."""

    def check(algorithm: Algorithm) -> None:
        world = small.setting(algorithm)
        theta = begin = world.start
        for round_, now in enumerate(ratios, 1):
            cohort = [_drawn(world.seed, round_, m, ratio) for m, ratio in enumerate(now)]
            cohort = [world.partition.members[m][found] for m, found in enumerate(cohort)]
            groups = small.loop(world, round_, theta, small.plain_client, cohort)
            updates = [one for group in groups for one in group]
            theta = theta + torch.stack(updates).sum(0) / small.COHORT
        torch.testing.assert_close(small.moved(algorithm), theta - begin, rtol=1e-4, atol=1e-6)

    return check


def _drawn(seed: int, round_: int, group: int, ratio: float) -> np.ndarray:
    """A Poisson sample from its documented stream: a binomial size, then uniformly."""
    generator = stream(seed, Purpose.SAMPLING, round_, group)
    size = generator.binomial(small.CLIENTS, ratio)
    return generator.choice(small.CLIENTS, size=size, replace=False, shuffle=False)


CASES = (
    Case(
        "IDP-FedAvg-Scale",
        changed(tiny.plan(release="joint"), [{"clipping_norm": bound} for bound in BOUNDS]),
        check_bounds,
        {
            "one bound for all": lambda one: replace(one, transforms=(clip(tiny.NORM),)),
            "the strictest bound for all": lambda one: replace(one, transforms=(clip(2.5),)),
            "bounds that the plan does not have": lambda one: replace(
                one, plan=tiny.plan(release="joint"), transforms=(own_clip(tiny.NORM),)
            ),
        },
    ),
)
