"""Persons with several clients: against exact tails, dp-accounting, and in a run."""

import json
import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import binom, norm

import privplan
from privplan.accounting.accountant import accountant
from privplan.accounting.composition import calibrated_composition
from privplan.accounting.pld.profile import delta_of
from privplan.accounting.pld.several import several_pairs
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.errors import InputError, UnsupportedError
from privplan.laws.law import Kind, Pair
from privplan.report.verdicts import closing_lines, worst_line
from privplan.verification.verify import load_run
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.planning.problems import make_spec, members

PLD = accountant("pld")


def of_person(contributions, sigma, ratio, rounds, law="poisson"):
    return History.repeated(
        Release(sigma, ratio, SamplingLaw(law).of_person(contributions)), rounds
    )


@pytest.mark.parametrize(
    ("shift", "ratio", "contributions"), [(0.7, 0.05, 3), (2.0, 0.3, 2), (0.05, 0.5, 9)]
)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
def test_one_release_is_a_mixture_in_both_orders(shift, ratio, contributions, epsilon):
    """The best test is a threshold where the densities cross: exact normal tails."""
    drawn = np.arange(contributions + 1)
    chance = binom.pmf(drawn, contributions, ratio)

    def excess(y, level):
        return logsumexp(shift * drawn * (y - shift * drawn / 2), b=chance) - level

    pairs = several_pairs(shift, ratio, contributions)
    for direction, sign in enumerate((1, -1)):
        level = sign * epsilon
        end = brentq(excess, -60, 60, (level,)) if excess(-60.0, level) < 0 else -60.0
        mixed = chance @ norm.sf(sign * (end - shift * drawn))
        alone = norm.sf(sign * end)
        if sign > 0:
            mass_of_p = mixed
            mass_of_q = alone
        else:
            mass_of_p = alone
            mass_of_q = mixed
        exact = max(mass_of_p - math.exp(epsilon) * mass_of_q, 0.0)
        below = delta_of(pairs.lower[direction], epsilon)[0]
        above = delta_of(pairs.upper[direction], epsilon)[1]
        assert below - 1e-13 <= exact <= above + 1e-13
        assert above - below <= 1e-3 * above + 1e-11


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0])
def test_one_client_has_the_pair_of_poisson_sampling(epsilon):
    pairs = several_pairs(0.8, 0.1, 1)
    for direction, kind in enumerate((Kind.REMOVE, Kind.ADD)):
        exact = delta_of(Pair(kind, 0.8, 0.1), epsilon)
        assert delta_of(pairs.lower[direction], epsilon)[0] <= exact[1]
        assert delta_of(pairs.upper[direction], epsilon)[1] >= exact[0]


def test_composed_bounds_meet_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    sigma = 3.0
    ratio = 0.005
    contributions = 4
    rounds = 1000
    delta = 1e-6
    chance = binom.pmf(np.arange(contributions + 1), contributions, ratio).tolist()
    chance[0] = 1 - sum(chance[1:])
    shifts = [float(j) for j in range(contributions + 1)]
    round_loss = pld.from_mixture_gaussian_mechanism(
        sigma, shifts, chance, value_discretization_interval=1e-4
    )
    theirs = round_loss.self_compose(rounds).get_epsilon_for_delta(delta)
    ours = PLD.epsilon(
        of_person(contributions, sigma, ratio, rounds), delta, "add_remove"
    )
    assert ours.lower <= theirs <= ours.upper * (1 + 1e-3)
    assert ours.upper <= ours.lower * (1 + 2e-4)


@pytest.mark.parametrize(
    ("law", "relation"), [("full", "replace_one"), ("min_separation:4", "add_remove")]
)
def test_everybody_in_each_round_is_so_many_times_the_distance(law, relation):
    bounds = PLD.epsilon(of_person(4, 12.0, 1.0, 5, law), 1e-5, relation)
    assert bounds == PLD.epsilon(
        History.repeated(Release(3.0, 1.0, "full"), 5), 1e-5, relation
    )


def test_a_history_is_of_one_person():
    mixed = of_person(1, 1.5, 0.02, 3) + of_person(3, 1.5, 0.02, 2)
    assert mixed == of_person(3, 1.5, 0.02, 5)
    with pytest.raises(
        InputError, match="sampling: must cover 3 clients of one person"
    ):
        History.repeated(Release(1.5, 0.02, "fixed_size"), 3) + of_person(
            3, 1.5, 0.02, 2
        )


@pytest.mark.parametrize(
    "law", ["fixed_size", "cyclic_poisson:5", "random_allocation:5", "min_separation:5"]
)
def test_what_is_not_covered_is_refused(law):
    covered = law == "min_separation:5"
    with pytest.raises(InputError, match="contributions: must be"):
        privplan.account(
            noise_multiplier=3,
            sampling_ratio=1,
            rounds=10,
            delta=1e-5,
            sampling=law,
            contributions=101 if covered else 2,
        )
    for name in ("rdp", "prv", "dp_accounting", "opacus", "gdp", "closed_form"):
        with pytest.raises(UnsupportedError):
            accountant(name).epsilon(of_person(2, 3.0, 0.1, 10), 1e-5, "add_remove")
    with pytest.raises(UnsupportedError, match="replace_one"):
        PLD.epsilon(of_person(2, 3.0, 0.1, 10), 1e-5, "replace_one")


def test_calibrated_noise_keeps_the_budget():
    settings = {"delta": 1e-5, "sampling_ratio": 0.02, "rounds": 50, "contributions": 3}
    _, composition = calibrated_composition(
        "noise_multiplier", 0.5, accountant="pld", **settings
    )
    rows = composition.certify()
    assert 0.4999 < rows.epsilon <= 0.5
    assert rows[0].sampling == "poisson (up to 3 clients of one person)"


def test_large_budgets_and_fixed_noise_are_planned():
    groups = [members("strict", 50, 500.0, contributions=3), members("loose", 60, 2.0)]
    large_budget = privplan.solve(
        make_spec(
            groups=groups,
            cohort=10,
            planning={"ratios": "balanced", "accountant": "pld"},
        )
    )
    assert 0.15 <= large_budget.groups[0].noise_multiplier < 0.151
    groups = [
        {"name": str(noise), "clients": 40 + noise, "noise_multiplier": noise}
        for noise in (2, 3)
    ]
    planning = {"ratios": "uniform", "accountant": "pld"}
    plan = privplan.solve(make_spec(groups=groups, cohort=10, planning=planning))
    assert [group.noise_multiplier for group in plan.groups] == [2, 3]


def test_faults_of_a_spec_are_named():
    groups = [
        members("strict", 200, 1.0, contributions=201),
        members("loose", 300, 4.0),
    ]
    with pytest.raises(
        InputError, match=r"groups.strict.contributions: must be 1 unless"
    ):
        make_spec(groups=groups)
    with pytest.raises(
        InputError, match="at most 100 under Poisson sampling, add_remove, with"
    ):
        make_spec(groups=groups, planning={"accountant": "pld"})
    with pytest.raises(InputError, match="sampling: must be a plain law"):
        make_spec(sampling=str(SamplingLaw("poisson").of_person(2)))


def test_a_run_keeps_the_budgets_of_persons(tmp_path):
    groups = [
        {"name": "strict", "clients": 100, "epsilon": 2.0, "contributions": 3},
        {"name": "loose", "clients": 200, "epsilon": 60.0},
    ]
    spec = privplan.preset("digits").replace(
        {"groups": groups, "rounds": 4, "planning.sparsification": "none"}
    )
    plan = privplan.solve(spec)
    assert "in strict each person with up to 3 clients" in plan.explain()
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=1))
    verdict = privplan.judge(load_run(tmp_path / "run"), 0)
    assert verdict.kept
    assert "any person of strict" in worst_line(verdict)
    assert "each client, in strict each person" in closing_lines(verdict)[0]
    assert verdict.groups[0].realised_upper == pytest.approx(2.0, rel=1e-3)
    report = Replay(tmp_path / "run").run(None, 0, lambda done, total: None)
    assert report.outcome == "passed", report.reason
    strict = plan.groups[0]
    history = History.repeated(
        Release(strict.noise_multiplier, strict.sampling_ratio), 4
    )
    alone = privplan.account(history=history, delta=strict.delta)
    assert alone.epsilon < 1.0
    data = json.loads(plan.to_json())
    del data["groups"][0]["contributions"], data["digest"]
    with pytest.raises(
        InputError, match=r"groups.strict.contributions: must be the spec's, 3"
    ):
        privplan.Plan.of_content(data)
