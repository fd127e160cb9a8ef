"""A clipping norm that follows a private quantile, in one release with the updates."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch.testing import assert_close

from privplan.errors import InputError
from privplan.ledger import history_of
from privplan.plan import Clipping
from privplan.planning.adaptive_clipping import split_noise
from privplan.planning.solver import solve
from privplan.verification.verify import judge, load_run
from simulate.algorithm import compose, declaration
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.components import TransformContext
from simulate.engine.loop import initial_state, run_round
from simulate.mechanisms import gaussian_joint
from simulate.norms import BLOCK_VALUES, Measured, add_sum
from simulate.replay.model import final_vector
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.transforms import NORM, adaptive_clip, clip
from tests.simulate import tiny
from tests.simulate.conftest import digits_spec

SIGMA = 2.0


def clipping(share=0.1, quantile=0.5):
    update, count = split_noise(SIGMA, share)
    return Clipping(
        quantile=quantile,
        count_noise_multiplier=count,
        update_noise_multiplier=update,
        learning_rate=0.2,
    )


def built(**changes):
    plan = tiny.plan(release="joint", sigmas=(SIGMA, SIGMA), **changes)
    plan = plan.model_copy(update={"clipping": clipping()})
    return replace(
        ALGORITHMS.get("planned").build(plan, Hyperparameters()), local=tiny.LOCAL
    )


def test_a_round_by_hand():
    """Norms 5, 10, 5, 20 against C = 5: half are short enough, others become (3, 4)."""
    setting = tiny.setting(built())
    rule = clipping()
    begin = initial_state(setting)
    ledger = MemoryLedger("")
    end = run_round(setting, begin, ledger)
    count_factor = rule.update_noise_multiplier / rule.count_noise_multiplier
    drawn = tiny.noise(setting.algorithm.plan, 0, SIGMA * rule.bound, 3)
    step = 5.0 * (np.array([4 * 3 / 5, 4 * 4 / 5]) + drawn[:2]) / 4
    assert_allclose((end.theta - begin.theta).numpy(), step, rtol=1e-5)
    share_within = (
        0.5 + (count_factor * (2 * 0.5 - 2 * 0.5) + drawn[2]) / count_factor / 4
    )
    expected = 5.0 * math.exp(-0.2 * (share_within - 0.5))
    assert float(end.server[NORM]) == pytest.approx(expected, rel=1e-5)
    [record] = ledger.records
    assert record.dimension == 3
    assert record.noise_std == pytest.approx(SIGMA * rule.bound, rel=1e-12)
    for share in record.shares:
        assert record.release_for(share).noise_multiplier == pytest.approx(
            SIGMA, rel=1e-9
        )
        assert share.largest_norm <= (share.clip_bound or 0.0)


def test_the_pair_costs_what_the_plan_says():
    rule = clipping()
    count_factor = rule.update_noise_multiplier / rule.count_noise_multiplier
    std = SIGMA * rule.bound
    assert std == pytest.approx(rule.update_noise_multiplier, rel=1e-6)
    assert std / count_factor == pytest.approx(rule.count_noise_multiplier, rel=1e-6)
    assert 1 / math.hypot(1 / std, count_factor / (2 * std)) == pytest.approx(
        SIGMA, rel=1e-9
    )


@given(
    size=st.floats(1e-6, 1e6), norm=st.floats(1e-3, 1e3), share=st.floats(0.001, 0.9)
)
def test_no_client_moves_sum_and_count_by_more_than_the_bound(size, norm, share):
    rule = clipping(share)
    group = tiny.plan().groups[0]
    bound = {NORM: torch.tensor(norm, dtype=torch.float64)}
    context = TransformContext(1, torch.zeros(3), bound, group)
    update = torch.tensor([[0.6, 0.0, 0.8]]) * size
    sent, is_clipped = adaptive_clip(rule).apply(update, context)
    assert sent.shape == (1, 4)
    assert float(sent.double().norm()) <= adaptive_clip(rule).bound(None, group)
    assert bool(is_clipped[0]) is (float(update.double().norm()) > norm)


def test_without_noise_the_norm_comes_to_the_quantile():
    """Of the norms 5, 10, 15 and 20 three are at most 15 and two are at most 10."""
    setting = tiny.setting(built(rounds=200), pixels=(1, 2, 3, 4))
    plan = setting.algorithm.plan
    rule = plan.clipping.model_copy(update={"quantile": 0.6}) if plan.clipping else None
    groups = tuple(g.model_copy(update={"noise_multiplier": 1e-9}) for g in plan.groups)
    local = plan.spec.local.model_copy(update={"learning_rate_decay": 1.0})
    spec = plan.spec.model_copy(update={"local": local})
    plan = plan.model_copy(update={"clipping": rule, "groups": groups, "spec": spec})
    algorithm = replace(
        ALGORITHMS.get("planned").build(plan, Hyperparameters()), local=tiny.LOCAL
    )
    setting = replace(setting, algorithm=algorithm)
    progress = initial_state(setting)
    ledger = MemoryLedger("")
    for _ in range(200):
        progress = run_round(setting, progress, ledger)
    assert float(progress.server[NORM]) == pytest.approx(15.0, rel=0.05)


def of_method(name, plan, **values):
    """A registered algorithm with adaptive clipping, on the tiny world's updates."""
    plan = plan.model_copy(update={"clipping": clipping()})
    built = ALGORITHMS.get(name).build(plan, Hyperparameters(values=values))
    return replace(built, local=tiny.LOCAL)


def moved(algorithm):
    """The step of the first round, the clipping norm after it, and its ledger lines."""
    setting = tiny.setting(algorithm)
    ledger = MemoryLedger("")
    begin = initial_state(setting)
    end = run_round(setting, begin, ledger)
    return (end.theta - begin.theta).numpy(), float(end.server[NORM]), ledger.records


def test_one_sum_per_group_by_hand():
    """GDPFed+: unit updates (0.6, 0.8), a count for each group, top-k."""
    rule = clipping()
    count_factor = rule.update_noise_multiplier / rule.count_noise_multiplier
    algorithm = of_method("GDPFed+", tiny.plan(kept_fraction=0.5))
    step, norm, records = moved(algorithm)
    weights = np.array(tiny.WEIGHTS) / 4
    expected = np.zeros(2)
    count = 0.0
    for index, sigma in enumerate(tiny.SIGMAS):
        drawn = tiny.noise(algorithm.plan, index, sigma * rule.bound, 3)
        total = np.array([1.2, 1.6]) + drawn[:2]  # the sum of two clients of norm 1
        total[np.argmin(np.abs(total))] = 0
        expected += weights[index] * total * 5.0
        count += weights[index] * drawn[2]  # one of two is short in each group
    assert_allclose(step, expected, rtol=1e-5)
    excess = count / count_factor / (2 * weights.sum())
    assert norm == pytest.approx(5.0 * math.exp(-0.2 * excess), rel=1e-6)
    assert [record.dimension for record in records] == [3, 3]
    for record, sigma in zip(records, tiny.SIGMAS, strict=True):
        assert record.release_for(record.shares[0]).noise_multiplier == pytest.approx(
            sigma, rel=1e-9
        )


def test_groups_with_their_own_norms_by_hand():
    """Norms 2.5 and 5: the first group's clients add half as much to sum and count."""
    rule = clipping()
    plan = tiny.plan(release="joint", sigmas=(2 * SIGMA, SIGMA))
    strict, loose = plan.groups
    strict = strict.model_copy(update={"clipping_norm": tiny.NORM / 2})
    plan = plan.model_copy(update={"groups": (strict, loose)})
    algorithm = of_method("IDP-FedAvg-Scale", plan)
    step, norm, [record] = moved(algorithm)
    drawn = tiny.noise(algorithm.plan, 0, SIGMA * rule.bound, 3)
    count_factor = rule.update_noise_multiplier / rule.count_noise_multiplier
    unit = np.array([0.6, 0.8])
    assert_allclose(step, 5.0 * ((2 * 0.5 + 2) * unit + drawn[:2]) / 4, rtol=1e-5)
    # norms 5 and 10 against 2.5 are both long, of 5 and 20 against 5 one is
    count = 0.5 * (-0.5 - 0.5) + (0.5 - 0.5) + drawn[2] / count_factor
    share = 0.5 + count / (2 * 0.5 + 2)
    assert norm == pytest.approx(5.0 * math.exp(-0.2 * (share - 0.5)), rel=1e-6)
    for group_share, sigma in zip(record.shares, (2 * SIGMA, SIGMA), strict=True):
        assert record.release_for(group_share).noise_multiplier == pytest.approx(
            sigma, rel=1e-9
        )
        assert (group_share.largest_norm or 0.0) <= (group_share.clip_bound or 0.0)


def test_what_is_counted_is_what_is_clipped():
    """DP-FedPGN's second round counts the norms of the shifted updates."""
    plan = tiny.plan(release="joint", sigmas=(1e-9, 1e-9))
    algorithm = of_method("DP-FedPGN", plan, rho=0.0, beta=0.4)
    setting = tiny.setting(algorithm)
    ledger = MemoryLedger("")
    after_first = run_round(setting, initial_state(setting), ledger)
    after_second = run_round(setting, after_first, ledger)
    step = (after_first.theta - setting.start).numpy()
    norm = float(after_first.server[NORM])
    updates = [np.array([3.0, 4.0]) * 0.5 * pixel for pixel in (1, 2, 1, 4)]
    lengths = [np.linalg.norm(update - 0.6 * 0.5 * step) for update in updates]
    share = np.mean([length <= norm for length in lengths])
    assert share != np.mean([np.linalg.norm(update) <= norm for update in updates])
    expected = norm * math.exp(-0.2 * (share - 0.5))
    assert float(after_second.server[NORM]) == pytest.approx(expected, rel=1e-5)


def test_a_public_mask_does_not_select_the_count():
    """Fed-SMP: one of two coordinates and the count leave the clients."""
    plan = tiny.plan(release="joint", sigmas=(SIGMA, SIGMA))
    step, norm, [record] = moved(of_method("Fed-SMP", plan, kept=0.5))
    assert record.dimension == 2
    assert np.count_nonzero(step) == 1
    assert norm != 5.0
    setting = tiny.setting(of_method("Fed-SMP", plan, kept=0.5))
    released = declaration(setting.algorithm, setting.model, setting.seed)
    assert released.coordinates == 3
    assert released.released == 2
    assert released.appended == 1


def test_a_method_that_does_not_count_is_refused():
    """The bound of a fixed clip is not that of the plan, nor would its norm follow."""
    plan = tiny.plan(release="joint", sigmas=(SIGMA, SIGMA))
    plan = plan.model_copy(update={"clipping": clipping()})
    with pytest.raises(InputError, match=r"algorithm\.transforms: must have plan_clip"):
        compose("fixed", plan, transforms=(clip(5.0),), mechanism=gaussian_joint())


METHODS = ("planned", "Fed-SMP", "GDPFed+", "IDP-FedAvg-Scale")
SLOW_METHODS = (
    "DP-FedAvg-BLUR+LUS",
    "PFA",
    "WeiAvg",
    "CENTAUR",
    "PPSGD",
    "Time-adaptive HDPFL",
)


@pytest.mark.parametrize(
    "name",
    [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_METHODS)],
)
def test_a_trained_method_pays_for_its_quantile(name, tmp_path):
    """The verdict holds, and the ledger's releases are those of the executed plan."""
    planning = {"ratios": "uniform", "accountant": "rdp", "clipping": {}}
    plan = solve(digits_spec(planning=planning, rounds=4))
    execute(Request(plan, name, "digits", tmp_path / "run", seed=1))
    run = load_run(tmp_path / "run")
    assert run.plan.clipping is not None
    verdict = judge(run, 0)
    assert verdict.kept, verdict.checks
    for group, group_verdict in zip(run.plan.groups, verdict.groups, strict=True):
        assert history_of(run.ledger.records, group.name) == run.plan.history(group)
        assert group_verdict.realised_upper == pytest.approx(
            group_verdict.planned, rel=1e-6
        )


def test_dp_fedpgn_pays_for_its_median_by_default(short_plan, tmp_path):
    execute(Request(short_plan, "DP-FedPGN", "digits", tmp_path / "run", seed=1))
    run = load_run(tmp_path / "run")
    assert run.plan.clipping is not None
    assert judge(run, 0).kept
    assert float(final_vector(tmp_path / "run").state.server[NORM]) < 1.0


@pytest.mark.parametrize("change", ["copy", "in place", "none"])
def test_known_norms_are_never_those_of_other_updates(change):
    group = tiny.plan().groups[0]
    updates = torch.full((3, 4), 0.01)
    context = TransformContext(1, torch.zeros(4), {}, group, Measured(updates))
    if change == "copy":
        updates = updates * 1000
    elif change == "in place":
        updates.mul_(1000)
    sent, clipped = clip(1.0).apply(updates, context)
    assert bool(clipped.all()) is (change != "none")
    assert float(sent.norm(dim=1).max()) <= 1.0


def test_sums_of_long_updates_are_exact():
    updates = torch.randn(
        3, BLOCK_VALUES + 7, generator=torch.Generator().manual_seed(0)
    )
    total = torch.ones(updates.shape[1], dtype=torch.float64)
    add_sum(total, updates)
    assert_close(total, 1 + updates.double().sum(0), rtol=1e-15, atol=1e-15)
