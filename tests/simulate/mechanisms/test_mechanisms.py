"""Components fit each other, samplers keep their laws, and drawn noise is booked."""

import itertools
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from scipy import stats
from scipy.linalg import toeplitz

import simulate
from privplan import judge, load_run
from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.evidence.rounds import EVIDENCE
from privplan.laws.builtin import Poisson
from privplan.laws.correlated import factors
from privplan.laws.cyclic import CyclicPoisson
from privplan.planning.solver import solve
from privplan.record import LEDGER
from privplan.spec.spec import Spec
from privplan.streams import Purpose, stream
from simulate.aggregators import literal, mean, unmixed
from simulate.algorithm import compose
from simulate.algorithms import gdpfed
from simulate.components import GroupSum, Received, Released, Transform
from simulate.mechanisms import (
    gaussian_joint,
    gaussian_per_group,
    mixed_sums,
    unprotected,
)
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.samplers import by_law
from simulate.transforms import clip
from tests.simulate import tiny
from tests.simulate.conftest import interrupt
from tests.simulate.replay.runs import replayed

ROOT = Path(simulate.__file__).parent


OPAQUE = Transform(
    "opaque", lambda updates, context: (updates, None), lambda bound, group: None
)
CLIP = {"transforms": (clip(1.0),)}


@pytest.mark.parametrize(
    ("components", "message"),
    [
        (
            {"mechanism": gaussian_per_group()},
            r"algorithm\.mechanism: must follow a transform",
        ),
        (
            {"transforms": (clip(1.0), OPAQUE), "mechanism": gaussian_per_group()},
            "opaque",
        ),
        ({"sampler": by_law(SamplingLaw.POISSON)}, "must draw by the plan's law, full"),
        (
            {**CLIP, "mechanism": gaussian_joint(), "aggregator": literal()},
            "the same weight",
        ),
        (
            {"mechanism": gaussian_joint},
            "must be a Mechanism or None; call .*'gaussian_joint",
        ),
        ({"server": lambda theta, step: theta}, r"algorithm\.server: must be a Server"),
    ],
)
def test_components_that_do_not_fit_are_refused(components, message):
    with pytest.raises(InputError, match=message):
        compose("unfit", tiny.plan(), **components)


def test_only_the_mechanisms_draw_normal_noise():
    draw = re.compile(r"standard_normal|\.normal\(|randn|Purpose\.NOISE")
    drawing = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if draw.search(path.read_text())
    ]
    assert sorted(drawing) == [
        "attacks/decoder.py",  # disturbed images from which a decoder learns
        "attacks/feature_objective.py",  # images on which an attacker scales its search
        "attacks/hypernetwork_objective.py",  # where an attacker's search starts
        "contrib/sensitivity/neighbours.py",  # a generator that draws zeros
        "engine/loop.py",  # names the stream
        "engine/measurements.py",  # subtracts what a client says that it drew
        "mechanisms.py",
        "models/own_checks.py",  # records on which a user's module is tried
        "models/randomness.py",  # dropout of a user's module
        "proxy/observation.py",  # directions of a pilot, which protect nothing
        "replay/clients.py",  # draws a run's noise again, to compare
        "replay/sums.py",  # the same
        "replay/training.py",  # directions in which a model is rounded
    ]


CLIENTS = 400
RATIO = 0.05
DRAWS = 3000
# Probability beyond which a statistic is refused, on both sides: one test in 500,000.
RARE = 1e-6


def is_plausible(probability):
    return RARE < probability < 1 - RARE


def draws(sampler):
    return [
        sampler.draw(stream(1, Purpose.SAMPLING, index, 0), CLIENTS, RATIO, 1)
        for index in range(DRAWS)
    ]


def test_poisson_sizes_are_binomial_and_every_client_is_as_likely():
    cohorts = draws(by_law(SamplingLaw.POISSON))
    sizes = np.array([len(cohort) for cohort in cohorts])
    mean = CLIENTS * RATIO
    variance = mean * (1 - RATIO)
    assert abs(sizes.mean() - mean) < 5 * np.sqrt(variance / DRAWS)
    assert abs(sizes.var() / variance - 1) < 5 * np.sqrt(2 / DRAWS)
    counts = np.bincount(np.concatenate(cohorts), minlength=CLIENTS)
    spread = ((counts - DRAWS * RATIO) ** 2).sum() / (DRAWS * RATIO * (1 - RATIO))
    assert is_plausible(stats.chi2.sf(spread, CLIENTS))


def test_poisson_clients_are_independent():
    present = np.zeros((DRAWS, 2), dtype=bool)
    for index, cohort in enumerate(draws(by_law(SamplingLaw.POISSON))):
        present[index] = np.isin([3, 4], cohort)
    together = int(present.all(axis=1).sum())
    assert is_plausible(stats.binom.cdf(together, DRAWS, RATIO**2))


def test_fixed_size_is_exact_and_without_replacement():
    cohorts = draws(by_law(SamplingLaw.FIXED_SIZE))
    assert {len(cohort) for cohort in cohorts} == {20}
    assert all(len(np.unique(cohort)) == 20 for cohort in cohorts)
    counts = np.bincount(np.concatenate(cohorts), minlength=CLIENTS)
    assert abs(counts - DRAWS * RATIO).max() < 6 * np.sqrt(DRAWS * RATIO)


def test_no_two_streams_start_alike():
    indices = []
    for count in (0, 1, 2):
        indices += itertools.product((0, 1, 2, 70000), repeat=count)
    names = list(itertools.product((0, 1, 2**31), Purpose, indices))
    starts = {
        stream(seed, purpose, *numbers).integers(2**62)
        for seed, purpose, numbers in names
    }
    assert len(starts) == len(names)


# Coordinates of a release, and the factors on each group's sum.
SIZE = 50_000
WEIGHTS = {"strict": 0.3, "loose": 0.3}


def group_sums(totals, bound=5.0):
    """The sums of both groups of the tiny plan."""
    return [
        GroupSum(
            group=group,
            total=total,
            sampling=SamplingLaw.FULL,
            ratio=1.0,
            participants=(0, 1),
            bound=bound,
            largest_norm=4.0,
            clipped=1,
            excluded=0,
        )
        for group, total in zip(tiny.plan().groups, totals, strict=True)
    ]


def sums(bound=5.0):
    """Sums whose coordinates are all 3."""
    return group_sums(torch.full((2, SIZE), 3.0, dtype=torch.float64), bound)


def drawn_noise(index):
    return stream(1, Purpose.NOISE, 1, index)


def drawn(release, total):
    return release.vector.double().numpy() - total


def test_one_release_per_group_with_its_own_deviation():
    releases = gaussian_per_group().release(1, sums(), WEIGHTS, drawn_noise)
    assert [release.record.noise_std for release in releases] == [10.0, 2.5]
    for release in releases:
        record = release.record
        values = drawn(release, 3.0)
        squares = record.noise_sum_squares
        assert squares == pytest.approx((values**2).sum(), rel=1e-5)
        assert is_plausible(stats.chi2.sf(squares / record.noise_std**2, SIZE))
        assert abs(values.mean()) < 5 * record.noise_std / np.sqrt(SIZE)
        assert record.dimension == SIZE


def test_releases_do_not_share_their_noise():
    releases = gaussian_per_group().release(1, sums(), WEIGHTS, drawn_noise)
    first_noise, second_noise = (drawn(release, 3.0) for release in releases)
    assert abs(np.corrcoef(first_noise, second_noise)[0, 1]) < 5 / np.sqrt(SIZE)
    assert abs(np.corrcoef(first_noise[1:], first_noise[:-1])[0, 1]) < 5 / np.sqrt(SIZE)


def test_a_joint_release_has_noise_enough_for_every_group():
    group_sums = sums()
    # Noise multiplier 0.5 times 30 is more than 2 times 5.
    group_sums[1] = replace(group_sums[1], bound=30.0)
    [release] = gaussian_joint().release(1, group_sums, WEIGHTS, drawn_noise)
    record = release.record
    assert record.noise_std == 15.0
    squares = (drawn(release, 6.0) ** 2).sum()
    assert is_plausible(stats.chi2.sf(squares / 15.0**2, SIZE))
    for share, group in zip(record.shares, tiny.plan().groups, strict=True):
        multiplier = record.release_for(share).noise_multiplier
        assert multiplier >= group.noise_multiplier


def test_without_a_bound_there_is_no_noise_to_draw():
    for mechanism in (gaussian_per_group(), gaussian_joint()):
        with pytest.raises(InputError, match="needs updates with a proven bound"):
            mechanism.release(1, sums(bound=None), WEIGHTS, drawn_noise)


def test_no_protection_is_booked_as_none():
    [release] = unprotected().release(1, sums(), WEIGHTS, drawn_noise)
    assert torch.equal(release.vector, torch.full((SIZE,), 6.0))
    record = release.record
    assert record.family == "none"
    assert record.noise_std == 0
    assert record.dimension == 0


BANDS = 3
ROUNDS = 8
COORDINATES = 40


def noise_source(round_, index):
    """The generator of a release, from its start."""
    return default_rng([round_, index])


class MixedRounds:
    """Rounds whose sums are mixed, noised and solved, with 1/4 as factor on each sum.

    Args:
        joint: whether both groups have one sum.
    """

    def __init__(self, joint):
        mixture = partial(CyclicPoisson(BANDS).mixture, 0.5, ROUNDS)
        inner = gaussian_joint() if joint else gaussian_per_group()
        self.mechanism = mixed_sums(inner, mixture)
        self.aggregator = unmixed(mean(), mixture)
        self.weights = {group.name: 0.25 for group in tiny.plan().groups}
        self.theta = torch.zeros(COORDINATES)
        self.server = self.aggregator.start(self.theta)

    def run(self, round_, sums, past):
        """The step of a round, from 1, and the noise in it.

        Args:
            round_: from 1.
            sums: of the groups [2, COORDINATES].
            past: of the two rounds before, the latest first, [2, 2, COORDINATES].
        """
        mixed = self.mechanism.mix(round_, group_sums(sums), past)
        releases = self.mechanism.release(
            round_, mixed, self.weights, partial(noise_source, round_)
        )
        noise = np.zeros(COORDINATES)
        sent = []
        for index, release in enumerate(releases):
            assert isinstance(release, Released)
            draws = noise_source(round_, index).standard_normal(COORDINATES)
            noise += 0.25 * draws * release.record.noise_std
            factor = release.record.shares[0].factor
            sent.append(Received(round_, release.vector, release.groups, factor))
        step, self.server = self.aggregator.combine(sent, self.theta, self.server)
        return step.numpy(), noise


def mixing_matrix():
    """C of the mixture, whose columns have norm 1 [ROUNDS, ROUNDS]."""
    series, rows = factors(BANDS, 0.5, ROUNDS)
    column = np.pad(series, (0, ROUNDS - BANDS))
    matrix = rows[:, None] * toeplitz(column, np.zeros(ROUNDS))
    return matrix / np.linalg.norm(matrix, axis=0)


@pytest.mark.parametrize("joint", [True, False])
def test_the_server_has_the_sums_and_the_solved_noise(joint):
    """Each step is that of the sums, plus C^{-1} of independent draws."""
    generator = default_rng(3)
    totals = torch.from_numpy(generator.standard_normal((ROUNDS, 2, COORDINATES)))
    nothing = torch.zeros_like(totals[:2])
    before = torch.cat([nothing, totals])
    rounds = MixedRounds(joint)
    steps = []
    noise = []
    for index in range(ROUNDS):
        past = before[[index + 1, index]].transpose(0, 1)
        step, drawn_in_round = rounds.run(index + 1, totals[index], past)
        steps.append(step)
        noise.append(drawn_in_round)
    solved = np.linalg.inv(mixing_matrix()) @ np.array(noise)
    expected = 0.25 * totals.sum(1).numpy() + solved
    assert np.array(steps) == pytest.approx(expected, abs=2e-4)


@pytest.fixture(scope="module")
def plan():
    data = {
        "name": "turns",
        "groups": [
            {"name": "a", "clients": 45, "epsilon": 2.0},
            {"name": "b", "clients": 45, "epsilon": 6.0},
        ],
        "rounds": 9,
        "cohort": 20,
        "sampling": "cyclic_poisson:3",
        "model": {"name": "mlp-digits", "parameters": 2410},
        "planning": {"slack": 0},
    }
    return solve(Spec.parse(data))


@pytest.fixture(scope="module")
def request_(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("turns") / "run"
    request = Request(plan, "planned", "digits", folder, seed=4)
    execute(request)
    return request


def test_a_run_is_verified_from_its_ledger(request_):
    verdict = judge(load_run(request_.folder), 0)
    assert not [check for check in verdict.checks if check.outcome == "failed"]
    for group in verdict.groups:
        assert group.budget * 0.98 < group.realised_lower
        assert group.realised_lower <= group.realised_upper <= group.budget


def test_an_interrupted_run_resumes_to_the_same_model(request_, tmp_path):
    again = replace(request_, folder=tmp_path / "run")
    interrupt(again, 5)
    interrupted = judge(load_run(again.folder), 0)
    # Two rounds of a client's turn, one of them with its whole cycle.
    for group in interrupted.groups:
        assert group.realised_lower < group.realised_upper < group.budget
    assert (
        interrupted.worst.realised_lower
        < interrupted.worst.realised_upper
        < interrupted.worst.budget
    )
    execute(again)
    # The evidence has a hash of each round's model.
    for name in (LEDGER, EVIDENCE):
        content = (again.folder / name).read_bytes()
        assert content == (request_.folder / name).read_bytes()


def test_clients_out_of_turn_are_found(plan, tmp_path, monkeypatch):
    """Draws from everybody with the ratio of a turn, as by Poisson sampling."""
    request = Request(plan, "planned", "digits", tmp_path / "run", seed=4)
    monkeypatch.setattr(CyclicPoisson, "draw", Poisson.draw)
    execute(request)
    monkeypatch.undo()
    failed = {check.name for check in judge(load_run(request.folder), 0).failed}
    assert {"cohorts", "cohorts regenerated", "sampling law"} <= failed


def test_turns_that_follow_places_are_found(plan, tmp_path, monkeypatch):
    """Every third place has a turn, so one client more or less moves those behind."""

    def places(law, round_, clients):
        return range((round_ - 1) % 3, clients, 3)

    def draw(law, source, clients, ratio, round_):
        turn = law.places(round_, clients)
        return turn.start + 3 * Poisson.draw(law, source, len(turn), ratio, round_)

    monkeypatch.setattr(CyclicPoisson, "places", places)
    monkeypatch.setattr(CyclicPoisson, "draw", draw)
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=4))
    monkeypatch.undo()
    failed = {check.name for check in judge(load_run(tmp_path / "run"), 0).failed}
    assert {"cohorts", "cohorts regenerated"} <= failed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algorithm": "DP-FedAvg"},
            "plan.sampling: must be a law under which every round draws",
        ),
        (
            {"canaries": 5},
            "plan.spec.sampling: must be a law under which every round draws",
        ),
        (
            {"noise": "secure-discrete"},
            "noise: must not be secure-discrete under cyclic_poisson:3",
        ),
    ],
)
def test_what_does_not_go_with_turns(changes, message, request_, tmp_path):
    with pytest.raises(InputError) as caught:
        execute(replace(request_, folder=tmp_path / "run", **changes))
    assert message in str(caught.value)


@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_another_mixture_than_planned_is_found_without_replay(
    factor, plan, tmp_path, monkeypatch
):
    """The round's sum alone, or twice the mixture: more is spent than the budget."""
    planned = plan.spec.mixture
    mixture = tuple(factor * coefficient for coefficient in planned)
    if factor == 0:
        mixture = (1.0, *mixture[1:])

    def with_another_mixture(inner, _):
        return mixed_sums(inner, lambda round_: mixture)

    monkeypatch.setattr(gdpfed, "mixed_sums", with_another_mixture)
    execute(Request(plan, "planned", "digits", tmp_path / "run", seed=4))
    failed = {check.name for check in judge(load_run(tmp_path / "run"), 0).failed}
    assert {"sums", "noise regenerated"} <= failed
    assert replayed(tmp_path / "run", 1, 1).outcome == "failed"
