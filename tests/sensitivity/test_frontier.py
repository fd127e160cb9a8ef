"""Frontiers: directions that must hold, and the command."""

import pytest

from privplan.planning.choices import decide_free_choices
from privplan.planning.frontier import frontier
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec, spec_data

PLANNING = {"accountant": "rdp", "ratios": "balanced"}


@pytest.fixture(scope="module")
def answers():
    return frontier(make_spec(planning=PLANNING))


def noises(answers, question):
    return [a.noise for a in answers if a.question == question and a.noise is not None]


def test_more_rounds_more_noise_more_clients_less_more_budget_less(answers):
    assert noises(answers, "rounds") == sorted(noises(answers, "rounds"))
    assert noises(answers, "cohort") == sorted(noises(answers, "cohort"), reverse=True)
    assert noises(answers, "epsilon") == sorted(noises(answers, "epsilon"), reverse=True)


def test_free_rounds_and_cohort_are_decided_first():
    data = spec_data(planning={"accountant": "rdp", "max_uploads": 600})
    del data["clipping_norm"]
    data["planning"]["free"] = ["ratios", "weights", "rounds", "cohort"]
    spec = Spec.parse(data)
    decided = decide_free_choices(spec)[0]
    assert decided.rounds != spec.rounds
    found = {one.what: one for one in frontier(spec) if one.question == "rounds"}
    own = found[str(decided.rounds)]
    assert own.change == pytest.approx(0, abs=1e-9)
    assert own.note == ""
    assert found[str(2 * decided.rounds)].note == "beyond planning.max_uploads: 600"


def test_every_group_has_a_shadow_price_below_zero(answers):
    prices = {a.what: a.change for a in answers if a.question == "shadow_price"}
    assert set(prices) == {"strict", "loose"}
    assert all(price is not None and price < 0 for price in prices.values())


def test_wrong_constants_cost_little_and_never_gain(answers):
    regrets = [a.change for a in answers if a.question == "wrong_constant"]
    assert len(regrets) == 4
    assert all(regret is not None and -1e-3 <= regret < 0.5 for regret in regrets)


def test_doubling_the_cohort_goes_on_to_everybody_and_finds_the_knee(answers):
    cohorts = [float(a.what) for a in answers if a.question == "cohort"]
    assert (cohorts[0], cohorts[-1]) == (12.5, 500)
    assert [a.what for a in answers if a.question == "knee"]
