"""What ``compare --tune`` varies of a method, and the plan with other values of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import Field

from privplan.plan import Plan
from privplan.spec.planning import QuantileClipping
from privplan.values import Value
from simulate.algorithms.entry import AlgorithmEntry

CLIPPING = (0.1, 2.0)
"""Least and largest clipping norm that is tried, over the plan's."""
RATE = (1 / 3, 3.0)
"""Least and largest local learning rate that is tried, over the plan's."""
QUANTILE = (0.1, 0.9)
"""Least and largest share of updates that an adaptive clipping norm leaves whole."""
FACTOR = 4.0
"""Largest factor between a hyperparameter that is tried and its default, in either direction."""
NEAR = 0.35
"""Standard deviation of the logarithms of values drawn around the best so far, over the range's."""


class Point(Value):
    """Values that a method trains with.

    Attributes:
        clipping: clipping norm over the plan's; the first one where it follows a quantile.
        rate: local learning rate over the plan's.
        quantile: the private quantile that the clipping norm follows; None where it is fixed.
        values: the method's own hyperparameters by name.
    """

    clipping: float = 1.0
    rate: float = 1.0
    quantile: float | None = None
    values: dict[str, float] = Field(default_factory=dict)


class SearchSpace:
    """The values of a method that are tuned, each on a logarithmic scale.

    Args:
        entry: the method. A method without privacy does not clip, so its norm is not tuned.
        given: values of hyperparameters that the user chose, which stay.
        quantile: the private quantile that the method's clipping norm follows under its own plan;
            None where the norm is fixed.
    """

    def __init__(
        self, entry: AlgorithmEntry, given: Mapping[str, float], quantile: float | None = None
    ) -> None:
        clips = entry.unit != "none" and entry.released != "nothing"
        self.ranges = {"clipping": CLIPPING, "rate": RATE} if clips else {"rate": RATE}
        self._quantile = quantile if clips else None
        if self._quantile is not None:
            self.ranges["quantile"] = (
                min(QUANTILE[0], self._quantile),
                max(QUANTILE[1], self._quantile),
            )
        self._given = dict(given)
        self._defaults = {name: one.default for name, one in entry.hyperparameters.items()}
        for name, one in entry.hyperparameters.items():
            if one.integer or name in given or one.default <= 0:
                continue
            low, high = max(one.low, one.default / FACTOR), min(one.high, one.default * FACTOR)
            self.ranges[name] = (low, high)

    @property
    def default(self) -> Point:
        """The plan's values and the defaults."""
        return self._point({})

    def draws(self, source: np.random.Generator) -> Iterator[Point]:
        """Endless points, uniform in the logarithms."""
        while True:
            drawn = {name: source.uniform(*np.log(ends)) for name, ends in self.ranges.items()}
            yield self._point({name: math.exp(value) for name, value in drawn.items()})

    def near(self, best: Point, source: np.random.Generator) -> Iterator[Point]:
        """Endless points around one, log-normal, within the ranges."""
        middle = _by_name(best)
        while True:
            found = {}
            for name, (low, high) in self.ranges.items():
                width = NEAR * math.log(high / low) / 2
                value = middle[name] * math.exp(width * source.normal())
                found[name] = min(max(value, low), high)
            yield self._point(found)

    def at_edge(self, point: Point) -> list[str]:
        """Names of the values within a tenth of an end of their range, on the log scale."""
        values = _by_name(point)
        names = []
        for name, (low, high) in self.ranges.items():
            place = math.log(values[name] / low) / math.log(high / low)
            names += [name] if not 0.1 < place < 0.9 else []
        return names

    def _point(self, found: Mapping[str, float]) -> Point:
        rounded = {name: float(f"{value:.3g}") for name, value in found.items()}
        own = {name: rounded.get(name, value) for name, value in self._defaults.items()}
        return Point(
            clipping=rounded.get("clipping", 1.0),
            rate=rounded.get("rate", 1.0),
            quantile=rounded.get("quantile", self._quantile),
            values={**own, **self._given},
        )


def _by_name(point: Point) -> dict[str, float]:
    """All values of a point; a hyperparameter has its own name."""
    quantile = {} if point.quantile is None else {"quantile": point.quantile}
    return {"clipping": point.clipping, "rate": point.rate, **quantile, **point.values}


def retuned(plan: Plan, point: Point) -> Plan:
    """The plan with another clipping norm, quantile and local learning rate; same guarantees.

    Noise multipliers are in units of the clipping norm, and the noise on the count that follows a
    quantile is the same for every quantile, so no guarantee depends on any of these values.
    """
    spec = plan.spec
    rate = min(spec.local.learning_rate * point.rate, 1e6)
    local = spec.local.model_copy(update={"learning_rate": float(f"{rate:.6g}")})
    norm = float(f"{spec.clipping_norm * point.clipping:.6g}")
    factor = norm / spec.clipping_norm
    groups = tuple(
        group.model_copy(update={"clipping_norm": group.clipping_norm * factor})
        if group.clipping_norm is not None
        else group
        for group in plan.groups
    )
    changed = spec.model_copy(update={"local": local, "clipping_norm": norm})
    update = {"spec": changed, "groups": groups, "noise_std": plan.noise_std * factor}
    if point.quantile is not None:
        chosen = {"quantile": point.quantile}
        if plan.clipping is not None:
            update["clipping"] = plan.clipping.model_copy(update=chosen)
        # without a request the method follows a quantile by default: here it has another one
        requested = (spec.planning.clipping or QuantileClipping()).model_copy(update=chosen)
        planning = spec.planning.model_copy(update={"clipping": requested})
        update["spec"] = changed.model_copy(update={"planning": planning})
    return plan.model_copy(update=update)
