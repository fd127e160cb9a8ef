"""Rounds computed by hand: mini-batches, clipping, sums, noise, weights and steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from privplan.errors import InputError
from privplan.streams import Purpose, stream
from simulate.algorithm import Algorithm, compose, whole
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.components import Split
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.loop import initial_state, run_round, train
from simulate.engine.round import ABSENT, batches, schedule
from simulate.local.sgd import PADDING
from simulate.mechanisms import gaussian_joint
from simulate.runs.ledger_writer import MemoryLedger
from simulate.transforms import clip, keep_largest, random_mask, shortened
from tests.sabotage.fault import with_components
from tests.simulate import small, tiny
from tests.simulate.tiny import noise, one_round

# Pixels 1, 2 | 1, 4 give updates of norm 5, 10 | 5, 20; clipped to 5 each is (3, 4).
STRICT = LOOSE = np.array([6.0, 8.0])


def build(name: str, aggregation: str = "paper", **plan: object) -> Algorithm:
    """An algorithm of the catalogue under a tiny plan, with the local rule of this world."""
    algorithm = ALGORITHMS.get(name).build(tiny.plan(**plan), Hyperparameters(aggregation))
    return replace(algorithm, local=tiny.LOCAL)


def test_gdpfed_to_the_letter():
    step, records, _ = one_round(tiny.setting(build("GDPFed")))
    strict, loose = STRICT + noise(0, 2.0 * 5), LOOSE + noise(1, 0.5 * 5)
    np.testing.assert_allclose(step, 0.25 / 4 * strict + 0.75 / 4 * loose, rtol=1e-5)
    assert [record.noise_std for record in records] == [10.0, 2.5]
    assert [share.clipped for record in records for share in record.shares] == [1, 1]
    assert [share.clip_bound for record in records for share in record.shares] == [5.0, 5.0]
    assert [share.factor for record in records for share in record.shares] == [0.0625, 0.1875]
    largest = [share.largest_norm for record in records for share in record.shares]
    np.testing.assert_allclose(largest, 5.0, rtol=1e-6)
    assert max(largest) <= 5.0


def test_planned_joint_release_scales_the_groups():
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


def test_fedavg_is_the_mean_over_the_expected_cohort_and_is_booked_as_unprotected():
    step, records, _ = one_round(tiny.setting(build("FedAvg")))
    np.testing.assert_allclose(step, np.array([3.0, 4.0]) * (1 + 2 + 1 + 4) / 4, rtol=1e-6)
    [record] = records
    assert record.family == "none"
    assert record.release_for(record.shares[0]).noise_multiplier == 0
    assert [share.clip_bound for share in record.shares] == [None, None]


def test_an_update_that_is_not_finite_adds_zero_and_is_counted():
    step, records, _ = one_round(tiny.setting(build("FedAvg"), pixels=(1, 255, 1, 4)))
    np.testing.assert_allclose(step, np.array([3.0, 4.0]) * (1 + 1 + 4) / 4, rtol=1e-6)
    assert [share.excluded for share in records[0].shares] == [1, 0]
    assert [share.cohort for share in records[0].shares] == [2, 2]


def test_the_learning_rate_decays_per_round():
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


def test_a_personal_parameter_never_enters_a_release():
    split = replace(whole(), shared=lambda model: torch.tensor([0]))
    step, [record], _ = one_round(tiny.setting(masked(1.0, split)))
    assert record.dimension == 1
    assert step[1] == 0


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.8, 1.0])
def test_top_k_against_a_full_sort(kept):
    vector = torch.from_numpy(np.random.default_rng(0).normal(size=101)).float()
    order = np.argsort(-np.abs(vector.numpy()))[: round(kept * 101)]
    expected = np.zeros(101, dtype=np.float32)
    expected[order] = vector.numpy()[order]
    np.testing.assert_array_equal(keep_largest(vector, kept).numpy(), expected)


def test_clipping_never_exceeds_its_bound():
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


def test_releases_that_are_not_finite_are_refused():
    run = small.setting(algorithm("planned", small.plan()))
    mechanism = run.algorithm.mechanism

    def broken(round_, sums, weights, noise):
        first, *others = mechanism.release(round_, sums, weights, noise)
        return (replace(first, vector=first.vector * torch.nan), *others)

    faulty = with_components(run, mechanism=replace(mechanism, release=broken))
    with pytest.raises(InputError, match=r"^mechanism: must release finite numbers, as round 1"):
        run_round(faulty, initial_state(faulty), MemoryLedger(run.algorithm.plan.digest))


WIDE = tuple(group.model_copy(update={"clients": 200}) for group in tiny.plan().groups)


def test_mini_batches_pass_over_the_records():
    records = np.array([5, 6, 7, 8, 9])
    chosen = schedule(records, steps=5, size=2, generator=stream(0, Purpose.CLIENT, 1, 0))
    assert (chosen == ABSENT).sum() == 1
    assert chosen[2, 1] == ABSENT
    assert sorted(chosen[:3].flatten()) == [ABSENT, 5, 6, 7, 8, 9]
    assert len(set(chosen[3:].flatten())) == 4


def test_batches_do_not_depend_on_who_else_is_trained():
    data = load("digits")
    held = partition(scheme("iid"), data.train_y.numpy(), WIDE, seed=1)
    shared = {"seed": 1, "round_": 2, "steps": 3, "size": 4, "device": torch.device("cpu")}
    x, y = batches(data, held, np.array([7, 3, 12]), **shared)
    alone_x, alone_y = batches(data, held, np.array([3]), **shared)
    assert torch.equal(x[1:2], alone_x)
    assert torch.equal(y[1:2], alone_y)
    assert x.shape == (3, 3, 4, 1, 8, 8)
    assert (y == PADDING).any()  # three or four records per client
    later, _ = batches(data, held, np.array([3]), **{**shared, "round_": 3})
    assert not torch.equal(alone_x, later)
