"""Families of noise: one from outside, and the others against dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as theirs_of
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from numpy.testing import assert_allclose
from scipy import stats
from scipy.optimize import brentq

from privplan.accounting.accountant import accountant
from privplan.accounting.families import NOISE_FAMILIES, NoiseFamily
from privplan.accounting.rdp import ORDERS, rdp_of_release
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.discrete_gaussian import grid_of, scale_for
from privplan.errors import InputError, UnsupportedError
from privplan.laws.law import DiscretePair, exact
from privplan.ledger import history_of
from privplan.record import GroupShare, ReleaseRecord

DELTA = 1e-5


class Response(NoiseFamily):
    """Randomised response on one bit, with epsilon 1 / noise multiplier."""

    name = "response"

    def dominating_pairs(self, release, relation):
        """One discrete pair, the same in both directions."""
        if release.sampling_ratio != 1:
            raise UnsupportedError("response: covers full participation only")
        loss = 1 / release.noise_multiplier
        heads = 1 / (1 + math.exp(-loss))
        pair = DiscretePair((-loss, loss), (1 - heads, heads))
        return exact(pair, pair)

    def p_value(self, sum_squares, std, coordinates):
        """The evidence of this toy is its standard deviation."""
        return 1.0 if sum_squares == std**2 * coordinates else 0.0


@pytest.fixture
def response():
    NOISE_FAMILIES.register("response", Response())
    yield
    NOISE_FAMILIES._components.pop("response")


def exact_delta(epsilon, loss, rounds):
    """Delta of rounds of randomised response, a sum over the number of true answers."""
    heads = 1 / (1 + math.exp(-loss))
    delta = 0.0
    for true in range(rounds + 1):
        gain = -math.expm1(epsilon - (2 * true - rounds) * loss)
        if gain > 0:
            delta += stats.binom.pmf(true, rounds, heads) * gain
    return delta


@pytest.mark.parametrize(("loss", "rounds"), [(1.0, 1), (0.3, 20), (0.05, 400)])
def test_discrete_pairs_compose_to_the_binomial(response, loss, rounds):
    history = History.repeated(Release(1 / loss, 1.0, "full", "response"), rounds)
    bounds = accountant("pld").epsilon(history, DELTA, Relation.ADD_REMOVE)
    assert exact_delta(bounds.upper, loss, rounds) <= DELTA * (1 + 1e-9)
    assert exact_delta(bounds.upper * (1 - 2e-3), loss, rounds) > DELTA
    if bounds.lower > 0:
        below = bounds.lower * (1 - 1e-9)
        assert exact_delta(below, loss, rounds) >= DELTA * (1 - 1e-9)


def test_families_compose_with_each_other(response):
    gaussian = History.repeated(Release(2.0, 0.1), 20)
    responses = History.repeated(Release(10.0, 1.0, "full", "response"), 5)
    pld = accountant("pld")
    of_gaussian = pld.epsilon(gaussian, DELTA, Relation.ADD_REMOVE)
    of_responses = pld.epsilon(responses, DELTA, Relation.ADD_REMOVE)
    total = pld.epsilon(gaussian + responses, DELTA, Relation.ADD_REMOVE)
    assert max(of_gaussian.lower, of_responses.lower) < total.lower <= total.upper
    assert total.upper < of_gaussian.upper + 5 * 0.1 + 1e-9  # 0.1-DP each


@pytest.mark.parametrize(
    "name", ["gdp", "closed_form", "dp_accounting", "opacus", "prv"]
)
def test_accountants_of_gaussian_noise_refuse_in_one_line(response, name):
    history = History.repeated(Release(2.0, 1.0, "full", "response"), 3)
    with pytest.raises(UnsupportedError, match=rf"^{name}: ") as caught:
        accountant(name).epsilon(history, DELTA, Relation.ADD_REMOVE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["pld", "rdp"])
@pytest.mark.parametrize("family", ["response", "laplace", "discrete_gaussian_count"])
def test_a_law_that_the_family_does_not_cover_is_refused(response, family, name):
    history = History.repeated(Release(2.0, 0.1, "poisson", family), 3)
    with pytest.raises(UnsupportedError, match=f"{family}: covers full participation"):
        accountant(name).epsilon(history, DELTA, Relation.ADD_REMOVE)


def _record(family):
    share = GroupShare(
        group="all",
        clients=5,
        sampling="full",
        sampling_ratio=1,
        cohort=5,
        clip_bound=2.0,
        largest_norm=1.0,
        clipped=0,
        weight=1.0,
    )
    return ReleaseRecord(
        round=1,
        family=family,
        noise_std=20.0,
        dimension=3,
        noise_sum_squares=1200.0,
        shares=(share,),
    )


def test_the_ledger_names_the_family_and_the_history_keeps_it(response):
    record = _record("response")
    assert record.noise.p_value(record.noise_sum_squares, record.noise_std, 3) == 1.0
    assert history_of([record], "all") == History(
        [(Release(10.0, 1.0, "full", "response"), 1)]
    )
    assert history_of([_record("none")], "all") == History(
        [(Release(0.0, 1.0, "full"), 1)]
    )
    assert history_of([_record("silent")], "all") == History(
        [(Release(math.inf, 1.0, "full"), 1)]
    )
    with pytest.raises(
        ValueError, match="be one of gaussian, discrete_gaussian, none, silent"
    ):
        _record("nosuch")


def test_a_discrete_pair_is_a_distribution():
    for losses, masses in [
        ((1.0, 0.0), (0.5, 0.5)),
        ((0.0,), (1.5,)),
        ((-3.0,), (1.0,)),
        ((0.0, math.inf), (0.5, 0.4)),
    ]:
        with pytest.raises(InputError):
            DiscretePair(losses, masses)


FAMILY = NOISE_FAMILIES.get("discrete_gaussian")


def record(std, grid, bound):
    share = GroupShare(
        group="a",
        clients=10,
        sampling=SamplingLaw.POISSON,
        sampling_ratio=0.5,
        cohort=1,
        clip_bound=bound,
        largest_norm=bound,
        clipped=0,
        weight=1.0,
    )
    return ReleaseRecord(
        round=1,
        family="discrete_gaussian",
        noise_std=std,
        grid=grid,
        dimension=1,
        noise_sum_squares=1.0,
        shares=(share,),
    )


@pytest.mark.parametrize(
    ("scale", "moved"), [(12, 5), (40, 11), (150, 100), (4096, 2048)]
)
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_upper_bound_is_one_for_every_scale(scale, moved, delta):
    """N(v, s^2 - 16) rounded at random is N_Z(v, s^2), v a move of one coordinate."""
    theirs = from_discrete_gaussian_mechanism(
        scale, moved, value_discretization_interval=1e-5
    ).get_epsilon_for_delta(delta)
    multiplier = math.sqrt(scale**2 - 16) / moved
    history = History.repeated(Release(multiplier, 1.0, SamplingLaw.FULL), 1)
    ours = accountant("pld").epsilon(history, delta, Relation.ADD_REMOVE)
    assert ours.upper >= theirs - 2e-5
    assert ours.upper <= theirs * (1 + 20 / scale**2) + 1e-3


def test_both_bounds_enclose_the_exact_sum_of_one_release():
    """A client that moves one coordinate by 3,000 steps, by a sum over the integers."""
    scale = 4096
    moved = 3000
    x = np.arange(-12 * scale, 12 * scale + moved, dtype=float)
    mass = np.exp(-(((x - moved) / scale) ** 2) / 2)
    loss = moved * (2 * x - moved) / (2 * scale**2)

    def excess(epsilon):
        gained = mass * -np.expm1(np.minimum(epsilon - loss, 0.0))
        return math.fsum(gained) / math.fsum(mass) - DELTA

    exact = brentq(excess, 0.1, 20.0, xtol=1e-14, rtol=1e-14)
    released = record(scale, 1.0, moved)
    multiplier = released.release_for(released.shares[0]).noise_multiplier
    release = Release(multiplier, 1.0, "full", released.family)
    history = History.repeated(release, 1)
    bounds = accountant("pld").epsilon(history, DELTA, Relation.ADD_REMOVE)
    assert bounds.lower <= exact <= bounds.upper <= bounds.lower * (1 + 2e-6)


@pytest.mark.parametrize("std", [0.7363, 1.0473203110013856, 3.25, 19.0])
def test_the_planned_multiplier_is_recovered_and_the_grid_costs_nothing(std):
    bound = 0.5
    released = record(scale_for(std) * grid_of(std), grid_of(std), bound)
    release = released.release_for(released.shares[0])
    planned = Release(float(f"{std / bound:.12g}"), 0.5, SamplingLaw.POISSON)
    assert release == Release(
        planned.noise_multiplier, 0.5, SamplingLaw.POISSON, "discrete_gaussian"
    )
    pair = (FAMILY.dominating_pairs(release, Relation.ADD_REMOVE).upper,)
    normal = NOISE_FAMILIES.get("gaussian").dominating_pairs(
        planned, Relation.ADD_REMOVE
    )
    assert pair == (normal.upper,)


@pytest.mark.parametrize(
    ("std", "grid"), [(1.0, None), (4095.0, 1.0), (1.0, 1.0), (0.0, 1.0)]
)
def test_a_coarse_or_unknown_grid_counts_as_no_noise(std, grid):
    released = record(std, grid, 1.0)
    assert released.release_for(released.shares[0]).noise_multiplier == 0


def test_other_accountants_cover_it_by_the_same_bound():
    upper = []
    for family in ("gaussian", "discrete_gaussian"):
        release = Release(1.2, 0.1, SamplingLaw.POISSON, family)
        history = History.repeated(release, 20)
        upper.append(accountant("rdp").epsilon(history, DELTA, "add_remove").upper)
    assert upper[0] == upper[1]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(
    ("multiplier", "ratio", "rounds", "delta"),
    [
        (0.7185341469, 0.1, 3, 1.884371901952303e-3),
        (1.1, 0.02, 200, 1e-6),
        (0.6, 0.5, 8, 1e-4),
    ],
)
def test_its_upper_bound_is_that_of_the_certificate(
    multiplier, ratio, rounds, delta, relation
):
    """A ledger of discrete noise spends what the plan of normal noise certifies."""

    def bounds_of(family):
        release = Release(multiplier, ratio, SamplingLaw.POISSON, family)
        history = History.repeated(release, rounds)
        return accountant("pld").epsilon(history, delta, relation)

    normal = bounds_of("gaussian")
    discrete = bounds_of("discrete_gaussian")
    assert discrete.upper == normal.upper
    assert discrete.lower <= normal.upper
    if relation is Relation.ADD_REMOVE:
        assert discrete.upper - discrete.lower < 5e-4 * discrete.upper


EPSILON = 0.3
COUNTS = {
    # The other accountant's mechanism, its parameter, and its sensitivity or options.
    "laplace": (theirs_of.from_laplace_mechanism, 1 / EPSILON),
    "discrete_laplace": (theirs_of.from_discrete_laplace_mechanism, EPSILON),
    "randomized_response": (
        theirs_of.from_randomized_response,
        2 / (1 + math.exp(EPSILON)),
    ),
    "discrete_gaussian_count": (from_discrete_gaussian_mechanism, 5.0),
}


def their_epsilon(name, count_moves, counts, training_noise, is_above):
    """The other accountant's estimate for counts beside a Gaussian release."""
    options = {
        "pessimistic_estimate": is_above,
        "value_discretization_interval": 1e-4,
    }
    mechanism, parameter = COUNTS[name]
    # Bits have two values; noise has the distance that a count moves.
    sensitivity = 2 if name == "randomized_response" else count_moves
    of_counts = mechanism(parameter, sensitivity, **options).self_compose(counts)
    of_training = theirs_of.from_gaussian_mechanism(training_noise, **options)
    return of_counts.compose(of_training).get_epsilon_for_delta(DELTA)


# One of each family, relation and number of a person's clients.
QUICK_COUNTS = (
    ("laplace", "add_remove", 2),
    ("discrete_laplace", "replace_one", 1),
    ("discrete_gaussian_count", "replace_one", 1),
    ("randomized_response", "replace_one", 1),
)
FURTHER_COUNTS = (
    ("laplace", "replace_one", 1),
    ("discrete_laplace", "add_remove", 2),
    ("discrete_gaussian_count", "add_remove", 2),
    *((name, "add_remove", 1) for name in COUNTS),
)


@pytest.mark.parametrize(
    ("name", "relation", "clients"),
    [
        *QUICK_COUNTS,
        *(pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER_COUNTS),
    ],
)
def test_counts_beside_training_against_dp_accounting(name, relation, clients):
    """Alone, several times, and with training, whose sums move by 2 under replacement.

    The other accountant's two estimates enclose the bounds.
    """
    multiplier = 5.0 if name == "discrete_gaussian_count" else math.sqrt(2) / EPSILON
    law = SamplingLaw.FULL.of_person(clients)
    count = Release(multiplier, 1.0, law, name)
    training = Release(9.0, 1.0, law)
    moved = 2 if relation == "replace_one" else clients
    for counts, rounds in ((12, 0), (3, 20)):
        history = History([(count, counts), (training, rounds)])
        bounds = accountant("pld").epsilon(history, DELTA, relation)
        training_noise = 9.0 / moved / max(rounds, 1e-9) ** 0.5
        low = their_epsilon(name, clients, counts, training_noise, is_above=False)
        high = their_epsilon(name, clients, counts, training_noise, is_above=True)
        assert bounds.upper >= low - 1e-9
        assert bounds.lower <= high + 1e-9
        assert bounds.upper <= high * 1.002


def test_bits_of_several_clients_of_a_person_are_refused():
    law = SamplingLaw.FULL.of_person(2)
    history = History.repeated(Release(5.0, 1.0, law, "randomized_response"), 1)
    with pytest.raises(UnsupportedError, match="covers single clients only"):
        accountant("pld").epsilon(history, DELTA, "add_remove")


def test_a_discrete_gaussian_count_against_its_sum():
    """Its lower pair has less mass than 1."""
    noise = np.arange(-40, 41)
    normal = np.exp(-(noise**2) / 2)
    release = Release(1.0, 1.0, "full", "discrete_gaussian_count")
    history = History.repeated(release, 1)
    assert_of_sum(history, 1e-12, 0.5 - noise, normal / math.fsum(normal))


def test_bits_against_their_sum():
    loss = 0.1
    true_answers = stats.binom.pmf(np.arange(51), 50, 1 / (1 + math.exp(-loss)))
    release = Release(math.sqrt(2) / loss, 1.0, "full", "randomized_response")
    history = History.repeated(release, 50)
    assert_of_sum(history, 1e-9, loss * np.arange(-50, 51, 2), true_answers)


def assert_of_sum(history, delta, losses, masses):
    """Bounds on epsilon are close to, and on either side of, what a sum says."""
    bounds = accountant("pld").epsilon(history, delta, "add_remove")
    for bound, sign in ((bounds.lower, 1), (bounds.upper, -1)):
        exact = math.fsum(-np.expm1(np.minimum(bound - losses, 0)) * masses)
        assert sign * (exact / delta - 1) >= -1e-9
    assert bounds.lower > 0.999 * bounds.upper


@pytest.mark.parametrize(
    "name", ["laplace", "randomized_response", "discrete_gaussian_count"]
)
def test_renyi_divergences_of_counts_are_those_of_the_closed_forms(name):
    """Mironov 2017 (arXiv 1702.07476), Table II; a bound from above, 1e-5 apart."""
    release = Release(math.sqrt(2) / EPSILON, 1.0, "full", name)
    ours = rdp_of_release(release, "add_remove")
    a = ORDERS
    if name == "laplace":
        up = np.log(a / (2 * a - 1)) + (a - 1) * EPSILON
        down = np.log((a - 1) / (2 * a - 1)) - a * EPSILON
        moments = np.logaddexp(up, down)
    elif name == "randomized_response":
        true = 1 / (1 + math.exp(-EPSILON))
        up = np.log(true) + (a - 1) * EPSILON
        moments = np.logaddexp(up, np.log(1 - true) - (a - 1) * EPSILON)
    else:  # Canonne, Kamath and Steinke 2020, Proposition 5
        moments = a * (a - 1) * EPSILON**2 / 4
    assert_allclose(ours, moments / (a - 1), rtol=1e-5)
    assert (ours >= moments / (a - 1) * (1 - 1e-12)).all()


@pytest.mark.parametrize("scale", [63.0, 191.0, 193.0, 400.0])
def test_a_wide_discrete_gaussian_count(scale):
    history = History.repeated(
        Release(scale, 1.0, "full", "discrete_gaussian_count"), 1
    )
    bounds = accountant("pld").epsilon(history, 1e-9, "add_remove")
    estimates = []
    for is_above in (False, True):
        theirs = from_discrete_gaussian_mechanism(
            scale, 1, pessimistic_estimate=is_above, value_discretization_interval=1e-5
        )
        estimates.append(theirs.get_epsilon_for_delta(1e-9))
    low, high = estimates
    assert low <= bounds.upper <= high * 1.01
    assert low * 0.99 <= bounds.lower <= high
    assert bounds.upper < 1.001 * bounds.lower


def test_counts_are_released_with_everybody_and_enough_noise():
    for release in (
        Release(3.0, 0.5, "poisson", "laplace"),
        Release(0.05, 1.0, "full", "laplace"),
    ):
        with pytest.raises(UnsupportedError, match="laplace: covers"):
            accountant("pld").epsilon(History.repeated(release, 1), DELTA, "add_remove")
