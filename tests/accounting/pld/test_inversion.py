"""Many questions at once: against the accountant one by one, closed forms, and each other."""

import numpy as np
import pytest

import privplan
from privplan.accounting.pld.accountant import PldAccountant, _between, compose
from privplan.accounting.pld.inversion import _kept, bounds, questions
from privplan.accounting.pld.moments import Equal, off_by, outcomes
from privplan.accounting.pld.pairs import epsilon_of, gaussian_epsilon
from privplan.laws.law import Kind, Pair


def random_questions(count, seed, most_rounds=1e5):
    rng = np.random.default_rng(seed)

    def spread(low, high):
        return np.exp(rng.uniform(np.log(low), np.log(high), count))

    return {
        "noise_multiplier": spread(0.5, 20),
        "sampling_ratio": spread(1e-4, 0.9),
        "rounds": np.round(spread(1, most_rounds)),
        "delta": spread(1e-10, 1e-3),
    }


@pytest.mark.parametrize(
    ("law", "relation", "count"),
    [
        ("poisson", "add_remove", 40), ("poisson", "replace_one", 12),
        ("fixed_size", "add_remove", 12), ("cyclic_poisson:5", "zero_out", 8),
    ],
)  # fmt: skip
def test_bounds_are_sound_and_close(law, relation, count):
    """At least the accountant's lower bound, and 0.5 or 0.1% above its upper one in 95 of 100."""
    asked, one = (
        random_questions(count, seed=5, most_rounds=1e4),
        privplan.SamplingLaw(law).law,
    )
    asked["rounds"] = one.rounds_for(asked["rounds"])
    found = privplan.account(sampling=law, relation=relation, **asked)
    finer = privplan.account(sampling=law, relation=relation, tolerance=1e-3, **asked)
    assert found.cell == f"{law} sampling, {relation}, accountant pld"
    near = np.zeros(2)
    for at, numbers in enumerate(zip(*asked.values(), strict=True)):
        sigma, ratio, rounds, delta = map(float, numbers)
        history = privplan.History.repeated(
            privplan.Release(sigma, ratio, privplan.SamplingLaw(law)),
            one.rounds_of_client(int(rounds)),
        )
        exact = PldAccountant(tolerance=5e-4).epsilon(history, delta, relation)
        for way, (bounds_, most) in enumerate(((found, 1.005), (finer, 1.001))):
            assert bounds_.lower[at] <= exact.upper
            assert bounds_.upper[at] >= exact.lower
            near[way] += bounds_.upper[at] <= most * exact.upper + 1e-12
    assert (near >= count - max(1, count // 20)).all()


@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.ADD, Kind.SWAP])
def test_one_round_has_its_closed_form(kind):
    """The profile of one round is known; small and large shifts, rare and frequent sampling."""
    pairs = [
        Pair(kind, shift, q) for shift in (0.06, 0.7, 3.0) for q in (1e-3, 0.3, 0.95)
    ]
    shifts, ratios = np.transpose([(p.shift, p.ratio) for p in pairs])
    asked = questions(
        kind, shifts, ratios, np.ones(len(pairs)), np.full(len(pairs), 1e-6)
    )
    lower, upper = bounds((asked,), 5e-3)
    assert _kept(asked, 3 * upper).any()
    assert not _kept(asked, 0.999 * lower).any()
    for at, pair in enumerate(pairs):
        assert upper[at] >= epsilon_of(pair, 1e-6, from_above=False)
        assert lower[at] <= epsilon_of(pair, 1e-6, from_above=True)
        assert upper[at] <= 1.02 * epsilon_of(pair, 1e-6, from_above=True) + 1e-12


def test_shapes_closed_forms_and_bad_input():
    noise = np.array([[1.0, 2.0], [5.0, 0.04]])
    found = privplan.account(
        noise_multiplier=noise, rounds=[9, 16], delta=1e-6, sampling="full"
    )
    assert found.epsilon.shape == (2, 2)
    assert found.upper[0, 0] == pytest.approx(gaussian_epsilon(3.0, 1e-6)[1], rel=1e-9)
    sampled = privplan.account(
        noise_multiplier=noise, sampling_ratio=0.01, rounds=9, delta=1e-6
    )
    assert np.isinf(sampled.upper[1, 1]), "too little noise to compose"
    covered = privplan.account(
        noise_multiplier=[9, 20], sampling_ratio=1e-9, rounds=9, delta=1e-6
    )
    assert not covered.upper.any(), "nobody ever takes part, except with chance delta"
    rare = {"noise_multiplier": 13.211463, "sampling_ratio": 0.01310635, "rounds": 59}
    far = privplan.account(
        **{name: [one] for name, one in rare.items()}, delta=2.7186e-5
    )
    alone = privplan.account(**rare, delta=2.7186e-5).epsilon
    assert alone <= far.upper[0] <= 1.01 * alone, (
        "0.436 by the inversion of all at once"
    )
    for tolerance in (0.2, "close"):
        with pytest.raises(privplan.PrivplanError, match="tolerance: must be in"):
            privplan.account(
                noise_multiplier=noise, rounds=9, delta=1e-6, tolerance=tolerance
            )
    with pytest.raises(privplan.PrivplanError, match="noise_multiplier: must be in"):
        privplan.account(
            noise_multiplier=[1, -1], sampling_ratio=0.1, rounds=5, delta=1e-6
        )


@pytest.mark.slow
def test_ten_thousand_questions_have_close_bounds():
    """All but those with a delta next to the total variation, where epsilon is nearly 0."""
    for tolerance in (1e-3, 1e-2):
        found = privplan.account(
            **random_questions(10_000, seed=0), tolerance=tolerance
        )
        assert np.isfinite(found.upper).all()
        assert (found.upper * (1 - tolerance) <= found.lower).mean() > 0.999


@pytest.mark.parametrize("kind", [Kind.REMOVE, Kind.ADD, Kind.SWAP, Kind.STITCHED])
def test_moments_are_off_by_less_than_their_bound(kind):
    """A few panels against many."""
    part = Equal(kind, *np.array([[0.8, 2.0], [0.1, 1e-4], [1.0, 1.0]]))
    low = part.shift / 2 if kind == Kind.STITCHED else -8 - part.shift
    few, many = (np.linspace(low, low + 18, count, axis=1) for count in (9, 61))
    tilt = np.array([3.0, 5.0])
    found, exact = (
        (np.exp(tilt[:, None] * one.losses) * one.masses).sum(axis=1)
        for one in (outcomes(part, few), outcomes(part, many))
    )
    bound = np.exp(off_by(part, few, tilt, np.zeros(2)))
    assert (np.abs(found / exact - 1) <= bound / exact + 1e-12).all()
    assert (bound < 0.1 * exact).all()


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_many_kinds_of_rounds_and_rare_ones(relation):
    """Against convolutions; both bounds within 0.1% of each other, of epsilon and of delta."""
    mixed = [privplan.Release(1 + 0.3 * i, 0.01 * (i + 1)) for i in range(12)]
    histories = (
        privplan.History(
            [(one, 20) for one in mixed] + [(privplan.Release(9.0, 1.0, "full"), 4)]
        ),
        privplan.History.repeated(privplan.Release(0.62, 2.5e-5), 30_000),
    )
    for history in histories:
        found = privplan.compose(history, relation).epsilon(1e-7)
        other = _between(
            compose(history, privplan.Relation(relation)).directions, 1e-7, 1e-3
        )
        assert (
            other.lower
            <= found.upper
            <= found.lower * (1 + 1e-3)
            <= other.upper * (1 + 2e-3)
        )
        spent = privplan.compose(history, relation).delta(found.upper)
        assert spent.lower <= 1e-7
        assert spent.upper <= spent.lower * (1 + 1.2e-3)
