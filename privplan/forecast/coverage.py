"""Coverage: which classes each group of a plan holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from privplan.errors import InputError
from privplan.files import read_json
from privplan.spec.spec import Spec
from privplan.values import Fraction, NonNegative, Value, is_none

# Denominators are at least this; where they are smaller, their quotient is not used.
_TINY = 1e-9
# How few groups may hold a class: no more than the proxy runs have shown.
_MAX_HOLDERS = 50.0
# Sums of counts below this are finite.
_MAX_COUNT = 1e100


class Coverage(Value):
    """Which classes each group holds.

    Attributes:
        shares: share of each class among the records of each group.
        clients: share of each group among the clients.
        skew: how much more alike two records of a client are than two of its group:
            (s - g) / (1 - g), s and g the chances that their classes agree. 0 for IID
            clients, 1 for clients of one class each.
        frequency: share of each class among all records, of training and test; None
            where every client has as many records.
    """

    shares: tuple[tuple[NonNegative, ...], ...]
    clients: tuple[Fraction, ...]
    skew: NonNegative = 0.0
    frequency: tuple[NonNegative, ...] | None = Field(None, exclude_if=is_none)

    def overall(self) -> np.ndarray:
        """Share of each class among all records [classes]."""
        if self.frequency is None:
            counts = np.asarray(self.clients) @ np.asarray(self.shares)
        else:
            counts = np.asarray(self.frequency)
        shares: np.ndarray = counts / counts.sum()
        return shares

    def exposure(self, weights: Sequence[float]) -> np.ndarray:
        """Weight of each class in the mean update over its frequency [classes]."""
        shares = np.asarray(self.shares)
        frequency = self.overall()
        exposure = np.asarray(weights) @ shares / np.maximum(frequency, _TINY)
        # A class without records does not matter.
        return np.where(frequency > 0, exposure, 1.0)

    def holders(self, weights: Sequence[float]) -> np.ndarray:
        """How few groups hold a class [classes].

        1 where all groups hold it alike, 1 / w where only a group of weight w holds it.
        """
        shares = np.asarray(self.shares)
        group_weights = np.asarray(weights)
        # E[x^2] / E[x]^2 of a class's share x in groups of these weights.
        mean = group_weights @ shares
        mean_square = group_weights @ shares**2
        ratio = mean_square / np.maximum(mean, _TINY) ** 2
        return np.where(mean > 0, np.clip(ratio, 1.0, _MAX_HOLDERS), 1.0)

    @property
    def total_skew(self) -> float:
        """Skew of the clients' labels against those of all clients, in [0, 1]."""
        clients = np.asarray(self.clients)
        shares = np.asarray(self.shares)
        shares = shares / shares.sum(axis=1, keepdims=True)

        # Chances that the classes of two records agree: of any clients, of a group, and
        # of a client.
        overall = float(((clients / clients.sum() @ shares) ** 2).sum())
        if overall >= 1:
            return 0.0
        in_group = (shares**2).sum(axis=1)
        in_client = in_group + self.skew * (1 - in_group)
        mean_in_client = float(clients @ in_client) / float(clients.sum())
        return min(max((mean_in_client - overall) / (1 - overall), 0.0), 1.0)

    def frequencies(self) -> np.ndarray:
        """Share of each class overall and in each group [1 + groups, classes]."""
        rows = np.vstack([self.overall(), np.asarray(self.shares)])
        normalised: np.ndarray = rows / rows.sum(axis=1, keepdims=True)
        return normalised


def even_coverage(spec: Spec, classes: int, skew: float = 0.0) -> Coverage:
    """Every group holds all classes alike, and clients differ by a skew."""
    group_shares = (1 / classes,) * classes
    shares = (group_shares,) * len(spec.groups)
    return Coverage(shares=shares, clients=client_shares(spec), skew=skew)


def client_shares(spec: Spec) -> tuple[float, ...]:
    """Share of each group among the clients."""
    return tuple(group.clients / spec.population for group in spec.groups)


def read_coverage(
    source: Path | str | Mapping[str, Any] | None,
    spec: Spec,
    classes: int,
    skew: float = 0.0,
) -> Coverage | None:
    """Which classes each group of a spec holds; None where nothing says so.

    Args:
        source: a mapping such as {"strict": [0.5, 0.5, 0]}, or the path of its JSON.
        spec: whose groups it names.
        classes: how many classes there are.
        skew: of the clients' labels where the source does not say it: the proxy's.

    Raises:
        InputError: naming what is not a share of classes.
    """
    if source is None:
        return None
    data: Any = source
    if isinstance(source, Path | str):
        data = read_json(source, "coverage")
    names = [group.name for group in spec.groups]
    rule = f"must name the groups {', '.join(names)}"
    if not isinstance(data, Mapping):
        raise InputError.one("coverage", rule, type(data).__name__)
    rows = dict(data)
    skew = rows.pop("skew", skew)
    frequency = rows.pop("frequency", None)
    if not _is_number(skew) or not 0 <= skew <= 1:
        raise InputError.one("coverage.skew", "must be a number in [0, 1]", skew)
    if sorted(map(str, rows)) != sorted(names):
        raise InputError.one("coverage", rule, ", ".join(map(str, rows)))
    for name, row in rows.items():
        _check_row(name, row, classes)
    if frequency is not None:
        _check_row("frequency", frequency, classes)

    shares = []
    for name in names:
        total = sum(rows[name])
        shares.append(tuple(float(count / total) for count in rows[name]))
    return Coverage(
        shares=tuple(shares),
        clients=client_shares(spec),
        skew=skew,
        frequency=None if frequency is None else tuple(map(float, frequency)),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_row(name: str, row: Any, classes: int) -> None:
    """Raise InputError unless a row has a number per class, with a positive sum."""
    is_valid = isinstance(row, list | tuple) and all(
        _is_number(count) and 0 <= count < _MAX_COUNT for count in row
    )
    if not is_valid or len(row) != classes or sum(row) <= 0:
        rule = f"must be {classes} numbers from 0 with a positive sum"
        raise InputError.one(f"coverage.{name}", rule, row)
