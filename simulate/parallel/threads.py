"""Chunks of clients computed by threads; results do not depend on the number of threads.

One thread computes a chunk on one core. The chunks depend on the model and the batch, never on
the machine, so the results are equal bit for bit on any number of cores.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.io.processes import keep_freed

Result = TypeVar("Result")


_thread = threading.local()


def _initialise_thread() -> None:
    """Limit a new thread to one core and disable autograd; both settings are per thread."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    _thread.works_on_chunks = True


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    """Threads that live to the end: to start one takes longer than a chunk of a small model."""
    return ThreadPoolExecutor(workers, "chunks", _initialise_thread)


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not live on in a forked process


def over_chunks(
    function: Callable[[slice], Tensor],
    clients: int,
    size: int,
    workers: int | None = None,
) -> Tensor:
    """Returns the concatenated results of a function on consecutive chunks of clients.

    Args:
        function: from a slice of clients to their rows; runs on one core, without autograd, in
            a worker thread if there is more than one.
        clients: number of clients K, at least 1.
        size: clients per chunk; the last chunk may be smaller.
        workers: number of threads; PyTorch's number of threads when None.

    Returns:
        The rows of all clients [K, ...].

    Raises:
        InputError: `workers` is below 1.
    """
    return torch.cat(by_chunk(function, clients, size, workers))


def by_chunk(
    function: Callable[[slice], Result],
    clients: int,
    size: int,
    workers: int | None = None,
) -> list[Result]:
    """Returns the results of a function on consecutive chunks of clients; see `over_chunks`.

    With one worker, and within the work on a chunk, the calling thread does the work.

    Raises:
        InputError: `workers` is below 1.
    """
    keep_freed()
    threads = torch.get_num_threads()
    workers = threads if workers is None else workers
    if workers < 1:
        raise InputError.one("workers", "must be at least 1", workers)
    chunks = [slice(start, start + size) for start in range(0, clients, size)]
    torch.set_num_threads(1)  # idle threads of PyTorch's pool would spin beside the workers
    try:
        if min(workers, len(chunks)) == 1 or hasattr(_thread, "works_on_chunks"):
            with torch.no_grad():
                return [function(chunk) for chunk in chunks]
        return list(_pool(workers).map(function, chunks))
    finally:
        torch.set_num_threads(threads)
