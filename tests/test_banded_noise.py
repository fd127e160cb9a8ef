"""Correlated noise: coefficients, what the last model holds, and its privacy by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm, toeplitz

from privplan.accounting.curve import PrivacyCurve
from privplan.accounting.release import Relation, Release
from privplan.laws.cyclic import coefficients, inverse_series, remaining_noise

MOMENTA = (0.0, 0.5, 0.9)


def matrix(given_: tuple[float, ...], rounds: int) -> np.ndarray:
    column = np.zeros(rounds)
    column[: len(given_)] = given_[:rounds]
    return toeplitz(column, np.zeros(rounds))


@pytest.mark.parametrize("momentum", MOMENTA)
def test_the_square_root_of_a_server_with_momentum(momentum: float) -> None:
    prefix = np.tril(np.ones((12, 12)))
    server = prefix @ toeplitz(momentum ** np.arange(12.0), np.zeros(12))
    root = np.real(sqrtm(server))[:, 0]
    for bands in (1, 3, 7):
        expected = root[:bands] / np.linalg.norm(root[:bands])
        assert coefficients(bands, momentum) == pytest.approx(expected, rel=1e-6)


@given(bands=st.integers(1, 40), momentum=st.floats(0, 0.99), rounds=st.integers(1, 60))
def test_columns_have_norm_one_at_most(bands: int, momentum: float, rounds: int) -> None:
    columns = matrix(coefficients(bands, momentum), rounds)
    assert (np.sum(columns**2, axis=0) <= 1).all()
    for turn in range(min(bands, rounds)):  # rounds of one client: each moves other releases
        own = columns[:, turn::bands]
        assert not np.triu(own.T @ own, 1).any()


@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize("bands", [2, 5])
def test_the_noise_of_the_last_model(bands: int, momentum: float) -> None:
    rounds = 30
    inverse = np.linalg.inv(matrix(coefficients(bands, momentum), rounds))
    assert inverse_series(coefficients(bands, momentum), rounds) == pytest.approx(inverse[:, 0])
    model, velocity = np.zeros(rounds), np.zeros(rounds)
    for row in inverse:  # each entry of the vectors is the noise of one round
        velocity = momentum * velocity + (1 - momentum) * row
        model = model + velocity
    way = 0.0  # of the model where every round's sum is 1
    for t in range(rounds):
        way += 1 - momentum ** (t + 1)
    expected = np.linalg.norm(model) / way * math.sqrt(rounds)
    assert remaining_noise(bands, momentum, rounds) == pytest.approx(expected)
    assert remaining_noise(bands, momentum, rounds) < remaining_noise(1, momentum, rounds) == 1


def test_a_client_s_privacy_is_that_of_one_release_per_turn() -> None:
    """The privacy loss of the whole mechanism by Monte Carlo, against ``pld`` of T / B releases.

    Sums of scalars in T rounds; one client adds 1 in each round of its turn with probability p. Its
    patterns of participation are a mixture, and the releases C x + z are compared with C x' + z.
    """
    bands, rounds, ratio, sigma, samples = 3, 9, 0.4, 1.1, 400_000
    c = matrix(coefficients(bands, 0.5), rounds)
    generator = np.random.default_rng(5)
    taken = np.arange(0, rounds, bands)  # the first turn, whose columns are complete
    patterns = [
        [t for k, t in enumerate(taken) if number >> k & 1] for number in range(2 ** len(taken))
    ]
    chances = [ratio ** len(one) * (1 - ratio) ** (len(taken) - len(one)) for one in patterns]
    means = np.array([c[:, one].sum(axis=1) for one in patterns])
    chosen = generator.choice(len(patterns), size=samples, p=chances)
    releases = means[chosen] + sigma * generator.standard_normal((samples, rounds))

    def log_ratio(y: np.ndarray) -> np.ndarray:
        terms = (y @ means.T - 0.5 * np.sum(means**2, axis=1)) / sigma**2
        return np.log(np.exp(terms) @ np.array(chances))

    curve = PrivacyCurve(Relation.ADD_REMOVE)
    curve.step(Release(sigma, ratio, "cyclic_poisson:3"), rounds // bands)
    removed = log_ratio(releases)
    added = -log_ratio(sigma * generator.standard_normal((samples, rounds)))
    for epsilon in (0.3, 1.0, 2.0):
        deltas = [np.maximum(0, -np.expm1(epsilon - loss)) for loss in (removed, added)]
        worst = max(deltas, key=lambda one: float(one.mean()))
        bounds = curve.delta(epsilon)
        slack = 5 * float(worst.std()) / math.sqrt(samples)
        assert bounds.lower - slack <= worst.mean() <= bounds.upper + slack
        assert slack < 0.1 * bounds.upper
