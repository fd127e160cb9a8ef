"""The noise of DP-SGD: drawn by a client at each local step, on the sum of its records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from privplan.seeded_streams import fingerprint


@dataclass
class RecordNoise:
    """One client's source of noise in a round, and the evidence of what it drew.

    Attributes:
        generator: the client's stream of this round.
        std: standard deviation per coordinate, on the sum of clipped gradients of records.
        sent: coordinates that may leave the client, whose noise is evidence; None for all.
        state: hash of the generator's state before the first draw.
        squares: sum of squares of what was drawn so far.
        drawn: coordinates drawn so far.
    """

    generator: np.random.Generator
    std: float
    sent: np.ndarray | None = None
    state: str = field(init=False)
    squares: float = 0.0
    drawn: int = 0

    def __post_init__(self) -> None:
        self.state = fingerprint(self.generator)

    def like(self, sums: Tensor) -> Tensor:
        """Fresh noise for one step [d], as float32 on the device of the sums."""
        found = self.generator.standard_normal(len(sums)) * self.std
        shown = found if self.sent is None else found[self.sent]
        self.squares += float(np.square(shown).sum())
        self.drawn += len(shown)
        return torch.from_numpy(found).to(sums.device).float()
