"""Attacks by name, run on the releases of rounds; an interrupted sweep goes on.

Releases are attacked in chunks. In a folder, a finished chunk is a line of the journal,
and an attack keeps the steps of the chunk that it is in. Both are of one identity: the
rounds, the attacks and their options.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from privplan.plan import GroupPlan, Plan
from privplan.processes import in_jobs
from privplan.sweeps import Journal, finish, key_of, resumable
from privplan.values import digest
from simulate.attacks.checkpoint import Checkpoint, remove_stages
from simulate.attacks.view import ATTACKS, Guess, Observation, Options, Truth
from simulate.data.dataset import Dataset
from simulate.models.network import Model

# Releases that are attacked at the same time: 50 are no faster, and hypernetworks then
# take twice the memory.
CHUNK = 25
PARTS = 1000  # parts into which the progress of one chunk is divided
JOURNAL = "attacks.jsonl"
PAUSE = 5.0  # seconds from one file of an unfinished stage to the next


class Attacked(Protocol):
    """Observations that attacks are run on."""

    @property
    def algorithm(self) -> str:
        """Its name."""

    @property
    def noise_factor(self) -> float:
        """On the executed plan's noise multipliers."""

    def __len__(self) -> int:
        """Number of releases."""

    def __getitem__(self, index: int) -> Observation:
        """A release and its records."""

    def truth(self, index: int) -> Truth:
        """The records of a release."""

    @property
    def identity(self) -> dict[str, Any]:
        """All that the observations depend on, as plain data."""

    @property
    def heads(self) -> dict[str, Any]:
        """What a row of the report says of the releases: clients, records, round."""

    @property
    def title(self) -> str:
        """Data, model and setting, in words."""

    @property
    def data(self) -> Dataset:
        """That has the records."""

    @property
    def model(self) -> Model:
        """The network."""

    @property
    def executed(self) -> Plan:
        """The plan that the algorithm executes, noise as planned."""

    @property
    def target(self) -> GroupPlan:
        """The attacked group."""


@dataclass(frozen=True)
class Case:
    """An attack, by its name, on the releases of one round."""

    attack: str
    attacked: Attacked

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes the case, as plain data."""
        return {"attack": self.attack, **self.attacked.identity}


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
        seconds: of a processor that the attack took, whatever else the machine did.
    """

    case: Case
    images: tuple[Tensor, ...]
    truths: tuple[Truth, ...]
    labels: tuple[Tensor | None, ...]
    numbers: tuple[Mapping[str, float], ...]
    notes: tuple[str, ...]
    seconds: float


class _Chunk(NamedTuple):
    """Releases ``first`` to ``end`` - 1 of a case."""

    case: Case
    first: int
    end: int

    @property
    def key(self) -> str:
        """Its key in the journal."""
        return key_of({**self.case.identity, "releases": [self.first, self.end]})


def sweep(
    cases: Sequence[Case],
    options: Options,
    progress: Callable[[int, int], None] = lambda done, total: None,
    folder: Path | None = None,
    setting: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Run attacks, on few releases at a time.

    Args:
        cases: that are run one after another.
        options: of the attacks; ``steps`` of 0 are those of each attack.
        progress: told of the parts that are done, and of all parts.
        folder: that keeps what is done; None keeps nothing.
        setting: all that results depend on besides cases and options.

    Raises:
        InputError: where the folder has results of other settings.
    """
    chunks = _chunks(cases)
    chosen = {"steps": options.steps, "seed": options.seed, **(setting or {})}
    sweep_digest = digest(chosen)
    counter = _Counter(PARTS * len(chunks), progress)

    def attack(chunk: _Chunk) -> list[Any]:
        name = digest([sweep_digest, chunk.key])[:16]
        checkpoint = Checkpoint(folder, name, PAUSE)
        resuming = replace(options, checkpoint=checkpoint)
        return _attacked(chunk, resuming, counter.in_chunk)

    items = {chunk.key: chunk for chunk in chunks}
    with resumable(folder):
        journal: Journal[list[Any]] | None = None
        if folder is not None:
            journal = Journal(folder / JOURNAL, sweep_digest, _check)
        finished = finish(
            items,
            attack,
            spread=in_jobs(1),
            journal=journal,
            progress=counter.of_chunks,
        )
        if folder is not None:
            remove_stages(folder)
    results = []
    for case in cases:
        keys = [chunk.key for chunk in chunks if chunk.case is case]
        results.append(_result(case, [finished[key] for key in keys]))
    return results


def _chunks(cases: Sequence[Case]) -> list[_Chunk]:
    """The chunks of all cases, case after case."""
    chunks: list[_Chunk] = []
    for case in cases:
        count = len(case.attacked)
        starts = range(0, count, CHUNK)
        chunks += [_Chunk(case, start, min(start + CHUNK, count)) for start in starts]
    return chunks


class _Counter:
    """Tells a progress bar of finished chunks, and of the steps of the next one."""

    def __init__(self, parts: int, progress: Callable[[int, int], None]) -> None:
        self._parts = parts
        self._progress = progress
        self._chunks = 0

    def of_chunks(self, done: int, total: int) -> None:
        """Tell of finished chunks."""
        self._chunks = done
        self._progress(PARTS * done, self._parts)

    def in_chunk(self, done: int, steps: int) -> None:
        """Tell of steps of the chunk in work."""
        of_chunk = PARTS * done // max(1, steps)
        self._progress(PARTS * self._chunks + of_chunk, self._parts)


def _attacked(
    chunk: _Chunk, options: Options, progress: Callable[[int, int], None]
) -> list[Any]:
    """CPU seconds, and what was guessed of each release of a chunk, as plain data."""
    entry = ATTACKS.get(chunk.case.attack)
    started = time.process_time()
    indices = range(chunk.first, chunk.end)
    views = [chunk.case.attacked[index].view for index in indices]
    chosen = replace(
        options, seed=options.seed + chunk.first, steps=options.steps or entry.steps
    )
    # An attack may change the number of threads.
    threads = torch.get_num_threads()
    guesses = entry.reconstruct(views, chosen, progress)
    torch.set_num_threads(threads)
    seconds = time.process_time() - started
    return [seconds, [_as_data(guess) for guess in guesses]]


def _as_data(guess: Guess) -> dict[str, Any]:
    """A guess as plain data; images are float32 numbers in base64."""
    data: dict[str, Any] = {"numbers": dict(guess.numbers), "note": guess.note}
    if guess.images is not None:
        images = guess.images.detach().cpu().float().contiguous()
        data["shape"] = list(images.shape)
        data["images"] = base64.b64encode(images.numpy().tobytes()).decode()
    if guess.labels is not None:
        data["labels"] = guess.labels.tolist()
    return data


def _guess(data: Mapping[str, Any]) -> Guess:
    """The inverse of ``_as_data``."""
    images = None
    if "images" in data:
        numbers = np.frombuffer(base64.b64decode(data["images"]), dtype=np.float32)
        images = torch.from_numpy(numbers.copy()).view(data["shape"])
    labels = None
    if "labels" in data:
        labels = torch.tensor(data["labels"], dtype=torch.int64)
    return Guess(images, labels, data["numbers"], data["note"])


def _check(point: Any, result: Any) -> None:
    """Raise where a line of the journal cannot be a chunk's."""
    start, end = point["releases"]
    seconds, guesses = result
    if len(guesses) != end - start or float(seconds) < 0:
        raise ValueError("no chunk of an attack")
    for guess in guesses:
        _guess(guess)


def _result(case: Case, chunks: Sequence[Sequence[Any]]) -> Result:
    """What was guessed of the releases of a case, in chunks."""
    guesses: list[Guess] = []
    for _, of_chunk in chunks:
        guesses += [_guess(data) for data in of_chunk]
    images = [guess.images for guess in guesses if guess.images is not None]
    if len(images) < len(guesses):
        images = []
    return Result(
        case,
        tuple(images),
        tuple(case.attacked.truth(index) for index in range(len(case.attacked))),
        tuple(guess.labels for guess in guesses),
        tuple(guess.numbers for guess in guesses),
        tuple(dict.fromkeys(guess.note for guess in guesses if guess.note)),
        sum(seconds for seconds, _ in chunks),
    )
