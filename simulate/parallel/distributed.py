"""One run over several processes: each trains a share of the cohort, and sums are added up.

The processes (ranks) are started by ``torchrun``; without it there is one. Every rank prepares
the same run and draws the same cohort and the same noise, because streams are named and not
consumed; it trains its share of the participants only. Rank 0 leads: it alone writes files, and
the model that it steps to is the one that all go on with.
"""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from privplan.errors import PrivplanError

Item = TypeVar("Item")
Found = TypeVar("Found")

SILENCE = timedelta(minutes=10)
"""How long a rank waits for another one that says nothing, though its connection stands."""


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this one is.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        local: number of this process on its machine, from 0.
    """

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def leads(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.rank == 0


ALONE = Ranks()


class LostRankError(PrivplanError):
    """Another process of the run ended or fell silent, so the run cannot go on."""

    def __init__(self, saved: str = "") -> None:
        kept = f"{saved}; " if saved else ""
        super().__init__(f"another process of this run ended; {kept}the same command resumes")


class EndedTogetherError(PrivplanError):
    """What another rank has said already ends this one too, without a word."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("")
        self.exit_code = exit_code


@contextmanager
def joined(cuda: bool) -> Iterator[Ranks]:
    """Be one of the processes that ``torchrun`` started, until the block ends.

    Args:
        cuda: whether tensors on GPUs are exchanged too, by NCCL where there are GPUs; Gloo
            exchanges the others.

    Raises:
        LostRankError: when the others cannot be reached.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    defaults = ("0", "1", "0")
    found = (os.environ.get(*pair) for pair in zip(names, defaults, strict=True))
    ranks = Ranks(*map(int, found))
    if ranks.size == 1:
        yield ranks
        return
    with _ended_by_torchrun():
        with _losses():
            backend = "cpu:gloo,cuda:nccl" if cuda and torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, timeout=SILENCE)
        try:
            yield ranks
        finally:
            dist.destroy_process_group()


def share(ranks: Ranks, count: int, turn: int = 0) -> slice:
    """This rank's consecutive part of ``count`` items; sizes differ by at most one.

    Args:
        ranks: the processes.
        count: number of items.
        turn: shifts who gets the larger parts, so that many small lots come out even.
    """
    place = (ranks.rank + turn) % ranks.size
    return slice(count * place // ranks.size, count * (place + 1) // ranks.size)


def total(ranks: Ranks, values: Tensor) -> Tensor:
    """The sum over ranks of tensors of one shape, the same bits on every rank."""
    return _reduced(ranks, values, dist.ReduceOp.SUM)


def largest(ranks: Ranks, values: Tensor) -> Tensor:
    """The maximum over ranks of tensors of one shape."""
    return _reduced(ranks, values, dist.ReduceOp.MAX)


def _reduced(ranks: Ranks, values: Tensor, how: Any) -> Tensor:
    if ranks.size == 1:
        return values
    values = values.clone()
    with _losses():
        dist.all_reduce(values, how)
    return values


def gather(ranks: Ranks, items: Sequence[Item], device: torch.device) -> list[Item]:
    """The items of all ranks, in the order of the ranks.

    Args:
        ranks: the processes.
        items: this rank's; tensors in them hold no more than they show.
        device: where tensors of the result are.
    """
    if ranks.size == 1:
        return list(items)
    content = io.BytesIO()
    torch.save(list(items), content)
    everybody: list[bytes] = [b""] * ranks.size
    with _losses():
        dist.all_gather_object(everybody, content.getvalue())
    parts = (
        torch.load(io.BytesIO(part), map_location=device, weights_only=False) for part in everybody
    )
    return [item for part in parts for item in part]


def led(
    ranks: Ranks, theta: Tensor, state: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Rank 0's vector and state, on every rank.

    Args:
        ranks: the processes.
        theta: this rank's vector, equal to rank 0's but for rounding.
        state: this rank's state, likewise.
    """
    if ranks.size == 1:
        return theta, dict(state)
    names = sorted(state)
    vectors = [one.contiguous().clone() for one in (theta, *(state[name] for name in names))]
    with _losses():
        for vector in vectors:
            dist.broadcast(vector, src=0)
    return vectors[0], dict(zip(names, vectors[1:], strict=True))


def together(ranks: Ranks, work: Callable[[], Found]) -> Found:
    """What ``work`` gives here, unless it is refused on any rank; then all end.

    Raises:
        PrivplanError: on rank 0, what the first rank that refused had to say.
        EndedTogetherError: on the others.
    """
    if ranks.size == 1:
        return work()
    found, said = None, []
    try:
        found = work()
    except PrivplanError as error:
        said = [(str(error), error.exit_code)]
    refused = gather(ranks, said, torch.device("cpu"))
    if not refused:
        return found  # type: ignore[return-value]
    line, code = refused[0]
    if not ranks.leads:
        raise EndedTogetherError(code)
    error = PrivplanError(line)
    error.exit_code = code
    raise error


@contextmanager
def _losses() -> Iterator[None]:
    """What goes wrong between processes is a rank that was lost."""
    try:
        yield
    except RuntimeError:  # broken connections and timeouts, whatever the backend
        _hear_no_end()  # torchrun is about to end this rank, which still has to save
        raise LostRankError from None


def _hear_no_end() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def _ended_by_torchrun() -> Iterator[None]:
    """``torchrun`` ends the ranks that are left by SIGTERM: here as an error that can be told."""

    def stop(number: int, frame: object) -> None:
        _hear_no_end()
        raise LostRankError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
