"""Rounds computed by hand: clipping, sums, noise, weights, sparsification and steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from simulate.algorithm import Algorithm, compose, whole
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.components import Split
from simulate.engine.loop import initial_state, train
from simulate.mechanisms import gaussian_joint
from simulate.runs.ledger_writer import MemoryLedger
from simulate.transforms import clip, keep_largest, random_mask, shortened
from tests.simulate import tiny
from tests.simulate.tiny import noise, one_round

# Pixels 1, 2 | 1, 4 give updates of norm 5, 10 | 5, 20; clipped to 5 each is (3, 4).
STRICT = LOOSE = np.array([6.0, 8.0])


def build(name: str, aggregation: str = "paper", **plan: object) -> Algorithm:
    """An algorithm of the catalogue under a tiny plan, with the local rule of this world."""
    algorithm = ALGORITHMS.get(name).build(tiny.plan(**plan), Hyperparameters(aggregation))
    return replace(algorithm, local=tiny.LOCAL)


def test_gdpfed_to_the_letter() -> None:
    step, records, _ = one_round(tiny.setting(build("GDPFed")))
    strict, loose = STRICT + noise(0, 2.0 * 5), LOOSE + noise(1, 0.5 * 5)
    np.testing.assert_allclose(step, 0.25 / 4 * strict + 0.75 / 4 * loose, rtol=1e-5)
    assert [record.noise_std for record in records] == [10.0, 2.5]
    assert [share.clipped for record in records for share in record.shares] == [1, 1]
    assert [share.clip_bound for record in records for share in record.shares] == [5.0, 5.0]
    assert [share.weight for record in records for share in record.shares] == [0.0625, 0.1875]
    largest = [share.largest_norm for record in records for share in record.shares]
    np.testing.assert_allclose(largest, 5.0, rtol=1e-6)
    assert max(largest) <= 5.0


def test_gdpfed_plus_keeps_the_largest_coordinate_of_each_noisy_sum() -> None:
    step, records, _ = one_round(tiny.setting(build("GDPFed+", kept=0.5)))
    expected = np.zeros(2)
    for released, weight in ((STRICT + noise(0, 10.0), 0.0625), (LOOSE + noise(1, 2.5), 0.1875)):
        kept = np.argmax(np.abs(released))
        expected[kept] += weight * released[kept]
    np.testing.assert_allclose(step, expected, rtol=1e-5)
    assert [record.dimension for record in records] == [2, 2]


def test_dp_fedavg_is_one_sum_over_the_expected_cohort() -> None:
    step, records, _ = one_round(
        tiny.setting(build("DP-FedAvg", release="joint", sigmas=(2.0, 2.0)))
    )
    np.testing.assert_allclose(step, (STRICT + LOOSE + noise(0, 10.0)) / 4, rtol=1e-5)
    [record] = records
    assert [share.group for share in record.shares] == ["strict", "loose"]


def test_planned_joint_release_scales_the_groups() -> None:
    scales = (0.25, 1.0)  # s_m = s / sigma_m with s = 0.5
    step, records, _ = one_round(tiny.setting(build("planned", release="joint", scales=scales)))
    released = 0.25 * STRICT + LOOSE + noise(0, 0.5 * 5)
    np.testing.assert_allclose(step, released / (0.25 * 2 + 1.0 * 2), rtol=1e-5)
    [record] = records
    multipliers = [record.release_for(share).noise_multiplier for share in record.shares]
    assert multipliers == list(tiny.SIGMAS)
    for share, scale in zip(record.shares, scales, strict=True):
        assert share.clip_bound == scale * 5
        assert share.largest_norm <= share.clip_bound


def test_fedavg_is_the_mean_over_the_expected_cohort_and_is_booked_as_unprotected() -> None:
    step, records, _ = one_round(tiny.setting(build("FedAvg")))
    np.testing.assert_allclose(step, np.array([3.0, 4.0]) * (1 + 2 + 1 + 4) / 4, rtol=1e-6)
    [record] = records
    assert record.family == "none"
    assert record.release_for(record.shares[0]).noise_multiplier == 0
    assert [share.clip_bound for share in record.shares] == [None, None]


def test_an_update_that_is_not_finite_adds_zero_and_is_counted() -> None:
    step, records, _ = one_round(tiny.setting(build("FedAvg"), pixels=(1, 255, 1, 4)))
    np.testing.assert_allclose(step, np.array([3.0, 4.0]) * (1 + 1 + 4) / 4, rtol=1e-6)
    assert [share.excluded for share in records[0].shares] == [1, 0]
    assert [share.cohort for share in records[0].shares] == [2, 2]


def test_the_learning_rate_decays_per_round() -> None:
    end = train(tiny.setting(build("FedAvg")), MemoryLedger(""))
    begin = initial_state(tiny.setting(build("FedAvg")))
    moved = (end.theta - begin.theta).numpy()
    np.testing.assert_allclose(moved, np.array([6.0, 8.0]) * (1 + 0.5 + 0.25), rtol=1e-5)


def masked(kept: float, split: Split | None = None) -> Algorithm:
    plan = tiny.plan(release="joint", sigmas=(2.0, 2.0))
    transforms = (random_mask(kept), clip(5.0))
    return compose(
        "masked", plan, split=split, local=tiny.LOCAL, transforms=transforms,
        mechanism=gaussian_joint(),
    )  # fmt: skip


def test_a_mask_narrows_both_update_and_noise() -> None:
    step, [record], _ = one_round(tiny.setting(masked(0.5)))
    assert record.dimension == 1
    [moved] = np.flatnonzero(step)
    part = (3.0, 4.0)[moved]
    sums = sum(min(part * pixel, 5.0) for pixel in (1, 2, 1, 4))
    np.testing.assert_allclose(step[moved], (sums + noise(0, 10.0, 1)[0]) / 4, rtol=1e-5)


def test_a_personal_parameter_never_enters_a_release() -> None:
    split = replace(whole(), shared=lambda model: torch.tensor([0]))
    step, [record], _ = one_round(tiny.setting(masked(1.0, split)))
    assert record.dimension == 1
    assert step[1] == 0


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.8, 1.0])
def test_top_k_against_a_full_sort(kept: float) -> None:
    vector = torch.from_numpy(np.random.default_rng(0).normal(size=101)).float()
    order = np.argsort(-np.abs(vector.numpy()))[: round(kept * 101)]
    expected = np.zeros(101, dtype=np.float32)
    expected[order] = vector.numpy()[order]
    np.testing.assert_array_equal(keep_largest(vector, kept).numpy(), expected)


def test_clipping_never_exceeds_its_bound() -> None:
    draw = np.random.default_rng(0)
    scales = 10.0 ** draw.uniform(-3, 3, size=(200, 1))
    updates = torch.from_numpy(draw.normal(size=(200, 4000)) * scales).float()
    norms = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64)
    clipped, long = shortened(updates, 5.0)
    after = torch.linalg.vector_norm(clipped, dim=1, dtype=torch.float64)
    assert (after <= 5.0).all()
    np.testing.assert_allclose(after[long].numpy(), 5.0, rtol=5e-7)
    assert torch.equal(long, norms > 5.0)
    assert torch.equal(clipped[~long], updates[~long])
