"""What an epsilon means, against randomised response and Gaussian trade-offs."""

import math

import pytest
from scipy.stats import norm

from privplan.accounting.gdp import log_delta_of
from privplan.accounting.meaning import EPSILONS, cells, meaning_of, sentence
from privplan.errors import InputError
from tests.command import answer, privplan


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomised_response_reaches_the_bound(epsilon):
    # Randomised response answers truly with probability e^eps / (1 + e^eps).
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    meaning = meaning_of(epsilon, 1e-12)
    assert meaning.right_at_most == pytest.approx(truth, rel=1e-9)
    assert meaning.right_at_most >= truth


def test_a_mechanism_that_fails_with_probability_delta():
    # With probability delta the record is published, else randomised response answers.
    epsilon = 1.0
    delta = 0.1
    truth = delta + (1 - delta) * math.e / (1 + math.e)
    assert meaning_of(epsilon, delta).right_at_most == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_gaussian_noise_is_guessed_by_the_sign_of_the_midpoint(mu):
    delta = 1e-5
    low = 0.0
    high = 50.0
    for _ in range(80):  # the epsilon of N(0, 1) against N(mu, 1) at delta
        middle = (low + high) / 2
        if log_delta_of(mu, middle) > math.log(delta):
            low = middle
        else:
            high = middle
    meaning = meaning_of(high, delta)
    assert meaning.right_under_gaussian == pytest.approx(norm.cdf(mu / 2), rel=1e-6)
    assert meaning.right_under_gaussian < meaning.right_at_most


def test_counts_are_rounded_up():
    assert cells(meaning_of(2.0, 1e-5))[1] == "88.1"  # e^2 / (1 + e^2) is 88.0797%
    assert "at most 88.1 times of 100 instead of 50" in sentence(meaning_of(2.0, 1e-5))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.1), (math.inf, 0.1), (1.0, 0.0), (1.0, 1.5)]
)
def test_what_is_no_guarantee_is_refused(epsilon, delta):
    with pytest.raises(InputError):
        meaning_of(epsilon, delta)


def test_the_command_answers_without_a_plan():
    text = answer("explain", "--epsilon", "2", "--delta", "1e-5")
    assert "right at most 88.1 times of 100 instead of 50" in text
    assert all(f"{epsilon:g}" in text for epsilon in EPSILONS)


@pytest.mark.parametrize("options", [(), ("plan.json", "--epsilon", "2")])
def test_the_command_needs_a_plan_or_an_epsilon(options):
    done = privplan("explain", *options)
    assert done.exit_code == 2
    assert "one of PLAN and --epsilon" in done.stderr
