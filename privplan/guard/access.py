"""One call of a guard at a time, in the process that opened it.

A server may answer each client in a thread of its own, and repeat a call that took too
long. Two releases of one round at once would add two noises to one sum, and their mean
has less noise than either. So would a release in a forked process, which inherits the
folder's lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from privplan.errors import InputError


class Access:
    """Lets in one thread at a time, of one process.

    A thread that is in may enter again, since a method calls others.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        """Wait until no other thread is in.

        Raises:
            InputError: in another process than the one that opened the guard.
        """
        process = os.getpid()
        if process != self._process:
            rule = f"must be used in the process that opened it, {self._process}"
            raise InputError.one("guard", rule, f"process {process}")
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class HasAccess(Protocol):
    """What has methods that exclude each other."""

    access: Access


Self = TypeVar("Self", bound=HasAccess)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def exclusive(
    method: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """A method that waits until no other one of its owner runs."""

    @wraps(method)
    def call(
        owner: Self, /, *args: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        with owner.access:
            return method(owner, *args, **options)

    return call
