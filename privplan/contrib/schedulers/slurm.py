"""Jobs of Slurm, one for each run, by submitit: ``--on slurm:NAME=VALUE,...``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from typing import Any
from warnings import catch_warnings

from privplan.clusters import Cluster
from privplan.errors import InputError

FOLDER = "slurm-jobs"  # of scripts and logs, in the working directory
POLL_SECONDS = 0.5  # between two looks at the jobs


def cluster(options: str) -> Cluster:
    """Slurm, with a job for each piece of work.

    Args:
        options: those of ``submitit.AutoExecutor.update_parameters``, such as
            ``timeout_min=60,gpus_per_node=1``; ``cluster=local`` starts processes of
            this machine instead.

    Raises:
        InputError: where the library or Slurm is missing, or for an unknown option.
    """
    try:
        import submitit
        from submitit.core.utils import FailedJobError, UncompletedJobError
    except ImportError:
        rule = "needs the library submitit: pip install 'privplan[slurm]'"
        raise InputError.one("on", rule, "slurm") from None
    values: dict[str, Any] = {}
    for word in filter(None, options.split(",")):
        name, _, value = word.partition("=")
        values[name.strip()] = int(value) if value.isdigit() else value
    kind = values.pop("cluster", "slurm")
    try:
        # Wrong options are found before a lack of Slurm; old names warn below.
        with catch_warnings(action="ignore"):
            submitit.AutoExecutor(FOLDER, cluster="debug").update_parameters(**values)
        auto = submitit.AutoExecutor(FOLDER, cluster=kind)
        auto.update_parameters(**values)
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        rule = (
            f"must be slurm:NAME=VALUE,... of submitit, on Slurm's machine ({reason})"
        )
        raise InputError.one("on", rule, f"slurm:{options}") from None
    return Cluster(JobExecutor(auto), (UncompletedJobError, FailedJobError))


class JobExecutor(Executor):
    """An executor of ``concurrent.futures`` over one of submitit.

    Args:
        executor: of submitit, which makes a job of each piece of work.
    """

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._open: list[tuple[Any, Future[Any]]] = []
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Queue a job; its future is done when the job has ended."""
        future: Future[Any] = Future()
        self._open.append((self._executor.submit(function, *args, **kwargs), future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the jobs of cancelled futures, and watch no longer."""
        self._ended.set()
        if wait:
            self._watcher.join()

    def _watch(self) -> None:
        """Hand results over as jobs end."""
        while not self._ended.wait(POLL_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        for job, future in list(self._open):
            if future.cancelled():
                job.cancel()
            elif job.done():
                # The future may have been cancelled since it was looked at.
                with suppress(InvalidStateError):
                    _hand_over(job, future)
            else:
                continue
            self._open.remove((job, future))


def _hand_over(job: Any, future: Future[Any]) -> None:
    """Set the result of a job that has ended; of a failed one, its error."""
    try:
        result = job.result()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)
