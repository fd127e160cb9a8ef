"""Sweeps on a cluster: the runs of a command on the workers of a scheduler.

A kind of cluster is a function from the rest of an address to an executor as those of
``concurrent.futures``. Work and results are pickled, as for processes of one machine.
Workers see the same files under the same paths: what is finished lies in the folders of
the runs, and the same command resumes after a worker has died.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from privplan import processes
from privplan.errors import InputError, PrivplanError
from privplan.processes import LostWorkerError, importable
from privplan.registry import Registry, function_of


class Cluster(NamedTuple):
    """Workers elsewhere.

    Attributes:
        executor: takes work, and returns futures; it is shut down at the end.
        lost: errors of a future whose worker has died.
        close: ends the connection, after the executor was shut down.
    """

    executor: Executor
    lost: tuple[type[BaseException], ...]
    close: Callable[[], object] = lambda: None


CLUSTERS: Registry[Callable[[str], Cluster]] = Registry(
    "on", "privplan.clusters", check=function_of("the address behind its name")
)
"""Kinds of clusters by name."""


@contextmanager
def spread_on(address: str) -> Iterator[None]:
    """Sweeps in this block are computed by a cluster.

    Args:
        address: a name of ``CLUSTERS``, a colon, and what that kind reads, such as
            ``dask://localhost:8786`` or ``slurm:timeout_min=60``.

    Raises:
        InputError: for an unknown kind, or a cluster that cannot be reached.
    """
    name, _, place = address.partition(":")
    if name not in CLUSTERS.names():
        rule = (
            f"must begin with one of {', '.join(CLUSTERS.names())}, such as "
            "dask://HOST:PORT (on Kubernetes, too) or slurm:timeout_min=60"
        )
        raise InputError.one("on", rule, address)
    cluster = CLUSTERS.get(name)(place.removeprefix("//"))
    try:
        with cluster.executor, processes.spread_by(partial(over_cluster, cluster)):
            yield
    finally:
        cluster.close()


def over_cluster(
    cluster: Cluster, work: Callable[[Any], Any], tasks: Sequence[Any]
) -> Iterator[Any]:
    """Results of ``work`` in the order of completion, computed by a cluster."""
    own_modules = tuple(processes.OWN_MODULES)
    working_directory = os.getcwd()
    running = [
        cluster.executor.submit(
            computed_there, working_directory, own_modules, pickle.dumps((work, task))
        )
        for task in tasks
    ]
    try:
        for future in as_completed(running):
            result = future.result()
            if isinstance(result, PrivplanError):
                raise result
            yield result
    except cluster.lost as error:
        reason = " ".join(str(error).split())[:200]
        line = f"a worker of the cluster died ({reason}); the same command resumes"
        raise LostWorkerError(line) from None
    finally:
        for future in running:
            future.cancel()


def computed_there(
    folder: str, own_modules: Sequence[tuple[str, str]], task: bytes
) -> Any:
    """The result of a pickled task on a worker, or the error that it raised.

    Args:
        folder: the working directory of the command, which paths are relative to.
        own_modules: folder and name of the user's modules, which the task may need.
        task: the work and its argument.
    """
    try:
        if not Path(folder).is_dir():
            rule = "must have workers that see the working directory"
            raise InputError.one("on", rule, folder)
        os.chdir(folder)
        for place, module in own_modules:
            with importable(place):
                import_module(module)
        work, argument = pickle.loads(task)
        return work(argument)
    except PrivplanError as error:
        return error
