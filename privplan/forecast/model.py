"""Forecasts of accuracy with conformal intervals, from the fitted curve and its held-out runs.

Intervals are those of Lei et al. (JASA 2018, normalised residuals) with leave-one-out residuals
(jackknife): the residual of each proxy run, in log odds, by the curve fitted to the other runs,
over 1 + its distance to the nearest of them. The distance is in units of the median distance of
the proxy runs, so intervals are wider where the proxy is far. They hold for plans and data that
are exchangeable with the proxy runs. Coverages of classes that no proxy run has are a category of
their own (Mondrian conformal intervals, Vovk 2012): their residuals are those of the proxy runs
whose coverage no other run has. Where there are too few of these, each residual is by the curve
fitted to the runs of all other partitions, as those plans are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InputError
from privplan.forecast.features import (
    LEAST_RUNS,
    Coverage,
    PlanFeatures,
    ProxyTable,
    plan_features,
    read_coverage,
)
from privplan.plan import Forecast, GroupForecast, Plan

# --- Accuracy as a function of a plan's features: a curve of few parameters, fitted to proxy runs -
# A scaling law for each class c, like those of loss against data and compute (Kaplan et al., arXiv
# 2001.08361), with terms for what noise does. Log odds of accuracy are those of
#
#     chance + (1 - chance) exp(-(E + S R_c^-sigma + A P_c^-alpha + B Q_c^beta)) + bias P^-eta
#     R^-omega l_c.
#
# Per round the server moves by a = rate (C^-2 + (g travel)^-2)^(-1/2) exp(-kappa h) along the
# signal, h the skew of the clients' labels, and by b in directions that teach nothing: b^2 =
# (rate C)^2 (N^2 + s (1 + u h) / K) + o a^2, from the noise N, the K clients that are drawn, and
# steps past the optimum. With T rounds, less by half the age of an average:
#
# - R_c = a^2 T e_c^2gamma_R / d_c is the ratio of signal to noise of the way, whatever its length;
# - P_c = a T e_c^gamma_P / d_c is how far the signal moves the model;
# - Q_c = b a^(-1/2) n^-rho e_c^-gamma_Q d_c is the noise of the model near an optimum (steps b of
#   noise and a of signal leave a deviation of b / sqrt(a)), n the averaged models.
#
# e_c is the weight of the class in the mean update over its frequency, times v_c^-delta, v_c how
# few hold it (1 / w in a group of weight w that alone does): the other clients' updates push it
# down. l_c is the logarithm of e_c less its mean over records: over-weighted classes win records
# of others, by less the further the model has moved and the less noise it carries (P and R of all
# classes). d_c is the difficulty of the class on the proxy data. So accuracy falls with the
# noise, and rises with rounds. Accuracy overall and per group are means over classes. Priors keep
# what few runs cannot decide.

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

The medians lie between the fits to 200 runs on digits and to 30 on MNIST, whose exponents agree;
the deviations leave room for what those two tasks do not share.
"""
DIFFICULTY = (
    0.4  # prior standard deviation of the logarithm of a class's difficulty, about 1
)
_NAMES = tuple(PARAMETERS)
_CENTRES = np.log([centre for centre, _ in PARAMETERS.values()])
_SPREADS = np.array([spread for _, spread in PARAMETERS.values()])
_NOISE = 0.2  # deviation of an accuracy's log odds over seeds, for the weight of priors
_CLASS_NOISE = (
    0.6  # the same for the accuracy of one class, which has fewer test records
)
_SMOOTH = 0.03  # by which accuracies of classes are moved from 0 and 1 before log odds
_ROBUST = 1.2  # residuals, in standard deviations, from which they count less
_LEAST = (
    0.005  # accuracies are cut to [_LEAST, 1 - _LEAST] before their log odds are taken
)


@dataclass(frozen=True)
class Point:
    """A plan on data: what the curve is evaluated at."""

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
    """The fitted curve."""

    def __init__(self, theta: Floats, units: tuple[float, float]) -> None:
        self.theta = (
            theta  # logarithms of PARAMETERS, then of the difficulties of the classes
        )
        self.units = units  # of P and Q: their geometric means over the proxy runs

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

        self.clip, self.travel, self.rate = map(
            column, ("clipping_norm", "travel", "rate")
        )
        learned = ("averaged", "noise", "noise_step")
        self.averaged, self.noise, self.noise_step = map(column, learned)
        rounds = column("rounds")
        # the models of an average are averaged - 1 rounds old; half of that fits the digits
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
    """Weight of each class in the mean update over its frequency, at least 0.02 [classes]."""
    exposed: Floats = np.maximum(point.coverage.exposure(point.plan.weights), 0.02)
    return exposed


def _power(base: Floats, exponent: float) -> Floats:
    """The power, between exp(-20) and exp(20)."""
    found: Floats = np.exp(np.clip(exponent * np.log(base), -20, 20))
    return found


def _accuracy(
    theta: Floats, units: tuple[float, float], at: _Arrays
) -> tuple[Floats, Floats]:
    """Accuracy overall and per group [plans, 1 + groups], and per class [plans, classes]."""
    values = np.exp(np.clip(theta, -12, 12))
    t, hard = (
        dict(zip(_NAMES, values[: len(_NAMES)].tolist(), strict=True)),
        values[len(_NAMES) :],
    )
    way, far, near = (min(t[f"gamma_{name}"], 5.0) for name in ("way", "far", "near"))
    signal = at.step(t["gradient"], t["kappa"])
    drawn = t["clients"] * (1 + t["skewed_clients"] * at.skew) * at.inverse_clients
    noise = (at.rate * at.clip) ** 2 * (at.noise**2 + drawn) + t["past"] * signal**2
    logs = np.log(at.exposure) - t["holders"] * at.log_holders
    exposure = np.exp(logs)
    cleared, path = signal**2 * at.rounds / noise, signal * at.rounds / units[0]
    ratio = cleared[:, None] * exposure ** (2 * way) / hard
    moved = path[:, None] * exposure**far / hard
    left = np.sqrt(noise / signal) * at.averaged ** -t["rho"]
    scattered = left[:, None] / exposure**near * hard / units[1]
    hazard = (
        t["floor"]
        + t["way"] * _power(ratio, -t["sigma"])
        + t["far"] * _power(moved, -t["alpha"])
        + t["near"] * _power(scattered, t["beta"])
    )
    chance = 1 / at.exposure.shape[1]
    over = logs - (at.frequencies[:, 0] * logs).sum(axis=1, keepdims=True)
    bias = t["bias"] * _power(path, -t["eta"]) * _power(cleared, -t["omega"])
    odds = log_odds(chance + (1 - chance) * np.exp(-hazard)) + bias[:, None] * over
    by_class = from_log_odds(odds)
    accuracy: Floats = (at.frequencies @ by_class[:, :, None])[:, :, 0]
    return accuracy, by_class


class Fit:
    """Fits of the curve to runs, and to all of them but one."""

    def __init__(
        self,
        points: Sequence[Point],
        accuracies: Floats,  # overall and of each group [runs, 1 + groups]
        by_class: Sequence[Sequence[float] | None],  # None where it was not measured
    ) -> None:
        self._at, self._seen = _Arrays(points), log_odds(accuracies)
        groups, classes = self._seen.shape[1] - 1, self._at.exposure.shape[1]
        # overall counts as much as all groups, and as all classes
        self._scale = np.r_[1.0, np.full(groups, groups**-0.5)] / _NOISE
        known = [row is not None for row in by_class]
        filled = [row if row is not None else [0.5] * classes for row in by_class]
        self._classes = _smooth(np.array(filled, dtype=float))
        self._class_scale = np.array(known)[:, None] * (classes**-0.5 / _CLASS_NOISE)
        self._centres = np.r_[_CENTRES, np.zeros(classes)]
        self._spreads = np.r_[_SPREADS, np.full(classes, DIFFICULTY)]
        steps = self._at.step(1.0, 1.0)
        noise = self._at.noise_step / np.sqrt(steps)
        self._units = _geometric(steps * self._at.rounds), _geometric(noise)
        theta = self._solve(self._centres, np.ones(len(points)))
        self.curve = Curve(theta, self._units)
        self._without = self._steps(theta)

    def without(self, run: int) -> Curve:
        """The curve of all runs but one, by one Gauss-Newton step from that of all."""
        return Curve(self.curve.theta + self._without[run], self._units)

    def without_all(self, runs: Floats) -> Curve:
        """The curve fitted to all runs but those [runs, of bool]."""
        return Curve(self._solve(self.curve.theta, 1.0 - runs), self._units)

    def _residuals(self, theta: Floats) -> Floats:
        """Standardised residuals of each run [runs, 1 + groups + classes]."""
        accuracy, by_class = _accuracy(theta, self._units, self._at)
        own = (log_odds(accuracy) - self._seen) * self._scale
        missed = (_smooth(by_class) - self._classes) * self._class_scale
        joined: Floats = np.concatenate([own, missed], axis=1)
        return joined

    def _solve(self, start: Floats, used: Floats) -> Floats:
        """Maximum a posteriori of the used runs, in log odds, with a robust loss."""

        def residuals(theta: Floats) -> Floats:
            priors = (theta - self._centres) / self._spreads
            own = self._residuals(theta) * used[:, None]
            joined: Floats = np.concatenate([own.ravel(), priors])
            return joined

        from scipy.optimize import least_squares  # slow to load

        found = least_squares(
            residuals, start, loss="soft_l1", f_scale=_ROBUST, max_nfev=100
        )
        theta: Floats = found.x
        return theta

    def _steps(self, theta: Floats) -> Floats:
        """Change of the parameters when a run is left out [runs, parameters]."""
        own = self._residuals(theta)
        slopes = np.empty((*own.shape, len(theta)))
        for at in range(len(theta)):
            moved = theta.copy()
            moved[at] += 1e-5
            slopes[:, :, at] = (self._residuals(moved) - own) / 1e-5
        weights = (1 + (own / _ROBUST) ** 2) ** -0.5
        curvature = np.einsum("rip,ri,riq->rpq", slopes, weights, slopes)
        gradient = np.einsum("rip,ri->rp", slopes, weights * own)
        whole = curvature.sum(axis=0) + np.diag(self._spreads**-2.0)
        steps: Floats = np.linalg.solve(whole - curvature, gradient[:, :, None])[
            :, :, 0
        ]
        return steps


def _smooth(accuracy: Floats) -> Floats:
    """Log odds of classes' accuracies, finite at 0 and 1."""
    return log_odds(_SMOOTH + (1 - 2 * _SMOOTH) * accuracy)


def _geometric(values: Floats) -> float:
    return float(np.exp(np.log(values).mean()))


# Forecasts of accuracy with conformal intervals, from the fitted curve and its held-out runs.

LEVEL = 0.9  # level of the intervals
_PARTITIONS = (
    3  # least partitions of proxy runs for errors on partitions that none of them has
)
OTHER_KIND = (
    10.0  # further distance of a plan whose model, start or augmentation none has
)
_SAME = 0.1  # coverages whose shares and skews differ by no more are taken for the same


@dataclass(frozen=True)
class Anchor:
    """An accuracy that the user knows, overall and in [0, 1], and the plan that reached it."""

    point: Point
    accuracy: float


class Forecaster:
    """Forecasts plans from a table of proxy runs; an anchor shifts all log odds."""

    def __init__(self, table: ProxyTable, anchor: Anchor | None = None) -> None:
        self.table, self._anchor = table, anchor
        points = [Point(run.plan, run.coverage) for run in table.runs]
        seen = np.array([[run.accuracy, *run.accuracy_by_group] for run in table.runs])
        fitted = Fit(points, seen, [run.accuracy_by_class for run in table.runs])
        self._curve = fitted.curve
        self._with_clients = all(run.plan.clients is not None for run in table.runs)
        self._held = np.array([run.coverage.shares for run in table.runs])
        self._skews = np.array([run.coverage.skew for run in table.runs])
        vectors = np.array([_coordinates(point) for point in points])
        self._scale = np.maximum(vectors.std(axis=0), 0.25)
        self._vectors = vectors / self._scale
        own = [
            np.delete(self._vectors, at, axis=0) - one
            for at, one in enumerate(self._vectors)
        ]
        nearest = np.array([np.linalg.norm(one, axis=1).min() for one in own])
        self._unit = max(float(np.median(nearest)), 1e-9)
        widths = 1 + nearest / self._unit
        found = [fitted.without(at)(point) for at, point in enumerate(points)]
        missed = [
            float(one[0] - other[0]) for one, other in zip(seen, found, strict=True)
        ]
        known_plans = (
            [run.plan for run in table.runs] if anchor is None else [anchor.point.plan]
        )
        self._kinds = {plan.kind for plan in known_plans}
        self._shift, self._anchor_width = 0.0, 0.0
        if anchor is not None:
            known = self._point(anchor.point.plan, anchor.point.coverage)
            predicted = self._curve(known)[0]
            self._shift = float(log_odds(anchor.accuracy) - log_odds(predicted))
            self._anchor_width = 1 + self.distance(known)
        residuals = log_odds(seen) - log_odds(np.array(found))
        alone = np.array(
            [not self._covered(one.coverage, at) for at, one in enumerate(points)]
        )
        scores = [(residuals[part], widths[part]) for part in (~alone, alone)]
        if alone.sum() < LEAST_RUNS:
            apart = log_odds(seen) - log_odds(
                np.array(self._by_partition(fitted, points))
            )
            scores = [(residuals, widths), (apart, widths)]
        elif alone.sum() > len(alone) - LEAST_RUNS:
            scores = [(residuals, widths)] * 2
        self._scores, self._new_scores = (
            _scores(list(errors), own, anchored=anchor is not None)
            for errors, own in scores
        )
        self._missed = tuple(missed)

    def _by_partition(self, fitted: Fit, points: Sequence[Point]) -> list[Floats]:
        """Accuracy of each proxy run by the curve of all other partitions.

        Of all other runs where there are fewer than three partitions.
        """
        names = np.array([run.partition for run in self.table.runs])
        if len(set(names)) < _PARTITIONS:
            return [fitted.without(at)(point) for at, point in enumerate(points)]
        curves = {
            name: fitted.without_all(names == name) for name in sorted(set(names))
        }
        return [curves[name](point) for name, point in zip(names, points, strict=True)]

    def _covered(self, coverage: Coverage, own: int | None = None) -> bool:
        """Whether a proxy run, other than ``own``, has nearly this coverage of classes.

        With another number of groups: whether both have groups that hold all classes alike.
        """
        shares, uneven = np.array(coverage.shares), 0.0
        if shares.shape != self._held.shape[1:]:
            shares, all_ = shares.mean(axis=0), shares
            uneven = float(abs(all_ - shares).max())
        apart = np.maximum(abs(self._held - shares).max(axis=(1, 2)), uneven)
        near = (apart <= _SAME) & (abs(self._skews - coverage.skew) <= _SAME)
        if own is not None:
            near[own] = False
        return bool(near.any())

    def held_out(self) -> tuple[float, ...]:
        """Accuracy minus forecast of each proxy run by the curve of the others, without anchor."""
        return self._missed

    def distance(self, point: Point) -> float:
        """Distance to the nearest proxy run, over the median distance between those.

        ``OTHER_KIND`` is added for another model, other parameters before the first round, or other
        random changes of images than those of the proxy runs, or of the anchor where there is one.
        """
        vector = _coordinates(point) / self._scale
        nearest = (
            float(np.linalg.norm(self._vectors - vector, axis=1).min()) / self._unit
        )
        return nearest + (0.0 if point.plan.kind in self._kinds else OTHER_KIND)

    def _point(self, plan: PlanFeatures, coverage: Coverage) -> Point:
        """The point of a plan, without its clients where the proxy runs do not name theirs."""
        clients = plan.clients if self._with_clients else None
        return Point(plan.model_copy(update={"clients": clients}), coverage)

    def accuracy(self, plan: PlanFeatures, coverage: Coverage) -> float:
        """Forecast accuracy overall, in [0, 1], without its interval."""
        odds = log_odds(self._curve(self._point(plan, coverage))[0])
        return float(from_log_odds(odds + self._shift))

    def forecast(
        self, plan: PlanFeatures, coverage: Coverage, names: Sequence[str]
    ) -> Forecast:
        """The forecast of a plan."""
        point = self._point(plan, coverage)
        distance = self.distance(point)
        width = math.hypot(1 + distance, self._anchor_width)
        odds = log_odds(self._curve(point)) + self._shift
        overall, groups = self._scores if self._covered(coverage) else self._new_scores
        half = np.r_[overall, np.full(len(names), groups)] * width
        middle, lower, upper = (
            from_log_odds(odds + sign * half) for sign in (0, -1, 1)
        )
        return Forecast(
            accuracy=float(middle[0]),
            lower=float(lower[0]),
            upper=float(upper[0]),
            level=LEVEL,
            groups=tuple(
                GroupForecast(group=name, accuracy=value, lower=low, upper=high)
                for name, value, low, high in zip(
                    names,
                    *(one[1:].tolist() for one in (middle, lower, upper)),
                    strict=True,
                )
            ),
            dataset=self.table.dataset,
            runs=len(self.table.runs),
            distance=distance,
            anchored=self._anchor is not None,
            proxy=self.table.digest,
        )


def _coordinates(point: Point) -> Floats:
    """Coordinates in which distances between plans are measured."""
    plan = point.plan
    numbers = (
        max(plan.noise, 1e-3), plan.rounds, plan.rate * plan.clipping_norm,
        plan.clipping_norm / plan.travel, plan.averaged, plan.parameters, plan.clients or 1.0,
        float(exposure_of(point).min()), math.exp(point.coverage.skew),
    )  # fmt: skip
    coordinates: Floats = np.log(np.array(numbers))
    return coordinates


def _scores(
    errors: Sequence[Floats], widths: Floats, *, anchored: bool
) -> tuple[float, float]:
    """Quantiles of the normalised residuals, overall and per group.

    With an anchor a residual is that of one run after a shift by another run's.
    """
    rows = list(zip(errors, widths, strict=True))
    if anchored:
        rows = [
            (a[0] - b[0][0], math.hypot(a[1], b[1])) for a, b in permutations(rows, 2)
        ]
    overall = [abs(error[0]) / width for error, width in rows]
    groups = [abs(error[1:]) / width for error, width in rows]
    return _quantile(overall), _quantile(np.concatenate(groups).tolist())


def _quantile(values: Sequence[float]) -> float:
    """The finite-sample quantile of a conformal interval of LEVEL.

    Of held-out runs it is that of 1 - alpha / 2, which no errors of the curve take below 1 - alpha
    (Barber, Candes, Ramdas, Tibshirani, Annals of Statistics 2021, of the jackknife+).
    """
    rank = math.ceil((len(values) + 1) * (1 + LEVEL) / 2)
    return sorted(values)[min(rank, len(values)) - 1]


@lru_cache(maxsize=4)
def forecaster(path: str) -> Forecaster:
    """The forecaster of a file, fitted once per process."""
    return Forecaster(ProxyTable.load(path))


def forecaster_with(
    path: str, anchor: str | None, coverage: Path | str | None
) -> Forecaster:
    """The forecaster of a file, anchored by PLAN.json=ACCURACY when that is given."""
    if anchor is None:
        return forecaster(path)
    where, _, text = anchor.rpartition("=")
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not where or not 0 < percent < 100:
        rule = "must be PLAN.json=ACCURACY, the accuracy in percent between 0 and 100"
        raise InputError.one("known_accuracy", rule, anchor)
    table, plan = ProxyTable.load(path), Plan.load(Path(where))
    held = read_coverage(coverage, plan.spec, table.classes)
    return Forecaster(table, Anchor(Point(plan_features(plan), held), percent / 100))


def with_forecast(plan: Plan, model: Forecaster, coverage: Coverage) -> Plan:
    """The plan with its forecast."""
    names = [group.name for group in plan.groups]
    found = model.forecast(plan_features(plan), coverage, names)
    return plan.model_copy(update={"forecast": found})
