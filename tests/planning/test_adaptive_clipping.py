"""Quantile clipping: what sum and count cost, and how a plan divides its noise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privplan.accounting.pld.accountant import PldAccountant
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import InputError
from privplan.plan import Clipping, Plan
from privplan.planning.adaptive_clipping import split_noise, update_noise
from privplan.planning.baselines import (
    individual_sample,
    individual_scale,
    median_clipped,
    published,
    strictest,
    uniform,
)
from privplan.planning.solver import solve
from tests.planning.problems import make_spec

multipliers = st.floats(0.3, 50)
shares = st.floats(1e-3, 0.9)


@given(multipliers, shares)
def test_the_pair_costs_what_it_was_given_and_never_more(noise, share):
    update, count = split_noise(noise, share)
    assert noise <= 1 / math.hypot(1 / update, 1 / (2 * count)) <= noise * (1 + 1e-8)
    assert update**-2 + (2 * count) ** -2 == pytest.approx(noise**-2, rel=1e-8)
    assert (2 * count) ** -2 / noise**-2 == pytest.approx(share, rel=1e-8)


@given(multipliers, shares)
def test_the_formula_of_andrew_et_al(noise, share):
    update, count = split_noise(noise, share)
    assert update_noise(noise, count) == pytest.approx(update, rel=1e-6)


def test_a_count_that_costs_everything_leaves_no_sum():
    with pytest.raises(InputError, match="half the noise multiplier"):
        update_noise(1.0, 0.5)


def pair_delta(update, count, ratio, epsilon, add):
    """Hockey-stick divergence of one Poisson round of sum and count, by integration.

    A client who takes part moves the sum by 1 and the count by 1/2, at once or not at
    all.
    """
    x = np.linspace(-9 * update, 1 + 9 * update, 3001)
    y = np.linspace(-9 * count, 0.5 + 9 * count, 1201)
    cell = (x[1] - x[0]) * (y[1] - y[0]) / (2 * math.pi * update * count)

    def density(shift_x, shift_y):
        density_of_update = np.exp(-(((x - shift_x) / update) ** 2) / 2)
        density_of_count = np.exp(-(((y - shift_y) / count) ** 2) / 2)
        return np.outer(density_of_update, density_of_count) * cell

    without = density(0.0, 0.0)
    mixed = (1 - ratio) * without + ratio * density(1.0, 0.5)
    if add:
        upper = without
        lower = mixed
    else:
        upper = mixed
        lower = without
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0).sum())


@pytest.mark.parametrize(
    ("noise", "share", "ratio"), [(0.8, 0.1, 0.2), (1.5, 0.4, 0.05)]
)
def test_one_round_of_the_pair_is_one_gaussian_by_integration(noise, share, ratio):
    """delta at the epsilon that the accountant gives for one sum, both directions."""
    update, count = split_noise(noise, share)
    delta = 1e-3
    history = History.repeated(Release(noise, ratio, SamplingLaw.POISSON), 1)
    bounds = PldAccountant().epsilon(history, delta, Relation.ADD_REMOVE)
    for epsilon in (bounds.lower, bounds.upper):
        deltas = [
            pair_delta(update, count, ratio, epsilon, add) for add in (False, True)
        ]
        assert max(deltas) == pytest.approx(delta, rel=2e-3)


def clipped_spec(**clipping):
    return make_spec(
        planning={"accountant": "rdp", "ratios": "balanced", "clipping": clipping}
    )


def test_every_group_of_a_plan_faces_its_own_noise_multiplier():
    plan = solve(clipped_spec(share=0.1, quantile=0.7))
    assert plan.clipping.quantile == 0.7
    for group in plan.groups:
        update = plan.clipping.update_noise_multiplier / group.scale
        count = plan.clipping.count_noise_multiplier / group.scale
        noise_multiplier = 1 / math.hypot(1 / update, 1 / (2 * count))
        assert noise_multiplier == pytest.approx(group.noise_multiplier, rel=1e-6)
    mean = sum(group.scale * group.expected_cohort for group in plan.groups)
    std = plan.spec.clipping_norm * plan.clipping.update_noise_multiplier / mean
    assert plan.mean_noise_std == pytest.approx(std, rel=1e-6)


def test_counting_costs_its_share_of_the_variance_and_no_epsilon():
    plain = solve(make_spec(planning={"accountant": "rdp", "ratios": "noise"}))
    planning = {"accountant": "rdp", "ratios": "noise", "clipping": {"share": 0.19}}
    counted = solve(make_spec(planning=planning))
    assert counted.mean_noise_std == pytest.approx(plain.mean_noise_std / 0.9, rel=1e-4)
    for row, counted_row in zip(plain.certificate, counted.certificate, strict=True):
        assert row.epsilon_upper == pytest.approx(counted_row.epsilon_upper, rel=1e-3)


@pytest.mark.parametrize(
    "variant", [uniform, strictest, published, individual_scale, individual_sample]
)
def test_methods_of_papers_pay_for_the_count_out_of_the_same_budgets(variant):
    """Each group faces its noise multiplier in sum and count, as without the count."""
    plan = variant(clipped_spec(share=0.19))
    plain = variant(make_spec(planning={"accountant": "rdp"}))
    assert plan.clipping is not None
    assert plain.clipping is None
    ratio = plan.clipping.update_noise_multiplier / plan.clipping.count_noise_multiplier
    for group, plain_group in zip(plan.groups, plain.groups, strict=True):
        assert group.noise_multiplier == pytest.approx(
            plain_group.noise_multiplier, rel=1e-9
        )
        std = group.noise_multiplier * plan.clip_bound(group)
        # The most that a client adds to the sum, in units of the clipping norm.
        client_norm = plan.clip_factor(group)
        update = std / client_norm
        count = std / ratio / client_norm
        assert 1 / math.hypot(1 / update, 1 / (2 * count)) == pytest.approx(
            group.noise_multiplier
        )
        assert (2 * count) ** -2 * group.noise_multiplier**2 == pytest.approx(
            0.19, rel=1e-6
        )
    assert plan.mean_noise_std == pytest.approx(plain.mean_noise_std / 0.9, rel=1e-6)
    for row, plain_row in zip(plan.certificate, plain.certificate, strict=True):
        assert row.epsilon_upper == pytest.approx(plain_row.epsilon_upper, rel=1e-9)


def test_a_median_that_a_paper_does_not_pay_for_is_paid():
    make = median_clipped(strictest)
    assert make(make_spec(planning={"accountant": "rdp"})).clipping.quantile == 0.5
    assert make(clipped_spec(quantile=0.8)).clipping.quantile == 0.8


def test_a_plan_whose_count_overspends_is_refused():
    plan = solve(clipped_spec())
    half = {"count_noise_multiplier": plan.clipping.count_noise_multiplier / 2}
    overspent = plan.clipping.model_dump() | half
    with pytest.raises(InputError, match="must leave each group its noise multiplier"):
        Plan(**{**dict(plan), "clipping": Clipping(**overspent)})
