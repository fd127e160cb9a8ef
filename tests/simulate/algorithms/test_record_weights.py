"""Weights and projections of methods that protect records: PFA and Robust-HDP."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from privplan.planning.baselines import by_record
from privplan.planning.records import noise_variances
from privplan.planning.solver import solve
from privplan.record import GroupShare, ReleaseRecord
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.aggregators import (
    as_planned,
    by_noise,
    by_norm,
    client_mean,
    noise_estimates,
    projected_clients,
    public_from,
    pursuit,
)
from simulate.components import Released
from simulate.engine.cohort import client_updates
from tests.simulate import tiny
from tests.simulate.algorithms.record_runs import context_of, setting


def released(vector: list[float], epsilon: float) -> Released:
    group = tiny.plan().groups[0].model_copy(update={"epsilon": epsilon})
    share = GroupShare(
        group="strict", clients=2, sampling="poisson", sampling_ratio=0.5, cohort=1, clip_bound=1.0,
        largest_norm=1.0, clipped=0, weight=epsilon,
    )  # fmt: skip
    record = ReleaseRecord(
        round=1, family="none", noise_std=0, dimension=0, noise_sum_squares=0, shares=(share,)
    )
    return Released(torch.tensor(vector), record, (group,), 0)


def test_a_client_whose_update_was_not_finite_does_not_count() -> None:
    draw = np.random.default_rng(3)
    sent = [released(list(draw.normal(size=50) * std), 1.0) for std in (1.0, 2.0, 3.0)]
    silent = released([0.0] * 50, 1.0)
    rule = client_mean("by estimated noise", by_noise(50))
    expected, _ = rule.combine(sent, torch.zeros(50), {})
    found, _ = rule.combine([*sent[:1], silent, *sent[1:]], torch.zeros(50), {})
    assert expected.isfinite().all()
    assert float((found - expected).norm()) < 0.5 * float(expected.norm())
    nobody, _ = rule.combine([silent], torch.zeros(50), {})
    torch.testing.assert_close(nobody, torch.zeros(50))


def test_pfa_projects_private_clients_onto_public_ones() -> None:
    sent = [released([2.0, 0.0, 0.0], 3.0), released([1.0, 4.0, 5.0], 1.0)]
    step, _ = projected_clients(1).combine(sent, torch.zeros(3), {})
    expected = (3.0 * np.array([2.0, 0, 0]) + 1.0 * np.array([1.0, 0, 0])) / 4.0
    np.testing.assert_allclose(step.numpy(), expected, rtol=1e-6)
    plain, _ = client_mean("mean", as_planned).combine(sent, torch.zeros(3), {})
    np.testing.assert_allclose(plain.numpy(), [7 / 4, 1.0, 5 / 4], rtol=1e-6)


def test_pfa_keeps_the_leading_public_directions() -> None:
    public = [released([10.0, 0.0, 0.0], 3.0), released([0.0, 1.0, 0.0], 3.0)]
    sent = [*public, released([1.0, 4.0, 5.0], 1.0)]
    one, _ = projected_clients(1).combine(sent, torch.zeros(3), {})
    two, _ = projected_clients(2).combine(sent, torch.zeros(3), {})
    np.testing.assert_allclose(one.numpy() * 7, [31.0, 3.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(two.numpy() * 7, [31.0, 7.0, 0.0], atol=1e-5)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8))
def test_public_budgets_are_the_upper_of_two_clusters(epsilons: list[float]) -> None:
    """No other interval split has a smaller sum of squares, by brute force with NumPy."""
    least = public_from(epsilons)
    values = np.array(epsilons)

    def cost(edge: float) -> float:
        parts = [values[values < edge], values[values >= edge]]
        return float(sum(((part - part.mean()) ** 2).sum() for part in parts if len(part)))

    assert cost(least) <= min(map(cost, epsilons)) * (1 + 1e-9) + 1e-12
    assert (least == min(epsilons)) is (len(set(epsilons)) == 1)


def test_pfa_with_budgets_that_all_differ_has_several_public_clients() -> None:
    """Budgets 1, 1.2, 3 and 3.3: the two upper ones are public, and are not projected."""
    sent = [
        released([1.0, 2.0, 5.0], 1.0),
        released([2.0, 1.0, 7.0], 1.2),
        released([4.0, 0.0, 0.0], 3.0),
        released([0.0, 2.0, 0.0], 3.3),
    ]
    step, _ = projected_clients(2).combine(sent, torch.zeros(3), {})
    expected = np.array([1 * 1 + 1.2 * 2 + 3 * 4, 1 * 2 + 1.2 * 1 + 3.3 * 2, 0.0]) / 8.5
    np.testing.assert_allclose(step.numpy(), expected, atol=1e-5)


def test_pursuit_takes_a_low_rank_and_a_sparse_part_apart() -> None:
    draw = np.random.default_rng(0)
    low = draw.normal(size=(120, 2)) @ draw.normal(size=(2, 40))
    sparse = np.where(draw.random((120, 40)) < 0.05, draw.normal(0, 10, (120, 40)), 0)
    found_low, found_sparse = pursuit(torch.from_numpy(low + sparse))
    np.testing.assert_allclose(found_low.numpy(), low, atol=1e-4)
    np.testing.assert_allclose(found_sparse.numpy(), sparse, atol=1e-4)


def common_signal(clients: int, strength: float, seed: int = 4) -> tuple[torch.Tensor, np.ndarray]:
    """Updates [clients, 4000] with a strong common signal of rank 2, and their noise variances."""
    draw = np.random.default_rng(seed)
    std = draw.permutation(np.geomspace(0.3, 3, clients))
    shares = 1 + 0.3 * draw.normal(size=(clients, 2))
    updates = strength * shares @ draw.normal(size=(2, 4000))
    updates += draw.normal(size=(clients, 4000)) * std[:, None]
    return torch.from_numpy(updates), std**2


def excess(weights: torch.Tensor, variances: np.ndarray) -> float:
    """Noise variance of the weighted mean over the least possible one, less 1."""
    found, oracle = weights.numpy() / float(weights.sum()), 1 / variances
    oracle = oracle / oracle.sum()
    return float((found**2 * variances).sum() / (oracle**2 * variances).sum() - 1)


def test_robust_pca_earns_its_cost_where_the_common_signal_is_strong() -> None:
    """Raw norms give the cleanest clients too little: their norm is mostly the common signal."""
    updates, variances = common_signal(60, 1.0)
    raw = excess(by_norm(updates, []), variances)
    found = excess(by_noise(2000)(updates, []), variances)
    assert raw > 0.3
    assert found < 0.1 * raw


def test_blocks_of_clients_are_on_one_scale() -> None:
    """More clients than one decomposition has: weights stay those of one matrix within 5%."""
    updates, variances = common_signal(240, 0.5)
    assert excess(1 / noise_estimates(updates, 1000), variances) < 0.05


@pytest.mark.slow
@pytest.mark.skipif("PRIVPLAN_DATA" not in os.environ, reason="PRIVPLAN_DATA is not set")
def test_table_3_of_robust_hdp() -> None:
    """Estimated weights against oracle weights after the first round on Fashion-MNIST.

    Published (Table 3): the noise variance of the mean is the oracle's to the printed digits,
    and WeiAvg, DPFedAvg and minimum epsilon follow in this order.
    """
    text = preset("robust-hdp-fmnist")
    spec = Spec.parse(yaml.safe_load(text))
    run = setting("Robust-HDP", solve(spec), "shards:8", "fashion-mnist")
    sent, _ = client_updates(run, context_of(run))
    own = dict(zip([g.name for g in spec.groups], noise_variances(run.algorithm.plan), strict=True))
    variances = np.array([own[update.group.name] for update in sent])
    weights = 1 / noise_estimates(torch.stack([one.vector for one in sent]), 200_000).numpy()
    found, oracle = weights / weights.sum(), (1 / variances) / (1 / variances).sum()
    assert np.corrcoef(found, oracle)[0, 1] > 0.99
    least = (oracle**2 * variances).sum()
    assert (found**2 * variances).sum() / least < 1.01
    plan = run.algorithm.plan
    others = [
        by_record(plan, {}, weights="epsilon").objective.value,
        by_record(plan, {}, weights="population").objective.value,
        by_record(plan, {}, weights="population", strict=True).objective.value,
    ]
    unit = spec.model.parameters * spec.local.learning_rate**2
    assert [least / unit, *others] == sorted([least / unit, *others])
