"""The table of accountants, their protocol, and the guarded second opinions."""

import math

import pytest

from privplan.accounting.accountant import (
    ACCOUNTANTS,
    accountant,
    fast_accountants,
    second_opinions,
)
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import InputError, UnsupportedError

KINDS = (
    "two-sided bound",
    "upper bound",
    "second opinion",
    "approximation",
    "published formula",
)


@pytest.mark.parametrize("name", ACCOUNTANTS.names())
def test_members_keep_the_protocol(name):
    chosen = accountant(name)
    assert chosen.name == name
    assert chosen.kind in KINDS
    assert isinstance(chosen.version, str)
    assert isinstance(chosen.guarantee, bool)
    history = History.repeated(Release(1.5, 0.02), 50)
    if chosen.why_not(history, Relation.ADD_REMOVE) is None:
        bounds = chosen.epsilon(history, 1e-5, Relation.ADD_REMOVE)
        assert 0 <= bounds.lower <= bounds.upper < 3
    with pytest.raises(InputError, match="delta: must be in"):
        chosen.epsilon(history, 0.0, Relation.ADD_REMOVE)


def test_exactly_one_accountant_carries_the_guarantee():
    assert [name for name in ACCOUNTANTS if accountant(name).guarantee] == ["pld"]


AR = Relation.ADD_REMOVE
RO = Relation.REPLACE_ONE
ZO = Relation.ZERO_OUT
FULL = SamplingLaw.FULL
FIXED = SamplingLaw.FIXED_SIZE
DP = accountant("dp_accounting")

# sigma, q, T, delta and the interval that holds the true epsilon (Poisson, add/remove).
MEASURED = [
    (math.sqrt(2.262), 0.02, 50, 6000**-1.1, 0.3677, 0.3682),
    (0.829, 0.1677, 100, 600**-1.1, 12.50, 12.516),
    (0.8, 0.1, 300, 1 / 500, 13.444, 13.460),
    pytest.param(1.0, 0.001, 10_000, 1e-6, 0.5546, 0.5555, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("sigma", "q", "rounds", "delta", "low", "high"), MEASURED)
def test_dp_accounting_is_tight_on_a_grid_scaled_to_the_loss(
    sigma, q, rounds, delta, low, high
):
    history = History.repeated(Release(sigma, q), rounds)
    assert low < DP.epsilon(history, delta, AR).upper < high * 1.0002
    if accountant("opacus").why_not(history, AR) is None:
        assert accountant("opacus").epsilon(history, delta, AR).upper > low


@pytest.mark.slow
def test_dp_accounting_in_the_other_cells():
    full = History.repeated(Release(2.0, 1.0, FULL), 10)
    assert DP.epsilon(full, 1e-5, AR).upper == pytest.approx(7.5113, rel=1e-3)
    assert DP.epsilon(full, 1e-5, RO).upper == pytest.approx(17.8566, rel=1e-3)
    fixed = History.repeated(Release(math.sqrt(2.262), 0.02, FIXED), 50)
    assert DP.epsilon(fixed, 6000**-1.1, AR).upper == pytest.approx(2.03, abs=0.01)
    poisson = History.repeated(Release(1.5, 0.02), 50)
    assert DP.epsilon(poisson, 1e-5, ZO) == DP.epsilon(poisson, 1e-5, AR)
    assert DP.epsilon(poisson, 1e-5, RO).upper > DP.epsilon(poisson, 1e-5, AR).upper
    mixed = History([(Release(1.5, 0.02), 25), (Release(2.0, 0.02), 25)])
    assert DP.epsilon(mixed, 1e-5, AR).upper < DP.epsilon(poisson, 1e-5, AR).upper


@pytest.mark.parametrize("name", ["dp_accounting", "opacus", "prv"])
def test_cells_they_do_not_cover_are_one_line(name):
    chosen = accountant(name)
    history = History.repeated(Release(1.5, 0.02, FIXED), 50)
    with pytest.raises(UnsupportedError) as caught:
        chosen.epsilon(history, 1e-5, RO)
    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["dp_accounting", "opacus"])
def test_edges(name):
    chosen = accountant(name)
    assert chosen.epsilon(History(), 1e-5, AR).upper == 0
    assert (
        chosen.epsilon(History.repeated(Release(math.inf, 0.1), 3), 1e-5, AR).upper == 0
    )
    assert math.isinf(
        chosen.epsilon(History.repeated(Release(0.0, 0.1), 3), 1e-5, AR).upper
    )


def test_prv_answers_ordinary_settings_and_fails_in_one_line():
    prv = accountant("prv")
    bounds = prv.epsilon(
        History.repeated(Release(math.sqrt(2.262), 0.02), 50), 6000**-1.1, AR
    )
    assert bounds.lower <= 0.368 <= bounds.upper
    assert bounds.upper - bounds.lower < 0.01
    for sigma, q in ((1.5, 1.0), (0.0, 0.1), (math.inf, 0.1)):
        with pytest.raises(UnsupportedError, match=r"^prv: "):
            prv.epsilon(History.repeated(Release(sigma, q), 50), 1e-5, AR)
    many = History([(Release(1 + step / 100, 0.02), 1) for step in range(30)])
    with pytest.raises(UnsupportedError, match="more than 20 different releases"):
        prv.epsilon(many, 1e-5, AR)


def test_accountants_of_other_libraries_are_second_opinions():
    assert set(fast_accountants()) & {"pld", "dp_accounting"} == {"pld"}
    assert set(second_opinions()) & {"pld", "dp_accounting"} == {"dp_accounting"}
