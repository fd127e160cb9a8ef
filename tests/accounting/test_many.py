"""``privplan.account`` with arrays: each distinct question once, by ``pld``."""

import numpy as np
import pytest

import privplan
from privplan.accounting.pld.accountant import PldAccountant
from privplan.accounting.pld.profile import gaussian_epsilon


def random_questions(count, seed):
    rng = np.random.default_rng(seed)

    def log_uniform(low, high):
        return np.exp(rng.uniform(np.log(low), np.log(high), count))

    return {
        "noise_multiplier": log_uniform(0.5, 20),
        "sampling_ratio": log_uniform(1e-4, 0.9),
        "rounds": np.round(log_uniform(1, 1e4)),
        "delta": log_uniform(1e-10, 1e-3),
    }


@pytest.mark.parametrize(
    ("law", "relation"),
    [
        ("poisson", "add_remove"),
        ("poisson", "replace_one"),
        ("fixed_size", "add_remove"),
        ("cyclic_poisson:5", "zero_out"),
    ],
)
def test_bounds_enclose_those_of_each_question_alone(law, relation):
    sampling = privplan.SamplingLaw(law)
    questions = random_questions(8, seed=5)
    questions["rounds"] = sampling.law.rounds_for(questions["rounds"])
    bounds = privplan.account(sampling=law, relation=relation, **questions)
    assert bounds.cell == f"{law} sampling, {relation}, accountant pld"
    for index, numbers in enumerate(zip(*questions.values(), strict=True)):
        noise, ratio, rounds, delta = map(float, numbers)
        history = privplan.History.repeated(
            privplan.Release(noise, ratio, sampling),
            sampling.law.rounds_of_client(int(rounds)),
        )
        alone = PldAccountant().epsilon(history, delta, privplan.Relation(relation))
        assert bounds.lower[index] <= alone.upper
        assert alone.lower <= bounds.upper[index] <= 1.01 * alone.upper + 1e-12


def test_shapes_are_those_of_the_arrays():
    noise = np.array([[1.0, 2.0], [5.0, 4.0]])
    bounds = privplan.account(
        noise_multiplier=noise, rounds=[9, 16], delta=1e-6, sampling="full"
    )
    assert bounds.epsilon.shape == (2, 2)
    # Nine rounds at noise 1 are one Gaussian mechanism with mu = 3.
    closed_form = gaussian_epsilon(3.0, 1e-6)[1]
    assert bounds.upper[0, 0] == pytest.approx(closed_form, rel=1e-9)


def test_too_little_noise_is_infinite_in_its_place_only():
    bounds = privplan.account(
        noise_multiplier=[1.0, 0.04], sampling_ratio=0.01, rounds=9, delta=1e-6
    )
    assert np.isfinite(bounds.upper).tolist() == [True, False]
    assert bounds.lower[1] == 0


def test_a_delta_that_covers_every_participation_costs_nothing():
    bounds = privplan.account(
        noise_multiplier=[9, 20], sampling_ratio=1e-9, rounds=9, delta=1e-6
    )
    assert not bounds.upper.any()


def test_a_question_that_comes_again_is_asked_once(monkeypatch):
    questions = []
    bounds_of = PldAccountant.epsilon

    def counted(self, history, delta, relation):
        questions.append(history)
        return bounds_of(self, history, delta, relation)

    monkeypatch.setattr(PldAccountant, "epsilon", counted)
    bounds = privplan.account(
        noise_multiplier=[1.0, 2.0] * 10, sampling_ratio=0.01, rounds=9, delta=1e-6
    )
    assert len(questions) == 2
    assert len(set(bounds.upper.tolist())) == 2


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_processes_answer_as_one_does_and_tell_how_far_they_are(workers):
    numbers = {
        "noise_multiplier": [1.0, 1.5, 2.0],
        "sampling_ratio": 0.01,
        "rounds": 9,
        "delta": 1e-6,
    }
    reports = []
    spread = privplan.account(
        **numbers,
        workers=workers,
        progress=lambda done, total: reports.append((done, total)),
    )
    alone = privplan.account(**numbers)
    assert spread.upper.tolist() == alone.upper.tolist()
    assert spread.lower.tolist() == alone.lower.tolist()
    assert reports == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ({"tolerance": 0.2}, "tolerance: must be in"),
        ({"tolerance": "close"}, "tolerance: must be in"),
        ({"workers": 0}, "workers: must be a whole number"),
        ({"delta": [0.1, 0.2, 0.3]}, "releases: must be numbers"),
        ({"rounds": []}, "releases: must be numbers"),
        ({"noise_multiplier": [1, -1]}, "noise_multiplier: must be in"),
    ],
)
def test_bad_input_is_one_line(option, rule):
    numbers = {
        "noise_multiplier": [1.0, 2.0],
        "sampling_ratio": 0.1,
        "rounds": 5,
        "delta": 1e-6,
    }
    with pytest.raises(privplan.PrivplanError, match=rule):
        privplan.account(**(numbers | option))


@pytest.mark.slow
def test_a_thousand_questions_have_close_bounds():
    """Some differ where delta is next to the total variation: epsilon is nearly 0."""
    bounds = privplan.account(**random_questions(1_000, seed=0), workers=2)
    assert np.isfinite(bounds.upper).all()
    assert (bounds.upper * 0.99 <= bounds.lower).mean() > 0.995
