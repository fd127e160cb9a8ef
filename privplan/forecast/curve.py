"""Accuracy as a function of a plan's features: a curve, fitted to proxy runs.

A scaling law for each class c, like those of loss against data and compute (Kaplan et
al., arXiv 2001.08361), with terms for what noise does. Log odds of accuracy are those
of

    chance + (1 - chance) exp(-(E + S R_c^-sigma + A P_c^-alpha + B Q_c^beta))

plus bias P^-eta R^-omega l_c.

Per round the server moves by a = rate (C^-2 + (g travel)^-2)^(-1/2) exp(-kappa h)
along the signal, h the skew of the clients' labels, and by b in directions that teach
nothing: b^2 = (rate C)^2 (N^2 + s (1 + u h) / K) + o a^2, from the noise N, the K
clients that are drawn, and steps past the optimum. With T rounds, less by half the age
of an average:

- R_c = a^2 T e_c^2gamma_R / (b^2 d_c) is the ratio of signal to noise of the way,
  whatever its length;
- P_c = a T e_c^gamma_P / d_c is how far the signal moves the model;
- Q_c = b a^(-1/2) n^-rho e_c^-gamma_Q d_c is the noise of the model near an optimum
  (steps b of noise and a of signal leave a deviation of b / sqrt(a)), n the averaged
  models.

e_c is the weight of the class in the mean update over its frequency, times v_c^-delta,
v_c how few hold it (1 / w in a group of weight w that alone does): the other clients'
updates push it down. l_c is the logarithm of e_c less its mean over records:
over-weighted classes win records of others, by less the further the model has moved and
the less noise it carries (P and R of all classes). d_c is the difficulty of the class
on the proxy data. So accuracy falls with the noise, and rises with rounds. Accuracy
overall and per group are means over classes. Priors keep what few runs cannot decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.forecast.coverage import Coverage
from privplan.forecast.features import PlanFeatures

Floats = NDArray[np.float64]
PARAMETERS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "floor": (0.015, 0.7),  # E
        "way": (0.14, 0.6),  # S
        "sigma": (0.77, 0.25),
        "far": (0.01, 0.8),  # A
        "alpha": (2.4, 0.25),
        "near": (0.02, 0.8),  # B
        "beta": (2.8, 0.25),
        "rho": (0.3, 0.3),
        "gamma_way": (0.3, 0.4),
        "gamma_far": (1.1, 0.25),
        "gamma_near": (0.3, 0.5),
        "gradient": (4.0, 0.6),  # g
        "kappa": (1.0, 0.4),
        "past": (2.5, 0.7),  # o
        "clients": (8.0, 0.8),  # s
        "skewed_clients": (2.0, 0.5),  # u
        "bias": (0.75, 0.4),
        "eta": (0.5, 0.5),
        "omega": (0.3, 0.4),
        "holders": (0.45, 0.4),  # delta
    }
)
"""Prior medians of the parameters, and prior standard deviations of their logarithms.

The medians lie between the fits to 200 runs on digits and to 30 on MNIST, whose
exponents agree; the deviations leave room for what those two tasks do not share.
"""
# Prior standard deviation of the logarithm of a class's difficulty, about 1.
DIFFICULTY = 0.4
_NAMES = tuple(PARAMETERS)
_CENTRES = np.log([centre for centre, _ in PARAMETERS.values()])
_SPREADS = np.array([spread for _, spread in PARAMETERS.values()])
# Deviation of an accuracy's log odds over seeds, for the weight of priors, and that of
# the accuracy of a class, which has fewer test records.
_NOISE = 0.2
_CLASS_NOISE = 0.6
# By which accuracies of classes are moved from 0 and 1 before log odds.
_SMOOTH = 0.03
# Residuals, in standard deviations, from which they count less.
_ROBUST = 1.2
# Accuracies are cut to this, and to 1 minus it, before their log odds are
# taken.
_LEAST_ACCURACY = 0.005
# The fit may try parameters far away: limits that keep powers of them finite, on
# logarithms of parameters, of powers, and on exponents of exposures.
_MAX_LOG = 12
_MAX_LOG_POWER = 20
_MAX_GAMMA = 5.0
# Least exposure of a class, whose logarithm is taken.
_LEAST_EXPOSURE = 0.02
# Difference of a parameter's logarithm, for the slopes of residuals.
_SLOPE_STEP = 1e-5
# Evaluations after which the fit ends; it takes some tens.
_MAX_EVALUATIONS = 100


@dataclass(frozen=True)
class Point:
    """A plan on data: what the curve is evaluated at."""

    plan: PlanFeatures
    coverage: Coverage


def log_odds(accuracy: float | Floats) -> Floats:
    """Log odds of accuracies in [0, 1], cut at both ends."""
    cut = np.clip(accuracy, _LEAST_ACCURACY, 1 - _LEAST_ACCURACY)
    odds: Floats = np.log(cut / (1 - cut))
    return odds


def from_log_odds(value: float | Floats) -> Floats:
    """Accuracy with given log odds."""
    accuracy: Floats = 1 / (1 + np.exp(-np.asarray(value)))
    return accuracy


class Curve:
    """The fitted curve."""

    def __init__(self, theta: Floats, units: tuple[float, float]) -> None:
        # Logarithms of PARAMETERS, then of the difficulties of the classes.
        self.theta = theta
        # Of P and Q: their geometric means over the proxy runs.
        self.units = units

    def __call__(self, point: Point) -> Floats:
        """Accuracy overall and of each group [1 + groups]."""
        accuracy: Floats = _accuracy(self.theta, self.units, _Arrays([point]))[0][0]
        return accuracy


class _Arrays:
    """Numbers of plans that do not depend on the parameters, as arrays over plans."""

    def __init__(self, points: Sequence[Point]) -> None:
        plans = [point.plan for point in points]

        def column(name: str) -> Floats:
            return np.array([float(getattr(plan, name)) for plan in plans])

        self.clip = column("clipping_norm")
        self.travel = column("travel")
        self.rate = column("rate")
        self.averaged = column("averaged")
        self.noise = column("noise")
        self.noise_step = column("noise_step")
        rounds = column("rounds")
        # The models of an average are averaged - 1 rounds old; half of that fits the
        # digits, and no average undoes more than three quarters of the rounds.
        self.rounds = np.maximum(rounds - (self.averaged - 1) / 2, rounds / 4)
        self.inverse_clients = np.array(
            [1 / plan.clients if plan.clients else 0 for plan in plans]
        )
        self.skew = np.array([point.coverage.total_skew for point in points])
        self.exposure = np.array([exposure_of(point) for point in points])
        holders = [point.coverage.holders(point.plan.weights) for point in points]
        self.log_holders = np.log(np.array(holders))
        self.frequencies = np.array([point.coverage.frequencies() for point in points])

    def step(self, gradient: float, kappa: float) -> Floats:
        """Length of a step of the server without noise [plans]."""
        unclipped = gradient * self.travel
        step: Floats = self.rate * (self.clip**-2 + unclipped**-2) ** -0.5
        slowed: Floats = step * np.exp(-kappa * self.skew)
        return slowed


def exposure_of(point: Point) -> Floats:
    """Weight of each class in the mean update over its frequency [classes].

    At least 0.02.
    """
    exposure = point.coverage.exposure(point.plan.weights)
    return np.asarray(np.maximum(exposure, _LEAST_EXPOSURE))


def _power(base: Floats, exponent: float) -> Floats:
    """The power, between exp(-20) and exp(20)."""
    log_power = np.clip(exponent * np.log(base), -_MAX_LOG_POWER, _MAX_LOG_POWER)
    return np.asarray(np.exp(log_power))


class _Motion(NamedTuple):
    """How the server moves under a plan; each of shape [plans]."""

    signal: Floats  # a, per round
    noise: Floats  # b^2, per round
    clearance: Floats  # ratio of signal to noise of all rounds, a^2 T / b^2
    distance: Floats  # a T over its unit


def _motion(
    parameters: Mapping[str, float], distance_unit: float, plans: _Arrays
) -> _Motion:
    signal = plans.step(parameters["gradient"], parameters["kappa"])
    # Variance of the mean update that the drawn clients bring, over C^2.
    skew_factor = 1 + parameters["skewed_clients"] * plans.skew
    drawn = parameters["clients"] * skew_factor * plans.inverse_clients
    noise = (plans.rate * plans.clip) ** 2 * (plans.noise**2 + drawn)
    noise = noise + parameters["past"] * signal**2
    return _Motion(
        signal,
        noise,
        signal**2 * plans.rounds / noise,
        signal * plans.rounds / distance_unit,
    )


def _hazard(
    parameters: Mapping[str, float],
    motion: _Motion,
    exposure: Floats,
    difficulty: Floats,
    noise_near_optimum: Floats,
    noise_unit: float,
) -> Floats:
    """E + S R_c^-sigma + A P_c^-alpha + B Q_c^beta [plans, classes]."""
    gammas = {
        name: min(parameters[f"gamma_{name}"], _MAX_GAMMA)
        for name in ("way", "far", "near")
    }
    clearance = motion.clearance[:, None] * exposure ** (2 * gammas["way"]) / difficulty
    distance = motion.distance[:, None] * exposure ** gammas["far"] / difficulty
    spread = noise_near_optimum[:, None] / exposure ** gammas["near"] * difficulty
    spread = spread / noise_unit
    return (
        parameters["floor"]
        + parameters["way"] * _power(clearance, -parameters["sigma"])
        + parameters["far"] * _power(distance, -parameters["alpha"])
        + parameters["near"] * _power(spread, parameters["beta"])
    )


def _accuracy(
    theta: Floats, units: tuple[float, float], plans: _Arrays
) -> tuple[Floats, Floats]:
    """Accuracy overall and per group [plans, 1 + groups], and per class.

    The second is of shape [plans, classes].
    """
    values = np.exp(np.clip(theta, -_MAX_LOG, _MAX_LOG))
    count = len(_NAMES)
    parameters = dict(zip(_NAMES, values[:count].tolist(), strict=True))
    distance_unit, noise_unit = units
    motion = _motion(parameters, distance_unit, plans)

    log_exposure = np.log(plans.exposure) - parameters["holders"] * plans.log_holders
    noise_near_optimum = np.sqrt(motion.noise / motion.signal)
    noise_near_optimum = noise_near_optimum * plans.averaged ** -parameters["rho"]
    hazard = _hazard(
        parameters,
        motion,
        np.exp(log_exposure),
        values[count:],
        noise_near_optimum,
        noise_unit,
    )
    chance = 1 / plans.exposure.shape[1]
    odds = log_odds(chance + (1 - chance) * np.exp(-hazard))

    # Over-weighted classes win records of others.
    mean_exposure = (plans.frequencies[:, 0] * log_exposure).sum(axis=1, keepdims=True)
    bias = parameters["bias"] * _power(motion.distance, -parameters["eta"])
    bias = bias * _power(motion.clearance, -parameters["omega"])
    odds = odds + bias[:, None] * (log_exposure - mean_exposure)

    by_class = from_log_odds(odds)
    accuracy: Floats = (plans.frequencies @ by_class[:, :, None])[:, :, 0]
    return accuracy, by_class


class Fit:
    """Fits of the curve to runs, and to all of them but one.

    Args:
        points: plan and coverage of each run.
        accuracies: overall and of each group [runs, 1 + groups].
        by_class: accuracy of each class, by run; None where it was not measured.
    """

    def __init__(
        self,
        points: Sequence[Point],
        accuracies: Floats,
        by_class: Sequence[Sequence[float] | None],
    ) -> None:
        self._plans = _Arrays(points)
        self._odds = log_odds(accuracies)
        groups = self._odds.shape[1] - 1
        classes = self._plans.exposure.shape[1]
        # Overall counts as much as all groups, and as all classes.
        self._scale = np.r_[1.0, np.full(groups, groups**-0.5)] / _NOISE
        is_measured = [row is not None for row in by_class]
        filled = [row if row is not None else [0.5] * classes for row in by_class]
        self._classes = _smooth(np.array(filled, dtype=float))
        class_scale = classes**-0.5 / _CLASS_NOISE
        self._class_scale = np.array(is_measured)[:, None] * class_scale
        self._centres = np.r_[_CENTRES, np.zeros(classes)]
        self._spreads = np.r_[_SPREADS, np.full(classes, DIFFICULTY)]

        # Units of P and Q, by steps at gradients of norm 1.
        steps = self._plans.step(1.0, 1.0)
        noise = self._plans.noise_step / np.sqrt(steps)
        self._units = (_geometric(steps * self._plans.rounds), _geometric(noise))
        theta = self._solve(self._centres, np.ones(len(points)))
        self.curve = Curve(theta, self._units)
        self._steps_without = self._steps(theta)

    def without(self, run: int) -> Curve:
        """The curve of all runs but one, by one Gauss-Newton step from that of all."""
        return Curve(self.curve.theta + self._steps_without[run], self._units)

    def without_all(self, runs: Floats) -> Curve:
        """The curve fitted to all runs but those [runs, of bool]."""
        return Curve(self._solve(self.curve.theta, 1.0 - runs), self._units)

    def _residuals(self, theta: Floats) -> Floats:
        """Standardised residuals of each run [runs, 1 + groups + classes]."""
        accuracy, by_class = _accuracy(theta, self._units, self._plans)
        of_groups = (log_odds(accuracy) - self._odds) * self._scale
        of_classes = (_smooth(by_class) - self._classes) * self._class_scale
        return np.concatenate([of_groups, of_classes], axis=1)

    def _solve(self, start: Floats, used: Floats) -> Floats:
        """Maximum a posteriori of the used runs, in log odds, with a robust loss.

        Args:
            start: of the search.
            used: weight of each run, 1 or 0.
        """
        from scipy.optimize import least_squares  # slow to load

        def residuals(theta: Floats) -> Floats:
            of_priors = (theta - self._centres) / self._spreads
            of_runs = self._residuals(theta) * used[:, None]
            return np.concatenate([of_runs.ravel(), of_priors])

        fitted = least_squares(
            residuals,
            start,
            loss="soft_l1",
            f_scale=_ROBUST,
            max_nfev=_MAX_EVALUATIONS,
        )
        return np.asarray(fitted.x)

    def _steps(self, theta: Floats) -> Floats:
        """Change of the parameters when a run is left out [runs, parameters].

        A Gauss-Newton step: the run's gradient is missing, and its share of the
        curvature. Of the soft L1 loss a residual r has weight (1 + (r / scale)^2)^-1/2.
        """
        residuals = self._residuals(theta)
        slopes = np.empty((*residuals.shape, len(theta)))
        for index in range(len(theta)):
            moved = theta.copy()
            moved[index] += _SLOPE_STEP
            slopes[:, :, index] = (self._residuals(moved) - residuals) / _SLOPE_STEP
        weights = (1 + (residuals / _ROBUST) ** 2) ** -0.5
        curvature = np.einsum("rip,ri,riq->rpq", slopes, weights, slopes)
        gradient = np.einsum("rip,ri->rp", slopes, weights * residuals)
        of_all_runs = curvature.sum(axis=0) + np.diag(self._spreads**-2.0)
        steps = np.linalg.solve(of_all_runs - curvature, gradient[:, :, None])
        return np.asarray(steps[:, :, 0])


def _smooth(accuracy: Floats) -> Floats:
    """Log odds of classes' accuracies, finite at 0 and 1."""
    return log_odds(_SMOOTH + (1 - 2 * _SMOOTH) * accuracy)


def _geometric(values: Floats) -> float:
    return float(np.exp(np.log(values).mean()))
