"""A family of noise from outside: its discrete pairs are composed, and its evidence is tested."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from privplan.accounting.accountant import accountant
from privplan.accounting.families import NOISE_FAMILIES, NoiseFamily
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InputError, UnsupportedError
from privplan.laws.law import DiscretePair, exact
from privplan.ledger import history_of
from privplan.record import GroupShare, ReleaseRecord

DELTA = 1e-5


class Response(NoiseFamily):
    """Randomised response on one bit, with epsilon 1 / noise multiplier; nobody is sampled."""

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


def exact_delta(epsilon: float, loss: float, rounds: int) -> float:
    """Delta of k rounds of randomised response, summed over the number of true answers."""
    heads = 1 / (1 + math.exp(-loss))
    total = 0.0
    for true in range(rounds + 1):
        found = (2 * true - rounds) * loss
        if found > epsilon:
            mass = stats.binom.pmf(true, rounds, heads)
            total += mass * -math.expm1(epsilon - found)
    return total


@pytest.mark.parametrize(("loss", "rounds"), [(1.0, 1), (0.3, 20), (0.05, 400)])
def test_discrete_pairs_compose_to_the_binomial(response, loss, rounds):
    history = History.repeated(Release(1 / loss, 1.0, "full", "response"), rounds)
    bounds = accountant("pld").epsilon(history, DELTA, Relation.ADD_REMOVE)
    assert exact_delta(bounds.upper, loss, rounds) <= DELTA * (1 + 1e-9)
    assert exact_delta(bounds.upper * (1 - 2e-3), loss, rounds) > DELTA
    if bounds.lower > 0:
        assert exact_delta(bounds.lower * (1 - 1e-9), loss, rounds) >= DELTA * (1 - 1e-9)


def test_families_compose_with_each_other(response):
    gaussian = History.repeated(Release(2.0, 0.1), 20)
    other = History.repeated(Release(10.0, 1.0, "full", "response"), 5)
    pld = accountant("pld")
    parts = [pld.epsilon(one, DELTA, Relation.ADD_REMOVE) for one in (gaussian, other)]
    both = pld.epsilon(gaussian + other, DELTA, Relation.ADD_REMOVE)
    assert max(part.lower for part in parts) < both.lower <= both.upper
    assert both.upper < parts[0].upper + 5 * 0.1 + 1e-9  # 0.1-DP each


@pytest.mark.parametrize("name", ["rdp", "gdp", "closed_form", "dp_accounting", "opacus", "prv"])
def test_accountants_of_gaussian_noise_refuse_in_one_line(response, name):
    history = History.repeated(Release(2.0, 1.0, "full", "response"), 3)
    with pytest.raises(UnsupportedError, match=rf"^{name}: ") as caught:
        accountant(name).epsilon(history, DELTA, Relation.ADD_REMOVE)
    assert "\n" not in str(caught.value)


def test_a_law_that_the_family_does_not_cover_is_refused(response):
    history = History.repeated(Release(2.0, 0.1, "poisson", "response"), 3)
    with pytest.raises(UnsupportedError, match="response: covers full participation only"):
        accountant("pld").epsilon(history, DELTA, Relation.ADD_REMOVE)


def _record(family: str) -> ReleaseRecord:
    share = GroupShare(
        group="all", clients=5, sampling="full", sampling_ratio=1, cohort=5, clip_bound=2.0,
        largest_norm=1.0, clipped=0, weight=1.0,
    )  # fmt: skip
    return ReleaseRecord(
        round=1, family=family, noise_std=20.0, dimension=3, noise_sum_squares=1200.0,
        shares=(share,),
    )  # fmt: skip


def test_the_ledger_names_the_family_and_the_history_keeps_it(response):
    record = _record("response")
    assert record.noise.p_value(record.noise_sum_squares, record.noise_std, 3) == 1.0
    assert history_of([record], "all") == History([(Release(10.0, 1.0, "full", "response"), 1)])
    assert history_of([_record("none")], "all") == History([(Release(0.0, 1.0, "full"), 1)])
    assert history_of([_record("silent")], "all") == History([(Release(math.inf, 1.0, "full"), 1)])
    with pytest.raises(
        ValueError, match="must be one of gaussian, discrete_gaussian, none, silent"
    ):
        _record("nosuch")


def test_a_discrete_pair_is_a_distribution():
    for losses, masses in [((1.0, 0.0), (0.5, 0.5)), ((0.0,), (1.5,)), ((-3.0,), (1.0,))]:
        with pytest.raises(InputError):
            DiscretePair(losses, masses)
