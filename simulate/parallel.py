"""Parallel execution: threads within a process, and ranks of a distributed run."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from privplan.errors import InputError, PrivplanError

# --- Chunks of clients computed by threads; their number changes no result. -----------
# One thread computes a chunk on one core. The chunks depend on the model and the batch,
# never on the machine, so the results are equal bit for bit on any number of cores.

Result = TypeVar("Result")
_thread = threading.local()


def _initialise_thread() -> None:
    """Limit a new thread to one core and disable autograd, as each thread must."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    _thread.works_on_chunks = True


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    """Threads that live to the end: to start one may take longer than a chunk."""
    return ThreadPoolExecutor(workers, "chunks", _initialise_thread)


# Threads do not live on in a forked process.
os.register_at_fork(after_in_child=_pool.cache_clear)


def over_chunks(
    function: Callable[[slice], Tensor],
    clients: int,
    size: int,
    workers: int | None = None,
) -> Tensor:
    """The concatenated results of a function on consecutive chunks of clients.

    Args:
        function: clients of a chunk to a result [K, ...].
        clients: number of all of them.
        size: clients of a chunk.
        workers: number of threads; those of PyTorch when None.
    """
    results = by_chunk(function, clients, size, workers)
    if len(results) == 1:
        return results[0]
    return torch.cat(results)


def by_chunk(
    function: Callable[[slice], Result],
    clients: int,
    size: int,
    workers: int | None = None,
) -> list[Result]:
    """Results of a function on consecutive chunks of clients, as ``over_chunks``.

    With one worker, or within one, the calling thread computes them.
    """
    threads = torch.get_num_threads()
    workers = threads if workers is None else workers
    if workers < 1:
        raise InputError.one("workers", "must be at least 1", workers)
    chunks = [slice(start, start + size) for start in range(0, clients, size)]
    # Idle threads of PyTorch's pool would spin beside the workers.
    torch.set_num_threads(1)
    try:
        if min(workers, len(chunks)) == 1 or hasattr(_thread, "works_on_chunks"):
            with torch.no_grad():
                return [function(chunk) for chunk in chunks]
        return list(_pool(workers).map(function, chunks))
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_core() -> Iterator[None]:
    """Limit single operations to one core: threads work on clients instead."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# --- Distributed runs: processes, collective operations, and the device of a process. -
# The processes (ranks) are started by ``torchrun``; without it there is one. Every rank
# prepares the same run and draws the same cohort and the same noise, because random
# streams are identified by name; each rank trains only its share of the participants.
# Only rank 0, the main rank, writes files, and its global model is broadcast to the
# others after every step.

Item = TypeVar("Item")

# For ranks that do not answer in a collective operation.
TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Ranks:
    """Rank of this process, number of processes, and rank on its machine, from 0."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process is rank 0, which writes the files of the run."""
        return self.rank == 0


SINGLE_PROCESS = Ranks()


class LostRankError(PrivplanError):
    """Another process of the run ended or stopped answering, so the run must end."""

    def __init__(self, saved: str = "") -> None:
        prefix = f"{saved}; " if saved else ""
        super().__init__(
            f"another process of this run ended; {prefix}the same command resumes"
        )


class EndedByRankError(PrivplanError):
    """Ends this rank silently, because the main rank reports the error of the run."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("")
        self.exit_code = exit_code


@contextmanager
def process_group(cuda: bool) -> Iterator[Ranks]:
    """Join the process group that ``torchrun`` started until the block ends."""
    ranks = Ranks(
        rank=int(os.environ.get("RANK", "0")),
        size=int(os.environ.get("WORLD_SIZE", "1")),
        local=int(os.environ.get("LOCAL_RANK", "0")),
    )
    if ranks.size == 1:
        yield ranks
        return
    threading.Thread(target=_end_after, args=(os.getppid(),), daemon=True).start()
    with _raise_on_sigterm():
        with _lost_rank_errors():
            backend = "gloo"
            if cuda and torch.cuda.is_available():
                backend = "cpu:gloo,cuda:nccl"
            dist.init_process_group(backend, timeout=TIMEOUT)
        try:
            yield ranks
        finally:
            dist.destroy_process_group()


def _end_after(agent: int) -> None:
    """End this rank, which holds the run's folder, soon after the agent it is of."""
    while os.getppid() == agent:
        time.sleep(0.2)
    os._exit(1)


def rank_slice(ranks: Ranks, count: int, turn: int = 0) -> slice:
    """This rank's slice of ``count`` items; sizes of slices differ by at most one.

    Args:
        ranks: of the run.
        count: number of items.
        turn: by how many ranks the slices are shifted, so that no rank always has the
            larger one.
    """
    place = (ranks.rank + turn) % ranks.size
    return slice(count * place // ranks.size, count * (place + 1) // ranks.size)


def all_reduce_sum(ranks: Ranks, values: Tensor) -> Tensor:
    """The sum over ranks of tensors of one shape, equal bit for bit on every rank."""
    return _all_reduce(ranks, values, dist.ReduceOp.SUM)


def all_reduce_max(ranks: Ranks, values: Tensor) -> Tensor:
    """The maximum over ranks of tensors of one shape."""
    return _all_reduce(ranks, values, dist.ReduceOp.MAX)


def _all_reduce(ranks: Ranks, values: Tensor, how: Any) -> Tensor:
    if ranks.size == 1:
        return values
    values = values.clone()
    with _lost_rank_errors():
        dist.all_reduce(values, how)
    return values


def all_gather(ranks: Ranks, items: Sequence[Item], device: torch.device) -> list[Item]:
    """The items of all ranks, in the order of the ranks."""
    if ranks.size == 1:
        return list(items)
    content = io.BytesIO()
    torch.save(list(items), content)
    contents: list[bytes] = [b""] * ranks.size
    with _lost_rank_errors():
        dist.all_gather_object(contents, content.getvalue())
    of_all: list[Item] = []
    for packed in contents:
        of_all += torch.load(
            io.BytesIO(packed), map_location=device, weights_only=False
        )
    return of_all


def broadcast_state(
    ranks: Ranks, theta: Tensor, state: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Rank 0's vector and state, on every rank."""
    if ranks.size == 1:
        return theta, dict(state)
    names = sorted(state)
    values = [theta, *(state[name] for name in names)]
    vectors = [value.contiguous().clone() for value in values]
    with _lost_rank_errors():
        for vector in vectors:
            dist.broadcast(vector, src=0)
    return vectors[0], dict(zip(names, vectors[1:], strict=True))


def on_all_ranks(ranks: Ranks, function: Callable[[], Result]) -> Result:
    """The result of a function, unless it fails on any rank: then all ranks end."""
    if ranks.size == 1:
        return function()
    failures: list[tuple[str, int]] = []
    try:
        result = function()
    except PrivplanError as error:
        failures = [(str(error), error.exit_code)]
    all_failures = all_gather(ranks, failures, torch.device("cpu"))
    if not all_failures:
        return result
    line, code = all_failures[0]
    if not ranks.is_main:
        raise EndedByRankError(code)
    failure = PrivplanError(line)
    failure.exit_code = code
    raise failure


DEVICES = ("auto", "cpu", "cuda")
"""Kinds of devices; ``cuda:N`` is one GPU of several."""


def gpu_count() -> int:
    """How many GPUs this process sees."""
    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return 0


def device_of(name: str, ranks: Ranks = SINGLE_PROCESS) -> torch.device:
    """The device of a name.

    Args:
        name: ``cpu``; ``cuda``, or ``cuda:N`` for one GPU of several, counted from 0;
            ``auto`` for a GPU where there is one.
        ranks: the processes of the run, each of which has a GPU of its own.

    Raises:
        InputError: for a device that is not there, or one GPU for several processes.
    """
    kind, colon, number = name.partition(":")
    has_number = kind == "cuda" and number.isdecimal() and number.isascii()
    if kind not in DEVICES or (colon and not has_number):
        raise InputError.one("device", "must be auto, cpu, cuda or cuda:N", name)
    count = gpu_count()
    if kind == "cpu" or (kind == "auto" and not count):
        return torch.device("cpu")
    if not count:
        rule = "must be cpu or auto where no GPU is found"
        raise InputError.one("device", rule, name)
    if colon and ranks.size > 1:
        rule = "must be cuda where each process has a GPU of its own"
        raise InputError.one("device", rule, name)
    if colon and int(number) >= count:
        rule = f"must be one of {count} GPUs, cuda:0 to cuda:{count - 1}"
        raise InputError.one("device", rule, name)
    if ranks.size == 1 and not colon:
        return torch.device("cuda")
    index = int(number) if colon else ranks.local
    if index >= count:
        rule = (
            f"must be cpu where {count} GPUs are found for more processes of a machine"
        )
        raise InputError.one("device", rule, name)
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def device_of_job(name: str, job: int) -> str:
    """The device of one of several jobs at a time: job i has GPU i modulo their number.

    Args:
        name: of the device that was asked for; one of several GPUs stays.
        job: the number of the job, from 0.
    """
    count = gpu_count()
    if name not in ("auto", "cuda") or count < 2:
        return name
    return f"cuda:{job % count}"


@contextmanager
def _lost_rank_errors() -> Iterator[None]:
    """Convert errors of collective operations into LostRankError."""
    try:
        yield
    except RuntimeError:  # broken connections and timeouts, whatever the backend
        # torchrun is about to end this rank, which must save its state first
        _ignore_sigterm()
        raise LostRankError from None


def _ignore_sigterm() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def _raise_on_sigterm() -> Iterator[None]:
    """Raise LostRankError on SIGTERM, by which ``torchrun`` ends remaining ranks."""

    def stop(number: int, frame: object) -> None:
        _ignore_sigterm()
        raise LostRankError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
