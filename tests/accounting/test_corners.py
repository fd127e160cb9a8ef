"""Odd questions are answered, or refused in one line."""

import numpy as np
import pytest

import privplan
from privplan.accounting.pld.profile import gaussian_epsilon


@pytest.mark.parametrize("noise", [1.0001e4, 3e4, 1e6, 1e12])
def test_random_allocation_with_very_much_noise_is_at_most_its_known_round(noise):
    rows = privplan.account(
        noise_multiplier=noise,
        rounds=100,
        delta=1e-6,
        sampling="random_allocation:100",
        accountants=["pld"],
    )
    known_round = gaussian_epsilon(1 / noise, 1e-6)[1]
    assert rows.epsilon == pytest.approx(known_round, rel=1e-6)


def test_a_million_rounds_of_allocation_with_little_noise_are_answered():
    rows = privplan.account(
        noise_multiplier=0.05,
        rounds=10**6,
        delta=1e-6,
        sampling="random_allocation:2",
        accountants=["pld"],
    )
    assert 0 < rows[0].epsilon_lower <= rows.epsilon < np.inf


@pytest.mark.parametrize(
    ("number", "rule"),
    [
        ("noise_multiplier", r"noise_multiplier: must be in \[1e-30, 1e\+40\]"),
        ("rounds", "rounds: must be a whole number in"),
        ("sampling_ratio", r"sampling_ratio: must be in \[1e-30, 1\]"),
        ("clients", r"clients: must be at most 1e\+40"),
    ],
)
def test_a_whole_number_beyond_floats_is_refused(number, rule):
    numbers = {
        "noise_multiplier": 2.0,
        "sampling_ratio": 0.01,
        "rounds": 100,
        "clients": 1000,
    }
    with pytest.raises(privplan.PrivplanError, match=rule):
        privplan.account(**(numbers | {number: 10**400}))


@pytest.mark.parametrize(
    ("sampling", "rounds", "noise"),
    [("capped_poisson:3", 10, 0.04), ("random_allocation:100", 100, 4e-4)],
)
def test_too_little_noise_fails_no_array(sampling, rounds, noise):
    """What pld cannot certify is infinite in its place, under every law."""
    ratio = {} if "allocation" in sampling else {"sampling_ratio": 0.1}
    bounds = privplan.account(
        noise_multiplier=[1.0, noise],
        rounds=rounds,
        delta=1e-6,
        sampling=sampling,
        **ratio,
    )
    assert np.isfinite(bounds.upper[0])
    assert bounds.upper[1] > 1e4


def test_a_count_beside_training_of_persons_moves_by_their_clients():
    law = privplan.SamplingLaw("full").of_person(3)
    count = privplan.Release(30.0, 1.0, law, "laplace")
    alone = privplan.Release(10.0, 1.0, "full", "laplace")
    of_person = privplan.compose([(count, 4)]).epsilon(1e-6)
    of_client = privplan.compose([(alone, 4)]).epsilon(1e-6)
    assert of_person.upper == pytest.approx(of_client.upper, rel=1e-9)


@pytest.mark.parametrize("family", ["laplace", "discrete_laplace"])
def test_whoever_is_replaced_moves_a_count_by_one(family):
    history = privplan.History([(privplan.Release(5.0, 1.0, "full", family), 4)])
    removed, replaced = (
        privplan.compose(history, relation).epsilon(1e-6).upper
        for relation in ("add_remove", "replace_one")
    )
    assert replaced == removed
