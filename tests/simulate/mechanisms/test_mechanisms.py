"""The noise that is drawn is the noise that is booked. False alarms below 1e-6 each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.streams import Purpose, stream
from simulate.algorithm import compose
from simulate.components import GroupSum, Mechanism, Released
from simulate.engine.loop import initial_state, train
from simulate.mechanisms import gaussian_joint, gaussian_per_group, unprotected
from simulate.runs import run as checkpoint
from simulate.runs.ledger_writer import MemoryLedger
from tests.simulate import tiny

SIZE = 50_000
WEIGHTS = {"strict": 0.3, "loose": 0.3}


def sums(bound: float | None = 5.0) -> list[GroupSum]:
    return [
        GroupSum(
            group=group, total=torch.full((SIZE,), 3.0, dtype=torch.float64),
            sampling=SamplingLaw.FULL, ratio=1.0, participants=(0, 1), bound=bound,
            largest_norm=4.0, clipped=1, excluded=0,
        )
        for group in tiny.plan().groups
    ]  # fmt: skip


def noise(index: int) -> np.random.Generator:
    return stream(1, Purpose.NOISE, 1, index)


def drawn(release: Released, total: float) -> np.ndarray:
    return release.vector.double().numpy() - total


def test_one_release_per_group_with_its_own_deviation():
    releases = gaussian_per_group().release(1, sums(), WEIGHTS, noise)
    assert [one.record.noise_std for one in releases] == [10.0, 2.5]
    for one in releases:
        values = drawn(one, 3.0)
        squares = one.record.noise_sum_squares
        assert squares == pytest.approx((values**2).sum(), rel=1e-5)
        assert 1e-6 < stats.chi2.sf(squares / one.record.noise_std**2, SIZE) < 1 - 1e-6
        assert abs(values.mean()) < 5 * one.record.noise_std / np.sqrt(SIZE)
        assert one.record.dimension == SIZE


def test_releases_do_not_share_their_noise():
    one, two = (
        drawn(release, 3.0) for release in gaussian_per_group().release(1, sums(), WEIGHTS, noise)
    )
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(SIZE)
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 5 / np.sqrt(SIZE)


def test_a_joint_release_has_noise_enough_for_every_group():
    parts = sums()
    parts[1] = replace(parts[1], bound=30.0)  # sigma 0.5 times 30 is more than 2 times 5
    [release] = gaussian_joint().release(1, parts, WEIGHTS, noise)
    assert release.record.noise_std == 15.0
    assert 1e-6 < stats.chi2.sf((drawn(release, 6.0) ** 2).sum() / 15.0**2, SIZE) < 1 - 1e-6
    for share, group in zip(release.record.shares, tiny.plan().groups, strict=True):
        found = release.record.release_for(share).noise_multiplier
        assert found >= group.noise_multiplier


def test_without_a_bound_there_is_no_noise_to_draw():
    for mechanism in (gaussian_per_group(), gaussian_joint()):
        with pytest.raises(InputError, match="needs updates with a proven bound"):
            mechanism.release(1, sums(bound=None), WEIGHTS, noise)


def test_no_protection_is_booked_as_none():
    [release] = unprotected().release(1, sums(), WEIGHTS, noise)
    assert torch.equal(release.vector, torch.full((SIZE,), 6.0))
    assert (release.record.family, release.record.noise_std, release.record.dimension) == (
        "none",
        0,
        0,
    )


def _counting() -> Mechanism:
    """The sum in the clear, with a count of the rounds."""
    plain = unprotected()

    def stateful(round_, sums, weights, noise, state):
        return plain.release(round_, sums, weights, noise), {"rounds": state["rounds"] + 1}

    def start(theta):
        return {"rounds": torch.zeros(1)}

    return replace(plain, start=start, stateful=stateful)


def _setting():
    return tiny.setting(compose("counting", tiny.plan(), mechanism=_counting(), local=tiny.LOCAL))


def test_the_state_goes_from_round_to_round():
    setting = _setting()
    done = train(setting, MemoryLedger(setting.algorithm.plan.digest))
    assert done.mechanism["rounds"].item() == setting.rounds > 0
    assert initial_state(setting).mechanism["rounds"].item() == 0


def test_a_run_goes_on_from_the_state_in_a_checkpoint(tmp_path):
    setting = _setting()
    begun = replace(initial_state(setting), mechanism={"rounds": torch.full((1,), 7.0)})
    checkpoint.save(tmp_path, begun)
    found = checkpoint.load(tmp_path, torch.device("cpu"))
    done = train(setting, MemoryLedger(setting.algorithm.plan.digest), found)
    assert done.mechanism["rounds"].item() == 7 + setting.rounds
