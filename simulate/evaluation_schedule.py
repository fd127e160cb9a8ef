"""After which rounds a run is evaluated, and on which test records: known before it begins."""

from __future__ import annotations

import math

import numpy as np

from privplan.plan import Plan
from simulate.data.partition.clients import ClientPartition
from simulate.streams import Purpose, stream

EVALUATION_SHARE = 0.12
"""Largest time of evaluation during training, as a share of the time of training."""
TRAINING_COST = 3
"""Cost of a training step on one record, in forward passes."""
LEAST_EVALUATIONS = 5
"""Least number of evaluations in a run that has as many rounds."""
LEAST_RECORDS = 1000
"""Least number of test records in an evaluation during training, where there are as many."""
EVALUATED_RECORDS = 10_000
"""Most test records on which the global model is evaluated during training."""


def interval(rounds: int, cohort: float, images: int, test_records: int) -> int:
    """Number of rounds between evaluations that limits their cost to EVALUATION_SHARE."""
    round_cost = TRAINING_COST * cohort * images
    needed = math.ceil(test_records / (EVALUATION_SHARE * round_cost))
    return max(1, min(needed, rounds // LEAST_EVALUATIONS))


def records_within_share(
    rounds: int, every: int, cohort: float, images: int, test_records: int
) -> int:
    """Test records of each evaluation before the last, limited by EVALUATION_SHARE.

    The last evaluation is on all test records; its cost is part of the share.
    """
    before_last = max(1, (rounds - 1) // every)
    share = EVALUATION_SHARE * TRAINING_COST * cohort * images * rounds
    return max(LEAST_RECORDS, int((share - test_records) / before_last))


def evaluation_schedule(
    plan: Plan, partition: ClientPartition, test_records: int, most: int = EVALUATED_RECORDS
) -> tuple[int, int]:
    """Number of rounds between two evaluations of a run, and of test records in each."""
    records = partition.sizes(np.concatenate(partition.members)).mean()
    images = round(plan.spec.local.steps * min(plan.spec.local.batch_size, records))
    cohort = sum(group.expected_cohort for group in plan.groups)
    rounds = plan.spec.rounds
    every = interval(rounds, cohort, images, min(test_records, most))
    least = records_within_share(rounds, every, cohort, images, test_records)
    return every, min(least, most)


def evaluated_rows(seed: int, test_records: int, most: int) -> np.ndarray | None:
    """Indices of ``most`` test records, sorted; None for all if there are no more."""
    if test_records <= most:
        return None
    return np.sort(stream(seed, Purpose.EVALUATION, 1).permutation(test_records)[:most])


def evaluations(
    plan: Plan, partition: ClientPartition, test_records: int, seed: int
) -> dict[int, np.ndarray]:
    """Test records of each evaluation of a global model, by round; all after the last round."""
    every, most = evaluation_schedule(plan, partition, test_records)
    total, everything = plan.spec.rounds, np.arange(test_records)
    rows = evaluated_rows(seed, test_records, most)
    before = dict.fromkeys(range(every, total, every), everything if rows is None else rows)
    return {**before, total: everything}
