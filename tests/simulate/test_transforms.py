"""A clipping norm that follows a private quantile, in one release with the updates."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privplan.errors import InputError
from privplan.ledger import history_of
from privplan.plan import Clipping, Plan
from privplan.planning.adaptive_clipping import combined_noise_multiplier, split_noise
from privplan.planning.solver import solve
from privplan.verification.verify import judge, load_run
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import ALGORITHMS
from simulate.components import TransformContext
from simulate.engine.loop import initial_state, run_round
from simulate.engine.seeds import Purpose, stream
from simulate.mechanisms.gaussian import gaussian_joint
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.transforms import NORM, adaptive_clip, random_mask
from tests.simulate import tiny
from tests.simulate.conftest import digits_spec

SIGMA = 2.0


def clipping(share: float = 0.1, quantile: float = 0.5) -> Clipping:
    parts = split_noise(SIGMA, share)
    return Clipping(
        quantile=quantile,
        count_noise_multiplier=parts.count,
        update_noise_multiplier=parts.update,
        learning_rate=0.2,
    )


def built(**changes: object) -> Algorithm:
    plan = tiny.plan(release="joint", sigmas=(SIGMA, SIGMA), **changes)
    plan = plan.model_copy(update={"clipping": clipping()})
    return replace(ALGORITHMS.get("planned").build(plan, Hyperparameters()), local=tiny.LOCAL)


def test_a_round_by_hand() -> None:
    """Norms 5, 10, 5, 20 against C = 5: half are short enough, the others become (3, 4)."""
    setting, how = tiny.setting(built()), clipping()
    begin, ledger = initial_state(setting), MemoryLedger("")
    end = run_round(setting, begin, ledger)
    worth = how.update_noise_multiplier / how.count_noise_multiplier
    std = SIGMA * how.bound
    drawn = std * stream(7, Purpose.NOISE, 1, 0).standard_normal(3)
    step = 5.0 * (np.array([4 * 3 / 5, 4 * 4 / 5]) + drawn[:2]) / 4
    np.testing.assert_allclose((end.theta - begin.theta).numpy(), step, rtol=1e-5)
    share = 0.5 + (worth * (2 * 0.5 - 2 * 0.5) + drawn[2]) / worth / 4
    expected = 5.0 * math.exp(-0.2 * (share - 0.5))
    assert float(end.server[NORM]) == pytest.approx(expected, rel=1e-5)
    [record] = ledger.records
    assert record.dimension == 3
    assert record.noise_std == pytest.approx(std, rel=1e-12)
    for one in record.shares:
        assert record.release_for(one).noise_multiplier == pytest.approx(SIGMA, rel=1e-9)
        assert one.largest_norm <= (one.clip_bound or 0.0)


def test_the_pair_costs_what_the_plan_says() -> None:
    how = clipping()
    worth = how.update_noise_multiplier / how.count_noise_multiplier
    std = SIGMA * how.bound
    assert std == pytest.approx(how.update_noise_multiplier, rel=1e-6)
    assert std / worth == pytest.approx(how.count_noise_multiplier, rel=1e-6)
    assert combined_noise_multiplier(std, std / worth) == pytest.approx(SIGMA, rel=1e-9)


@given(
    size=st.floats(1e-6, 1e6),
    norm=st.floats(1e-3, 1e3),
    share=st.floats(0.001, 0.9),
)
def test_no_client_moves_sum_and_count_by_more_than_the_bound(
    size: float, norm: float, share: float
) -> None:
    how, group = clipping(share), tiny.plan().groups[0]
    context = TransformContext(
        1, torch.zeros(3), {NORM: torch.tensor(norm, dtype=torch.float64)}, group
    )
    update = torch.tensor([[0.6, 0.0, 0.8]]) * size
    sent, long = adaptive_clip(how).apply(update, context)
    assert sent.shape == (1, 4)
    assert float(sent.double().norm()) <= adaptive_clip(how).bound(None, group)
    assert long is not None
    assert bool(long[0]) is (float(update.double().norm()) > norm)


def test_without_noise_the_norm_comes_to_the_quantile() -> None:
    """Of the norms 5, 10, 15 and 20 three are at most 15 and two are at most 10."""
    setting = tiny.setting(built(rounds=200), pixels=(1, 2, 3, 4))
    plan = setting.algorithm.plan
    how = plan.clipping.model_copy(update={"quantile": 0.6}) if plan.clipping else None
    groups = tuple(g.model_copy(update={"noise_multiplier": 1e-9}) for g in plan.groups)
    local = plan.spec.local.model_copy(update={"learning_rate_decay": 1.0})
    spec = plan.spec.model_copy(update={"local": local})
    plan = plan.model_copy(update={"clipping": how, "groups": groups, "spec": spec})
    algorithm = replace(ALGORITHMS.get("planned").build(plan, Hyperparameters()), local=tiny.LOCAL)
    setting = replace(setting, algorithm=algorithm)
    progress, ledger = initial_state(setting), MemoryLedger("")
    for _ in range(200):
        progress = run_round(setting, progress, ledger)
    assert float(progress.server[NORM]) == pytest.approx(15.0, rel=0.05)


def test_a_trained_plan_keeps_its_budgets_and_moves_the_norm(tmp_path: Path) -> None:
    plan = solve(digits_spec(planning={"clipping": {"quantile": 0.5}}, rounds=20))
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=1))
    run = load_run(tmp_path / "run")
    verdict = judge(run)
    assert verdict.kept, verdict.checks
    for group, found in zip(plan.groups, verdict.groups, strict=True):
        assert found.realised_upper == pytest.approx(found.planned, rel=1e-6)
        assert history_of(run.ledger.records, group.name) == plan.history(group)


def test_a_mask_does_not_go_with_an_appended_count() -> None:
    plan: Plan = tiny.plan(release="joint", sigmas=(SIGMA, SIGMA))
    with pytest.raises(InputError, match=r"algorithm\.transforms: must not append coordinates"):
        compose(
            "both",
            plan,
            transforms=(random_mask(0.5), adaptive_clip(clipping())),
            mechanism=gaussian_joint(),
        )
