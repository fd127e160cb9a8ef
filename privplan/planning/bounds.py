"""Convergence bounds as symbolic expressions, one per source of error.

Bounds that their papers state with O(.) have every hidden constant set to 1 and say so
in their source. SymPy is imported when a bound is made. Objectives add bounds of their
own (``privplan.planning.objectives``); ``privplan.planning.explain`` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.values import Positive, Value
from privplan.yaml_text import load_yaml


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


def _symbolic() -> Any:
    """SymPy, which only the formulas of ``explain`` need.

    Raises:
        InputError: when it is not installed.
    """
    try:
        import sympy
    except ImportError:
        rule = "needs SymPy: pip install 'privplan[explain]'"
        raise InputError.one("explain", rule, "no SymPy") from None
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


class StepConstants(Value):
    """Constants that depend on local training only.

    Source: GDPFed+, Theorem 3 and Appendix F.

    Attributes:
        progress: eta tau, the length of local training per unit of gradient.
        mu4: 32 eta tau + eta + eta / tau, factor of local variance; mu2 = L mu4.
        mu5: 4 / (eta tau), factor of privacy noise; mu3 = L mu5.
    """

    progress: Positive
    mu4: Positive
    mu5: Positive


def step_constants(learning_rate: float, steps: int) -> StepConstants:
    """Returns the constants for a learning rate eta and tau local steps."""
    progress = learning_rate * steps
    mu4 = 32 * progress + learning_rate + learning_rate / steps
    return StepConstants(progress=progress, mu4=mu4, mu5=4 / progress)


def _theorem_3(groups: int, joint: bool) -> Bound:
    """Theorem 3 of GDPFed+, with sparsified updates."""
    eta, tau, smooth, rounds, gap = symbols("eta tau L T Delta")
    dim, clip, kappa = symbols("d C kappa")
    mu1 = 4 * smooth * eta * tau + 4 * smooth * eta + 64 * smooth
    mu2 = 32 * smooth * eta * tau + smooth * eta + smooth * eta / tau
    mu3 = 4 * smooth / (eta * tau)
    squared_noise = squared_noise_multiplier(groups, joint)
    # beta bounds the dissimilarity of local gradients (Assumption 3).
    beta = symbol("beta")
    steps = 1 / (4 * smooth * beta**2 * (tau + 1) + 8 * smooth * tau * beta**2)
    return Bound(
        "gdpfed_plus",
        "GDPFed+, Theorem 3 (last term with r_m^2, as its proof has it)",
        "mean squared norm of the gradient",
        {
            "progress": 8 * gap / (eta * tau * rounds),
            "dissimilarity": mu1 * kappa**2,
            "local_variance": mu2 * _lost_variance(groups),
            "privacy_noise": mu3 * dim * clip**2 * squared_noise,
        },
        {
            "local rate": (eta, steps),
            "rate of all steps": (eta, 1 / (16 * tau * smooth)),
        },
    )


def _lost_variance(groups: int) -> Any:
    """Local variance, and what sparsification adds to it: its terms in Theorem 3."""
    dim = symbol("d")
    rows = zip(*per_group(groups, "w k zeta"), strict=True)
    return sum(w * ((1 - k) ** 2 + 1) * dim * z**2 for w, k, z in rows)


def _problem_1(groups: int, joint: bool) -> Bound:
    """The terms of Theorem 3 that depend on the plan."""
    eta, tau = symbols("eta tau")
    weights, fractions = per_group(groups, "w k")
    mu4 = 32 * eta * tau + eta + eta / tau
    rows = zip(weights, fractions, strict=True)
    lost = sum(w * (1 - k) ** 2 for w, k in rows)
    return Bound(
        "problem_1",
        "GDPFed+, Appendix F (what planning can move of Theorem 3)",
        "in units of L d C^2",
        {
            "local_variance": mu4 * sum(weights),
            "sparsification": mu4 * lost,
            "privacy_noise": 4 / (eta * tau) * squared_noise_multiplier(groups, joint),
        },
    )


def squared_noise_multiplier(groups: int, joint: bool) -> Any:
    """Squared noise multiplier of the sparse weighted mean; ``v`` is the provision."""
    sympy = _symbolic()
    rows = zip(*per_group(groups, "w sigma r k"), strict=True)
    parts = [k * (w * s / r) ** 2 for w, s, r, k in rows]
    if joint:
        return symbol("v") * sympy.Max(*parts, evaluate=False)
    return symbol("v") * sum(parts)


_FILE = Path(__file__).with_suffix(".yaml")


def _printed(name: str, groups: int, joint: bool) -> Bound:
    """A bound of ``bounds.yaml``."""
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
    for condition, (left, right) in inequalities.items():
        conditions[condition] = (
            sympy.sympify(left, symbols_by_name),
            sympy.sympify(right, symbols_by_name),
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
