"""Comparisons between a run and its replay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from privplan.record import ReleaseRecord
from privplan.replayed import Comparison, Difference

TOLERANCE = 1e-5
"""Largest deviation that agrees, relative to the largest coordinate or the recorded value."""
KINKS = 2e-4
"""Largest L2 deviation that agrees, relative to the vector. Two float32 kernels choose different
sides of a ReLU or a maximum in about one of 60 clients; their updates then differ by about 1e-3."""
TRAINED = ("largest_norm", "clipped", "excluded", "residual", "noise_sum_squares", "batches")
"""Fields of a ledger line that depend on training, or on noise drawn again."""


class Comparisons:
    """Comparisons so far: their counts and largest deviations by name, and the differences."""

    def __init__(self) -> None:
        self.differences: list[Difference] = []
        self.skipped: frozenset[str] = frozenset()
        self._found: dict[str, tuple[int, int, float]] = {}

    def add(self, round_: int, name: str, detail: str, deviation: float, limit: float = 0) -> None:
        """Add a comparison, which differs when the deviation exceeds the limit or is no number.

        Names in ``skipped`` are not compared.
        """
        if name in self.skipped:
            return
        compared, differ, largest = self._found.get(name, (0, 0, 0.0))
        wrong = not deviation <= limit
        finite = deviation if math.isfinite(deviation) else 1e100
        self._found[name] = (compared + 1, differ + wrong, max(largest, min(finite, 1e100)))
        if wrong:
            self.differences.append(Difference(round=round_, name=name, detail=detail))

    def equal(self, round_: int, name: str, recorded: object, replayed: object) -> None:
        """Compare two values that must be equal."""
        detail = f"recorded {str(recorded)[:60]}, replayed {str(replayed)[:60]}"
        self.add(round_, name, detail, float(recorded != replayed))

    def vectors(
        self, round_: int, name: str, run: Tensor, replay: Tensor, slack: Tensor | float = 0.0
    ) -> None:
        """Compare vectors beyond a slack [d]: the largest coordinate, or else the L2 norm."""
        beyond = ((run.double() - replay.double()).abs() - slack).clamp(min=0)
        largest = max(float(run.abs().max()), float(replay.abs().max()), 1e-300)
        deviation, norm = float(beyond.max()) / largest, max(float(run.double().norm()), 1e-300)
        along = float(beyond.norm()) / norm
        text = f"deviation of {deviation:.2g} of the largest coordinate, {along:.2g} of the norm"
        self.add(round_, name, text, deviation, deviation if along <= KINKS else TOLERANCE)

    def summary(self) -> tuple[Comparison, ...]:
        """All comparisons by name."""
        return tuple(
            Comparison(name=name, compared=compared, differ=differ, largest=largest)
            for name, (compared, differ, largest) in self._found.items()
        )

    def line(self, recorded: ReleaseRecord, replayed: ReleaseRecord, near: int | None) -> None:
        """Compare ledger lines.

        Args:
            recorded: the line of the run.
            replayed: the line of the replay.
            near: updates for which rounding decides whether they were clipped; None for a line
                without the fields that depend on training.
        """
        scale = math.sqrt(replayed.noise_sum_squares or 0.0) or 1.0
        pairs = zip(_fields(recorded), _fields(replayed), strict=False)
        self.equal(recorded.round, "groups", len(recorded.shares), len(replayed.shares))
        for (name, one), (_, other) in pairs:
            if (name in TRAINED) == (near is None):
                continue
            text = f"recorded {str(one)[:60]}, replayed {str(other)[:60]}"
            if one is None or other is None or isinstance(one, str | tuple):
                deviation, limit = float(one != other), 0.0
            elif name == "clipped":
                deviation, limit = abs(one - other), float(near or 0)
            elif name == "residual":
                deviation, limit = abs(one - other) / scale, TOLERANCE
            else:
                deviation = abs(one - other) / max(abs(one), abs(other), 1e-300)
                limit = TOLERANCE if name in TRAINED else 1e-12
            self.add(recorded.round, name, text, deviation, limit)


def _fields(line: ReleaseRecord) -> Iterator[tuple[str, Any]]:
    """Fields of a ledger line and its shares by name; the residual as norm and projection."""
    for name, value in line:
        if name == "residual":
            yield name, value and math.sqrt(value.sum_squares)
            yield name, value and value.along_sum
        elif name != "shares":
            yield name, value
    cohort = "cohort" if line.unit == "client" else "batches"
    for share in line.shares:
        yield from ((cohort if name == "cohort" else name, value) for name, value in share)
