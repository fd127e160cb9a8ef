"""Proxy runs that forecasts are made from, and pilots that measure constants."""

import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from privplan.errors import InputError
from privplan.forecast.model import Forecaster
from privplan.forecast.proxy_table import ProxyTable
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.data.registry import load
from simulate.engine.loop import initial_state, run_round
from simulate.proxy import estimators
from simulate.proxy.pilot import Pilot, pilot_experiment, run
from simulate.proxy.table import PROXY_JOURNAL, proxy_run
from simulate.proxy.variations import Variation, variations, varied
from simulate.runs.ledger_writer import MemoryLedger
from tests.command import answer, privplan
from tests.simulate.proxy.test_tuning import DATA, SETTING, TEXT

PLAIN = Spec.parse(DATA).model_dump(mode="json", exclude={"groups_from"})


def test_variations_are_drawn_by_the_seed_alone():
    spec = Spec.parse(DATA)
    drawn = variations(spec, ["iid", "dirichlet:0.3"], 12, 3, 0.5)
    assert drawn == variations(spec, ["iid", "dirichlet:0.3"], 20, 3, 0.5)[:12]
    assert drawn != variations(spec, ["iid", "dirichlet:0.3"], 12, 4, 0.5)
    assert {variation.partition for variation in drawn[:2]} == {"iid", "dirichlet:0.3"}
    assert {variation.decay is None for variation in drawn} == {True, False}


def test_plans_whose_noise_is_for_one_number_of_rounds_are_not_varied():
    data = {**PLAIN, "rounds": 6, "cohort": None, "sampling": "balls_in_bins:6"}
    data["planning"] = {}
    with pytest.raises(InputError, match="sampling: must be a law for any rounds"):
        variations(Spec.parse(data), ["iid"], 12, 3, 0.5)


def test_a_variation_changes_budgets_rounds_and_recipe():
    unvaried = solve(Spec.parse(PLAIN))
    variation = Variation(
        epsilons=(2.0, 2.0), rounds=4, partition="iid", seed=0, share=1.0
    )
    plan = varied(PLAIN, variation)
    half = varied(PLAIN, variation.model_copy(update={"cohort": 0.5}))
    assert half.spec.cohort == pytest.approx((plan.spec.cohort or 0) / 2, abs=0.5)
    assert [group.epsilon for group in plan.groups] == [4.0, 16.0]
    assert relative_noise(plan) < relative_noise(unvaried)
    with_recipe = varied(
        PLAIN, variation.model_copy(update={"decay": 0.0, "clip": 2.0, "step": 0.5})
    )
    assert with_recipe.spec.clipping_norm == pytest.approx(2 * plan.spec.clipping_norm)
    assert with_recipe.spec.averaging is None
    quarter = pytest.approx((plan.spec.server.learning_rate or 0) / 4, rel=1e-3)
    assert with_recipe.spec.server.learning_rate == quarter


def test_a_run_has_the_groups_classes_and_accuracies():
    variation = Variation(
        epsilons=(1.0, 1.0),
        rounds=2,
        partition="by-class:strict=0,8,9",
        seed=1,
        share=0.3,
    )
    run = proxy_run((SETTING.model_copy(update={"spec": PLAIN}), variation))
    strict, loose = run["coverage"]["shares"]
    assert loose[0] == loose[8] == loose[9] == 0
    assert sum(strict) == pytest.approx(1)
    accuracies = zip(run["coverage"]["clients"], run["accuracy_by_group"], strict=True)
    total = sum(share * value for share, value in accuracies)
    assert total == pytest.approx(run["accuracy"], abs=0.05)


@pytest.mark.slow
def test_the_command_writes_a_table_and_resumes(tmp_path):
    spec = tmp_path / "spec.yaml"
    out = tmp_path / "proxy.json"
    spec.write_text(TEXT)
    words = ["--dataset=digits", "--runs=12", "--share=0.1", "-o", out]
    answer("proxy", "forecast", spec, *words)
    table = ProxyTable.load(out)
    assert len(table.runs) == 12
    assert len(Forecaster(table).held_out()) == 12
    journal = Path(f"{out}.runs") / PROXY_JOURNAL
    lines = journal.read_text().splitlines()
    first_run = json.loads(lines[0])
    first_run["rows"]["accuracy"] = 0.123
    journal.write_text("\n".join([json.dumps(first_run), *lines[1:]]) + "\n")
    answer("proxy", "forecast", spec, *words)
    assert ProxyTable.load(out).runs[0].accuracy == 0.123  # not trained again


@pytest.mark.slow
def test_own_data_are_a_proxy_and_weights_vary(tmp_path):
    spec = tmp_path / "spec.yaml"
    out = tmp_path / "proxy.json"
    spec.write_text(TEXT)
    data = load("digits")
    np.savez(tmp_path / "own.npz", x=data.train_x.numpy(), y=data.train_y.numpy())
    words = ("proxy", "forecast", spec, "--runs=12", "--share=0.1", "-o", out)
    answer(*words, "--data", tmp_path / "own.npz")
    table = ProxyTable.load(out)
    assert table.dataset != "digits"
    ratios = [run.plan.weights[0] / run.coverage.clients[0] for run in table.runs]
    assert min(ratios) < 0.6
    assert max(ratios) == pytest.approx(1, abs=0.05)
    np.savez(
        tmp_path / "own.npz", x=data.train_x.numpy()[1:], y=data.train_y.numpy()[1:]
    )
    again = privplan(*words, "--data", tmp_path / "own.npz")
    assert "must not hold results of other settings" in again.stderr


SPEC = preset("digits")
SMALL = ["--dataset", "digits", "--rounds", "2", "--clients", "12"]


def pilot_of(tmp_path, **changes):
    (tmp_path / "spec.yaml").write_text(SPEC)
    pilot = Pilot(Spec.load(tmp_path / "spec.yaml"), "digits", rounds=2, clients=12)
    return replace(pilot, **changes)


def test_updates_that_are_seen_make_the_engine_s_step(tmp_path):
    setting, seen = pilot_experiment(pilot_of(tmp_path))
    begun = initial_state(setting)
    after = run_round(setting, begun, MemoryLedger(setting.algorithm.plan.digest))
    updates = torch.cat(list(chain.from_iterable(seen.values())))
    assert_close(after.theta - begun.theta, updates.mean(0), atol=1e-6, rtol=1e-4)


def test_groups_that_hold_other_classes_differ(tmp_path):
    """The intervals of h are apart, and one of groups alike reaches down to 0."""
    pilot = pilot_of(tmp_path, clients=60)
    alike = run(pilot).heterogeneity
    strict = pilot.spec.groups[0].name
    different = run(replace(pilot, partition=f"by-class:{strict}=0,8,9")).heterogeneity
    assert alike.low == 0
    assert different.low > alike.high


def test_command_writes_a_spec_that_solve_accepts(tmp_path):
    source = tmp_path / "spec.yaml"
    target = tmp_path / "out.yaml"
    source.write_text(SPEC)
    done = privplan("proxy", "pilot", source, *SMALL, "-o", target)
    assert "nothing here is private" in done.stderr
    text = target.read_text()
    for line in SPEC.splitlines():
        assert not line.startswith("#") or line in text
    spec = Spec.load(target)
    assert spec.planning.update_norms
    assert solve(spec).groups
    assert answer("proxy", "pilot", source, *SMALL) == text
    assert source.read_text() == SPEC


# Client i minimises (theta - c_i)' A (theta - c_i) / 2 with A diagonal: its gradient is
# A (theta - c_i), the largest curvature is max A, the mean one tr A / d, and gradients
# of clients with scattered c_i scatter by A times that. Bounds are five standard errors
# wide.
CURVATURES = torch.tensor([4.0, 1.0, 0.5, 0.25, 0.25], dtype=torch.float64)
SIZE = len(CURVATURES)


def drawn(*shape, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def near(estimate, truth):
    return estimate.error > 0 and abs(estimate.value - truth) <= 5 * estimate.error


def quadratic(theta):
    return CURVATURES * (theta - 1)


def test_largest_curvature_of_a_quadratic_whatever_the_step():
    for radius in (1e-3, 10.0):
        estimate = estimators.largest_curvature(
            quadratic, torch.zeros(SIZE), drawn(SIZE), radius
        )
        assert estimate == pytest.approx(4.0, rel=1e-6)


def test_mean_curvature_is_the_trace_over_the_dimension():
    directions = list(drawn(400, SIZE))
    estimate = estimators.mean_curvature(quadratic, torch.zeros(SIZE), directions, 0.5)
    assert near(estimate, float(CURVATURES.sum()) / SIZE)
    along = [torch.eye(SIZE, dtype=torch.float64)[0]] * 2
    estimate = estimators.mean_curvature(quadratic, torch.zeros(SIZE), along, 0.5)
    assert estimate.value == pytest.approx(4.0)


def test_local_variance_of_known_gradient_noise():
    zeta = 0.3
    clients = 2000
    mean = quadratic(drawn(clients, SIZE, seed=1))
    pair = [mean + zeta * drawn(clients, SIZE, seed=seed) for seed in (2, 3)]
    estimate = estimators.local_variance(*pair)
    assert near(estimate, zeta**2)
    assert estimate.error < 0.05 * zeta**2


def test_dissimilarity_of_scattered_optima():
    scatter = 0.7
    optima = scatter * drawn(2000, SIZE)
    estimate = estimators.dissimilarity(quadratic(torch.ones(SIZE) - optima))
    assert near(estimate, scatter**2 * float((CURVATURES**2).sum()))


def grouped(means, per_group, seed):
    owners = np.repeat(np.arange(len(means)), per_group)
    return means[owners] + drawn(len(owners), means.shape[1], seed=seed), owners


def test_heterogeneity_does_not_count_the_scatter_of_clients():
    """h^2 by the formula, far below the squared scatter d of single clients."""
    means = 0.2 * drawn(3, 40, seed=5)
    shares = np.array([0.5, 0.3, 0.2])
    weighted = torch.tensor(shares) @ means
    truth = float((torch.tensor(shares) * ((means - weighted) ** 2).sum(1)).sum())
    estimate = estimators.heterogeneity(*grouped(means, 40, 6), shares)
    assert near(estimate, truth)
    many = [
        estimators.heterogeneity(*grouped(means, 10, seed), shares)
        for seed in range(200)
    ]
    average = estimators.mean_of(np.array([estimate.value for estimate in many]))
    assert near(average, truth)
    # The jackknife's error agrees with the scatter of 200 repetitions.
    spread = average.error * math.sqrt(200)
    squares = [estimate.error**2 for estimate in many]
    typical = math.sqrt(float(np.mean(squares)))
    assert 0.8 * spread < typical < 1.4 * spread
