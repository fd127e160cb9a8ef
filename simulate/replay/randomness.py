"""Random draws of a run, generated again from its seed: cohorts, mini-batches and noise.

A stream is a Philox generator keyed by ``SeedSequence(seed, spawn_key=(purpose, *indices))``.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

Batches = list[np.ndarray]
INITIAL, SAMPLING, CLIENT, NOISE, RECORD_NOISE, AUGMENTATION = 0, 3, 4, 5, 8, 13
"""Purposes of the streams: initial model, cohort (round, group), mini-batches (round, client),
noise (round, release), noise of DP-SGD (round, client), changes of images (round, client)."""


def stream(seed: int, purpose: int, *indices: int) -> np.random.Generator:
    """The generator of one stream, from its start."""
    words = np.random.SeedSequence(entropy=seed, spawn_key=(purpose, *indices))
    return np.random.Generator(np.random.Philox(words))


def hashed(generator: np.random.Generator) -> str:
    """The hash of a Philox state, as in the ledger's ``noise_state``."""
    state = generator.bit_generator.state
    counter, key = (np.asarray(state["state"][name]).tolist() for name in ("counter", "key"))
    text = f"Philox|{counter}|{key}|{state['buffer_pos']}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def cohort(law: str, source: np.random.Generator, clients: int, ratio: float) -> np.ndarray:
    """Sorted positions of a group's participants by a law: poisson, fixed_size or full."""
    if law == "full":
        return np.arange(clients)
    size = source.binomial(clients, ratio) if law == "poisson" else round(clients * ratio)
    return np.sort(source.choice(clients, size=int(size), replace=False, shuffle=False))


def executed_ratio(law: str, clients: int, ratio: float) -> float:
    """The sampling ratio of a law; a cohort of fixed size has a whole number of clients."""
    whole = round(clients * ratio) / clients
    if law == "fixed_size" and not math.isclose(whole, ratio, rel_tol=1e-9):
        return whole
    return 1.0 if law == "full" else ratio


def turn(clients: int, ratio: float, round_: int) -> np.ndarray:
    """Sorted positions of the participants when clients take turns, clients * ratio per round."""
    first, last = (math.floor(clients * ratio * number + 1e-9) for number in (round_ - 1, round_))
    return np.sort(np.arange(first, last) % clients)


def epochs(records: np.ndarray, steps: int, size: int, source: np.random.Generator) -> Batches:
    """Records of each of ``steps`` mini-batches: shuffled epochs, cut into batches of ``size``."""
    batches: Batches = []
    while len(batches) < steps:
        order = source.permutation(records)
        batches += [order[start : start + size] for start in range(0, len(order), size)]
    return batches[:steps]


def poisson_batches(
    records: np.ndarray, steps: int, ratio: float, source: np.random.Generator
) -> Batches:
    """Records of each of ``steps`` mini-batches: each record with probability ``ratio``."""
    return [records[source.random(len(records)) < ratio] for _ in range(steps)]
