"""Symbolic bounds against the papers and the plans, and what a budget is worth."""

import json

import pytest
import sympy

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.bounds import missing, symbol
from privplan.planning.explain import explain, symbolic_bounds
from privplan.planning.reasons import budget_values, reasons
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec


def test_remark_3_is_where_the_derivative_in_k_vanishes():
    """k*/d = 1 - 2 w sigma^2 / (eta tau mu4 r^2)."""
    total = sum(symbolic_bounds(2)["problem_1"].terms.values())
    k, w, s, r = (symbol(f"{name}_1") for name in ["k", "w", "sigma", "r"])
    eta = symbol("eta")
    tau = symbol("tau")
    mu4 = 32 * eta * tau + eta + eta / tau
    (optimum,) = sympy.solve(sympy.diff(total.subs(symbol("v"), 1), k), k)
    remark = 1 - 2 * w * s**2 / (eta * tau * mu4 * r**2)
    assert sympy.simplify(optimum - remark) == 0


def test_closed_form_ratios_are_where_the_derivative_in_q_vanishes():
    """With sigma^2 = c q^2 and w = r^2 / sum r^2, q ~ 1 / sqrt(c) for all sizes."""
    total = symbolic_bounds(2)["problem_1"].terms["privacy_noise"].subs(symbol("v"), 1)

    def of_each_group(name):
        return [symbol(f"{name}_{m}") for m in (1, 2)]

    q = of_each_group("q")
    c = of_each_group("c")
    n = of_each_group("N")
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


def test_best_rounds_of_theorem_3_balance_progress_and_noise():
    """With sigma^2 = c T, the best T is sqrt(progress / noise per round)."""
    theorem = symbolic_bounds()["gdpfed_plus"]
    rounds = symbol("T")
    noise = theorem.terms["privacy_noise"].subs(
        symbol("sigma_1"), sympy.sqrt(symbol("c") * rounds)
    )
    (best_rounds,) = sympy.solve(
        sympy.diff(theorem.terms["progress"] + noise, rounds), rounds
    )
    expected = sympy.sqrt(theorem.terms["progress"] * rounds / (noise / rounds))
    assert sympy.simplify(best_rounds - expected) == 0


@pytest.mark.parametrize("release", ["joint", "per_group"])
def test_balanced_terms_are_those_of_the_plan(release):
    planning = {"accountant": "rdp", "ratios": "balanced", "release": release}
    plan = solve(make_spec(planning={**planning, "dropout_tolerance": 0.2}))
    rows = {row.term: row.value for row in explain(plan) if row.bound == "balanced"}
    assert rows == pytest.approx(plan.bound, rel=1e-6)
    assert sum(rows.values()) == pytest.approx(plan.objective.value, rel=1e-6)


@pytest.mark.slow
def test_terms_of_many_groups_are_those_of_their_formulas():
    """A maximum over 45 groups: symbols compared in pairs would take half a minute."""
    groups = [
        {"name": f"g{k}", "clients": 30 + k, "epsilon": 1 + k / 9} for k in range(45)
    ]
    plan = solve(
        make_spec(groups=groups, planning={"release": "joint", "ratios": "balanced"})
    )
    rows = {row.term: row.value for row in explain(plan) if row.bound == "balanced"}
    assert rows == pytest.approx(plan.bound, rel=1e-6)


def test_published_terms_are_those_of_the_plan():
    plan = solve(make_spec(planning={"sparsification": [0.5, 1.0]}))
    rows = {row.term: row.value for row in explain(plan) if row.bound == "problem_1"}
    assert rows == pytest.approx(plan.bound, rel=1e-9)


def test_theorem_3_needs_constants_and_then_is_the_bound_objective():
    rows = (row for row in explain(solve(make_spec())) if row.bound == "gdpfed_plus")
    assert {row.term: row.needs for row in rows}["progress"] == ("Delta",)
    constants = {"smoothness": 2.0, "initial_gap": 3.0, "local_variance": 1e-4}
    planning = {"ratios": "bound", "constants": constants, "sparsification": "none"}
    plan = solve(make_spec(planning=planning))
    terms = {
        row.term: row.value
        for row in explain(plan)
        if row.bound == "gdpfed_plus" and not row.term.startswith("if ")
    }
    assert terms == pytest.approx(plan.bound, rel=1e-6)
    assert terms["progress"] == pytest.approx(8 * 3 / (0.5 * 10))


def test_numbers_need_every_symbol():
    term = symbolic_bounds()["hyperfl"].terms["progress"]
    assert missing(term, {"L": 1.0}) == ["Delta", "G", "M_eta", "T"]


def _data(epsilons, **planning):
    return {
        "name": "why",
        "groups": [
            {"name": f"g{number}", "clients": 200, "epsilon": epsilon}
            for number, epsilon in enumerate(epsilons)
        ],
        "rounds": 10,
        "sampling": "full",
        "model": {"name": "m", "parameters": 1000},
        "planning": planning,
    }


@pytest.fixture(scope="module")
def plan():
    return solve(Spec.parse(_data((0.5, 4.0))))


def test_values_are_differences_of_plans(plan):
    strict, loose = budget_values(plan)
    fall = (
        1
        - solve(Spec.parse(_data((0.5 * 1.1, 4.0)))).objective.value
        / plan.objective.value
    )
    assert strict.objective_gain == pytest.approx(fall, abs=2e-4)
    equal = solve(Spec.parse(_data((4.0, 4.0))))
    assert strict.cost == pytest.approx(
        1 - equal.objective.value / plan.objective.value, abs=2e-4
    )
    assert loose.cost == 0


def test_a_plan_that_names_the_bias_leaning_is_read_and_explained_as_before(plan):
    terms = {
        ("leaning" if name == "bias" else name): value
        for name, value in plan.bound.items()
    }
    assert "leaning" in terms
    old = plan.model_copy(update={"bound": terms})
    read = Plan.parse(json.loads(old.to_json()))
    assert read == old
    assert read.digest == old.digest != plan.digest
    assert reasons(read) == reasons(plan)


def test_constants_that_no_field_states_fill_every_term():
    """The fourth and fifth term of DP2-FedSAM's Theorem 1, computed by hand."""
    plan = solve(make_spec())
    constants = {
        "alpha_bar": 0.5,
        "alpha_tilde": 0.1,
        "G": 2.0,
        "sigma_phi": 1.0,
        "sigma_h": 3.0,
        "eta_h": 0.01,
        "rho_sam": 0.2,
        "Delta": 4.0,
        "d_1": 100.0,
        "L_phi": 1.0,
        "L_h": 1.0,
    }
    rows = [row for row in explain(plan, constants) if row.bound == "dp2_fedsam"]
    values = {row.term: row.value for row in rows if row.met is None}
    rate = plan.spec.local.learning_rate
    assert values["perturbation"] == pytest.approx(rate * 0.1 * 0.2**2)
    assert values["body_variance"] == pytest.approx(rate**3 * 0.5 * 5)
    assert not any(row.needs for row in rows)


def test_conditions_of_theorems_are_met_or_not():
    """eta <= 1 / (L tau sqrt(T)) for the head's rate in DP2-FedSAM."""
    plan = solve(make_spec())
    limit = 1 / (2 * plan.spec.local.steps * plan.spec.rounds**0.5)
    for rate, met in ((0.99 * limit, True), (1.01 * limit, False)):
        rows = explain(plan, {"eta_h": rate, "L_h": 2.0})
        (condition,) = [row for row in rows if row.term == "if rate of the head"]
        assert condition.met is met
        assert condition.cell == ("met" if met else "NOT met")


def test_every_theorem_has_its_conditions():
    for name in ("gdpfed_plus", "dp2_fedsam", "dp_fedpgn", "robust_hdp", "hyperfl"):
        assert symbolic_bounds()[name].conditions, name


@pytest.mark.parametrize(
    ("constants", "fault"),
    [({"eta": 0.1}, "set: must be one of"), ({"G": -1.0}, "set.G: must be positive")],
)
def test_constants_that_do_not_fit_are_refused(constants, fault):
    with pytest.raises(InputError, match=fault):
        explain(solve(make_spec()), constants)
