"""Laws of sampling: names, bounds, who takes part, evidence, and correlated noise."""

import inspect
import itertools
import json
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose
from pydantic import TypeAdapter
from scipy import stats
from scipy.linalg import solve_triangular, sqrtm, toeplitz
from scipy.optimize import minimize

from privplan.accounting.calibrate import MOST_ROUNDS
from privplan.accounting.composition import calibrated_composition, composition
from privplan.accounting.curve import PrivacyCurve
from privplan.accounting.rdp import rdp_of_release
from privplan.accounting.release import Relation, Release, SamplingLaw
from privplan.errors import InputError
from privplan.laws import participation
from privplan.laws.correlated import coefficients, remaining_noise, series
from privplan.laws.cyclic import CyclicPoisson, whole_cycles
from privplan.laws.law import LAWS, Fleet, Law, renyi_of_pair
from privplan.ledger import history_of
from privplan.record import GroupShare, ReleaseRecord
from privplan.verification.checks.check import FALSE_ALARM


def test_names_are_text_and_one_object_each():
    assert json.dumps(SamplingLaw.POISSON) == '"poisson"'
    assert pickle.loads(pickle.dumps(SamplingLaw.FULL)) is SamplingLaw.FULL
    assert SamplingLaw("fixed_size") is SamplingLaw.FIXED_SIZE
    assert [str(name) for name in SamplingLaw] == ["full", "poisson", "fixed_size"]
    for name in ("shuffle", "random_allocation:0"):
        with pytest.raises(ValueError, match=r"^sampling: must be "):
            SamplingLaw(name)
    with pytest.raises(
        InputError, match="sampling: must be one of full, poisson, fixed_size"
    ):
        Release(1.0, 0.1, "shuffle")


def rounded(bounds):
    """Moment bounds, whose noise multipliers are computed in different ways."""
    return {
        (bound.moments, round(bound.noise_multiplier, 12), bound.ratio)
        for bound in bounds
    }


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("law", ["poisson", "full", "fixed_size"])
def test_moment_bounds_of_the_pairs_are_those_of_the_law(law, relation):
    """The default of ``Law.renyi`` gives what each law states, if anything."""
    registered = LAWS.get(law)
    for ratio in (1.0,) if law == "full" else (0.2, 1.0):
        stated = registered.renyi(relation, 1.5, ratio)
        derived = Law.renyi(registered, relation, 1.5, ratio)
        if derived is None:
            assert any(
                renyi_of_pair(pair) is None
                for pair in registered.dominating_pairs(relation, 1 / 1.5, ratio).upper
            )
        elif law != "fixed_size" or (relation != Relation.ZERO_OUT and ratio < 1):
            assert rounded(derived) <= rounded(stated)
        assert (rdp_of_release(Release(1.5, ratio, law), relation) > 0).all()


def test_total_matches_scipy_binomtest_tails():
    counts = [30, 25, 22, 28]
    clients = 400
    ratio = 0.05
    total = sum(counts)
    trials = clients * len(counts)
    tails = (
        stats.binom.cdf(total, trials, ratio),
        stats.binom.sf(total - 1, trials, ratio),
    )
    assert participation.total_p_value(counts, clients, ratio) == pytest.approx(
        2 * min(tails)
    )


def test_total_sees_doubled_participation():
    counts = default_rng(3).binomial(2000, 0.04, 50)
    assert participation.total_p_value(counts.tolist(), 2000, 0.02) < FALSE_ALARM


def test_full_participation_leaves_no_room():
    assert participation.total_p_value([10, 10], 10, 1.0) == 1.0
    assert participation.total_p_value([10, 9], 10, 1.0) == 0.0


def test_a_fixed_size_cohort_booked_as_poisson_is_seen():
    assert participation.dispersion_p_value([40] * 50, 2000, 0.02) < FALSE_ALARM


@pytest.mark.slow
def test_dispersion_is_a_bound_on_honest_false_alarms():
    rng = default_rng(4)
    runs = 150
    for clients, ratio in [(2000, 0.02), (10, 0.1), (100, 0.9)]:
        p_values = [
            participation.dispersion_p_value(sizes.tolist(), clients, ratio)
            for sizes in rng.binomial(clients, ratio, (runs, 30))
        ]
        for level in (0.3, 0.1, 0.03):
            alarms = np.mean(np.array(p_values) < level)
            assert alarms <= level + 3 * np.sqrt(level / runs)


def test_participation_law_is_the_convolution_of_binomials():
    assert_allclose(
        participation.participation_law({0.2: 12}),
        stats.binom.pmf(np.arange(13), 12, 0.2),
        rtol=1e-9,
    )
    chances = [0.1] * 3 + [0.4] * 2 + [1.0]
    by_hand = np.zeros(7)
    for outcome in range(2**6):
        bits = [outcome >> place & 1 for place in range(6)]
        by_hand[sum(bits)] += np.prod(
            [p if b else 1 - p for p, b in zip(chances, bits, strict=True)]
        )
    law = participation.participation_law({0.1: 3, 0.4: 2, 1.0: 1})
    assert_allclose(law, by_hand, atol=1e-15)


def test_preferred_clients_spread_the_participations():
    rng = default_rng(7)
    law = participation.participation_law({0.1: 40})
    sizes = np.arange(41)
    log_law = np.log(law)
    even = rng.binomial(40, 0.1, 500)
    mixed = rng.binomial(40, np.repeat([0.05, 0.15], 250))
    chance = participation.spread_p_value((even.tolist(), sizes, log_law, 0))
    assert chance > 1e-3
    assert (
        participation.spread_p_value((mixed.tolist(), sizes, log_law, 0)) < FALSE_ALARM
    )
    assert chance == pytest.approx(
        participation.dispersion_p_value(even.tolist(), 40, 0.1)
    )


LAW = SamplingLaw("cyclic_poisson:4").law
CLIENTS, ORDER = LAW.seated("all", range(203))


def test_turns_are_a_keyed_hash():
    """By ``openssl mac -macopt hexkey:(BLAKE2b of the group) -macopt size:8
    BLAKE2BMAC``.
    """
    many_turns = SamplingLaw("cyclic_poisson:9973").law
    assert many_turns.turn("strict", "client 7") == 0xFC6180430104E5DA % 9973
    assert many_turns.turn("loose", "Zoë") == 0xB29349C9CBE41B90 % 9973
    assert many_turns.turn("strict", 0) == 0x51656CC2552E03A0 % 9973
    sizes = LAW.seated("all", range(40_000))[0].parts
    assert stats.chisquare(sizes).pvalue > 1e-3


@given(
    names=st.sets(st.text(), min_size=1, max_size=30), group=st.text(), data=st.data()
)
def test_removing_another_client_moves_nobody(names, group, data):
    """A client's turn, by its place in the run, is the same without the others."""

    def turns(client_names):
        clients, order = LAW.seated(group, client_names)
        assert sorted(order) == list(range(len(client_names)))
        turn_of_client = {}
        for turn in range(4):
            for place in LAW.places(turn + 1, clients):
                turn_of_client[client_names[order[place]]] = turn
        return turn_of_client

    everybody = turns(sorted(names))
    remaining = data.draw(
        st.lists(st.sampled_from(sorted(names)), unique=True, min_size=1)
    )
    assert turns(sorted(remaining)) == {name: everybody[name] for name in remaining}


def cohorts(rounds, ratio, seed):
    generator = default_rng(seed)
    return [LAW.draw(generator, CLIENTS, ratio, t) for t in range(1, rounds + 1)]


def test_only_the_clients_of_a_turn_are_drawn():
    drawn = cohorts(400, 0.3, 1)
    for index, cohort in enumerate(drawn):
        assert {LAW.turn("all", ORDER[place]) for place in cohort} <= {index % 4}
        assert len(set(cohort)) == len(cohort)
    times = np.bincount(np.concatenate(drawn), minlength=CLIENTS)
    assert abs(times.mean() - 30) < 5 * np.sqrt(100 * 0.3 * 0.7 / CLIENTS)
    assert times.var() == pytest.approx(100 * 0.3 * 0.7, rel=0.5)


@pytest.mark.parametrize(("rounds", "max_rounds"), [(1, 1), (4, 1), (5, 2), (12, 3)])
def test_rounds_of_a_client(rounds, max_rounds):
    round_numbers = range(1, rounds + 1)
    places = np.concatenate([LAW.places(t, CLIENTS) for t in round_numbers])
    assert np.bincount(places).max() == max_rounds
    assert LAW.rounds_of_client(rounds) == max_rounds
    assert LAW.most_of_client(round_numbers) == max_rounds
    assert LAW.rounds_for(max_rounds) == 4 * max_rounds >= rounds


@pytest.mark.parametrize("rounds", [1, 6, 8])
def test_participations_are_those_of_simulated_rounds(rounds):
    law = LAW.participations({0.3: rounds})
    assert law.sum() == pytest.approx(1)
    counts = np.zeros(len(law))
    for seed in range(200):
        drawn = np.concatenate(cohorts(rounds, 0.3, seed))
        counts += np.bincount(np.bincount(drawn, minlength=CLIENTS), minlength=len(law))
    assert counts / counts.sum() == pytest.approx(law, abs=0.01)


def test_honest_cohorts_pass_and_others_do_not():
    honest = [len(cohort) for cohort in cohorts(80, 0.3, 3)]
    assert not list(LAW.cohort_faults(honest, CLIENTS, 0.3, 1e-6))
    one_turn = [40 if t % 4 == 1 else count for t, count in enumerate(honest)]
    assert "rounds 2, 6" in next(LAW.cohort_faults(one_turn, CLIENTS, 0.3, 1e-6))
    everybody = [round(0.3 * CLIENTS)] * 80  # the ratio of a turn, from all clients
    assert list(LAW.cohort_faults(everybody, CLIENTS, 0.3, 1e-6))
    equal = [15] * 80
    assert "vary unlike" in list(LAW.cohort_faults(equal, CLIENTS, 0.3, 1e-6))[-1]


@pytest.mark.slow
def test_false_alarms():
    level = 0.05
    histories = 100
    alarms = 0
    for seed in range(histories):
        sizes = [len(cohort) for cohort in cohorts(40, 0.3, seed)]
        alarms += any(LAW.cohort_faults(sizes, CLIENTS, 0.3, level))
    assert alarms <= histories * level


def test_a_ledger_counts_the_rounds_of_a_turn():
    def line(round_):
        share = GroupShare(
            group="all",
            clients=8,
            sampling="cyclic_poisson:4",
            sampling_ratio=0.5,
            cohort=1,
            participants=(round_ % 8,),
            clip_bound=1.0,
            largest_norm=1.0,
            clipped=0,
            excluded=0,
            weight=1.0,
        )
        return ReleaseRecord(
            round=round_,
            family="gaussian",
            noise_std=2.0,
            dimension=3,
            noise_sum_squares=12.0,
            shares=(share,),
        )

    lines = [line(round_) for round_ in range(1, 11)]
    for rounds_done in range(1, 11):
        history = history_of(lines[:rounds_done], "all")
        assert history.rounds == -(-rounds_done // 4)
        assert {release.sampling for release, _ in history} == {"cyclic_poisson:4"}
    twice = history_of([*lines[:4], lines[1]], "all")  # a round that was released twice
    assert twice.rounds == 2


def test_questions_without_a_spec_count_the_rounds_of_a_client():
    promise = {"delta": 1e-5, "relation": "add_remove", "clients": 1000}
    cyclic = composition(1.4, 0.1, 55, sampling="cyclic_poisson:5", **promise)
    assert cyclic.history.rounds == 11
    question = {
        **promise,
        "noise_multiplier": 1.4,
        "sampling_ratio": 0.1,
        "rounds": 50,
        "accountant": "pld",
        "sampling": "cyclic_poisson:5",
    }
    rounds, history_composition = calibrated_composition(
        "rounds", 1.0, **{**question, "rounds": None}
    )
    wide = {**question, "rounds": None, "accountant": "rdp", "noise_multiplier": 100.0}
    assert calibrated_composition("rounds", 500, **wide)[0] == MOST_ROUNDS
    poisson = {**question, "sampling": "poisson", "rounds": None}
    assert rounds == 5 * calibrated_composition("rounds", 1.0, **poisson)[0]
    assert history_composition.history.rounds == rounds / 5
    cohort, _ = calibrated_composition(
        "cohort", 1.0, **{**question, "sampling_ratio": None}
    )
    turn = {
        **question,
        "sampling": "poisson",
        "sampling_ratio": None,
        "rounds": 10,
        "clients": 200,
    }
    assert cohort == calibrated_composition("cohort", 1.0, **turn)[0]


MOMENTA = (0.0, 0.5, 0.9)


def matrix(law, momentum, rounds):
    """C, whose rows are the factors on the sums of the rounds, the first one first."""
    chosen_law = np.zeros((rounds, rounds))
    for index in range(rounds):
        row = law.mixture(momentum, rounds, index + 1)[: index + 1]
        chosen_law[index, index + 1 - len(row) : index + 1] = row[::-1]
    return chosen_law


@pytest.mark.parametrize("momentum", MOMENTA)
def test_the_square_root_of_a_server_with_momentum(momentum):
    server = np.tril(np.ones((12, 12))) @ toeplitz(
        momentum ** np.arange(12.0), np.zeros(12)
    )
    root = np.real(sqrtm(server))[:, 0]
    for bands in (1, 3, 7):
        expected = root[:bands] / np.linalg.norm(root[:bands])
        assert series(bands, momentum, 0.5) == pytest.approx(expected, rel=1e-6)


@given(bands=st.integers(1, 40), momentum=st.floats(0, 0.99), rounds=st.integers(1, 60))
def test_columns_have_norm_one_at_most(bands, momentum, rounds):
    columns = matrix(CyclicPoisson(bands), momentum, rounds)
    squares = np.sum(columns**2, axis=0)
    assert (squares <= 1).all()
    assert squares == pytest.approx(1, rel=1e-12)  # none is shorter than privacy allows
    # Rounds of one client: each moves other releases.
    for turn in range(min(bands, rounds)):
        client_columns = columns[:, turn::bands]
        assert not np.triu(client_columns.T @ client_columns, 1).any()


@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize("bands", [2, 5])
def test_the_noise_of_the_last_model(bands, momentum):
    rounds = 30
    inverse = np.linalg.inv(matrix(CyclicPoisson(bands), momentum, rounds))
    model = np.zeros(rounds)
    velocity = np.zeros(rounds)
    for row in inverse:  # each entry of the vectors is the noise of one round
        model += (velocity := momentum * velocity + (1 - momentum) * row)
    # How far the model moves where every round's sum is 1.
    signal = sum(1 - momentum ** (t + 1) for t in range(rounds))
    expected = np.linalg.norm(model) / signal * math.sqrt(rounds)
    assert CyclicPoisson(bands).noise_left(momentum, rounds) == pytest.approx(expected)
    plain = coefficients(bands, momentum, rounds, 0), np.ones(rounds)
    assert expected <= 1.001 * remaining_noise(*plain, momentum) < 1


@pytest.mark.parametrize(
    ("bands", "rounds"), [(5, 50), (20, 50), (100, 100), (16, 200)]
)
def test_prefix_sums_are_near_those_of_the_best_banded_matrix(bands, rounds):
    ours = matrix(CyclicPoisson(bands), 0.0, rounds)
    prefix = np.tril(np.ones((rounds, rounds)))
    places = np.nonzero(ours)

    def noise(free):
        """The log of the sum of squares over all models, and its gradient."""
        banded = np.zeros_like(ours)
        banded[places] = free
        lengths = np.linalg.norm(banded, axis=0)
        banded /= lengths
        decoder = solve_triangular(banded.T, prefix.T).T
        slope = (
            -2
            * solve_triangular(banded, decoder.T @ decoder, lower=True).T
            / np.sum(decoder**2)
        )
        slope = (slope - banded * np.sum(slope * banded, axis=0)) / lengths
        return math.log(np.sum(decoder**2)), slope[places]

    best = minimize(noise, ours[places], method="L-BFGS-B", jac=True).fun
    assert best <= noise(ours[places])[0] <= best + 2 * math.log(1.0095)


def losses_of_a_turn(bands, rounds, ratio, sigma, samples):
    """Privacy losses of a client that is removed, and of one that is added.

    The client adds 1 in each round of its turn, of which it takes part with a chance of
    ``ratio``. Its patterns of participation are a mixture of shifts of the releases
    C x + z.
    """
    factors = matrix(CyclicPoisson(bands), 0.5, rounds)
    generator = default_rng(5)
    # The first turn, whose columns are complete.
    columns = factors[:, ::bands]
    patterns = np.array([*itertools.product((0, 1), repeat=columns.shape[1])])
    means = patterns @ columns.T
    chances = np.prod(np.where(patterns, ratio, 1 - ratio), axis=1)

    def log_ratio(y):
        terms = (y @ means.T - 0.5 * np.sum(means**2, axis=1)) / sigma**2
        return np.log(np.exp(terms) @ chances)

    pattern_indices = generator.choice(len(patterns), size=samples, p=chances)
    noise = sigma * generator.standard_normal((2, samples, rounds))
    return log_ratio(means[pattern_indices] + noise[0]), -log_ratio(noise[1])


def test_a_client_s_privacy_is_that_of_one_release_per_turn():
    """The simulated loss of all T rounds, against ``pld`` of T / B releases."""
    bands = 3
    rounds = 9
    ratio = 0.4
    sigma = 1.1
    samples = 400_000
    losses_by_direction = losses_of_a_turn(bands, rounds, ratio, sigma, samples)
    curve = PrivacyCurve(Relation.ADD_REMOVE)
    curve.step(Release(sigma, ratio, "cyclic_poisson:3"), rounds // bands)
    for epsilon in (0.3, 1.0, 2.0):
        deltas = [
            np.maximum(0, -np.expm1(epsilon - losses)) for losses in losses_by_direction
        ]
        worst = max(deltas, key=lambda excess: float(excess.mean()))
        bounds = curve.delta(epsilon)
        slack = 5 * float(worst.std()) / math.sqrt(samples)
        assert bounds.lower - slack <= worst.mean() <= bounds.upper + slack
        assert slack < 0.1 * bounds.upper


def test_a_cohort_is_at_most_the_clients_of_a_turn():
    groups = [SimpleNamespace(name="all", clients=30)]
    spec = SimpleNamespace(rounds=9, groups=groups, cohort=11)
    assert next(CyclicPoisson(3).excludes(spec)).field == "cohort"


def test_the_smallest_groups_and_largest_cohorts_of_turns_are_allowed():
    planning = SimpleNamespace(
        ratios="balanced", accountant="pld", sparsification="none", free=()
    )
    spec = SimpleNamespace(rounds=9, groups_from=None, planning=planning)
    fields = []
    for clients, cohort in ((3, 1), (3, None), (2, None), (3, 1.5)):
        spec.groups = [SimpleNamespace(name="all", clients=clients, risk=None)]
        spec.cohort = cohort
        fields.append([fault.field for fault in CyclicPoisson(3).excludes(spec)])
    assert fields == [[], [], ["groups.all.clients"], ["cohort"]]


@pytest.mark.parametrize(("ratio", "count"), [(0.25, 0), (0.26, 1), (0.001, 1)])
def test_a_stated_ratio_gives_a_whole_cohort(ratio, count):
    group = SimpleNamespace(name="all", clients=20, sampling_ratio=ratio)
    planning = SimpleNamespace(ratios="given", free=())
    spec = SimpleNamespace(cohort=None, groups=[group], planning=planning)
    faults = [*SamplingLaw("fixed_size").law.excludes(spec)]
    assert [fault.field for fault in faults] == ["groups.all.sampling_ratio"] * count


@pytest.mark.parametrize(("factor", "count"), [(0.9, 0), (1.1, 1)])
def test_half_of_the_level_is_for_the_sizes_of_cohorts(factor, count):
    """Equal cohorts of the expected size, whose totals are no reason to doubt."""
    law = CyclicPoisson(2)
    counts = [20] * 20
    chance = participation.dispersion_p_value(counts, [50] * 20, 0.4)
    assert 0 < chance < 0.05
    level = 2 * factor * chance
    assert len([*law.cohort_faults(counts, 100, 0.4, level)]) == count


def test_a_release_is_complete_when_the_last_one_that_it_moves_is():
    assert SamplingLaw("poisson").law.complete_at(3) == 3
    # Three rounds share noise, so that a participation moves two later releases, too.
    assert CyclicPoisson(3).complete_at(3) == 5


def test_turns_divide_the_rounds_and_have_the_clients_of_a_cohort():
    fleet = Fleet(rounds=12, period=4.5)
    assert fleet.divisors(1, 6) == [2, 3, 4, 6]
    assert whole_cycles(fleet) == ["2", "3", "4"]
    assert whole_cycles(Fleet(rounds=2 * 10**4, period=10**5))[-1] == "5000"


def test_a_schema_says_what_a_law_is():
    schema = TypeAdapter(SamplingLaw).json_schema()
    assert schema["description"] == inspect.getdoc(SamplingLaw)
