"""Measured releases: a mechanism that releases no finite numbers is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from privplan.errors import InputError
from simulate.algorithms.registry import algorithm
from simulate.components import GroupSum, Noise, Released
from simulate.engine.loop import initial_state, run_round
from simulate.runs.ledger_writer import MemoryLedger
from tests.sabotage.fault import with_components
from tests.simulate.small import plan, setting


def test_releases_that_are_not_finite_are_refused() -> None:
    run = setting(algorithm("planned", plan()))
    mechanism = run.algorithm.mechanism

    def broken(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        first, *others = mechanism.release(round_, sums, weights, noise)
        return (replace(first, vector=first.vector * torch.nan), *others)

    faulty = with_components(run, mechanism=replace(mechanism, release=broken))
    with pytest.raises(InputError, match=r"^mechanism: must release finite numbers, as round 1"):
        run_round(faulty, initial_state(faulty), MemoryLedger(run.algorithm.plan.digest))
