"""References and mutations of methods that keep the largest coordinates of updates or of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from privplan.plan import Plan
from simulate.aggregators import literal, normalised, top_k
from simulate.algorithm import Algorithm
from simulate.components import (
    ClientBatch,
    LocalResult,
    LocalRule,
    Released,
    State,
    Transform,
    TransformContext,
)
from simulate.local.sgd import plain_sgd
from simulate.transforms import keep_largest, sparsify
from tests.simulate import small, tiny
from tests.simulate.algorithms.references.joint import PRICE, RADIUS, blur_client, like_a_loop
from tests.simulate.algorithms.references.sums import SUMS, Mutation, check_groups, with_plan
from tests.simulate.case import Case

KEPT = 0.5
SENT = 0.3


def against(work: ClientBatch) -> LocalResult:
    """The update (-3, -4) times the pixel: the largest coordinates are negative."""
    return LocalResult(-tiny.three_four(work).updates)


def check_kept(algorithm: Algorithm) -> None:
    """The strict group's larger coordinate by absolute value, and both of the loose group's."""
    world = tiny.setting(replace(algorithm, local=LocalRule("against", against)))
    step, _, _ = tiny.one_round(world)
    strict, loose = tiny.noise(0, 10.0) - SUMS, tiny.noise(1, 2.5) - SUMS
    assert strict[1] < -abs(strict[0]) < 0 < strict[0]  # by sign the other one is larger
    expected = tiny.WEIGHTS[0] / 4 * np.array([0.0, strict[1]]) + tiny.WEIGHTS[1] / 4 * loose
    np.testing.assert_allclose(step, expected, rtol=1e-5)


def kept_by_group(*kept: float) -> Plan:
    """The tiny plan in which each group keeps its own fraction."""
    plan = tiny.plan()
    groups = tuple(
        group.model_copy(update={"kept_fraction": fraction})
        for group, fraction in zip(plan.groups, kept, strict=True)
    )
    return plan.model_copy(update={"groups": groups})


def top_k_by(largest: Callable[[Tensor, float], Tensor]) -> Mutation:
    """The algorithm whose server chooses coordinates of each sum by another rule."""

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        sparse = [
            replace(part, vector=largest(part.vector, part.groups[0].kept_fraction))
            for part in releases
        ]
        return literal().combine(sparse, theta, state)

    return lambda one: replace(one, aggregator=replace(one.aggregator, combine=combine))


def largest_by_sign(vector: Tensor, fraction: float) -> Tensor:
    """All but the largest coordinates, not in absolute value, set to zero."""
    kept = torch.topk(vector, max(1, round(fraction * len(vector)))).indices
    return torch.zeros_like(vector).scatter(0, kept, vector[kept])


def top_k_of_the_step(one: Algorithm) -> Algorithm:
    """The server adds the noisy sums up and chooses coordinates then."""

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        step, after = literal().combine(releases, theta, state)
        return keep_largest(step, KEPT), after

    return replace(one, aggregator=replace(one.aggregator, combine=combine))


def sparse_blur_client(network: nn.Module, batches: small.Batches, rate: float) -> None:
    """BLUR, after which the smaller coordinates of the change are taken back."""
    start = small.flat(network)
    blur_client(network, batches, rate)
    change = small.flat(network) - start
    kept = change.abs() >= change.abs().sort(descending=True).values[round(SENT * len(change)) - 1]
    nn.utils.vector_to_parameters(start + change * kept, network.parameters())


def common_support(fraction: float) -> Transform:
    """The coordinates that are largest in the sum of a chunk, for all of its clients."""

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        return updates * (keep_largest(updates.abs().sum(0), fraction) != 0), None

    return replace(sparsify(fraction), apply=apply)


CASES = (
    Case(
        "GDPFed+",
        tiny.plan(kept=KEPT),
        check_groups(kept=KEPT),
        {
            "no sparsification": lambda one: replace(one, aggregator=literal()),
            "sparse before the noise": lambda one: replace(
                one, aggregator=literal(), transforms=(*one.transforms, sparsify(KEPT))
            ),
            "weights that add up to 1": lambda one: replace(one, aggregator=top_k(normalised())),
            "half of the noise": with_plan(tiny.plan(kept=KEPT, sigmas=(1.0, 0.25))),
        },
    ),
    Case(
        "GDPFed+",
        kept_by_group(KEPT, 1.0),
        check_kept,
        {
            "the loosest fraction for all": with_plan(tiny.plan()),
            "the strictest fraction for all": with_plan(tiny.plan(kept=KEPT)),
            "the largest by sign": top_k_by(largest_by_sign),
            "the largest of the step": top_k_of_the_step,
        },
    ),
    Case(
        "DP-FedAvg-BLUR+LUS",
        small.plan(),
        like_a_loop(sparse_blur_client),
        {
            "no penalty": lambda one: replace(one, local=plain_sgd()),
            "dense": lambda one: replace(one, transforms=one.transforms[1:]),
            "the other coordinates": lambda one: replace(
                one, transforms=(sparsify(1 - SENT), *one.transforms[1:])
            ),
            "the cohort's largest coordinates": lambda one: replace(
                one, transforms=(common_support(SENT), *one.transforms[1:])
            ),
        },
        {"price": PRICE, "radius": RADIUS / 1e3, "kept": SENT},
    ),
)
