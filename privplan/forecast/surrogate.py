"""Accuracy as a function of a plan's features: a curve with nine parameters, fitted to proxy runs.

A scaling law for each class c, like those of loss against data and compute (Kaplan et al., arXiv
2001.08361), with one more term for the noise:

    accuracy_c = chance + (1 - chance) exp(-(E + A P_c^-alpha + B Q_c^beta)).

P_c = a T e_c^gamma is how far the signal moves the model, T less by half the age of an average:
a = rate (C^-2 + (g travel)^-2)^(-1/2) exp(-kappa h) is the length of a step without noise, h the
skew of the clients' labels, and e_c the weight of the class in the mean update over its frequency.
Q_c = rate C N / sqrt(a) n^-rho e_c^-gamma is the noise of the released model near an optimum
(steps of noise b and signal a leave a deviation of b / sqrt(a)), n the averaged models. So accuracy
falls with the noise, and rises with rounds and with the weight of a class. Accuracy overall and
per group are means over classes. Weak priors keep what few runs cannot decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from privplan.forecast.features import Coverage, PlanFeatures

Floats = NDArray[np.float64]
_CENTRES = np.log([0.05, 0.2, 1.0, 0.1, 1.0, 0.5, 1.0, 0.3, 1.0])
"""Prior means of the logarithms of E, A, alpha, B, beta, gamma, g, rho and kappa."""
_SPREADS = np.array([1.5, 2.0, 0.7, 2.0, 0.7, 0.7, 1.0, 0.7, 1.0])
"""Their prior standard deviations."""
_NOISE = 0.1
"""Standard deviation of an accuracy's log odds over seeds, for the weight of the priors."""
_LEAST = 0.005
"""Accuracies are cut to [_LEAST, 1 - _LEAST] before their log odds are taken."""


@dataclass(frozen=True)
class Point:
    """A plan on data: what the curve is evaluated at.

    Attributes:
        plan: features of the plan.
        coverage: which classes its groups hold.
    """

    plan: PlanFeatures
    coverage: Coverage


def log_odds(accuracy: float | Floats) -> Floats:
    """Log odds of accuracies in [0, 1], cut at both ends."""
    cut = np.clip(accuracy, _LEAST, 1 - _LEAST)
    odds: Floats = np.log(cut / (1 - cut))
    return odds


def from_log_odds(value: float | Floats) -> Floats:
    """Accuracy with given log odds."""
    accuracy: Floats = 1 / (1 + np.exp(-np.asarray(value)))
    return accuracy


class Curve:
    """The fitted curve.

    Args:
        theta: logarithms of E, A, alpha, B, beta, gamma, g, rho and kappa.
        units: units of P and Q: their geometric means over the proxy runs.
    """

    def __init__(self, theta: Floats, units: tuple[float, float]) -> None:
        self.theta, self.units = theta, units

    def __call__(self, point: Point) -> Floats:
        """Accuracy overall and of each group [1 + groups]."""
        accuracy: Floats = _accuracy(self.theta, self.units, _Arrays([point]))[0]
        return accuracy


class _Arrays:
    """Numbers of plans that do not depend on the parameters, as arrays over plans.

    Args:
        points: plans of as many groups, on data of as many classes.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        plans = [point.plan for point in points]

        def column(name: str) -> Floats:
            return np.array([float(getattr(plan, name)) for plan in plans])

        self.clip, self.travel, self.rate = map(column, ("clipping_norm", "travel", "rate"))
        self.averaged, self.noise_step = column("averaged"), column("noise_step")
        rounds = column("rounds")
        # the models of an average are averaged - 1 rounds old; half of that fits the digits
        self.rounds = np.maximum(rounds - (self.averaged - 1) / 2, rounds / 4)
        self.skew = np.array([point.coverage.skew for point in points])
        self.exposure = np.array([exposure_of(point) for point in points])
        self.frequencies = np.array([point.coverage.frequencies() for point in points])

    def step(self, gradient: float, kappa: float) -> Floats:
        """Length of a step of the server without noise [plans]."""
        unclipped = gradient * self.travel
        step: Floats = self.rate * (self.clip**-2 + unclipped**-2) ** -0.5
        slowed: Floats = step * np.exp(-kappa * self.skew)
        return slowed


def exposure_of(point: Point) -> Floats:
    """Weight of each class in the mean update over its frequency, at least 0.02 [classes]."""
    exposed: Floats = np.maximum(point.coverage.exposure(point.plan.weights), 0.02)
    return exposed


def _accuracy(theta: Floats, units: tuple[float, float], at: _Arrays) -> Floats:
    """Accuracy overall and per group [plans, 1 + groups]."""
    floor, far, alpha, near, beta, gamma, gradient, rho, kappa = np.exp(np.clip(theta, -12, 12))
    exposed = at.exposure ** min(gamma, 5.0)
    step = at.step(gradient, kappa)
    progress = (step * at.rounds)[:, None] * exposed / units[0]
    noise = (at.noise_step * step**-0.5 * at.averaged**-rho)[:, None] / exposed / units[1]
    arrived = np.exp(np.clip(-alpha * np.log(progress), -20, 20))
    scattered = np.exp(np.clip(beta * np.log(noise), -20, 20))
    chance = 1 / exposed.shape[1]
    by_class = chance + (1 - chance) * np.exp(-(floor + far * arrived + near * scattered))
    accuracy: Floats = (at.frequencies @ by_class[:, :, None])[:, :, 0]
    return accuracy


class Fit:
    """Fits of the curve to runs, and to all of them but one.

    Args:
        points: the runs' plans and data.
        accuracies: accuracy overall and of each group of each run [runs, 1 + groups].
    """

    def __init__(self, points: Sequence[Point], accuracies: Floats) -> None:
        self._at, self._seen = _Arrays(points), log_odds(accuracies)
        groups = self._seen.shape[1] - 1
        # overall counts as much as all groups
        self._scale = np.r_[1.0, np.full(groups, groups**-0.5)] / _NOISE
        steps = self._at.step(1.0, 1.0)
        noise = self._at.noise_step / np.sqrt(steps)
        self._units = _geometric(steps * self._at.rounds), _geometric(noise)
        self.curve = Curve(self._solve(_CENTRES, np.ones(len(points))), self._units)

    def without(self, run: int) -> Curve:
        """The curve of all runs but one."""
        used = np.ones(len(self._seen))
        used[run] = 0.0
        return Curve(self._solve(self.curve.theta, used), self._units)

    def _solve(self, start: Floats, used: Floats) -> Floats:
        """Maximum a posteriori in log odds, with a robust loss."""

        def residuals(theta: Floats) -> Floats:
            missed = log_odds(_accuracy(theta, self._units, self._at)) - self._seen
            own = (missed * self._scale * used[:, None]).ravel()
            priors: Floats = (theta - _CENTRES) / _SPREADS
            joined: Floats = np.concatenate([own, priors])
            return joined

        found = least_squares(residuals, start, loss="soft_l1", f_scale=3.0, max_nfev=200)
        theta: Floats = found.x
        return theta


def _geometric(values: Floats) -> float:
    return float(np.exp(np.log(values).mean()))
