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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path

import numpy as np

from privplan.errors import InputError
from privplan.forecast.features import Coverage, PlanFeatures, plan_features
from privplan.forecast.surrogate import Fit, Floats, Point, exposure_of, from_log_odds, log_odds
from privplan.forecast.table import LEAST_RUNS, ProxyTable, read_coverage
from privplan.plan import Forecast, GroupForecast, Plan

LEVEL = 0.9
"""Level of the intervals."""
_PARTITIONS = 3
"""Least partitions of proxy runs for errors on partitions that none of them has."""
OTHER_KIND = 10.0
"""Added to the distance of a plan whose initial parameters or augmentation no known plan has."""
_SAME = 0.1
"""Coverages whose shares and skews differ by no more are taken for the same."""


@dataclass(frozen=True)
class Anchor:
    """An accuracy that the user knows.

    Attributes:
        point: the plan that reached it, and its data.
        accuracy: the accuracy overall, in [0, 1].
    """

    point: Point
    accuracy: float


class Forecaster:
    """Forecasts plans from a table of proxy runs.

    Args:
        table: the proxy runs.
        anchor: an accuracy that the user knows; it shifts all log odds.
    """

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
            np.delete(self._vectors, at, axis=0) - self._vectors[at] for at in range(len(points))
        ]
        nearest = np.array([np.linalg.norm(one, axis=1).min() for one in own])
        self._unit = max(float(np.median(nearest)), 1e-9)
        widths = 1 + nearest / self._unit
        found = [fitted.without(at)(point) for at, point in enumerate(points)]
        missed = [float(one[0] - other[0]) for one, other in zip(seen, found, strict=True)]
        known_plans = [run.plan for run in table.runs] if anchor is None else [anchor.point.plan]
        self._kinds = {plan.kind for plan in known_plans}
        self._shift, self._anchor_width = 0.0, 0.0
        if anchor is not None:
            known = self._point(anchor.point.plan, anchor.point.coverage)
            predicted = self._curve(known)[0]
            self._shift = float(log_odds(anchor.accuracy) - log_odds(predicted))
            self._anchor_width = 1 + self.distance(known)
        residuals = log_odds(seen) - log_odds(np.array(found))
        alone = np.array([not self._covered(one.coverage, at) for at, one in enumerate(points)])
        scores = [(residuals[part], widths[part]) for part in (~alone, alone)]
        if alone.sum() < LEAST_RUNS:
            apart = log_odds(seen) - log_odds(np.array(self._by_partition(fitted, points)))
            scores = [(residuals, widths), (apart, widths)]
        elif alone.sum() > len(alone) - LEAST_RUNS:
            scores = [(residuals, widths)] * 2
        self._scores, self._new_scores = (
            _scores(list(errors), own, anchored=anchor is not None) for errors, own in scores
        )
        self._missed = tuple(missed)

    def _by_partition(self, fitted: Fit, points: Sequence[Point]) -> list[Floats]:
        """Accuracy of each proxy run by the curve of all other partitions.

        Of all other runs where there are fewer than three partitions.
        """
        names = np.array([run.partition for run in self.table.runs])
        if len(set(names)) < _PARTITIONS:
            return [fitted.without(at)(point) for at, point in enumerate(points)]
        curves = {name: fitted.without_all(names == name) for name in sorted(set(names))}
        return [curves[name](point) for name, point in zip(names, points, strict=True)]

    def _covered(self, coverage: Coverage, own: int | None = None) -> bool:
        """Whether a proxy run, other than ``own``, has nearly this coverage of classes."""
        apart = abs(self._held - np.array(coverage.shares)).max(axis=(1, 2))
        near = (apart <= _SAME) & (abs(self._skews - coverage.skew) <= _SAME)
        if own is not None:
            near[own] = False
        return bool(near.any())

    def held_out(self) -> tuple[float, ...]:
        """Accuracy minus forecast of each proxy run by the curve of the others, without anchor."""
        return self._missed

    def distance_of(self, plan: PlanFeatures, coverage: Coverage) -> float:
        """Distance of a plan to the nearest proxy run, as ``Forecast.distance``."""
        return self.distance(self._point(plan, coverage))

    def distance(self, point: Point) -> float:
        """Distance to the nearest proxy run, over the median distance between those.

        ``OTHER_KIND`` is added for other parameters before the first round, or other random
        changes of images, than those of the proxy runs, or of the anchor where there is one.
        """
        vector = _coordinates(point) / self._scale
        nearest = float(np.linalg.norm(self._vectors - vector, axis=1).min()) / self._unit
        return nearest + (0.0 if point.plan.kind in self._kinds else OTHER_KIND)

    def _point(self, plan: PlanFeatures, coverage: Coverage) -> Point:
        """The point of a plan, without its clients where the proxy runs do not name theirs."""
        clients = plan.clients if self._with_clients else None
        return Point(plan.model_copy(update={"clients": clients}), coverage)

    def accuracy(self, plan: PlanFeatures, coverage: Coverage) -> float:
        """Forecast accuracy overall, in [0, 1], without its interval."""
        odds = log_odds(self._curve(self._point(plan, coverage))[0])
        return float(from_log_odds(odds + self._shift))

    def forecast(self, plan: PlanFeatures, coverage: Coverage, names: Sequence[str]) -> Forecast:
        """The forecast of a plan.

        Args:
            plan: its features.
            coverage: which classes its groups hold.
            names: names of its groups.
        """
        point = self._point(plan, coverage)
        distance = self.distance(point)
        width = math.hypot(1 + distance, self._anchor_width)
        odds = log_odds(self._curve(point)) + self._shift
        overall, groups = self._scores if self._covered(coverage) else self._new_scores
        half = np.r_[overall, np.full(len(names), groups)] * width
        middle, lower, upper = (from_log_odds(odds + sign * half) for sign in (0, -1, 1))
        return Forecast(
            accuracy=float(middle[0]),
            lower=float(lower[0]),
            upper=float(upper[0]),
            level=LEVEL,
            groups=tuple(
                GroupForecast(group=name, accuracy=value, lower=low, upper=high)
                for name, value, low, high in zip(
                    names, *(one[1:].tolist() for one in (middle, lower, upper)), strict=True
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
        max(plan.noise, 1e-3),
        plan.rounds,
        plan.rate * plan.clipping_norm,
        plan.clipping_norm / plan.travel,
        plan.averaged,
        plan.parameters,
        plan.clients or 1.0,
        float(exposure_of(point).min()),
        math.exp(point.coverage.skew),
    )
    coordinates: Floats = np.log(np.array(numbers))
    return coordinates


def _scores(errors: Sequence[Floats], widths: Floats, *, anchored: bool) -> tuple[float, float]:
    """Quantiles of the normalised residuals, overall and per group.

    With an anchor a residual is that of one run after a shift by another run's.
    """
    if not anchored:
        overall = [abs(one[0]) / width for one, width in zip(errors, widths, strict=True)]
        groups = [abs(one[1:]) / width for one, width in zip(errors, widths, strict=True)]
    else:
        rows = list(zip(errors, widths, strict=True))
        pairs = [(a[0] - b[0][0], math.hypot(a[1], b[1])) for a, b in permutations(rows, 2)]
        overall = [abs(error[0]) / width for error, width in pairs]
        groups = [abs(error[1:]) / width for error, width in pairs]
    return _quantile(overall), _quantile(np.concatenate(groups).tolist())


def _quantile(values: Sequence[float]) -> float:
    """The finite-sample quantile of a conformal interval of LEVEL."""
    rank = math.ceil((len(values) + 1) * LEVEL)
    return sorted(values)[min(rank, len(values)) - 1]


@lru_cache(maxsize=4)
def forecaster(path: str) -> Forecaster:
    """The forecaster of a file, fitted once per process.

    Raises:
        InputError: as ``ProxyTable.load``.
    """
    return Forecaster(ProxyTable.load(path))


def forecaster_with(path: str, anchor: str | None, coverage: str | None) -> Forecaster:
    """The forecaster of a file, anchored by PLAN.json=ACCURACY when that is given.

    Args:
        path: the table of proxy runs.
        anchor: path of a plan and the accuracy that it reached in percent, with = between.
        coverage: path of the classes that the groups hold; None when all hold all alike.

    Raises:
        InputError: for an anchor that is not of this form, or files with faults.
    """
    if anchor is None:
        return forecaster(path)
    where, _, text = anchor.rpartition("=")
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not where or not 0 < percent < 100:
        rule = "must be PLAN.json=ACCURACY, the accuracy in percent between 0 and 100"
        raise InputError.one("anchor", rule, anchor)
    table, plan = ProxyTable.load(path), Plan.load(Path(where))
    held = read_coverage(coverage, plan.spec, table.classes)
    return Forecaster(table, Anchor(Point(plan_features(plan), held), percent / 100))


def with_forecast(plan: Plan, model: Forecaster, coverage: Coverage) -> Plan:
    """The plan with its forecast."""
    names = [group.name for group in plan.groups]
    found = model.forecast(plan_features(plan), coverage, names)
    return plan.model_copy(update={"forecast": found})
