"""Steps on each client's update before it is summed."""

from __future__ import annotations

from simulate.transforms.clip import clip, own_clip
from simulate.transforms.following_clip import following_clip
from simulate.transforms.random_mask import random_mask
from simulate.transforms.scale import scale
from simulate.transforms.shift import shift
from simulate.transforms.sparsify import sparsify

__all__ = ["clip", "following_clip", "own_clip", "random_mask", "scale", "shift", "sparsify"]
