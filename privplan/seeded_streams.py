"""Random streams of a simulation, which its seed, a purpose and indices determine.

A check regenerates cohorts and noise from them; ``simulate.engine.seeds`` draws from the same
streams. Where the key of the noise is secret, only statistical tests remain.
"""

from __future__ import annotations

import hashlib

import numpy as np

from privplan.secure_streams import SecureStream

SAMPLING = 3
"""Key of the streams of cohorts: (round, index of the group)."""
NOISE = 5
"""Key of the streams of noise: (round, index of the release in the round)."""
LETTERS = 24
"""Length of the hash of a generator's state."""


def seeded_stream(seed: int, key: int, *indices: int) -> np.random.Generator:
    """Returns the generator of one stream.

    Args:
        seed: the run's seed, 0 or more.
        key: key of the purpose.
        indices: for example (round, client) or (round, release), each 0 or more.

    Returns:
        A Philox generator keyed by all arguments; equal arguments give equal streams.
    """
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(key, *indices))
    return np.random.Generator(np.random.Philox(sequence))


def fingerprint(generator: np.random.Generator | SecureStream) -> str:
    """A hash of the state before a draw: equal states would draw equal noise."""
    if isinstance(generator, SecureStream):
        return generator.fingerprint()
    found = generator.bit_generator.state
    words = [found["bit_generator"], *(found["state"][name] for name in sorted(found["state"]))]
    text = "|".join(str(np.asarray(word).tolist()) for word in words)
    return hashlib.sha256(f"{text}|{found.get('buffer_pos')}".encode()).hexdigest()[:LETTERS]
