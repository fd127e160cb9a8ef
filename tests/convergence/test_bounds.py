"""Symbolic bounds: derivatives give the papers' optima, numbers agree with the plans."""

import math

import pytest
import sympy

from privplan.errors import InputError
from privplan.planning.bounds import missing, number, step_constants, symbol
from privplan.planning.explain import bound, explain, symbolic_bounds
from privplan.planning.solver import solve
from tests.planning.problems import make_spec


@pytest.mark.parametrize("name", symbolic_bounds())
def test_every_bound_names_its_source_and_its_terms(name: str) -> None:
    one = bound(name, 3)
    assert one.name == name
    assert one.source
    assert one.terms
    assert one.total().free_symbols


def test_remark_3_is_where_the_derivative_in_k_vanishes() -> None:
    """k*/d = 1 - 2 w sigma^2 / (eta tau mu4 r^2)."""
    total = bound("problem_1", 2).total()
    k, w, s, r = (symbol(f"{name}_1") for name in ["k", "w", "sigma", "r"])
    eta, tau = symbol("eta"), symbol("tau")
    mu4 = 32 * eta * tau + eta + eta / tau
    (found,) = sympy.solve(sympy.diff(total.subs(symbol("v"), 1), k), k)
    remark = 1 - 2 * w * s**2 / (eta * tau * mu4 * r**2)
    assert sympy.simplify(found - remark) == 0


def test_closed_form_ratios_are_where_the_derivative_in_q_vanishes() -> None:
    """With sigma^2 = c q^2 and w = r^2 / sum r^2, q ~ 1 / sqrt(c) whatever the group sizes."""
    total = bound("problem_1", 2).terms["privacy_noise"].subs(symbol("v"), 1)
    q, c, n = ([symbol(f"{name}_{m}") for m in (1, 2)] for name in ("q", "c", "N"))
    r = [q[m] * n[m] for m in range(2)]
    square = r[0] ** 2 + r[1] ** 2
    values = {}
    for m in range(2):
        values[symbol(f"k_{m + 1}")] = 1
        values[symbol(f"r_{m + 1}")] = r[m]
        values[symbol(f"sigma_{m + 1}")] = sympy.sqrt(c[m]) * q[m]
        values[symbol(f"w_{m + 1}")] = r[m] ** 2 / square
    inserted = total.subs(values)
    optimum = {q[m]: symbol("x") / sympy.sqrt(c[m]) for m in range(2)}
    for m in range(2):
        assert sympy.simplify(sympy.diff(inserted, q[m]).subs(optimum)) == 0


def test_best_rounds_of_theorem_3_balance_progress_and_noise() -> None:
    """With sigma^2 = c T, the derivative in T vanishes at sqrt(progress / noise per round)."""
    one = bound("gdpfed_plus", 1)
    rounds = symbol("T")
    noise = one.terms["privacy_noise"].subs(symbol("sigma_1"), sympy.sqrt(symbol("c") * rounds))
    (found,) = sympy.solve(sympy.diff(one.terms["progress"] + noise, rounds), rounds)
    expected = sympy.sqrt(one.terms["progress"] * rounds / (noise / rounds))
    assert sympy.simplify(found - expected) == 0


@pytest.mark.parametrize("release", ["joint", "per_group"])
def test_balanced_terms_are_those_of_the_plan(release: str) -> None:
    planning = {"accountant": "rdp", "ratios": "balanced", "release": release}
    plan = solve(make_spec(planning={**planning, "dropout_tolerance": 0.2}))
    rows = {row.term: row.value for row in explain(plan) if row.bound == "balanced"}
    assert rows == pytest.approx(plan.bound, rel=1e-6)
    assert sum(rows.values()) == pytest.approx(plan.objective.value, rel=1e-6)


def test_published_terms_are_those_of_the_plan() -> None:
    plan = solve(make_spec(planning={"sparsification": [0.5, 1.0]}))
    rows = {row.term: row.value for row in explain(plan) if row.bound == "problem_1"}
    assert rows == pytest.approx(plan.bound, rel=1e-9)


def test_theorem_3_needs_constants_and_then_is_the_bound_objective() -> None:
    without = {
        row.term: row.needs for row in explain(solve(make_spec())) if row.bound == "gdpfed_plus"
    }
    assert without["progress"] == ("Delta",)
    constants = {"smoothness": 2.0, "initial_gap": 3.0, "local_variance": 1e-4}
    planning = {"ratios": "bound", "constants": constants, "sparsification": "none"}
    plan = solve(make_spec(planning=planning))
    found = {row.term: row.value for row in explain(plan) if row.bound == "gdpfed_plus"}
    assert found == pytest.approx(plan.bound, rel=1e-6)
    assert found["progress"] == pytest.approx(8 * 3 / (0.5 * 10))


def test_numbers_need_every_symbol() -> None:
    term = bound("hyperfl").terms["progress"]
    assert missing(term, {"L": 1.0}) == ["Delta", "G", "M_eta", "T"]
    with pytest.raises(InputError, match="must name Delta, G, M_eta, T"):
        number(term, {"L": 1.0})
    values = {"L": 2.0, "M_eta": 3.0, "G": 0.5, "Delta": 4.0, "T": 6.0}
    assert number(term, values) == pytest.approx(2 * math.sqrt(2 * 3 * 0.25 * 4 / 12))


def test_constants_by_hand() -> None:
    constants = step_constants(0.1, 30)
    assert constants.progress == pytest.approx(3.0)
    assert constants.mu4 == pytest.approx(32 * 3 + 0.1 + 0.1 / 30)
    assert constants.mu5 == pytest.approx(4 / 3)
