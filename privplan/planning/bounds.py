"""Convergence bounds as symbolic expressions, one per source of error.

Bounds that their papers state with O(.) have every hidden constant set to 1 and say so
in their source. Those that the planner computes are its own functions, with symbols
instead of numbers. SymPy is imported when a bound is made. Objectives add bounds of
their own (``privplan.planning.objectives``); ``privplan.planning.explain`` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.planning.error import ReleaseKind, squared_noise_multiplier
from privplan.planning.theorem_3 import (
    Training,
    problem_1_terms,
    step_constants,
    theorem_3_terms,
)


@dataclass(frozen=True)
class Bound:
    """A convergence bound.

    Attributes:
        name: name in the table.
        source: paper and theorem.
        bounds: quantity that the sum of the terms bounds, with its unit.
        terms: sympy expressions by name of the error.
        conditions: those of the theorem by name: the sides of left <= right.
    """

    name: str
    source: str
    bounds: str
    terms: Mapping[str, Any]
    conditions: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)


SYMPY_RULE = "needs SymPy: pip install 'privplan[explain]'"


def has_formulas() -> bool:
    """Whether SymPy is installed; the plain installation does without."""
    return find_spec("sympy") is not None


def _symbolic() -> Any:
    """SymPy, which only the formulas of ``explain`` need.

    Raises:
        InputError: when it is not installed.
    """
    try:
        import sympy
    except ImportError:
        raise InputError.one("explain", SYMPY_RULE, "no SymPy") from None
    return sympy


def symbol(name: str) -> Any:
    """A positive symbol; the same name is the same symbol everywhere."""
    sympy = _symbolic()
    return sympy.Symbol(name, positive=True)


def symbols(names: str) -> list[Any]:
    """Positive symbols, by names with spaces between."""
    return [symbol(name) for name in names.split()]


def per_group(groups: int, names: str) -> list[list[Any]]:
    """For each name its symbols ``name_1`` to ``name_M``."""
    symbols_by_name: list[list[Any]] = []
    for name in names.split():
        numbered = [symbol(f"{name}_{group + 1}") for group in range(groups)]
        symbols_by_name.append(numbered)
    return symbols_by_name


def arrays(groups: int, names: str) -> list[Any]:
    """For each name its symbols as an array, which formulas take as numbers."""
    return [np.array(row, dtype=object) for row in per_group(groups, names)]


def squared_noise(groups: int, joint: bool) -> Any:
    """Squared noise multiplier of the sparse weighted mean; ``v`` is the provision."""
    weights, cohorts, noise, fractions = arrays(groups, "w r sigma k")
    release: ReleaseKind = "joint" if joint else "per_group"

    def largest(squares: Any) -> Any:
        return _symbolic().Max(*squares, evaluate=False)

    return symbol("v") * squared_noise_multiplier(
        weights, cohorts, noise, release, fractions, largest
    )


def _theorem_3(groups: int, joint: bool) -> Bound:
    """Theorem 3 of GDPFed+, with sparsified updates."""
    eta, tau, rounds, dim, clip, smooth, gap, kappa = symbols(
        "eta tau T d C L Delta kappa"
    )
    weights, fractions, deviations = arrays(groups, "w k zeta")
    terms = theorem_3_terms(
        Training(eta, tau, rounds, dim, clip, smooth, gap, kappa**2),
        weights,
        fractions,
        deviations**2,
        squared_noise(groups, joint),
    )
    # beta bounds the dissimilarity of local gradients (Assumption 3).
    beta = symbol("beta")
    steps = 1 / (4 * smooth * beta**2 * (tau + 1) + 8 * smooth * tau * beta**2)
    return Bound(
        "gdpfed_plus",
        "GDPFed+, Theorem 3 (last term with r_m^2, as its proof has it)",
        "mean squared norm of the gradient",
        terms,
        {
            "local rate": (eta, steps),
            "rate of all steps": (eta, 1 / (16 * tau * smooth)),
        },
    )


def _problem_1(groups: int, joint: bool) -> Bound:
    """The terms of Theorem 3 that depend on the plan."""
    constants = step_constants(*symbols("eta tau"))
    weights, fractions = arrays(groups, "w k")
    return Bound(
        "problem_1",
        "GDPFed+, Appendix F (what planning can move of Theorem 3)",
        "in units of L d C^2",
        problem_1_terms(constants, weights, fractions, squared_noise(groups, joint)),
    )


_FILE = Path(__file__).with_suffix(".yaml")


def _printed(name: str, groups: int, joint: bool) -> Bound:
    """A bound of ``bounds.yaml``."""
    # Not at the top: only bounds that are printed are read.
    from privplan.yaml_text import load_yaml

    sympy = _symbolic()
    entry = load_yaml(_FILE.read_text(), _FILE.name)[name]
    inequalities = entry.get("conditions", {})
    text = " ".join(map(str, [*entry["terms"].values(), *inequalities.values()]))
    names = set(re.findall(r"[A-Za-z]\w*", text)) - _FUNCTIONS
    symbols_by_name = {word: symbol(word) for word in names}
    terms: dict[str, Any] = {}
    for term, formula in entry["terms"].items():
        terms[term] = sympy.sympify(formula, symbols_by_name)
    conditions: dict[str, tuple[Any, Any]] = {}
    for condition, (smaller, larger) in inequalities.items():
        conditions[condition] = (
            sympy.sympify(smaller, symbols_by_name),
            sympy.sympify(larger, symbols_by_name),
        )
    return Bound(name, entry["source"], entry["bounds"], terms, conditions)


_FUNCTIONS = {"sqrt", "Min"}  # of sympy, in formulas of ``bounds.yaml``

# Name -> the bound for a number of groups and a kind of release.
BOUNDS: dict[str, Callable[[int, bool], Bound]] = {
    "problem_1": _problem_1,
    "gdpfed_plus": _theorem_3,
    "dp2_fedsam": partial(_printed, "dp2_fedsam"),
    "dp_fedpgn": partial(_printed, "dp_fedpgn"),
    "robust_hdp": partial(_printed, "robust_hdp"),
    "hyperfl": partial(_printed, "hyperfl"),
}


def missing(expression: Any, values: Mapping[str, float]) -> list[str]:
    """Names of the symbols of an expression that have no value."""
    return sorted({str(free) for free in expression.free_symbols} - set(values))


def number(expression: Any, values: Mapping[str, float]) -> float:
    """Value of an expression of which no symbol is ``missing``."""
    sympy = _symbolic()
    free = [*expression.free_symbols]
    arguments = [values[str(name)] for name in free]
    return float(sympy.lambdify(free, expression, "math")(*arguments))
