"""Work split over clients and threads, with the same bits whatever the number of threads.

A chunk of clients is computed by one thread that uses one core. What a chunk contains depends on
the model and the batch, never on the machine, so neither does the result.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from privplan.errors import InputError

Result = TypeVar("Result")


def _settle() -> None:
    """Make a new thread use one core and record nothing for autograd (both hold by thread)."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)


def over_chunks(
    work: Callable[[slice], Tensor],
    clients: int,
    size: int,
    workers: int | None = None,
) -> Tensor:
    """Results of `work` on consecutive chunks of clients, joined in order.

    Args:
        work: from a slice of clients to their rows; runs on one core, without autograd, in a
            worker thread where there are several.
        clients: number of clients K, at least 1.
        size: clients of a chunk; the last chunk may be smaller.
        workers: threads; PyTorch's number of threads when not given.

    Returns:
        The rows of all clients [K, ...].

    Raises:
        InputError: `workers` is below 1.
    """
    return torch.cat(by_chunk(work, clients, size, workers))


def by_chunk(
    work: Callable[[slice], Result],
    clients: int,
    size: int,
    workers: int | None = None,
) -> list[Result]:
    """Results of `work` on consecutive chunks of clients, in order; as `over_chunks`, not joined.

    A single worker is the calling thread.

    Raises:
        InputError: `workers` is below 1.
    """
    keep_freed()
    threads = torch.get_num_threads()
    workers = threads if workers is None else workers
    if workers < 1:
        raise InputError.one("workers", "must be at least 1", workers)
    chunks = [slice(start, start + size) for start in range(0, clients, size)]
    torch.set_num_threads(1)  # idle threads of this one would spin beside the workers
    try:
        if min(workers, len(chunks)) == 1:
            with torch.no_grad():
                return [work(chunk) for chunk in chunks]
        with ThreadPoolExecutor(min(workers, len(chunks)), initializer=_settle) as pool:
            return list(pool.map(work, chunks))
    finally:
        torch.set_num_threads(threads)


# Parameters of glibc's mallopt(3).
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8

LIMIT = 2**31 - 1
OLD_LIMIT = 2**25
"""Largest threshold for separate mappings that older versions of glibc take, in bytes."""


@cache
def keep_freed() -> bool:
    """Let the process keep freed memory for its next use, once and for all its threads.

    Every step of training frees its activations and asks for as much again. The C library would
    hand blocks of megabytes back to the system in between, and the system would clear each page
    anew: with a residual network that is up to a quarter of the time of a step. The peak of memory
    is what it was; what is kept is free for everything else in the process.

    Returns:
        Whether the C library does so now; False where it is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    option = ctypes.CDLL(None).mallopt
    option(ARENA_MAX, 1)  # one heap for all threads
    large = option(MMAP_THRESHOLD, LIMIT) or option(MMAP_THRESHOLD, OLD_LIMIT)
    return bool(large and option(TRIM_THRESHOLD, LIMIT))
