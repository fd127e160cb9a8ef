"""W1 for a whole framework, without any import of the project.

6,000 clients of 10 images of 28 x 28, a cohort of 120 a round, 5 local steps of batch
10, clipping to 1.5 and central Gaussian noise. A client's five batches are its ten
images five times.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLIENTS = 6000
# Records of a client.
RECORDS = 10
COHORT = 120
STEPS = 5
LEARNING_RATE = 0.1
CLIP = 1.5
NOISE_MULTIPLIER = 1.5


def population() -> tuple[Tensor, Tensor]:
    """Random images [clients, records, 1, 28, 28] as bytes, and their labels."""
    draw = torch.Generator().manual_seed(0)
    shape = (CLIENTS, RECORDS, 1, 28, 28)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
    return images, torch.randint(0, 10, shape[:2], generator=draw)


def network() -> nn.Sequential:
    """The two convolutions of `cnn-2`.

    The positive part after the pooling is the faster order.
    """
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )
