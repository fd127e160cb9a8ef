"""Calibration: never overspends, precise, infeasible in one line; published numbers."""

import itertools
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import calibrate, least_certified, noise_multiplier
from privplan.accounting.composition import calibrated_composition
from privplan.accounting.gdp import epsilon_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import (
    InfeasibleError,
    InputError,
    TooLittleNoiseError,
    UnsupportedError,
)

FMNIST = 6000**-1.1
RDP = accountant("rdp")
PLD = accountant("pld")
QUICK = ("poisson", "add_remove")  # its certificates take a tenth of the others' time


def spent(sigma, q, rounds, delta, law="poisson", relation="add_remove", engine=RDP):
    history = History.repeated(Release(sigma, q, SamplingLaw(law)), rounds)
    return engine.epsilon(history, delta, Relation(relation)).upper


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.1, 20),
    st.floats(-12, -2),
    st.floats(-4, 0),
    st.integers(1, 10**5),
    st.sampled_from(["poisson", "fixed_size"]),
    st.sampled_from(list(Relation)),
)
@example(0.1, -10.5, -3.375, 1110, "poisson", Relation.REPLACE_ONE)
def test_noise_is_safe_and_precise(epsilon, log_delta, log_q, rounds, law, relation):
    """Within 1e-4 of the least noise, or within 2e-4 of the budget at small ratios."""
    q = 10**log_q
    delta = 10**log_delta
    cell = {"sampling": law, "relation": relation}
    try:
        sigma = noise_multiplier(
            epsilon, delta, sampling_ratio=q, rounds=rounds, accountant="rdp", **cell
        )
    except InfeasibleError:
        assert spent(1e4, q, rounds, delta, law, relation) > epsilon
        return
    assert spent(sigma, q, rounds, delta, law, relation) <= epsilon
    is_close_in_epsilon = (
        q < 1e-3
        and spent(sigma, q, rounds, delta, law, relation) >= (1 - 2.01e-4) * epsilon
    )
    if sigma > 0.0101 and not is_close_in_epsilon:
        assert spent(sigma * (1 - 1.01e-4), q, rounds, delta, law, relation) > epsilon


def test_the_other_parameters_have_the_same_boundary():
    sigma = noise_multiplier(
        0.5, FMNIST, sampling_ratio=0.02, rounds=50, accountant="rdp"
    )
    keep = {"accountant": "rdp", "noise_multiplier": sigma}
    q = calibrate("sampling_ratio", 0.5, FMNIST, rounds=50, **keep)
    assert q == pytest.approx(0.02, rel=3e-4)
    assert spent(sigma, q, 50, FMNIST) <= 0.5
    assert calibrate("rounds", 0.5, FMNIST, sampling_ratio=0.02, **keep) == 50
    assert calibrate("cohort", 0.5, FMNIST, clients=6000, rounds=50, **keep) == 120
    delta = calibrate("delta", 0.5, sampling_ratio=0.02, rounds=50, **keep)
    assert delta == pytest.approx(FMNIST, rel=5e-3)
    assert spent(sigma, 0.02, 50, delta) <= 0.5


def test_a_delta_of_the_default_accountant_is_safe_and_precise():
    delta = calibrate(
        "delta", 0.37, noise_multiplier=1.5, sampling_ratio=0.02, rounds=50
    )
    assert spent(1.5, 0.02, 50, delta, engine=PLD) <= 0.37
    assert spent(1.5, 0.02, 50, delta * (1 - 3e-3), engine=PLD) > 0.37


def test_no_ratio_is_asked_for_where_everybody_takes_part():
    sigma, _ = calibrated_composition(
        "noise_multiplier", 1, accountant="pld", delta=1e-5, rounds=10, sampling="full"
    )
    assert epsilon_of(math.sqrt(10) / sigma, 1e-5) == pytest.approx(1, rel=2e-4)


def test_a_population_has_clients():
    everybody = {"rounds": 10, "sampling": "full", "clients": 0, "delta": 1e-5}
    with pytest.raises(InputError, match="clients: must be 1 or more"):
        calibrated_composition("noise_multiplier", 1, accountant="pld", **everybody)


def test_whole_answers_are_the_largest():
    keep = {"accountant": "rdp", "noise_multiplier": 1.2, "relation": "replace_one"}
    rounds = calibrate("rounds", 2.0, 1e-5, sampling_ratio=0.01, **keep)
    assert spent(1.2, 0.01, rounds, 1e-5, relation="replace_one") <= 2.0
    assert spent(1.2, 0.01, rounds + 1, 1e-5, relation="replace_one") > 2.0
    cohort = calibrate(
        "cohort", 6.0, 1e-5, clients=1000, rounds=40, sampling="fixed_size", **keep
    )
    assert spent(1.2, cohort / 1000, 40, 1e-5, "fixed_size", "replace_one") <= 6.0
    assert spent(1.2, (cohort + 1) / 1000, 40, 1e-5, "fixed_size", "replace_one") > 6.0


def laws_and_relations():
    """All but the quick one marked as slow."""
    for law, relation in itertools.product(("poisson", "fixed_size"), Relation):
        marks = () if (law, relation) == QUICK else pytest.mark.slow
        yield pytest.param(law, relation, marks=marks)


@pytest.mark.parametrize(("law", "relation"), list(laws_and_relations()))
def test_a_budget_beyond_what_pld_certifies_gets_the_least_noise(law, relation):
    keep = {"sampling_ratio": 0.04, "rounds": 30, "sampling": law, "relation": relation}
    lowest_noise = least_certified(SamplingLaw(law), relation)
    max_epsilon = spent(lowest_noise, 0.04, 30, 1e-5, law, relation, PLD)
    for epsilon in (1.001 * max_epsilon, 3000, 1e9):
        assert noise_multiplier(epsilon, 1e-5, **keep) == lowest_noise
    with pytest.raises(TooLittleNoiseError):
        spent(0.999 * lowest_noise, 0.04, 30, 1e-5, law, relation, PLD)
    assert noise_multiplier(0.99 * max_epsilon, 1e-5, **keep) > lowest_noise


@pytest.mark.parametrize(
    "epsilon", [pytest.param(2e-6, marks=pytest.mark.slow), 1e-4, 500]
)
def test_extreme_budgets_are_met_or_refused(epsilon):
    sigma = noise_multiplier(epsilon, 1e-3, sampling_ratio=0.01, rounds=1000)
    assert spent(sigma, 0.01, 1000, 1e-3, engine=PLD) <= epsilon
    assert spent(sigma * (1 - 2e-4), 0.01, 1000, 1e-3, engine=PLD) > epsilon


def test_a_budget_below_a_millionth_is_refused():
    rule = r"^epsilon: must be 1e-06 or more to solve for noise_m"
    with pytest.raises(InputError, match=rule):
        noise_multiplier(1e-9, 1e-3, sampling_ratio=0.01, rounds=1000)


def test_a_relation_without_a_name_is_refused():
    with pytest.raises(InputError, match=r"^relation: must be one of add_remove"):
        PLD.epsilon(History([(Release(1.0, 0.1), 1)]), 1e-5, "other")


@pytest.mark.parametrize("noise", [4, 5, 6, 20])
def test_rounds_of_full_participation_are_those_of_the_closed_form(noise):
    def delta(rounds):
        # Of one Gaussian mechanism at epsilon 1 (Balle and Wang 2018, Theorem 8).
        mu = math.sqrt(rounds) / noise
        return norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu)

    rounds = calibrate(
        "rounds",
        1.0,
        6.98e-5,
        noise_multiplier=noise,
        sampling_ratio=1.0,
        sampling="full",
    )
    assert delta(rounds) <= 6.98e-5 < delta(rounds + 1)


def test_too_little_noise_is_refused_in_the_unit_of_the_rule():
    """0.05 times a distance of 1, and of 2 under fixed-size sampling."""
    for law, distances in (("poisson", "0.04"), ("fixed_size", "0.02")):
        with pytest.raises(TooLittleNoiseError) as caught:
            spent(0.04, 0.1, 3, 1e-5, law, engine=PLD)
        rule = "pld needs 0.05 times the distance or more under sampling"
        assert str(caught.value) == f"noise_multiplier: {rule}, found {distances}"


def test_bad_input_names_every_field():
    with pytest.raises(InputError) as caught:
        noise_multiplier(
            -1, 2, sampling_ratio=0, rounds=0, sampling="some", relation="any"
        )
    fields = [fault.field for fault in caught.value.faults]
    assert fields == [
        "epsilon",
        "delta",
        "sampling_ratio",
        "rounds",
        "sampling",
        "relation",
    ]
    for nan in (
        {"epsilon": math.nan, "delta": 1e-5},
        {"epsilon": 1, "delta": math.nan},
    ):
        with pytest.raises(InputError):
            calibrate("rounds", **nan, noise_multiplier=1, sampling_ratio=0.1)
    with pytest.raises(UnsupportedError, match="closed_form"):
        noise_multiplier(
            1,
            1e-5,
            sampling_ratio=0.1,
            rounds=2,
            relation="replace_one",
            accountant="closed_form",
        )
