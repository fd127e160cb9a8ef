"""What ``compare --tune`` varies of a method, and the plan with other values of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from privplan.plan import Plan
from privplan.values import Value
from simulate.algorithms.registry import AlgorithmEntry

CLIPPING = (0.1, 2.0)  # ends of the clipping norms that are tried, over the plan's
RATE = (1 / 3, 3.0)  # ends of the local learning rates that are tried, over the plan's
FACTOR = 4.0  # largest factor between a hyperparameter that is tried and its default
# Digits of a norm and a rate: more than a search decides, and short in a plan file.
_DIGITS = 6
_MAX_RATE = 1e6  # the largest learning rate that a spec takes


class Point(Value):
    """Values that a method trains with.

    Attributes:
        clipping: factor on the plan's clipping norm; of the first norm where it follows
            a quantile.
        rate: factor on the plan's local learning rate.
        values: the method's own hyperparameters.
    """

    clipping: float = 1.0
    rate: float = 1.0
    values: dict[str, float] = Field(default_factory=dict)


class SearchSpace:
    """The values of a method that are tuned, each on a logarithmic scale.

    Hyperparameters that the user gave stay; a method without privacy has no norm to
    tune.

    Attributes:
        ranges: least and largest value, by name.
        default: the first values that are tried, by name.
    """

    def __init__(self, entry: AlgorithmEntry, fixed: Mapping[str, float]) -> None:
        self.ranges = {"rate": RATE}
        self.default = {"rate": 1.0}
        if entry.unit != "none" and entry.released != "nothing":
            self.ranges = {"clipping": CLIPPING, **self.ranges}
            self.default = {"clipping": 1.0, **self.default}
        for name, hyperparameter in entry.hyperparameters.items():
            default = hyperparameter.default
            # An integer has no logarithmic scale, and neither has a default of zero.
            if hyperparameter.integer or name in fixed or default <= 0:
                continue
            lowest = max(hyperparameter.low, default / FACTOR)
            highest = min(hyperparameter.high, default * FACTOR)
            self.ranges[name] = (lowest, highest)
            self.default[name] = default
        self._values: dict[str, float] = {
            name: hyperparameter.default
            for name, hyperparameter in entry.hyperparameters.items()
        }
        self._values.update(fixed)

    def point(self, params: Mapping[str, Any]) -> Point:
        """The values of a trial, with those that are not varied."""
        return Point(
            clipping=params.get("clipping", 1.0),
            rate=params.get("rate", 1.0),
            values={
                name: params.get(name, value) for name, value in self._values.items()
            },
        )


def retuned(plan: Plan, point: Point) -> Plan:
    """The plan with another clipping norm and local learning rate; same guarantees.

    Noise multipliers are in units of the clipping norm, so no guarantee depends on
    either.
    """
    spec = plan.spec
    rate = min(spec.local.learning_rate * point.rate, _MAX_RATE)
    local = spec.local.model_copy(update={"learning_rate": _rounded(rate)})
    norm = _rounded(spec.clipping_norm * point.clipping)
    factor = norm / spec.clipping_norm
    groups = []
    for group in plan.groups:
        if group.clipping_norm is not None:
            group_norm = group.clipping_norm * factor
            group = group.model_copy(update={"clipping_norm": group_norm})
        groups.append(group)
    return plan.model_copy(
        update={
            "spec": spec.model_copy(update={"local": local, "clipping_norm": norm}),
            "groups": tuple(groups),
            "mean_noise_std": plan.mean_noise_std * factor,
        }
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
