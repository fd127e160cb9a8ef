"""Cohorts with a cap: against all outcomes of a small mechanism, and through a run."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, TruncatedSubsampledGaussianDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from scipy.stats import binom, norm

import privplan
from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import least_certified
from privplan.accounting.pld.profile import delta_of
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.errors import InputError, TooLittleNoiseError, UnsupportedError
from privplan.laws.capped import cap_of
from privplan.report.tables import answer
from privplan.secure_stream import SecureStream
from privplan.verification.verify import load_run
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.planning.problems import make_spec

LAW = SamplingLaw("capped_poisson:20").law
PLD = accountant("pld")


def outcomes(clients, ratio, cap):
    """Each set that may stay of a capped Poisson cohort, with its chance."""
    for size in range(clients + 1):
        chance = ratio**size * (1 - ratio) ** (clients - size)
        for drawn in itertools.combinations(range(clients), size):
            kept = list(itertools.combinations(drawn, min(size, cap)))
            yield from ((one, chance / len(kept)) for one in kept)


@pytest.mark.parametrize("others", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize(
    ("clients", "ratio", "one_of"),
    [(6, 0.3, 20), (4, 0.2, 100), (5, 0.5, 2), (3, 0.1, 5)],
)
def test_bounds_hold_for_all_outcomes_of_a_small_mechanism(
    clients, ratio, one_of, others
):
    """Client 0 sends 1 and all others the same; each sum shows how many others are in it."""
    sigma, law = 0.8, SamplingLaw(f"capped_poisson:{one_of}").law
    cap = cap_of(clients, ratio, one_of)
    assert (
        binom.sf(cap - 1, clients - 1, ratio)
        <= 1 / one_of
        < binom.sf(cap - 2, clients - 1, ratio)
    )
    present, absent = {}, {}
    for kept, chance in outcomes(clients, ratio, cap):
        at = (0 in kept) + others * sum(one > 0 for one in kept)
        present[at] = present.get(at, 0.0) + chance
    for kept, chance in outcomes(clients - 1, ratio, cap):
        absent[others * len(kept)] = absent.get(others * len(kept), 0.0) + chance
    y = np.linspace(-cap - 12, cap + 12, 200_001)
    first = sum(chance * norm.pdf(y, at, sigma) for at, chance in present.items())
    second = sum(chance * norm.pdf(y, at, sigma) for at, chance in absent.items())
    pairs = law.dominating_pairs("add_remove", 1 / sigma, ratio)
    for way, (p, q) in enumerate(((first, second), (second, first))):
        for epsilon in (0.0, 0.1, 0.5, 1.5):
            exact = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), y)
            assert exact <= delta_of(pairs.upper[way], epsilon)[1] + 1e-9
            if not others:
                assert delta_of(pairs.lower[way], epsilon)[0] <= exact + 1e-9


def spent(law, relation="add_remove", sigma=0.832, ratio=0.02, rounds=50):
    return PLD.epsilon(
        History.repeated(Release(sigma, ratio, law), rounds), 6.98e-5, relation
    )


@pytest.mark.parametrize(("one_of", "cap"), [(10**6, 176), (10**4, 163)])
def test_bounds_are_little_above_those_that_know_the_number_of_clients(one_of, cap):
    """dp-accounting has the pair of Ganesh 2025 (arXiv 2508.15089) for n clients and a cap."""
    assert cap_of(6000, 0.02, one_of) == cap
    theirs = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    theirs.compose(TruncatedSubsampledGaussianDpEvent(6000, 0.02, cap, 0.832), 50)
    found = spent(f"capped_poisson:{one_of}").upper
    assert theirs.get_epsilon(6.98e-5) <= found <= 1.003 * theirs.get_epsilon(6.98e-5)


def test_draws_and_their_evidence():
    clients, ratio, draw = 400, 0.1, np.random.default_rng(3)
    cap, drawn = (
        LAW.cap(clients, ratio),
        [LAW.draw(draw, clients, ratio, 1) for _ in range(3000)],
    )
    sizes = [len(one) for one in drawn]
    assert np.mean(sizes) == pytest.approx(
        LAW.chance(clients, ratio) * clients, abs=0.4
    )
    assert np.bincount(np.concatenate(drawn)).std() == pytest.approx(270**0.5, rel=0.15)
    assert not list(LAW.cohort_faults(sizes, clients, ratio, 1e-3))
    free = draw.binomial(clients, ratio, 3000).tolist()
    more = [min(len(LAW.draw(draw, clients, 1.1 * ratio, 1)), cap) for _ in range(100)]
    for counts, said in (
        (free, f"law takes {cap} at most"), (more, "about 39"), ([40] * 100, "vary unlike"),
        ([*sizes[:80], *[cap] * 20], "as large as the cap"),
    ):  # fmt: skip
        assert said in " ".join(LAW.cohort_faults(counts, clients, ratio, 1e-6))
    secure = [
        LAW.draw(SecureStream(bytes([at] * 32)), clients, ratio, 1) for at in range(60)
    ]
    assert max(map(len, secure)) == max(sizes) == cap == 51
    assert all(np.all(np.diff(one) > 0) for one in (*drawn, *secure))
    parts = np.reshape(sizes, (100, 30)).tolist()
    assert sum(any(LAW.cohort_faults(one, clients, ratio, 0.05)) for one in parts) <= 10
    assert (
        LAW.chance(8, 1.0) * 8 == LAW.cap(8, 1.0) == len(LAW.draw(draw, 8, 1.0, 1)) == 8
    )


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


def test_a_run_is_verified_and_replayed(tmp_path):
    spec = privplan.preset("digits-planned").replace(
        {"sampling": "capped_poisson:99", "rounds": 8}
    )
    plan = privplan.solve(spec)
    assert "cap: largest cohort" in answer(plan)[1][3]
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=1))
    assert privplan.judge(load_run(tmp_path / "run"), 0).kept
    report = Replay(tmp_path / "run").run(None, 0, lambda done, total: None)
    assert report.outcome == "passed", report.reason
