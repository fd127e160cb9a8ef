"""Correlated noise under separation and random allocation: the privacy of releases.

Sums of scalars; C is the lower triangular matrix of the law's factors, and a client
that takes part moves C x by the columns of its rounds.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.random import default_rng

import privplan
from privplan.accounting.accountant import accountant
from privplan.accounting.composition import composition
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.errors import InputError
from privplan.laws.rank_one import noise_of_models
from tests.laws.test_laws import matrix
from tests.laws.test_random_allocation import spec

SEPARATION = "banded_separation:3"
ALLOCATION = "cyclic_allocation:3:2"


def moved(name, rounds):
    """C, whose columns are the moves of a client by its rounds."""
    return matrix(SamplingLaw(name).law, 0.5, rounds)


def test_a_client_moves_the_releases_by_the_counted_rounds_at_most():
    """All 2^11 sets of rounds that are 3 apart, with either sign of each update."""
    moves = moved(SEPARATION, 11)
    law = SamplingLaw(SEPARATION).law
    for size in range(1, 5):
        for client_rounds in itertools.combinations(range(11), size):
            if min([3, *np.diff(client_rounds)]) >= 3:
                assert (
                    law.most_of_client([index + 1 for index in client_rounds]) == size
                )
                for signs in ((1.0,) * size, (1.0, -1.0) * 2):
                    squares = np.sum(
                        (moves[:, client_rounds] @ np.array(signs[:size])) ** 2
                    )
                    assert squares <= size <= law.rounds_of_client(11) == 4
    assert (
        composition(8.0, None, 12, sampling=SEPARATION, delta=1e-5).history.rounds == 4
    )


def simulated_losses(rounds, sigma, samples):
    """Privacy losses of a client that is removed, and of one that is added.

    In each of the two blocks the client takes one of its two rounds at random.
    """
    moves = moved(ALLOCATION, rounds)
    generator = default_rng(7)
    choices = itertools.product((0, 3), (6, 9))
    means = np.array([moves[:, choice].sum(axis=1) for choice in choices])
    noise = sigma * generator.standard_normal((samples, rounds))

    def loss(y):
        terms = (y @ means.T - 0.5 * np.sum(means**2, axis=1)) / sigma**2
        return np.log(np.exp(terms).mean(axis=1))

    client_choice = generator.integers(len(means), size=samples)
    return loss(means[client_choice] + noise), -loss(noise)


def test_the_choices_of_a_client_cost_what_those_of_random_allocation_do():
    """Simulated losses of 12 rounds, of which the first turn has 1, 4, 7 and 10."""
    rounds = 12
    sigma = 0.9
    samples = 400_000
    losses_by_direction = simulated_losses(rounds, sigma, samples)
    history = composition(sigma, None, rounds, sampling=ALLOCATION, delta=1e-5).history
    assert list(history) == [(Release(sigma, 1.0, ALLOCATION), 2)]
    for epsilon in (0.3, 1.0, 2.0):
        deltas = [
            np.maximum(0, -np.expm1(epsilon - losses)) for losses in losses_by_direction
        ]
        worst = max(deltas, key=lambda excess: float(excess.mean()))
        slack = 5 * float(worst.std()) / math.sqrt(samples)
        bounds = privplan.compose(history, relation="add_remove").delta(epsilon)
        assert bounds.lower - slack <= worst.mean() <= bounds.upper + slack
        assert slack < 0.1 * bounds.upper


def test_less_noise_is_needed_than_for_poisson_sampling_of_the_same_cohorts():
    pld = accountant("pld")
    cost = {}
    for name, ratio in (("cyclic_allocation:5:10", 1.0), ("cyclic_poisson:5", 0.1)):
        history = composition(1.2, ratio, 50, sampling=name, delta=1e-5).history
        cost[name] = pld.epsilon(history, 1e-5, "add_remove")
    block = History.repeated(Release(1.2, 1.0, "random_allocation:10"), 1)
    assert cost["cyclic_allocation:5:10"] == pld.epsilon(block, 1e-5, "add_remove")
    assert cost["cyclic_allocation:5:10"].upper < 0.9 * cost["cyclic_poisson:5"].lower


@pytest.mark.parametrize("turns", ["5:10", "10:5", "25:2"])
def test_a_wish_for_the_last_model_moves_noise_to_the_others(turns):
    """At the same price: a column of C is as long as an update at most."""
    plain = f"cyclic_allocation:{turns}"
    noise = []
    for name in (plain, f"{plain}:35", f"{plain}:100"):
        law = SamplingLaw(name).law
        assert law.name == name
        assert law.single == SamplingLaw(plain).law.single
        c = moved(name, 50)
        assert np.linalg.norm(c, axis=0).max() <= 1 + 1e-12
        noise.append(noise_of_models(c, 0.5))
        assert noise[-1].last_model == pytest.approx(law.noise_left(0.5, 50), rel=1e-9)
    last_models = [of_law.last_model for of_law in noise]
    all_models = [of_law.all_models for of_law in noise]
    assert last_models == sorted(last_models, reverse=True)
    assert all_models == sorted(all_models)
    assert last_models[1] < 0.995 * last_models[0]


def test_evidence_of_choices_within_turns():
    law = SamplingLaw(ALLOCATION).law
    clients, seats = law.seated("g", range(80))
    assert [law.turn("g", seat) for seat in seats] == np.repeat(
        range(3), clients.parts
    ).tolist()
    drawn = {
        t: law.draw(default_rng(law.stream_round(t)), clients, 1.0, t).tolist()
        for t in range(1, 13)
    }
    for first_round in (1, 2, 3, 7, 8, 9):
        turn_clients = sorted(drawn[first_round] + drawn[first_round + 3])
        assert turn_clients == list(law.places(first_round, clients))
    assert not list(law.attendance_faults(drawn, clients))
    assert not list(law.cohort_faults([*map(len, drawn.values())], clients, 1.0, 1e-6))
    twice = {**drawn, 5: [*drawn[5], drawn[2][0]]}
    assert list(law.attendance_faults(twice, clients)) == [
        f"client {drawn[2][0]} is in 2 of the cohorts of rounds 2 to 5, not in one"
    ]
    assert law.most_of_client([1, 4, 7, 2, 5, 8, 11]) == 2
    assert law.participations({1.0: 6}).tolist() == [0, 1]
    assert law.participations({1.0: 2}) == pytest.approx([2 / 3, 1 / 3])
    # After four rounds one turn of three has a whole block, and two have half of one.
    assert law.participations({1.0: 4}) == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.parametrize("name", [SEPARATION, ALLOCATION])
def test_what_a_spec_may_not_ask_for(name):
    with pytest.raises(InputError) as raised:
        spec(sampling=name, rounds=12, planning={"accountant": "rdp"}, cohort=10)
    fields = [fault.field for fault in raised.value.faults]
    assert sorted(fields) == ["cohort", "planning.accountant"]
    law = SamplingLaw(name).law
    for use in ("plain sums", "secure-discrete", "canaries", "a guard", "attacks"):
        assert law.excludes_use(use)


def test_neither_rounds_nor_cohorts_are_chosen_under_cyclic_allocation():
    """It excludes what random allocation does, where turns alone leave the cohort."""
    law = SamplingLaw("cyclic_allocation:4:2").law
    rule = law.excludes_use("solve_for rounds")
    assert rule == "must be epsilon under cyclic_allocation:4:2 sampling"
