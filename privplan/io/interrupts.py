"""Ctrl-C in a process of the command line: one line and exit code 130, at any moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
_LINE = "privplan: interrupted\n"
_CURSOR = "\x1b[?25h"
"""Shows the cursor of a terminal again, which a progress bar may have hidden."""


@contextmanager
def exit_on_sigint() -> Iterator[None]:
    """Ctrl-C ends this process where the block has not heard it by itself.

    While a module is being imported it ends the process there and then: libraries that are half
    loaded swallow an exception or abort. Elsewhere it is a ``KeyboardInterrupt`` as ever, and
    after the block there is nothing left to tell it. Where Ctrl-C is ignored it stays so.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    except KeyboardInterrupt:
        _end()
    finally:
        signal.signal(signal.SIGINT, _end)


def _stop(number: int, frame: FrameType | None) -> None:
    if _importing(frame):
        _end()
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported where the process stands."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end(*_: object) -> None:
    """Say one line and end, without anything that could be interrupted or held up."""
    shown = _CURSOR if os.isatty(2) else ""
    os.write(2, f"{shown}{_LINE}".encode())
    os._exit(INTERRUPTED)
