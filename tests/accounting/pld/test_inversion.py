"""The fast estimate of epsilon: against bounds, and where it does not serve."""

from __future__ import annotations

import math

import pytest

from privplan.accounting.pld.accountant import PldAccountant, compose
from privplan.accounting.pld.estimate import epsilon_estimate
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.laws.law import DiscretePair, Kind, Pair

CASES = [
    # law, relation, noise multiplier, ratio, rounds, delta
    ("poisson", "add_remove", 1.5, 0.02, 50, 7e-5),
    ("poisson", "add_remove", 0.8, 0.007, 28, 1e-5),
    ("poisson", "add_remove", 40.0, 0.2, 800, 1e-7),
    ("poisson", "add_remove", 0.6, 0.05, 300, 1e-6),
    ("poisson", "add_remove", 0.3, 0.0007, 280, 1.4e-4),  # rare participation
    ("poisson", "add_remove", 1.59, 0.00492, 603, 3.9e-9),
    ("fixed_size", "add_remove", 1.859, 0.00194, 710, 9.2e-8),
    ("poisson", "replace_one", 2.0, 0.1, 100, 1e-5),
    ("fixed_size", "add_remove", 2.5, 0.03, 60, 1e-5),
    ("fixed_size", "replace_one", 3.0, 0.05, 200, 1e-6),
]
LONE = Pair(Kind.REMOVE, 0.7, 0.02)


@pytest.mark.parametrize(("law", "relation", "noise", "ratio", "rounds", "delta"), CASES)
def test_estimates_lie_between_close_bounds(
    law: str, relation: str, noise: float, ratio: float, rounds: int, delta: float
) -> None:
    """Within 2e-6 of the bounds at a tolerance of 1e-5 where these are those of the same pairs."""
    history = History.repeated(Release(noise, ratio, SamplingLaw(law)), rounds)
    loss = compose(history, Relation(relation), tolerance=1e-5)
    above = loss.epsilon(delta).upper
    closed = all(one.pairs == other.pairs for one, other in loss.directions)
    below = loss.epsilon(delta).lower if closed else above * (1 - 1e-5)
    pair = loss.directions[0][0].pairs[0][0]
    for near in (0.6 * above, above, 1.5 * above):
        found = epsilon_estimate(pair, rounds, delta, near)
        assert found is not None
        assert below * (1 - 2e-6) <= found <= above * (1 + 2e-6)


@pytest.mark.parametrize(
    ("pair", "rounds", "near"),
    [
        (Pair(Kind.ADD, 0.7, 0.02), 50, 1.0),
        (Pair(Kind.REMOVE, 0.7, 1.0), 50, 1.0),
        (DiscretePair((-1.0, 1.0), (0.25, 0.75)), 50, 1.0),
        (LONE, 50, 0.0),
        (LONE, 50, math.inf),
        (LONE, 1, 0.5),
        (Pair(Kind.REMOVE, 0.7, 1e-7), 50, 1.0),
        (Pair(Kind.REMOVE, 19.0, 0.02), 5, 1.0),
        (LONE, 50, 1e6),
    ],
)
def test_what_it_does_not_serve_is_left_to_bounds(
    pair: Pair | DiscretePair, rounds: int, near: float
) -> None:
    assert epsilon_estimate(pair, rounds, 1e-5, near) is None


def test_a_bound_that_meets_a_budget_is_enough() -> None:
    """The same upper bound, or a finer one, alone; both bounds where the budget is missed."""
    history = History.repeated(Release(1.5, 0.02, SamplingLaw("poisson")), 50)
    asked = history, 7e-5, Relation("add_remove")
    both = PldAccountant().epsilon(*asked)
    assert 0 < both.lower < both.upper
    met = PldAccountant(enough=both.upper * (1 + 5e-5)).epsilon(*asked)
    assert (met.lower, met.upper) == (0.0, both.upper)
    finer = PldAccountant(enough=both.upper * (1 - 1e-9)).epsilon(*asked)
    assert finer.lower == 0
    assert both.lower < finer.upper < both.upper
    for budget in (both.upper * (1 - 2e-3), both.upper * (1 + 2e-4)):
        assert PldAccountant(enough=budget).epsilon(*asked) == both
