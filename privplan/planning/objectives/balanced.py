"""``planning.ratios: balanced``: noise, sampling, and bias from non-population weights.

docs/planning.md derives the error from one descent lemma whose target is fixed at the mean over
all clients, so that no choice of weights changes what is minimised.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from privplan.convergence.bounds import Bound, per_group, squared_noise_multiplier, symbols
from privplan.planning.error_terms import Allocation, Coefficients, terms
from privplan.planning.objectives import variance_coefficients
from privplan.planning.objectives.noise import Noise
from privplan.planning.problem import Problem, noise_provision
from privplan.spec.objectives import OBJECTIVES
from privplan.spec.spec import Spec

DEFAULT_HETEROGENEITY = MappingProxyType({"joint": 1 / 6, "per_group": 1 / 3})
"""Default heterogeneity h, in clipping norms, by kind of release; see docs/planning.md."""


class Balanced(Noise):
    """Squared error of the mean update: noise, sampling, bias from non-population weights."""

    unit = "error of the mean update (squared norm of an update)"
    assumed = MappingProxyType({"bias": "h", "sampling": "s"})

    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """A as for ``noise``, price s^2 for sampling, h^2 for bias."""
        _, sampling = variance_coefficients(spec)
        return replace(
            super().coefficients(spec, problem),
            sampling=sampling * update_norm_of(spec) ** 2,
            bias=heterogeneity_of(spec) ** 2,
        )

    def terms(self, spec: Spec, problem: Problem, found: Allocation) -> dict[str, float]:
        """The three terms of the error, in squared norm of an update."""
        coefficients = self.coefficients(spec, problem)
        error = terms(found.weights, found.cohorts, found.noise, coefficients, found.release)
        return {"noise": error.noise, "sampling": error.sampling, "bias": error.bias}

    def bound(self, groups: int, joint: bool) -> Bound:
        """The three terms as expressions."""
        dim, clip, price, scatter, update, heterogeneity = symbols("d C rho rho_s s h")
        weights, cohorts, shares = per_group(groups, "w r p")
        rows = list(zip(weights, cohorts, shares, strict=True))
        return Bound(
            "balanced",
            "privplan, docs/planning.md",
            "squared norm of an update",
            {
                "noise": price * dim * clip**2 * squared_noise_multiplier(groups, joint),
                "sampling": scatter * update**2 * sum(w**2 / r for w, r, _ in rows),
                "bias": heterogeneity**2 * sum((w - p) ** 2 / p for w, _, p in rows),
            },
        )

    def symbols(self, spec: Spec) -> dict[str, float]:
        """s, h, the provision v, and the prices rho of noise and rho_s of sampling."""
        noise, sampling = variance_coefficients(spec)
        return {
            "s": update_norm_of(spec),
            "h": heterogeneity_of(spec),
            "v": noise_provision(spec),
            "rho": noise,
            "rho_s": sampling,
        }


def update_norm_of(spec: Spec) -> float:
    """s: root mean square of a clipped update's norm, at most the clipping norm."""
    if spec.planning.update_norms:
        norms = np.minimum(np.asarray(spec.planning.update_norms), spec.clipping_norm)
        return float(np.sqrt(np.mean(norms**2)))
    return min(spec.planning.update_norm or spec.clipping_norm, spec.clipping_norm)


def heterogeneity_of(spec: Spec) -> float:
    """h: how much the mean updates of groups may differ, in norm."""
    given = spec.planning.heterogeneity
    return DEFAULT_HETEROGENEITY[spec.release] * spec.clipping_norm if given is None else given


OBJECTIVES.register("balanced", Balanced())
