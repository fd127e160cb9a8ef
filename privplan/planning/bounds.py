"""Convergence bounds as symbolic expressions, one per source of error.

Bounds that their papers state with O(.) have every hidden constant set to 1 and say so in their
source. sympy is imported when a bound is made. Objectives add bounds of their own
(``privplan.planning.objectives``); ``privplan.planning.explain`` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from privplan.files import load_yaml
from privplan.values import Positive, Value


@dataclass(frozen=True)
class Bound:
    """A convergence bound."""

    name: str  # name in the table
    source: str  # paper and theorem
    bounds: str  # quantity that the sum of the terms bounds, with its unit
    terms: Mapping[str, Any]  # sympy expressions by name of the error


def symbol(name: str) -> Any:
    """A positive symbol; the same name is the same symbol everywhere."""
    import sympy

    return sympy.Symbol(name, positive=True)


def symbols(names: str) -> list[Any]:
    """Positive symbols, by names with spaces between."""
    return [symbol(name) for name in names.split()]


def per_group(groups: int, names: str) -> list[list[Any]]:
    """For each name its symbols ``name_1`` to ``name_M``."""
    return [
        [symbol(f"{name}_{m + 1}") for m in range(groups)] for name in names.split()
    ]


class StepConstants(Value):
    """Constants that depend on local training only (GDPFed+, Theorem 3 and Appendix F)."""

    progress: Positive  # eta tau, the length of local training per unit of gradient
    mu4: Positive  # 32 eta tau + eta + eta / tau, factor of local variance; mu2 = L mu4
    mu5: Positive  # 4 / (eta tau), factor of privacy noise; mu3 = L mu5


def step_constants(learning_rate: float, steps: int) -> StepConstants:
    """Returns the constants for a learning rate eta and tau local steps."""
    progress = learning_rate * steps
    mu4 = 32 * progress + learning_rate + learning_rate / steps
    return StepConstants(progress=progress, mu4=mu4, mu5=4 / progress)


def _theorem_3(groups: int, joint: bool) -> Bound:
    eta, tau, smooth, rounds, gap = symbols("eta tau L T Delta")
    dim, clip, kappa = symbols("d C kappa")
    weights, kept, zeta = per_group(groups, "w k zeta")
    mu1 = 4 * smooth * eta * tau + 4 * smooth * eta + 64 * smooth
    mu2 = 32 * smooth * eta * tau + smooth * eta + smooth * eta / tau
    mu3 = 4 * smooth / (eta * tau)
    rows = zip(weights, kept, zeta, strict=True)
    lost = sum(w * ((1 - k) ** 2 + 1) * dim * z**2 for w, k, z in rows)
    return Bound(
        "gdpfed_plus",
        "GDPFed+, Theorem 3 (last term with r_m^2, as its proof has it)",
        "mean squared norm of the gradient",
        {
            "progress": 8 * gap / (eta * tau * rounds),
            "dissimilarity": mu1 * kappa**2,
            "local_variance": mu2 * lost,
            "privacy_noise": mu3
            * dim
            * clip**2
            * squared_noise_multiplier(groups, joint),
        },
    )


def _problem_1(groups: int, joint: bool) -> Bound:
    eta, tau = symbols("eta tau")
    weights, kept = per_group(groups, "w k")
    mu4 = 32 * eta * tau + eta + eta / tau
    lost = sum(w * (1 - k) ** 2 for w, k in zip(weights, kept, strict=True))
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
    import sympy

    rows = zip(*per_group(groups, "w sigma r k"), strict=True)
    parts = [k * (w * s / r) ** 2 for w, s, r, k in rows]
    return symbol("v") * (sympy.Max(*parts, evaluate=False) if joint else sum(parts))


def _printed(name: str, groups: int, joint: bool) -> Bound:
    """A bound of ``bounds.yaml``."""
    import sympy

    source, bounds, texts = (
        load_yaml(_FILE.read_text(), _FILE.name)[name][at] for at in _PARTS
    )
    names = {one for text in texts.values() for one in re.findall(r"[A-Za-z]\w*", text)}
    known = {one: symbol(one) for one in names - {"sqrt"}}
    return Bound(
        name, source, bounds, {at: sympy.sympify(texts[at], known) for at in texts}
    )


_FILE, _PARTS = Path(__file__).with_suffix(".yaml"), ("source", "bounds", "terms")
BOUNDS: dict[str, Callable[[int, bool], Bound]] = {
    "problem_1": _problem_1,
    "gdpfed_plus": _theorem_3,
    "dp2_fedsam": partial(_printed, "dp2_fedsam"),
    "dp_fedpgn": partial(_printed, "dp_fedpgn"),
    "robust_hdp": partial(_printed, "robust_hdp"),
    "hyperfl": partial(_printed, "hyperfl"),
}
"""Name -> the bound for a number of groups and a kind of release."""


def missing(expression: Any, values: Mapping[str, float]) -> list[str]:
    """Names of the symbols of an expression that have no value."""
    return sorted({str(free) for free in expression.free_symbols} - set(values))


def number(expression: Any, values: Mapping[str, float]) -> float:
    """Value of an expression of which no symbol is ``missing``."""
    import sympy

    free = [*expression.free_symbols]
    return float(
        sympy.lambdify(free, expression, "math")(*(values[str(one)] for one in free))
    )
