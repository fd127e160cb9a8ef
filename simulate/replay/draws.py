"""Random draws of a run, made again from its seed: cohorts, mini-batches and masks.

A stream is a Philox generator keyed by ``SeedSequence(seed, spawn_key=(purpose,
*indices))``.
"""

from __future__ import annotations

import hashlib
import math
import re

import numpy as np

from privplan.accounting.release import SamplingLaw

Batches = list[np.ndarray]

# Purposes of the streams.
SAMPLING = 3  # cohort (round, group)
CLIENT = 4  # mini-batches (round, client)
NOISE = 5  # noise (round, release)
MASK = 6  # public mask (round, transform)
RECORD_NOISE = 8  # noise of DP-SGD (round, client)
AUGMENTATION = 13  # changes of images (round, client)


def stream(seed: int, purpose: int, *indices: int) -> np.random.Generator:
    """The generator of one stream, from its start."""
    words = np.random.SeedSequence(entropy=seed, spawn_key=(purpose, *indices))
    return np.random.Generator(np.random.Philox(words))


def hashed(generator: np.random.Generator) -> str:
    """The hash of a Philox state, as in the ledger's ``noise_state``."""
    state = generator.bit_generator.state
    counter, key = (
        np.asarray(state["state"][name]).tolist() for name in ("counter", "key")
    )
    text = f"Philox|{counter}|{key}|{state['buffer_pos']}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# Laws that are drawn here, and not by the code that the run used.
OWN_DRAWS = re.compile(r"full|poisson|fixed_size|cyclic_poisson:\d+")


def drawn_cohort(
    law: str, source: np.random.Generator, clients: int, ratio: float, round_: int
) -> np.ndarray:
    """Sorted positions, drawn here for ``OWN_DRAWS``, else by the law itself."""
    if not OWN_DRAWS.fullmatch(law):
        return SamplingLaw(law).law.draw(source, clients, ratio, round_)
    sizes = tuple[int, ...](getattr(clients, "parts", (clients,)))
    turn_index = (round_ - 1) % len(sizes)
    members = sizes[turn_index]
    places = sum(sizes[:turn_index]) + np.arange(members)
    if law == "full":
        return places
    if law == "fixed_size":
        size = round(members * ratio)
    else:
        size = source.binomial(members, ratio)
    return places[
        np.sort(source.choice(members, size=int(size), replace=False, shuffle=False))
    ]


def executed_ratio(law: str, clients: int, ratio: float) -> float:
    """The ratio of a law; a cohort of fixed size has a whole number of clients."""
    whole_ratio = round(clients * ratio) / clients
    if law == "full":
        return 1.0
    if law == "fixed_size" and not math.isclose(whole_ratio, ratio, rel_tol=1e-9):
        return whole_ratio
    return ratio


def turn(clients: int, ratio: float, round_: int) -> np.ndarray:
    """Sorted positions where clients take turns, clients * ratio of them per round."""
    start, end = (
        math.floor(clients * ratio * number + 1e-9) for number in (round_ - 1, round_)
    )
    return np.sort(np.arange(start, end) % clients)


def epochs(
    records: np.ndarray, steps: int, size: int, source: np.random.Generator
) -> Batches:
    """Records of each of ``steps`` mini-batches: shuffled epochs, cut into batches."""
    batches: Batches = []
    while len(batches) < steps:
        order = source.permutation(records)
        batches += [order[start : start + size] for start in range(0, len(order), size)]
    return batches[:steps]


def poisson_batches(
    records: np.ndarray, steps: int, ratio: float, source: np.random.Generator
) -> Batches:
    """Records of each of ``steps`` mini-batches: each with probability ``ratio``."""
    return [records[source.random(len(records)) < ratio] for _ in range(steps)]
