"""Plans around a spec's, drawn at random by a seed: what a forecast learns from.

Plans differ in budgets, rounds, cohort, training recipe and partition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.problem import fewest_clients
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.values import Count, Fraction, NonNegative, Positive, Value
from simulate.proxy.candidate import DECAYS, Candidate, default_candidate

DRAWN = "random"
"""Instead of a partition: every run draws its own, so that forecasts know all kinds."""
LEAST_SHARES = (0.0, 0.3, 0.6, 1.0)
"""Floors under weights, over the groups' shares of clients, of every other run pair."""
_ALPHAS = (0.15, 3.0)  # range of the parameter of Dirichlet partitions that are drawn
# Shares of IID and Dirichlet among drawn partitions; in the others a group alone holds
# classes.
_IID = 0.2
_DIRICHLET = 0.2
# Largest factors on what the spec says, in either direction.
_ALL_EPSILONS = 5.0
_EPSILON_OF_A_GROUP = 2.5
_CLIP = 4.0
_STEP = 2.5
_ROUNDS = 3.0
_COHORT = 2.0
# Streams of a seed: 13 draws plans, 14 floors under weights, which came later and leave
# the plans of a seed as they were.
_PLANS = 13
_FLOORS = 14


class Variation(Value):
    """A plan around a spec's; numbers are factors unless said otherwise.

    Attributes:
        epsilons: per group.
        rounds: number of them.
        cohort: of the expected cohort.
        least_share: of its number of clients that each group counts for at least.
        clip: of the clipping norm.
        step: of the length of the server's step.
        decay: of the average of the models; None for the plan's own recipe.
        partition: of the records over clients.
        seed: of the run.
        share: of the plan's cohort that takes part.
    """

    epsilons: tuple[Positive, ...]
    rounds: Count
    cohort: Positive = 1.0
    least_share: NonNegative | None = None
    clip: Positive = 1.0
    step: Positive = 1.0
    decay: float | None = None
    partition: str
    seed: int
    share: Fraction


def variations(
    spec: Spec,
    partitions: Sequence[str],
    count: int,
    seed: int,
    share: float,
    classes: int = 10,
) -> list[Variation]:
    """Random plans around a spec's; every second one has a recipe of its own.

    Args:
        spec: around which plans are drawn.
        partitions: of which the runs take turns.
        count: how many plans; more of them begin with the same ones.
        seed: of the draws; runs have it and the next ones.
        share: of the plans' cohorts that takes part.
        classes: of the data, for partitions that are drawn.

    Raises:
        InputError: for a law whose noise is for the spec's number of rounds.
    """
    block = _block_of_rounds(spec)
    has_free_cohort = (
        spec.cohort is not None
        and not spec.everyone
        and spec.planning.ratios != "given"
    )
    has_free_weights = spec.weighting == "optimal" and all(
        group.min_weight is None for group in spec.groups
    )
    source = np.random.default_rng([seed, _PLANS])

    def factor(largest: float) -> float:
        return float(f"{largest ** source.uniform(-1, 1):.4g}")

    drawn = []
    # Every plan draws all numbers, in this order, whether it uses them or not.
    for number in range(count):
        common = factor(_ALL_EPSILONS)
        values: dict[str, Any] = {
            "epsilons": tuple(
                float(f"{common * factor(_EPSILON_OF_A_GROUP):.4g}")
                for _ in spec.groups
            )
        }
        recipe: dict[str, Any] = {"clip": factor(_CLIP), "step": factor(_STEP)}
        recipe["decay"] = float(source.choice(DECAYS))
        rounds = max(1, round(spec.rounds * factor(_ROUNDS) / block)) * block
        cohort = factor(_COHORT)
        if source.random() < 0.5:
            values |= recipe
        partition = _drawn_partition(source, spec, classes)
        if partitions[number % len(partitions)] != DRAWN:
            partition = partitions[number % len(partitions)]
        if has_free_cohort:
            values["cohort"] = cohort
        # Other weights than the spec's in two plans of four, from which the curve
        # learns what the weight of a class does.
        if has_free_weights and number % 4 > 1:
            values["least_share"] = float(
                np.random.default_rng([seed, _FLOORS, number]).choice(LEAST_SHARES)
            )
        drawn.append(
            Variation(
                rounds=max(2, rounds),
                partition=partition,
                seed=seed + number,
                share=share,
                **values,
            )
        )
    return drawn


def _block_of_rounds(spec: Spec) -> int:
    """Rounds that come together: whole blocks of the sampling laws."""
    for sampling in spec.plain_laws:
        if sampling.law.rank_one_factors() is not None:
            rule = "must be a law for any rounds: those of the runs differ"
            raise InputError.one("sampling", rule, sampling)
    blocks = [sampling.law.rounds_for(1) for sampling in spec.plain_laws]
    return math.lcm(*(rounds for rounds in blocks if spec.rounds % rounds == 0))


def _drawn_partition(source: np.random.Generator, spec: Spec, classes: int) -> str:
    """A random partition: IID, Dirichlet, or a group alone holds some classes."""
    # All numbers are drawn, whichever of them the kind needs.
    kind = source.random()
    alpha = float(np.exp(source.uniform(*np.log(_ALPHAS))))
    group = spec.groups[int(source.integers(len(spec.groups)))].name
    number = int(source.integers(1, max(2, classes // 2 + 1)))
    held_alone = sorted(source.permutation(classes)[:number].tolist())
    if kind < _IID:
        return "iid"
    if kind < _IID + _DIRICHLET:
        return f"dirichlet:{alpha:.2g}"
    if len(spec.groups) == 1:
        return "iid"
    return f"by-class:{group}={','.join(map(str, held_alone))}"


def varied(data: dict[str, Any], variation: Variation) -> Plan:
    """The plan of a variation of a spec's plain data."""
    groups = [
        {**group, "epsilon": float(f"{group['epsilon'] * factor:.6g}")}
        for group, factor in zip(data["groups"], variation.epsilons, strict=True)
    ]
    changed = {**data, "groups": groups, "rounds": variation.rounds}
    if variation.least_share is not None:
        floor = {"least_share": variation.least_share}
        changed["planning"] = {**data["planning"], **floor}
    if variation.cohort != 1:
        spec = Spec.parse({**data, "groups": groups})
        lowest = math.ceil(fewest_clients(spec, variation.rounds))
        cohort = max(round(data["cohort"] * variation.cohort), lowest)
        changed["cohort"] = min(float(cohort), sum(map(spec.drawable, spec.groups)))
    plan = solve(Spec.parse(changed), second_opinion=False)
    if variation.decay is None:
        return plan
    default = default_candidate(plan)
    numbers: dict[str, Any] = {
        **default.model_dump(),
        "clipping_norm": default.clipping_norm * variation.clip,
        "step": default.step * variation.step,
        "decay": variation.decay,
    }
    recipe = Candidate(**numbers)
    return solve(Spec.parse(recipe.applied(changed)), second_opinion=False)
