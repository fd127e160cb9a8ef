"""Attacks by name, run on the releases of rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simulate.attacks.settings import PlanRound
from simulate.attacks.view import ATTACKS, Guess, Options, Truth

CHUNK = 10  # releases that are attacked at the same time
PARTS = 1000  # parts into which the progress of one chunk is divided


@dataclass(frozen=True)
class Case:
    """An attack, by its name, on the releases of one round."""

    attack: str
    attacked: PlanRound


@dataclass(frozen=True)
class Result:
    """An attack on all releases of a round.

    Attributes:
        case: the attack and the round.
        images: reconstructions per release [n, ...]; empty when the attack makes none.
        truths: the records per release.
        labels: inferred labels per release, or None each.
        numbers: further findings per release.
        notes: distinct reasons why nothing was found.
        seconds: time of the attack.
    """

    case: Case
    images: tuple[Tensor, ...]
    truths: tuple[Truth, ...]
    labels: tuple[Tensor | None, ...]
    numbers: tuple[Mapping[str, float], ...]
    notes: tuple[str, ...]
    seconds: float


def sweep(
    cases: Sequence[Case],
    options: Options,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Result]:
    """Run attacks, on few releases at a time.

    Args:
        cases: that are run one after another.
        options: of the attacks.
        progress: told of the parts that are done, and of all parts.
    """
    all_parts = PARTS * sum(-(-len(case.attacked) // CHUNK) for case in cases)
    parts_done = 0

    def in_chunk(done: int, steps: int) -> None:
        progress(parts_done + PARTS * done // max(1, steps), all_parts)

    results = []
    for case in cases:
        guesses: list[Guess] = []
        started = time.monotonic()
        count = len(case.attacked)
        for first in range(0, count, CHUNK):
            chunk = range(first, min(first + CHUNK, count))
            views = [case.attacked[index].view for index in chunk]
            seeded = replace(options, seed=options.seed + first)
            # An attack may change the number of threads.
            threads = torch.get_num_threads()
            guesses += ATTACKS.get(case.attack).reconstruct(views, seeded, in_chunk)
            torch.set_num_threads(threads)
            parts_done += PARTS
            progress(parts_done, all_parts)
        results.append(_result(case, guesses, time.monotonic() - started))
    return results


def _result(case: Case, guesses: Sequence[Guess], seconds: float) -> Result:
    """What was guessed of the releases of a case."""
    images = [guess.images for guess in guesses if guess.images is not None]
    if len(images) < len(guesses):
        images = []
    labels = [guess.labels for guess in guesses]
    return Result(
        case,
        tuple(image.detach().cpu().float() for image in images),
        tuple(case.attacked.truth(index) for index in range(len(case.attacked))),
        tuple(None if label is None else label.cpu() for label in labels),
        tuple(guess.numbers for guess in guesses),
        tuple(dict.fromkeys(guess.note for guess in guesses if guess.note)),
        seconds,
    )
