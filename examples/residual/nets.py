"""A residual network with dropout over signals of 16 values."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions with group normalisation and dropout, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(channels, channels, 3, padding=1)
        self.norm, self.drop = nn.GroupNorm(2, channels), nn.Dropout(0.2)
        self.second = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Values [B, channels, 16] to values of the same shape."""
        hidden: Tensor = self.drop(torch.relu(self.norm(self.first(x))))
        return x + self.second(hidden)


class Net(nn.Module):
    """A convolution, residual blocks and a dense layer."""

    def __init__(self, channels: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, channels, 5, padding=2)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.last = nn.Linear(channels, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Signals [B, 1, 16] to logits [B, 2]."""
        features: Tensor = self.blocks(self.stem(x)).amax(2)
        logits: Tensor = self.last(features)
        return logits
