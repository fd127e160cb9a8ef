"""Forecasts of accuracy with conformal intervals, from the fitted curve.

Intervals are those of Lei et al. (JASA 2018, normalised residuals) with leave-one-out
residuals (jackknife): the residual of each proxy run, in log odds, by the curve fitted
to the other runs, over 1 + its distance to the nearest of them. The distance is in
units of the median distance of the proxy runs, so intervals are wider where the proxy
is far. They hold for plans and data that are exchangeable with the proxy runs.
Coverages of classes that no proxy run has are a category of their own (Mondrian
conformal intervals, Vovk 2012): their residuals are those of the proxy runs whose
coverage no other run has. Where there are too few of these, each residual is by the
curve fitted to the runs of all other partitions, as those plans are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privplan.errors import InputError
from privplan.forecast.assumption import (
    STATED,
    assumption_of,
    covering,
    possible_coverages,
)
from privplan.forecast.coverage import Coverage, even_coverage, read_coverage
from privplan.forecast.curve import (
    Fit,
    Floats,
    Point,
    exposure_of,
    from_log_odds,
    log_odds,
)
from privplan.forecast.features import PlanFeatures, plan_features
from privplan.forecast.proxy_table import LEAST_RUNS, ProxyTable
from privplan.plan import Forecast, GroupForecast, Plan

# Level of the intervals.
LEVEL = 0.9
# Least partitions of proxy runs for errors on partitions that none of them has.
_PARTITIONS = 3
# Further distance of a plan whose model, start or augmentation none has.
OTHER_KIND = 10.0
# Coverages whose shares and skews differ by no more are taken for the same.
_SAME = 0.1
# Least deviation of a coordinate, which is a logarithm: proxy runs that share a value
# do not make every other value far.
_LEAST_DEVIATION = 0.25
# Least noise whose logarithm is taken.
_LEAST_NOISE = 1e-3
# Proxy runs may all be of the same plan.
_LEAST_UNIT = 1e-9


@dataclass(frozen=True)
class Anchor:
    """An accuracy that the user knows, and the plan that reached it.

    Attributes:
        point: the plan, on its data.
        accuracy: overall, in [0, 1].
    """

    point: Point
    accuracy: float


class _Scores(NamedTuple):
    """Quantiles of the normalised residuals, in log odds."""

    overall: float
    group: float


class Forecaster:
    """Forecasts plans from a table of proxy runs; an anchor shifts all log odds."""

    def __init__(self, table: ProxyTable, anchor: Anchor | None = None) -> None:
        self.table = table
        self._anchor = anchor
        points = [Point(run.plan, run.coverage) for run in table.runs]
        reached = np.array(
            [[run.accuracy, *run.accuracy_by_group] for run in table.runs]
        )
        fitted = Fit(points, reached, [run.accuracy_by_class for run in table.runs])
        self._curve = fitted.curve
        self._with_clients = all(run.plan.clients is not None for run in table.runs)
        self._shares = np.array([run.coverage.shares for run in table.runs])
        self._skews = np.array([run.coverage.skew for run in table.runs])
        widths = self._measure_distances(points)

        plans = [run.plan for run in table.runs]
        self._shift = 0.0
        self._anchor_width = 0.0
        if anchor is not None:
            plans = [anchor.point.plan]
        self._kinds = {plan.kind for plan in plans}
        if anchor is not None:
            point = self._point(anchor.point.plan, anchor.point.coverage)
            predicted = self._curve(point)[0]
            self._shift = float(log_odds(anchor.accuracy) - log_odds(predicted))
            self._anchor_width = 1 + self.distance(point)

        forecasts = [fitted.without(index)(point) for index, point in enumerate(points)]
        self._missed = tuple(
            float(accuracies[0] - forecast[0])
            for accuracies, forecast in zip(reached, forecasts, strict=True)
        )
        residuals = log_odds(reached) - log_odds(np.array(forecasts))
        self._set_scores(fitted, points, residuals, widths)

    def _measure_distances(self, points: Sequence[Point]) -> Floats:
        """Set units of distance by the proxy runs.

        Returns:
            1 + the distance of each proxy run to the nearest other [runs].
        """
        vectors = np.array([_coordinates(point) for point in points])
        self._scale = np.maximum(vectors.std(axis=0), _LEAST_DEVIATION)
        self._vectors = vectors / self._scale
        nearest = np.array(
            [
                np.linalg.norm(
                    np.delete(self._vectors, index, axis=0) - vector, axis=1
                ).min()
                for index, vector in enumerate(self._vectors)
            ]
        )
        self._unit = max(float(np.median(nearest)), _LEAST_UNIT)
        widths: Floats = 1 + nearest / self._unit
        return widths

    def _set_scores(
        self, fitted: Fit, points: Sequence[Point], residuals: Floats, widths: Floats
    ) -> None:
        """Set the scores of plans with a coverage of the proxy runs, and of others.

        Args:
            fitted: the fits to the proxy runs.
            points: plan and coverage of each proxy run.
            residuals: of each run, by the curve of the others [runs, 1 + groups].
            widths: 1 + distance of each run to the nearest other [runs].
        """
        anchored = self._anchor is not None
        is_alone = np.array(
            [
                not self._covered(point.coverage, index)
                for index, point in enumerate(points)
            ]
        )
        if is_alone.sum() < LEAST_RUNS:
            # Too few runs of coverages that no other has, for an interval of their own.
            reached = np.array(
                [[run.accuracy, *run.accuracy_by_group] for run in self.table.runs]
            )
            by_partition = np.array(self._by_partition(fitted, points))
            new_residuals = log_odds(reached) - log_odds(by_partition)
            self._scores = _scores(list(residuals), widths, anchored=anchored)
            self._new_scores = _scores(list(new_residuals), widths, anchored=anchored)
        elif is_alone.sum() > len(is_alone) - LEAST_RUNS:
            # Too few runs of coverages that others have.
            self._scores = _scores(list(residuals), widths, anchored=anchored)
            self._new_scores = self._scores
        else:
            self._scores = _scores(
                list(residuals[~is_alone]), widths[~is_alone], anchored=anchored
            )
            self._new_scores = _scores(
                list(residuals[is_alone]), widths[is_alone], anchored=anchored
            )

    def _by_partition(self, fitted: Fit, points: Sequence[Point]) -> list[Floats]:
        """Accuracy of each proxy run by the curve of all other partitions.

        Of all other runs where there are fewer than three partitions.
        """
        names = np.array([run.partition for run in self.table.runs])
        if len(set(names)) < _PARTITIONS:
            return [fitted.without(index)(point) for index, point in enumerate(points)]
        curves = {
            name: fitted.without_all(names == name) for name in sorted(set(names))
        }
        return [curves[name](point) for name, point in zip(names, points, strict=True)]

    def _covered(self, coverage: Coverage, left_out: int | None = None) -> bool:
        """Whether a proxy run has nearly this coverage of classes.

        With another number of groups: whether both have groups that hold all classes
        alike.

        Args:
            coverage: of a plan's groups.
            left_out: number of a proxy run that does not count.
        """
        shares = np.array(coverage.shares)
        unevenness = 0.0
        if shares.shape != self._shares.shape[1:]:
            mean_shares = shares.mean(axis=0)
            unevenness = float(abs(shares - mean_shares).max())
            shares = mean_shares
        differences = abs(self._shares - shares).max(axis=(1, 2))
        is_near = np.maximum(differences, unevenness) <= _SAME
        is_near &= abs(self._skews - coverage.skew) <= _SAME
        if left_out is not None:
            is_near[left_out] = False
        return bool(is_near.any())

    def held_out(self) -> tuple[float, ...]:
        """Accuracy minus forecast of each proxy run by the curve of the others.

        Without an anchor.
        """
        return self._missed

    def distance(self, point: Point) -> float:
        """Distance to the nearest proxy run, over the median distance between those.

        ``OTHER_KIND`` is added for another model, other parameters before the first
        round, or other random changes of images than those of the proxy runs, or of the
        anchor where there is one.
        """
        vector = _coordinates(point) / self._scale
        nearest = float(np.linalg.norm(self._vectors - vector, axis=1).min())
        distance = nearest / self._unit
        if point.plan.kind not in self._kinds:
            distance += OTHER_KIND
        return distance

    def _point(self, plan: PlanFeatures, coverage: Coverage) -> Point:
        """The point of a plan.

        Without its clients where the proxy runs do not name theirs.
        """
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
        if self._covered(coverage):
            scores = self._scores
        else:
            scores = self._new_scores
        half_width = np.r_[scores.overall, np.full(len(names), scores.group)] * width
        accuracies = from_log_odds(odds).tolist()
        lower = from_log_odds(odds - half_width).tolist()
        upper = from_log_odds(odds + half_width).tolist()
        groups = [
            GroupForecast(
                group=name,
                accuracy=accuracies[index],
                lower=lower[index],
                upper=upper[index],
            )
            for index, name in enumerate(names, start=1)
        ]
        return Forecast(
            accuracy=accuracies[0],
            lower=lower[0],
            upper=upper[0],
            level=LEVEL,
            groups=tuple(groups),
            dataset=self.table.dataset,
            runs=len(self.table.runs),
            distance=distance,
            anchored=self._anchor is not None,
            proxy=self.table.digest,
            skew=coverage.skew,
        )


def _coordinates(point: Point) -> Floats:
    """Coordinates in which distances between plans are measured."""
    plan = point.plan
    numbers = (
        max(plan.noise, _LEAST_NOISE),
        plan.rounds,
        plan.rate * plan.clipping_norm,
        plan.clipping_norm / plan.travel,
        plan.averaged,
        plan.parameters,
        plan.clients or 1.0,
        float(exposure_of(point).min()),
        math.exp(point.coverage.skew),
    )
    return np.asarray(np.log(np.array(numbers)))


def _scores(errors: Sequence[Floats], widths: Floats, *, anchored: bool) -> _Scores:
    """Quantiles of the normalised residuals.

    With an anchor a residual is that of a run after a shift by another run's.

    Args:
        errors: residuals of each run, overall and of each group.
        widths: of each run [runs].
        anchored: whether there is an anchor.
    """
    rows = list(zip(errors, widths, strict=True))
    if anchored:
        pairs = permutations(rows, 2)
        rows = [
            (error - anchor_error[0], math.hypot(width, anchor_width))
            for (error, width), (anchor_error, anchor_width) in pairs
        ]
    overall = [abs(error[0]) / width for error, width in rows]
    groups = [abs(error[1:]) / width for error, width in rows]
    return _Scores(_quantile(overall), _quantile(np.concatenate(groups).tolist()))


def _quantile(values: Sequence[float]) -> float:
    """The finite-sample quantile of a conformal interval of LEVEL.

    Of held-out runs it is that of 1 - alpha / 2, which no errors of the curve take
    below 1 - alpha (Barber, Candes, Ramdas, Tibshirani, Annals of Statistics 2021, of
    the jackknife+).
    """
    rank = math.ceil((len(values) + 1) * (1 + LEVEL) / 2)
    return sorted(values)[min(rank, len(values)) - 1]


@lru_cache(maxsize=4)
def forecaster(path: str) -> Forecaster:
    """The forecaster of a file, fitted once per process."""
    return Forecaster(ProxyTable.load(path))


def forecaster_with(
    path: str, anchor: str | None, coverage: Path | str | Mapping[str, Any] | None
) -> Forecaster:
    """The forecaster of a file, anchored by PLAN.json=PERCENT where there is one."""
    if anchor is None:
        return forecaster(path)
    where, _, text = anchor.rpartition("=")
    try:
        percent = float(text)
    except ValueError:
        percent = math.nan
    if not where or not 1 <= percent < 100:
        rule = "must be PLAN.json=PERCENT, a percentage from 1 to below 100"
        raise InputError.one("known_accuracy", rule, anchor)
    table = ProxyTable.load(path)
    plan = Plan.load(Path(where))
    class_shares = read_coverage(coverage, plan.spec, table.classes, table.skew)
    if class_shares is None:
        class_shares = even_coverage(plan.spec, table.classes, table.skew)
    point = Point(plan_features(plan), class_shares)
    return Forecaster(table, Anchor(point, percent / 100))


def with_forecast(plan: Plan, model: Forecaster, coverage: Coverage | None) -> Plan:
    """The plan with its forecast.

    Args:
        plan: the plan.
        model: what forecasts.
        coverage: which classes each group holds; None where nothing says so.
    """
    names = [group.name for group in plan.groups]
    features = plan_features(plan)
    coverages = [coverage] if coverage else []
    assumes = STATED
    if coverage is None:
        table = model.table
        coverages = possible_coverages(plan.spec, table.classes, table.skew)
        assumes = assumption_of(plan.spec)
    forecasts = [model.forecast(features, shares, names) for shares in coverages]
    expected = covering(forecasts).model_copy(update={"assumes": assumes})
    return plan.model_copy(update={"forecast": expected})
