"""Membership: rates by the certificate's curve, LiRA, sabotage; measures of attacks."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.random import default_rng

from privplan.accounting.tradeoff import tradeoff
from privplan.errors import InputError
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.attacks.measures import (
    CANDIDATES,
    Candidates,
    candidates,
    clopper_pearson,
    ssim,
)
from simulate.attacks.membership import (
    Membership,
    certified_curve,
    lira,
    membership,
    rates,
    scores_of_run,
)
from simulate.data.registry import load
from simulate.engine.round import positions


def members_plan(relation="add_remove", sampling="full", rounds=20):
    spec = {
        "name": "members",
        "groups": [{"name": "all", "clients": 16, "epsilon": 0.5}],
        "delta": 0.01,
        "rounds": rounds,
        "cohort": 16 if sampling == "full" else 8,
        "sampling": sampling,
        "relation": relation,
        "clipping_norm": 1.0,
        "local": {"steps": 5, "batch_size": 5, "learning_rate": 0.1},
        "model": {"name": "mlp-digits", "parameters": 2410},
    }
    return solve(Spec.parse(spec))


def _few():
    data = load("digits")
    return replace(data, train_x=data.train_x[:64], train_y=data.train_y[:64])


def _curve(epsilon):
    return tradeoff(lambda e: np.maximum(0.0, 1 - np.exp(e - epsilon)), 1e-6, epsilon)


def test_clopper_pearson_against_the_definition():
    low, high = clopper_pearson(3, 20)
    upper = sum(math.comb(20, k) * low**k * (1 - low) ** (20 - k) for k in range(3, 21))
    lower = sum(math.comb(20, k) * high**k * (1 - high) ** (20 - k) for k in range(4))
    assert upper == pytest.approx(0.025)
    assert lower == pytest.approx(0.025)
    assert clopper_pearson(0, 10)[0] == 0.0
    assert clopper_pearson(10, 10)[1] == 1.0


def test_perfect_scores_cross_a_small_epsilon_and_chance_does_not():
    source = default_rng(0)
    included = source.random(600) < 0.5
    perfect = rates(included.astype(float), included, _curve(0.5))
    assert all(line["crosses"] for line in perfect)
    assert perfect[0]["tpr"][0] == 1.0
    assert not any(
        line["crosses"] for line in rates(source.random(600), included, _curve(0.5))
    )
    trivial = tradeoff(np.zeros_like, 0.5, math.inf)  # no guarantee
    assert not any(line["crosses"] for line in rates(included * 1.0, included, trivial))


def test_lira_separates_two_gaussians_whose_means_differ_by_target():
    source = default_rng(1)
    included = source.random((65, 4)) < 0.5
    odds = source.normal(size=(65, 4)) * 0.1 + included + 10 * np.arange(4)
    ratios = lira(odds, included)
    assert (ratios[included] > 0).mean() > 0.95
    assert (ratios[~included] < 0).mean() > 0.95
    assert (lira(odds, ~included)[included] < 0).mean() > 0.95


@pytest.mark.parametrize("sampling", ["full", "poisson", "fixed_size"])
def test_absent_clients_are_never_drawn(sampling):
    attack = Membership(
        members_plan(sampling=sampling, rounds=6), "DP-FedAvg", _few(), targets=4
    )
    seen = set()
    for run in range(4):
        absent = attack._target_positions[~attack.included(run)]
        world = attack.experiment(run)
        for round_ in range(1, 7):
            [drawn] = positions(world, round_)
            assert not np.isin(absent, drawn).any()
            seen.update(drawn.tolist())
    assert seen == set(range(16))


def test_under_replace_one_the_records_of_absent_clients_are_replaced():
    attack = Membership(
        members_plan("replace_one", rounds=2), "DP-FedAvg", _few(), targets=4
    )
    world = attack.experiment(0)
    for target, coin in enumerate(attack.included(0)):
        client = int(attack._target_positions[target])
        same = np.array_equal(
            world.partition.records(client), attack._assigned.records(client)
        )
        assert same == coin


def test_a_run_has_finite_scores_and_shadows_are_enough():
    attack = Membership(members_plan(rounds=2), "DP-FedAvg", _few(), targets=4)
    assert len(attack._records(0)) == 4
    odds = scores_of_run(attack, 0)["odds"]
    assert len(odds) == 4
    assert all(map(math.isfinite, odds))
    with pytest.raises(InputError, match="shadows: must be at least 64"):
        Membership(members_plan(rounds=2), "DP-FedAvg", _few(), shadows=63)
    assert certified_curve(replace(attack, algorithm="FedAvg")).advantage == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "crosses"), [(1.0, False), (1e-6, True)])
def test_sabotaged_noise_crosses_the_certificate(factor, crosses):
    attack = Membership(
        members_plan(), "DP-FedAvg", _few(), targets=8, noise_factor=factor
    )
    scores = membership(attack)["scores"]
    lines = [*scores["loss"], *scores["lira"]]
    assert any(line["crosses"] for line in lines) == crosses


def test_ssim_of_equal_and_of_opposite_images():
    pytest.importorskip(
        "skimage", reason="scikit-image is missing: SSIM is not available"
    )
    image = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert ssim(image, image) == pytest.approx([1.0])
    assert ssim(1 - image, image)[0] < -0.5


def test_re_identification_is_by_the_nearest_of_a_thousand():
    data = load("digits")
    among = candidates(data, np.array([0, 1]), 0)
    assert len(among.images) == CANDIDATES - 1
    originals = data.train_x[:2].float() / 16
    assert among.identified(originals, originals).tolist() == [True, True]
    assert among.identified(originals[[1, 0]], originals).tolist() == [False, False]
    assert not among.identified(among.images[:2], originals).any()
    assert not Candidates(originals[:1]).identified(originals[:1], originals[:1]).any()
