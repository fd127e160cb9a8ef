"""Empirical bounds: closed forms, seeded mechanisms, the registry, and the verdict."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from scipy import stats
from scipy.optimize import linprog

from privplan.accounting.accountant import accountant
from privplan.accounting.gdp import epsilon_of
from privplan.accounting.release import History, Relation, Release
from privplan.auditing import auditors, error_rates
from privplan.auditing import f_dp as f_dp_audit
from privplan.auditing import one_run as one_run_audit
from privplan.auditing.one_run import Guesses, count_guesses
from privplan.planning.solver import solve
from privplan.verification.verify import judge, load_run
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.conftest import digits_spec

CONFIDENCE = 0.95
# Of 100 runs at 95% confidence: more than this have a chance of 0.4% (binomial).
VIOLATIONS = 11


def gaussian_scores(mu, canaries, seed):
    """Canaries of the Gaussian mechanism: N(0, 1), or N(mu, 1) for those who are in."""
    rng = default_rng(seed)
    included = rng.random(canaries) < 0.5
    return rng.normal(size=canaries) + mu * included, included


def answered(epsilon, canaries, seed):
    """Canaries of randomised response, which is (epsilon, 0)-DP and no better."""
    rng = default_rng(seed)
    included = rng.random(canaries) < 0.5
    honest = rng.random(canaries) < 1 / (1 + np.exp(-epsilon))
    # The small noise breaks ties.
    scores = np.where(honest, included, ~included) + 1e-6 * rng.normal(size=canaries)
    return scores, included


def sampled(ratio, sigma, rounds, canaries, seed):
    """Canaries of the Poisson-sampled Gaussian, scored as the simulator does."""
    rng = default_rng(seed)
    included = rng.random(canaries) < 0.5
    is_taking_part = (rng.random((rounds, canaries)) < ratio) & included
    seen = is_taking_part + sigma * rng.normal(size=(rounds, canaries))
    scores = np.logaddexp(
        np.log1p(-ratio), np.log(ratio) + (2 * seen - 1) / (2 * sigma**2)
    )
    return scores.sum(0), included


def test_guesses_are_the_surest_and_few_enough():
    included = np.array([True] * 20 + [False] * 12)
    scores = -np.arange(32.0)
    assert count_guesses(scores, included)[:2] == [Guesses(32, 28), Guesses(16, 16)]
    assert count_guesses(scores[:0], included[:0]) == []


def test_one_run_is_randomised_response_without_delta():
    rate = 1 / (1 + np.exp(-1.5))
    expected = stats.binom.sf(84, 100, rate)
    assert one_run_audit.guesses_p_value(500, 100, 85, 1.5, 0.0) == pytest.approx(
        expected
    )


def test_one_run_with_delta_by_hand():
    """Three guesses, two right: the sums over i = 1, 2 written out."""
    rate = 1 / (1 + np.exp(-0.5))
    chance_of_none, chance_of_one, chance_of_two, chance_of_three = (
        stats.binom.pmf(k, 3, rate) for k in range(4)
    )
    expected = (
        chance_of_two
        + chance_of_three
        + 2 * 10 * 1e-3 * max(chance_of_one / 1, (chance_of_one + chance_of_none) / 2)
    )
    assert one_run_audit.guesses_p_value(10, 3, 2, 0.5, 1e-3) == pytest.approx(expected)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 0.0), (1.5, 0.01)])
def test_f_dp_matches_a_linear_program(epsilon, delta):
    """The largest chance of c right guesses under the paper's inequalities."""
    canaries = 30
    guesses = 20
    correct = 17
    counts = np.arange(guesses + 1)
    rows = []
    limits = []
    for index in range(guesses):
        right = np.where(counts > index, counts, 0) / canaries
        wrong = np.where(counts >= index, guesses - counts, 0) / canaries
        rows += [right - np.exp(epsilon) * wrong, right - np.exp(-epsilon) * wrong]
        limits += [delta, 1 - np.exp(-epsilon) * (1 - delta)]
    solution = linprog(
        -(counts >= correct).astype(float),
        A_ub=np.array(rows),
        b_ub=np.array(limits),
        A_eq=np.ones((1, guesses + 1)),
        b_eq=[1.0],
    )
    max_chance = -solution.fun
    tries = [Guesses(guesses, correct)]
    for level, refuted in ((max_chance * 1.01, True), (max_chance * 0.99, False)):
        rejected = f_dp_audit.curves_rejected(
            canaries, tries, level, np.array([epsilon]), f_dp_audit.family(delta)
        )
        assert rejected.tolist() == [[refuted]]


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (7, 50), (50, 50)])
def test_rates_are_bounded_as_by_clopper_and_pearson(hits, trials):
    exact = (
        stats.binomtest(hits, trials, alternative="less")
        .proportion_ci(0.99, "exact")
        .high
    )
    assert error_rates.upper_rate(hits, trials, 0.01) == pytest.approx(exact)


def test_many_canaries_bring_the_gaussian_audit_to_mu():
    scores, included = gaussian_scores(1.5, 200_000, 1)
    assert 1.4 < error_rates.mu_lower_bound(scores, included, CONFIDENCE) < 1.5


def test_many_canaries_bring_the_one_run_audits_to_randomised_response():
    scores, included = answered(1.2, 20_000, 2)
    for method in (one_run_audit.one_run, f_dp_audit.f_dp):
        assert 1.1 < method(scores, included, 0.0, CONFIDENCE) < 1.2


@pytest.mark.parametrize("name", auditors())
def test_scores_that_tell_nothing_give_little_or_nothing(name):
    scores, included = gaussian_scores(0.0, 1000, 4)
    assert auditors()[name].answer(scores, included, 1e-3, 0.999) == 0.0


def violations(name, mechanism, runs):
    """In how many seeded runs a bound exceeds what the mechanism spends."""
    delta = 1e-3
    epsilon = 1.0
    if mechanism == "gaussian":
        epsilon = epsilon_of(1.0, delta)
    elif mechanism == "sampled":
        history = History.repeated(Release(1.2, 0.2), 20)
        epsilon = accountant("pld").epsilon(history, delta, Relation.ADD_REMOVE).upper
    count = 0
    for seed in range(runs):
        if mechanism == "gaussian":
            scores, included = gaussian_scores(1.0, 600, seed)
        elif mechanism == "sampled":
            scores, included = sampled(0.2, 1.2, 20, 600, seed)
        else:
            scores, included = answered(epsilon, 600, seed)
        audited_delta = 0.0 if mechanism == "response" else delta
        count += (
            auditors()[name].answer(scores, included, audited_delta, CONFIDENCE)
            > epsilon
        )
    return count


CASES = [
    (name, mechanism)
    for name, mechanism in itertools.product(
        auditors(), ("gaussian", "sampled", "response")
    )
    if auditors()[name].kind == "bound" or mechanism != "response"
]


@pytest.mark.parametrize(("name", "mechanism"), CASES)
def test_a_few_seeded_runs_stay_below_what_is_spent(name, mechanism):
    assert violations(name, mechanism, 6) <= 2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mechanism"), CASES)
def test_no_more_violations_than_the_confidence_allows(name, mechanism):
    assert violations(name, mechanism, 100) <= VIOLATIONS


@pytest.mark.parametrize("name", auditors())
def test_more_confidence_never_raises_a_bound(name):
    source = default_rng(7)
    for _ in range(4):
        included = source.random(150) < 0.5
        scores = source.normal(size=150) + included * source.uniform(0, 5)
        bounds = [
            auditors()[name].answer(scores, included, 1e-3, confidence)
            for confidence in (0.9, 0.95, 0.999)
        ]
        assert bounds == sorted(bounds, reverse=True)
        assert bounds[0] >= 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "out"
    plan = solve(digits_spec(rounds=2))
    execute(Request(plan, "planned", "digits", folder, canaries=20))
    return load_run(folder)


def outcome(run, order):
    """The check of canaries, with these groups in a record that knows them."""
    audit = run.audit.model_copy(
        update={"groups": tuple(run.audit.groups[index] for index in order)}
    )
    record = run.record.model_copy(update={"audit": audit.digest})
    checks = {
        check.name: check
        for check in judge(replace(run, audit=audit, record=record), 0).checks
    }
    return checks["audit"].outcome, checks["audit"].reason


def test_canaries_are_of_each_group_once(run):
    count = len(run.audit.groups)
    assert outcome(run, list(range(count)))[0] == "passed"
    for order in ([*range(count), 0], list(range(1, count))):
        status, reason = outcome(run, order)
        assert status == "failed"
        assert "not of each of the plan's groups once" in reason
