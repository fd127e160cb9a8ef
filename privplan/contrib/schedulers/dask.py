"""Workers of a Dask scheduler: ``--on dask://HOST:PORT``."""

from __future__ import annotations

import logging
from concurrent.futures import CancelledError
from importlib import import_module
from typing import Any

from privplan.clusters import Cluster
from privplan.errors import InputError

_log = logging.getLogger(__name__)
CONNECT_SECONDS = 10  # until a scheduler that does not answer is given up


def cluster(address: str) -> Cluster:
    """The workers of the scheduler at an address.

    A worker that dies is replaced by Dask, on another worker, up to the scheduler's
    ``allowed-failures``; the run goes on from its checkpoint.

    Raises:
        InputError: where the library is missing, or no scheduler answers.
    """
    try:
        # Its functions have no types.
        library: Any = import_module("distributed")
    except ImportError:
        rule = "needs the library distributed: pip install 'privplan[dask]'"
        raise InputError.one("on", rule, f"dask://{address}") from None
    try:
        client = library.Client(f"tcp://{address}", timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        rule = f"must be the address of a Dask scheduler, dask://HOST:PORT ({reason})"
        raise InputError.one("on", rule, f"dask://{address}") from None
    # A scheduler that dies cancels what its workers were to do.
    lost = (
        library.KilledWorker,
        library.client.FutureCancelledError,
        CancelledError,
    )
    if not client.scheduler_info()["workers"]:
        _log.warning("dask://%s has no worker yet: waiting for one", address)
    executor = client.get_executor(pure=False)
    return Cluster(executor, lost, client.close)
