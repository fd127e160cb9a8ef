"""How fast this machine multiplies matrices: operations of a product, to be timed."""

from __future__ import annotations

import torch
from torch.nn import functional

# Long enough to be timed.
_PRODUCTS = 16


def product_blas(size: int = 1024) -> float:
    """Operations of one matrix product by `torch.mm`; returns their number."""
    left = torch.ones(size, size)
    right = torch.ones(size, size)
    for _ in range(_PRODUCTS):
        torch.mm(left, right)
    return _PRODUCTS * 2.0 * size**3


def product_onednn(size: int = 1024) -> float:
    """The same product as a 1 x 1 convolution, which PyTorch hands to oneDNN."""
    image = torch.ones(16, size, 8, size // 128).contiguous(
        memory_format=torch.channels_last
    )
    kernel = torch.ones(size, size, 1, 1)
    for _ in range(_PRODUCTS):
        functional.conv2d(image, kernel)
    return _PRODUCTS * 2.0 * size**3
