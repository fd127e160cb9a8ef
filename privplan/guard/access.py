"""One call of a guard at a time, in the process that opened it.

A server may answer each client in a thread of its own, and repeat a call that took too
long. Two releases of one round at once would add two noises to one sum, and their mean
has less noise than either. So would a release in a forked process, which inherits the
folder's lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from privplan.errors import InputError


class Access:
    """Lets in one thread at a time, of one process.

    Nobody is let in before a call that changes the guard came to its end, not even a
    signal handler in the midst of it, nor after one that never will: what it left in
    memory may differ from what is on disk. Opening the folder again reads the disk.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        # What began to change the guard and did not end yet, or never will.
        self._unfinished = ""

    def __enter__(self) -> None:
        """Wait until no other thread is in.

        Raises:
            InputError: in another process than the one that opened the guard, or after
                a call that did not come to its end.
        """
        self._enter()
        if self._unfinished:
            self._lock.release()
            rule = (
                "must be closed and opened again, which goes on with what is on disk: "
                "a call did not come to its end"
            )
            raise InputError.one("guard", rule, self._unfinished)

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _enter(self) -> None:
        """Wait until no other thread is in."""
        process = os.getpid()
        if process != self._process:
            rule = f"must be used in the process that opened it, {self._process}"
            raise InputError.one("guard", rule, f"process {process}")
        self._lock.acquire()

    @property
    def is_whole(self) -> bool:
        """Whether every call so far came to its end, or was refused."""
        return not self._unfinished

    @contextmanager
    def to_close(self) -> Iterator[bool]:
        """Enter for the last time; whether every call came to its end."""
        self._enter()
        try:
            yield self.is_whole
        finally:
            self._lock.release()

    @contextmanager
    def changes(self, name: str) -> Iterator[None]:
        """A call that comes to its end, or by an error is refused.

        An interruption, such as Ctrl-C, leaves it unfinished, and so does every error
        within a step that must be whole. Elsewhere an error leaves what a second call
        makes anew: a draw or a model that is stored, a client that counts as heard.
        """
        outer = self._unfinished
        self._unfinished = name
        try:
            yield
        except Exception:
            # A step that was not whole has put its own name there.
            if self._unfinished == name:
                self._unfinished = outer
            raise
        self._unfinished = outer

    @contextmanager
    def as_a_whole(self, name: str) -> Iterator[None]:
        """A step that no error may leave halfway, not even that of a full disk."""
        outer = self._unfinished
        self._unfinished = f"{name}, halfway"
        yield
        self._unfinished = outer


class HasAccess(Protocol):
    """What has methods that exclude each other."""

    access: Access


Self = TypeVar("Self", bound=HasAccess)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def exclusive(
    method: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """A method that reads its owner, and waits until no other one runs."""

    @wraps(method)
    def call(
        owner: Self, /, *args: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        with owner.access:
            return method(owner, *args, **options)

    return call


def changing(
    method: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """A method that changes its owner, alone, and is refused or comes to its end."""

    @exclusive
    @wraps(method)
    def change(
        owner: Self, /, *args: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        with owner.access.changes(method.__name__):
            return method(owner, *args, **options)

    return change
