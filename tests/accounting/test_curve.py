"""privplan.compose: many deltas, step by step, states, and properties of its bounds."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from privplan.accounting.curve import compose
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import InputError, PrivplanError, TooLittleNoiseError

releases = st.builds(
    Release,
    st.sampled_from([0.6, 1.0, 1.7, 4.0]),
    st.sampled_from([1e-3, 0.01, 0.2]),
    st.sampled_from([SamplingLaw.POISSON, SamplingLaw.FIXED_SIZE]),
)
histories = st.lists(st.tuples(releases, st.integers(1, 60)), min_size=1, max_size=4)
relations = st.sampled_from(list(Relation))


def meet(first, second):
    """Two intervals about the same number."""
    return first.lower <= second.upper and second.lower <= first.upper


@given(histories, relations, st.sampled_from([0.0, 0.3, 1.0, 4.0]))
@settings(max_examples=6)
def test_delta_inverts_epsilon(history, relation, epsilon):
    curve = compose(history, relation)
    delta = curve.delta(epsilon)
    assert 0 <= delta.lower <= delta.upper <= 1
    if 1e-12 < delta.upper < 1:
        assert curve.epsilon(delta.upper * (1 + 1e-9)).lower <= epsilon


def test_full_participation_is_the_gaussian_in_closed_form():
    curve = compose([(Release(2.0, 1.0, SamplingLaw.FULL), 9)])
    mu = 3 / 2
    exact = norm.cdf(mu / 2 - 1 / mu) - math.e * norm.cdf(-mu / 2 - 1 / mu)
    delta = curve.delta(1.0)
    assert delta.lower <= exact <= delta.upper
    assert curve.epsilon(exact).upper == pytest.approx(1.0, rel=1e-9)


@pytest.mark.slow
def test_ten_thousand_segments():
    curve = compose(
        [(Release(0.8 + 2e-4 * n, 1e-3 + 1e-6 * n), 1 + n % 3) for n in range(10000)]
    )
    bounds = curve.epsilon(1e-5)
    assert 0 < bounds.upper - bounds.lower <= 1e-3 * bounds.upper


def test_a_finer_tolerance_on_request_narrows_the_bounds():
    curve = compose([(Release(1.0, 0.01), 1000)])
    coarse = curve.epsilon(1e-9)
    fine = curve.epsilon(1e-9, tolerance=1e-5)
    assert fine.upper - fine.lower <= 1e-5 * fine.upper
    assert coarse.upper - coarse.lower <= 1e-3 * coarse.upper
    assert meet(coarse, fine)


def exact_epsilon(first_round, further, delta):
    """Of a client who is removed, by quadrature over all rounds but the first.

    Rounds are pairs of a noise multiplier and a sampling ratio; a few are quick.
    """
    losses = np.zeros(1)
    weights = np.ones(1)
    for sigma, q in further:
        y = np.linspace(-10, 10 + 1 / sigma, 800)
        loss = np.log1p(q * np.expm1(y / sigma - 0.5 / sigma**2))
        mass = norm.pdf(y) * np.exp(loss) * (y[1] - y[0])
        losses = np.add.outer(losses, loss).ravel()
        weights = np.multiply.outer(weights, mass).ravel()

    def excess(epsilon):
        e = epsilon - losses
        sigma, q = first_round
        inside = np.ones(len(e), bool)
        if q < 1:
            inside = e > math.log1p(-q)
        y = sigma * np.log1p(np.expm1(e[inside]) / q) + 0.5 / sigma
        above = (1 - q) * norm.sf(y) + q * norm.sf(y - 1 / sigma)
        divergences = -np.expm1(e)
        divergences[inside] = above - np.exp(e[inside]) * norm.sf(y)
        return float(weights @ divergences) - delta

    return brentq(excess, 0.0, 200.0, xtol=1e-13, rtol=1e-12)


def test_short_histories_are_exact_and_monotone():
    numbers = (0.945, 0.0003298)
    delta = 6.47e-7
    by_rounds = {}
    for rounds in range(1, 4):
        by_rounds[rounds] = compose([(Release(*numbers), rounds)]).epsilon(delta)
    assert all(a.upper <= b.lower for a, b in pairwise(by_rounds.values()))
    for rounds in (1, 2, 3):
        exact = exact_epsilon(numbers, [numbers] * (rounds - 1), delta)
        bounds = by_rounds[rounds]
        assert bounds.lower <= exact * (1 + 1e-9)
        assert exact * (1 - 1e-9) <= bounds.upper <= bounds.lower + 1e-3 * bounds.upper


@pytest.mark.parametrize(
    "tolerance", [1e-3, pytest.param(1e-4, marks=pytest.mark.slow)]
)
def test_full_participation_beside_sampling(tolerance):
    often = Release(0.25, 1.0)
    few = compose([(often, 5), (Release(1.0, 0.01), 2)], tolerance=tolerance).epsilon(
        1e-5
    )
    exact = exact_epsilon((0.25 / math.sqrt(5), 1.0), [(1.0, 0.01)] * 2, 1e-5)
    assert few.lower <= exact <= few.upper <= few.lower * (1 + 1e-3)
    many = compose(
        [(often, 5), (Release(1.0, 0.01), 1000)], tolerance=tolerance
    ).epsilon(1e-5)
    assert few.upper < many.upper
    assert many.lower <= 77.455 <= many.upper <= many.lower * (1 + 1e-3)
    delta = compose([(often, 5), (Release(1.0, 0.01), 2)]).delta(exact)
    assert delta.lower <= 1e-5 <= delta.upper <= delta.lower * (1 + 1e-3)


def log_moments(rounds, orders, direction):
    """log E[e^(s L)] of the composed loss L at complex orders s.

    The direction is that of a client who is removed, is added, or is replaced.
    """
    logs = 0.0
    for sigma, q, count in rounds:
        y = np.arange(-14 - 2 / sigma, 14 + 2 / sigma, 0.05)
        moved = np.log1p(q * np.expm1(y / sigma - 0.5 / sigma**2))
        mirrored = np.log1p(q * np.expm1(-y / sigma - 0.5 / sigma**2))
        # Outcomes have the density of the first relative to N(0, 1).
        log_density, loss = {
            "removed": (moved, moved),
            "added": (0.0, -moved),
            "replaced": (moved, moved - mirrored),
        }[direction]
        terms = (
            np.log(0.05 * norm.pdf(y)) + log_density + np.multiply.outer(orders, loss)
        )
        logs = logs + count * logsumexp(terms, axis=-1)
    return logs


def exact_delta(rounds, epsilon, directions):
    """The inverse Laplace transform of the moments of the loss, by a trapezoidal rule.

    E[(1 - e^(epsilon - L))+] is that of E[e^(s (L - epsilon))] / (s (s + 1)), over
    2 pi i, along a line where the integrand falls fast.
    """
    deltas = []
    for direction in directions:
        lines = np.geomspace(1e-2, 1e3, 100)
        exponents = log_moments(rounds, lines, direction).real - lines * epsilon
        line = lines[(exponents - np.log(lines * (1 + lines))).argmin()]
        s = line + 1j * np.arange(800) * min(line, 1.0) / 6
        moments = np.exp(log_moments(rounds, s, direction) - s * epsilon)
        terms = (moments / (s * (s + 1))).real
        deltas.append((terms.sum() - terms[0] / 2) * s[1].imag / math.pi)
    return max(deltas)


@pytest.mark.parametrize(
    ("rounds", "epsilon", "relation"),
    [
        ([(2.51, 0.623, 22), (16.8, 0.0049, 1)], 4.4, "replace_one"),
        ([(3.6, 1.0, 11), (7.3, 0.125, 17)], 1.68, "add_remove"),
        ([(0.84, 1.0, 6), (1.62, 1.0, 2), (1.92, 0.0149, 1)], 25.0, "add_remove"),
        ([(1.3, 0.2, 30)], 5.0, "add_remove"),
    ],
)
def test_deltas_of_short_histories_are_exact(rounds, epsilon, relation):
    directions = ("replaced",) if relation == "replace_one" else ("removed", "added")
    exact = exact_delta(rounds, epsilon, directions)
    history = [(Release(sigma, q), count) for sigma, q, count in rounds]
    curve = compose(history, relation)
    for bounds, value in (
        (curve.delta(epsilon), exact),
        (curve.epsilon(exact), epsilon),
    ):
        assert bounds.lower <= value * (1 + 1e-7) <= bounds.upper * (1 + 2e-7)
        assert bounds.upper - bounds.lower <= 1e-3 * bounds.upper


@pytest.mark.parametrize(
    ("noise", "delta"), [(1e30, 1e-5), (1e12, 1e-9), (0.9948, 1.66e-4)]
)
def test_epsilon_is_0_where_delta_covers_the_total_variation(noise, delta):
    assert compose([(Release(noise, 0.0001613), 2)]).epsilon(delta).upper == 0


def test_edges():
    assert compose().epsilon(1e-5).upper == 0
    assert compose(Release(0.0, 0.1)).epsilon(1e-5).lower == math.inf
    assert compose(Release(0.0, 0.1)).delta(1.0).upper == 1
    assert compose(Release(math.inf, 0.1)).epsilon(1e-5).upper == 0
    assert compose(Release(1.0, 0.0)).delta(0.5).upper == 0
    assert compose(History.repeated(Release(1.0, 0.1), 3)).rounds == 3
    assert compose(Release(1.0, 0.1), "zero_out").step(Release(1.0, 0.1), 0).rounds == 1
    tiny = compose(Release(1.0, 0.1)).epsilon(1e-30)
    assert compose(Release(1.0, 0.1)).epsilon(1e-12).lower <= tiny.lower <= tiny.upper
    with pytest.raises(
        InputError, match=r"^delta: must be in \[1e-30, 1\), found 1e-300$"
    ):
        compose(Release(1.0, 0.1)).epsilon(1e-300)
    with pytest.raises(
        TooLittleNoiseError, match=r"^noise_multiplier: .*, found 0\.01$"
    ):
        compose(Release(0.01, 0.1)).step(Release(1.0, 0.1)).epsilon(1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.step(), "step: missing a required argument"),
        (lambda c: c.step(sample_rate=0.1), "sample_rate: is not an argument"),
        (lambda c: c.step(Release(1, 0.1), 1.5), "rounds: must be a whole number"),
        (
            lambda c: c.step(Release(1, 0.1), 10**7),
            "rounds: must be at most 10000000 in all",
        ),
        (lambda c: c.step([(1, 2)]), "history: must be a history"),
        (lambda c: c.epsilon(math.nan), "delta: must be in"),
        (lambda c: c.delta(-1), "epsilon: must be 0 or more"),
        (lambda c: c.epsilon(1e-5, tolerance=0), "tolerance: must be in"),
        (
            lambda c: c.step(Release("a", 0.1)),
            "noise_multiplier: must be 0 or more, found 'a'",
        ),
        (lambda c: c.step(Release(1, None)), "sampling_ratio: must be in"),
        (
            lambda c: c.step(History(5)),
            "releases: must be pairs of a Release and how many times",
        ),
    ],
)
def test_wrong_input_is_one_line(call, message):
    curve = compose(Release(1.0, 0.1))
    with pytest.raises(PrivplanError, match=message) as caught:
        call(curve)
    assert "\n" not in str(caught.value)
    assert curve.rounds == 1


def test_a_release_that_no_pair_covers_is_not_counted():
    curve = compose()
    with pytest.raises(PrivplanError, match="covers full participation only"):
        curve.step(Release(0.5, 0.1, SamplingLaw.POISSON, "laplace"))
    assert curve.rounds == 0
