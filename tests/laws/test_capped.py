"""Cohorts with a cap: against all outcomes of a small mechanism, and through a run."""

import itertools
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, TruncatedSubsampledGaussianDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from numpy.random import default_rng
from scipy.stats import binom, norm

import privplan
from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import least_certified
from privplan.accounting.pld.profile import delta_of
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.errors import InputError, TooLittleNoiseError, UnsupportedError
from privplan.laws import capped
from privplan.laws.capped import cap_of
from privplan.laws.pairs import DiscretePair
from privplan.report.tables import answer
from privplan.secure_stream import SecureStream
from privplan.verification.verify import load_run
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.planning.problems import given_plan, make_spec
from tests.simulate.conftest import digits_spec

LAW = SamplingLaw("capped_poisson:20").law
PLD = accountant("pld")


def outcomes(clients, ratio, cap):
    """Each set that may stay of a capped Poisson cohort, with its chance."""
    for size in range(clients + 1):
        chance = ratio**size * (1 - ratio) ** (clients - size)
        for drawn in itertools.combinations(range(clients), size):
            subsets = list(itertools.combinations(drawn, min(size, cap)))
            yield from ((subset, chance / len(subsets)) for subset in subsets)


def law_of_sum(values, ratio, cap):
    """The chance of each sum of a capped cohort, whose clients send these values."""
    chance_of_sum = Counter()
    for cohort, chance in outcomes(len(values), ratio, cap):
        chance_of_sum[sum(values[client] for client in cohort)] += chance
    return chance_of_sum


def density(y, chance_of_sum, sigma):
    """The density at ``y`` of a sum with this law and Gaussian noise."""
    return sum(
        chance * norm.pdf(y, exact_sum, sigma)
        for exact_sum, chance in chance_of_sum.items()
    )


@pytest.mark.parametrize("others_value", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize(
    ("clients", "ratio", "one_of"),
    [(6, 0.3, 20), (4, 0.2, 100), (5, 0.5, 2), (3, 0.1, 5)],
)
def test_bounds_hold_for_all_outcomes_of_a_small_mechanism(
    clients, ratio, one_of, others_value
):
    """Client 0 sends 1, all others the same, so a sum shows how many are in it."""
    sigma = 0.8
    law = SamplingLaw(f"capped_poisson:{one_of}").law
    cap = cap_of(clients, ratio, one_of)
    assert (
        binom.sf(cap - 1, clients - 1, ratio)
        <= 1 / one_of
        < binom.sf(cap - 2, clients - 1, ratio)
    )
    values = [others_value] * (clients - 1)
    y = np.linspace(-cap - 12, cap + 12, 200_001)
    with_client = density(y, law_of_sum([1.0, *values], ratio, cap), sigma)
    without = density(y, law_of_sum(values, ratio, cap), sigma)
    pairs = law.dominating_pairs("add_remove", 1 / sigma, ratio)
    for direction, (p, q) in enumerate(
        ((with_client, without), (without, with_client))
    ):
        for epsilon in (0.0, 0.1, 0.5, 1.5):
            exact = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), y)
            assert exact <= delta_of(pairs.upper[direction], epsilon)[1] + 1e-9
            if not others_value:
                assert delta_of(pairs.lower[direction], epsilon)[0] <= exact + 1e-9


def spent(law, relation="add_remove", sigma=0.832, ratio=0.02, rounds=50):
    return PLD.epsilon(
        History.repeated(Release(sigma, ratio, law), rounds), 6.98e-5, relation
    )


@pytest.mark.parametrize(
    ("one_of", "cap"),
    [pytest.param(10**6, 176, marks=pytest.mark.slow), (10**4, 163)],
)
def test_bounds_are_little_above_those_that_know_the_number_of_clients(one_of, cap):
    """dp-accounting has the pair of Ganesh 2025 (arXiv 2508.15089) for n and a cap."""
    assert cap_of(6000, 0.02, one_of) == cap
    # A step of 1e-3 moves its epsilon by less than 1e-4.
    theirs = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-3
    )
    theirs.compose(TruncatedSubsampledGaussianDpEvent(6000, 0.02, cap, 0.832), 50)
    epsilon = spent(f"capped_poisson:{one_of}").upper
    assert theirs.get_epsilon(6.98e-5) <= epsilon <= 1.003 * theirs.get_epsilon(6.98e-5)


CLIENTS = 400
RATIO = 0.1


@cache
def honest_cohorts():
    """The cohorts of 3,000 rounds."""
    generator = default_rng(3)
    return [LAW.draw(generator, CLIENTS, RATIO, 1) for _ in range(3000)]


def sizes():
    return [len(cohort) for cohort in honest_cohorts()]


def test_cohorts_have_the_capped_law_and_never_more_than_the_cap():
    mean = LAW.chance(CLIENTS, RATIO) * CLIENTS
    assert np.mean(sizes()) == pytest.approx(mean, abs=0.4)
    counts = np.bincount(np.concatenate(honest_cohorts()))
    assert counts.std() == pytest.approx(270**0.5, rel=0.15)
    secure = [
        LAW.draw(SecureStream(bytes([key_byte] * 32)), CLIENTS, RATIO, 1)
        for key_byte in range(60)
    ]
    assert max(map(len, secure)) == max(sizes()) == LAW.cap(CLIENTS, RATIO) == 51
    assert all(np.all(np.diff(cohort) > 0) for cohort in (*honest_cohorts(), *secure))


def test_a_cap_that_everybody_fits_leaves_everybody():
    assert LAW.cap(8, 1.0) == 8
    assert LAW.chance(8, 1.0) == 1
    assert len(LAW.draw(default_rng(3), 8, 1.0, 1)) == 8


def test_honest_cohorts_raise_no_alarm_and_others_do():
    assert not list(LAW.cohort_faults(sizes(), CLIENTS, RATIO, 1e-3))
    # At a level of 0.05, 100 honest histories have about 5 alarms.
    histories = np.reshape(sizes(), (100, 30)).tolist()
    alarms = [
        any(LAW.cohort_faults(history, CLIENTS, RATIO, 0.05)) for history in histories
    ]
    assert sum(alarms) <= 10

    cap = LAW.cap(CLIENTS, RATIO)
    generator = default_rng(4)
    free = generator.binomial(CLIENTS, RATIO, 3000).tolist()
    larger = [
        min(len(LAW.draw(generator, CLIENTS, 1.1 * RATIO, 1)), cap) for _ in range(100)
    ]
    for counts, fault in (
        (free, f"law takes {cap} at most"),
        (larger, "about 39"),
        ([40] * 100, "vary unlike"),
        ([*sizes()[:80], *[cap] * 20], "as large as the cap"),
    ):
        assert fault in " ".join(LAW.cohort_faults(counts, CLIENTS, RATIO, 1e-6))


def test_what_a_cap_excludes_and_that_it_is_none_where_everybody_takes_part():
    assert spent(LAW.name, ratio=1.0) == spent("full", ratio=1.0)
    for relation in ("replace_one", "zero_out"):
        with pytest.raises(UnsupportedError, match=f"capped_poisson:9 .* {relation}"):
            spent("capped_poisson:9", relation)
    with pytest.raises(
        TooLittleNoiseError, match=r"pld needs 0.1 or more under capped_poisson:9"
    ):
        spent("capped_poisson:9", sigma=0.09)
    assert least_certified(SamplingLaw(LAW.name), "add_remove") == pytest.approx(
        0.1, rel=1e-3
    )
    with pytest.raises(
        InputError, match=r"(?s)accountant: must be pld.*relation: must be add_re"
    ):
        make_spec(sampling=LAW.name, relation="replace_one")
    for use in ("canaries", "attacks"):
        assert LAW.excludes_use(use) == f"must be a law without a cap, for {use}"


@pytest.mark.slow
def test_a_run_is_verified_and_replayed(tmp_path):
    spec = digits_spec(rounds=4, sampling="capped_poisson:99")
    plan = given_plan(spec, {group.name: (0.2, 3.0) for group in spec.groups})
    assert "cap: largest cohort" in answer(plan)[1][3]
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=1))
    assert privplan.judge(load_run(tmp_path / "run"), 0).kept
    report = Replay(tmp_path / "run").run(None, 0, lambda done, total: None)
    assert report.outcome == "passed", report.reason


def test_the_mass_of_larger_losses_is_rounded_up():
    usual = DiscretePair((0.0,), (1.0,))
    cut = DiscretePair((1.0,), (1.0,))
    mixed = capped._mixed(usual, cut, 0.3)
    assert mixed.losses == (0.0, 1.0)
    assert mixed.masses[0] == 0.7
    assert 0.3 < mixed.masses[1] < 0.3 * (1 + 1e-9)
