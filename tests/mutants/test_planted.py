"""Changes that weaken a guarantee, planted one at a time: each turns a check red.

A mutant is a function of the product with one piece of its text replaced. Its check
holds for the product as it is, and fails for the mutant. ``make mutants`` plants many
more, which nobody chose.
"""

import inspect
import math
import textwrap
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import privplan
from privplan.accounting.families import NOISE_FAMILIES
from privplan.accounting.pld import convolution, lattice
from privplan.accounting.pld.accountant import compose
from privplan.accounting.pld.profile import gaussian_epsilon
from privplan.book import filters
from privplan.guard.guard import Guard
from privplan.laws.builtin import Poisson
from privplan.planning import noise as planned_noise
from privplan.verification.checks import check
from privplan.verification.checks import noise as noise_checks
from tests.accounting.pld import test_error_terms as places


def planted(monkeypatch, owner, name, text, replacement):
    """Replace a piece of a function's text, which is in it once."""
    function = inspect.unwrap(vars(owner)[name])
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(text) == 1, f"{name} has changed: plant the mutant anew"
    namespace = {}
    mutant = compile(source.replace(text, replacement), f"<mutant of {name}>", "exec")
    exec(mutant, function.__globals__, namespace)
    monkeypatch.setattr(owner, name, namespace[name])


# Checks: each asserts what a guarantee rests on.


def lattice_dominates(monkeypatch):
    above = lattice.upper(places.REMOVED, 0.05, 1e-3)
    infinite = above.infinite[0]
    assert places.profile_breaches(above, infinite, sign=1) == 0


def infinite_losses_count(monkeypatch):
    above = lattice.upper(places.REMOVED, 0.3, 1e-2)
    composed = convolution.compose_at([(above, np.array([2.0]))], 1.0)
    assert composed.deltas(1)[-1] >= 2 * above.infinite[0]


def drift_is_covered(monkeypatch):
    assert places.drift_place(monkeypatch) == 0


def sums_are_covered(monkeypatch):
    assert places.sums_place(monkeypatch) == 0


def window_is_covered(monkeypatch):
    for sign, spared_term in ((1, "wrapped_error"), (-1, "mass_above")):
        with monkeypatch.context() as plant:
            assert places.window_place(plant, sign, spared_term) == 0


def capacities_keep_budgets(monkeypatch):
    rng = np.random.default_rng(3)
    for epsilon in rng.uniform(0.5, 8, 60).tolist():
        for rule in ("gaussian", "renyi"):
            order = filters.order_of(epsilon, 1e-5)
            units = filters.capacity(rule, epsilon, 1e-5, order)
            assert filters.spent_epsilon(rule, units, 1e-5, order) <= epsilon


def honest_noise_passes(monkeypatch):
    """Noise whose p-value is twice the level at which a release fails."""
    release = SimpleNamespace(
        noise_sum_squares=stats.chi2.isf(check.FALSE_ALARM / 2, 1000),
        noise_std=1.0,
        dimension=1000,
        noise=NOISE_FAMILIES.get("gaussian"),
        family="gaussian",
        round=1,
    )
    assert list(noise_checks._unlikely_squares([release])) == []


def reservations_hold(monkeypatch):
    """A round beyond what the book has reserved is refused, whatever the budget."""
    guard = SimpleNamespace(
        plan=SimpleNamespace(spec=SimpleNamespace(rounds=2)),
        round=1,
        _is_running=True,
        _budgets={},
        _book=SimpleNamespace(lost="", affordable_rounds=0),
    )
    assert Guard._refusal(guard) is not None


def both_directions_count(monkeypatch):
    """Rounds of everybody: one Gaussian mechanism, twice as far under replace-one."""
    for relation, moved in (("add_remove", 1), ("replace_one", 2)):
        history = privplan.History.repeated(privplan.Release(2.0, 1.0), 9)
        upper = compose(history, privplan.Relation(relation)).epsilon(1e-6).upper
        assert upper >= gaussian_epsilon(moved * 3 / 2.0, 1e-6)[0]


def drawn_clients_under_replacement(monkeypatch):
    """At a ratio of nearly 1 next to what everybody costs."""
    history = privplan.History.repeated(privplan.Release(2.0, 1 - 1e-9), 9)
    loss = compose(history, privplan.Relation.REPLACE_ONE)
    assert loss.epsilon(1e-6).upper >= 0.999 * gaussian_epsilon(3.0, 1e-6)[0]


def noise_is_rounded_up(monkeypatch):
    for noise in (math.pi, 1.4062222222222, 123.456789012345):
        assert planned_noise.rounded_up(noise) >= noise


MUTANTS = {
    "tail mass left out of upper bounds": (
        lattice,
        "_connect",
        "mass_below, mass_above = tails(rows, bounds)",
        "mass_below, mass_above = np.zeros((2, len(bounds)))",
        lattice_dominates,
    ),
    "infinite losses left out": (
        convolution,
        "compose_at",
        "window.missed + sums.infinite",
        "window.missed",
        infinite_losses_count,
    ),
    "rounding of sums left out": (
        convolution,
        "compose_at",
        "sums.drift + error_terms.sum_rounding(points)",
        "sums.drift",
        sums_are_covered,
    ),
    "drift of delta left out": (
        convolution,
        "compose_at",
        "sums.drift + error_terms.sum_rounding(points)",
        "error_terms.sum_rounding(points)",
        drift_is_covered,
    ),
    "wrap-around left out": (
        convolution,
        "compose_at",
        "(error + error_terms.wrapped_error(tilt))",
        "error",
        window_is_covered,
    ),
    "mass above the window left out": (
        convolution,
        "compose_at",
        "window.missed + sums.infinite",
        "sums.infinite",
        window_is_covered,
    ),
    "capacity of a filter rounded up": (
        filters,
        "_rounded_down",
        "math.floor(value / UNIT * (1 - _ROUNDING))",
        "math.ceil(value / UNIT)",
        capacities_keep_budgets,
    ),
    "noise tested at five times its level": (
        noise_checks,
        "_unlikely_squares",
        "level = check.FALSE_ALARM /",
        "level = 5 * check.FALSE_ALARM /",
        honest_noise_passes,
    ),
    "reservations of a guard not looked at": (
        Guard,
        "_refusal",
        "self.round > self._book.affordable_rounds",
        "False",
        reservations_hold,
    ),
    "a replaced client counts once": (
        Poisson,
        "dominating_pairs",
        "self.sensitivity(relation) * shift",
        "shift",
        both_directions_count,
    ),
    "a replaced client counts as a removed one": (
        Poisson,
        "dominating_pairs",
        "pair = Pair(Kind.SWAP, shift, ratio)",
        "pair = Pair(Kind.REMOVE, shift, ratio)",
        drawn_clients_under_replacement,
    ),
    "noise rounded down": (
        planned_noise,
        "rounded_up",
        "math.ceil",
        "math.floor",
        noise_is_rounded_up,
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_mutant_turns_its_check_red(monkeypatch, mutant):
    owner, name, text, replacement, holds = MUTANTS[mutant]
    with mp.workdps(places.DIGITS):
        with monkeypatch.context() as product:
            holds(product)
        planted(monkeypatch, owner, name, text, replacement)
        with pytest.raises(AssertionError):
            holds(monkeypatch)
