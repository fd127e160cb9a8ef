"""Random generators of a deployment, keyed by the operating system; no key is recorded."""

from __future__ import annotations

import os

import numpy as np

KEY_BYTES = 16
"""Bytes of a key of Philox."""


def secure_generator() -> np.random.Generator:
    """A generator with a new key from the operating system, for one draw.

    The ledger has a hash of its state before the draw, from which the key cannot be found.
    """
    key = int.from_bytes(os.urandom(KEY_BYTES), "little")
    return np.random.Generator(np.random.Philox(key=key))
