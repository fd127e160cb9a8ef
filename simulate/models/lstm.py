"""`lstm`: two layers of 256 over 80 characters, 819,920 parameters, for the next one.

The network of LEAF's Shakespeare task (Caldas et al. 2018): an alphabet of 80
characters, embedded in 8 dimensions, which GDPFed+ follows.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulate.models.modular import Modular
from simulate.models.registry import MODELS

ALPHABET = 80  # characters
EMBEDDING = 8  # dimensions of a character
UNITS = 256  # of each layer
LAYERS = 2


class Lstm(nn.Module):
    """Embedding, recurrent layers, and a dense layer on the last step."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ALPHABET, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, UNITS, LAYERS, batch_first=True)
        self.head = nn.Linear(UNITS, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Characters [B, T], int64, to logits [B, classes]."""
        logits: Tensor = self.head(self.recur(self.embedding(x))[:, -1])
        return logits

    def recur(self, x: Tensor) -> Tensor:
        """Steps [B, T, EMBEDDING] through all layers to [B, T, UNITS]."""
        output: Tensor = self.lstm(x)[0]
        return output


class StepwiseLstm(Lstm):
    """The same function step by step, as `vmap` needs it; slower on a CPU."""

    def recur(self, x: Tensor) -> Tensor:
        """Steps [B, T, EMBEDDING] through all layers to [B, T, UNITS]."""
        weights = partial(getattr, self.lstm)
        for layer in range(LAYERS):
            inner = weights(f"weight_hh_l{layer}")
            bias = weights(f"bias_ih_l{layer}") + weights(f"bias_hh_l{layer}")
            inputs = functional.linear(x, weights(f"weight_ih_l{layer}"), bias)
            hidden = cell = torch.zeros_like(inputs[:, 0, :UNITS])
            steps = []
            for step in inputs.unbind(1):
                enter, forget, new, output = (step + hidden @ inner.T).chunk(4, -1)
                cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
                hidden = output.sigmoid() * cell.tanh()
                steps.append(hidden)
            x = torch.stack(steps, 1)
        return x


def lstm(
    name: str, *, shape: tuple[int, ...] = (80,), classes: int = ALPHABET
) -> Modular:
    """A network that predicts the next character after `shape[0]` characters."""
    return Modular(
        name, shape, classes, partial(Lstm, classes), partial(StepwiseLstm, classes)
    )


MODELS.register("lstm", lstm)
