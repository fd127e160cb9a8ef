"""A model: any PyTorch module whose parameters training changes."""

from __future__ import annotations

from math import prod

from torch import nn

from simulate.models.modular import Modular


def stripes_net(
    name: str, *, shape: tuple[int, ...] = (1, 8, 8), classes: int = 2
) -> Modular:
    """A linear classifier; with the defaults 8 * 8 * 2 + 2 = 130 parameters.

    Args:
        name: name of the model, as in the spec.
        shape: shape of one record.
        classes: number of logits.
    """
    return Modular(
        name,
        shape,
        classes,
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes)),
    )
