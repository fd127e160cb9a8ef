"""The loss that a model is trained with, and what the labels of a mini-batch stand for.

Mini-batches carry one int64 per record. It is a class, or the row of a table of targets
where the targets are other than classes; in a model that draws random numbers in
training, its upper bits are the seed of the client's step. So every algorithm handles
every task without knowing it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""Takes outputs and targets [B, ...] to the mean loss."""

SEED_BITS = 31  # bits of a step's seed, so that a label with its seed stays positive
_LABEL_BITS = 32
_LABELS = 2**_LABEL_BITS - 1  # mask of the label


@dataclass(frozen=True)
class Objective:
    """A loss over outputs of a model and labels of a mini-batch.

    Attributes:
        loss: of outputs and targets.
        targets: whose rows the labels name [n, ...]; None where labels are targets.
    """

    loss: Loss
    targets: Tensor | None = None

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean loss of records with labels [B], none of them padding."""
        targets = self.targets_of(y)
        return self.loss(fitted(outputs, targets), targets)

    def targets_of(self, y: Tensor) -> Tensor:
        """Targets of labels [...], which an own loss or metric may change."""
        if self.targets is None:
            return y.clone()
        return self.targets.to(y.device)[y]


CROSS_ENTROPY = Objective(functional.cross_entropy)
"""Cross-entropy of logits [B, classes] and labels [B], which has fast kernels."""


def fitted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs [..., 1] in the shape of real targets [...], which would broadcast."""
    if targets.is_floating_point() and outputs.shape == (*targets.shape, 1):
        return outputs.squeeze(-1)
    return outputs


def with_seeds(y: Tensor, seeds: Tensor) -> Tensor:
    """Labels [K, steps, B] with the seed of each step [K, steps]; padding stays."""
    return torch.where(y >= 0, y + (seeds.to(y.device) << _LABEL_BITS).unsqueeze(-1), y)


def without_seeds(y: Tensor) -> tuple[Tensor, int]:
    """Labels [B] of one client's step, none of them padding, and the step's seed."""
    seed = int(y[0] >> _LABEL_BITS) if len(y) else 0
    return y & _LABELS, seed
