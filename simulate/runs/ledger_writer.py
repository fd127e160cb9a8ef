"""Where releases are written down before their result is used."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from privplan.errors import InputError
from privplan.record import LEDGER, ReleaseRecord, chained, read_ledger


class LedgerWriter(Protocol):
    """An append-only list of releases, chained by hashes."""

    @property
    def chain(self) -> str:
        """Hash that the next line builds on."""

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Write releases down for good; afterwards their result may be used."""


class MemoryLedger:
    """A journal that is kept in memory.

    Args:
        digest: digest of the plan.
    """

    def __init__(self, digest: str) -> None:
        self.chain = digest
        self.records: list[ReleaseRecord] = []

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Keep the releases."""
        for record in records:
            _, self.chain = chained(record, self.chain)
            self.records.append(record)


class RemoteLedger:
    """The journal of a process whose releases another one writes down."""

    chain = ""

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Do nothing; the next round begins only when the other process has written."""


class FileLedger:
    """A journal in ``ledger.jsonl``, on disk before ``append`` returns.

    A release that is already in the file is not written again: replaying a round after an
    interruption must give the very line that stands there, because it is the same release and
    no second one.

    Args:
        folder: the run folder.
        digest: digest of the plan.
        chain: hash of the last line that the checkpoint has seen; the plan's digest without a
            checkpoint. Lines after it are replayed.

    Raises:
        InputError: when the file was changed, or does not hold the checkpoint's last line.
    """

    def __init__(self, folder: Path, digest: str, chain: str) -> None:
        self._path = folder / LEDGER
        self.chain = digest
        self._ahead: deque[str] = deque()
        lines = _sound_lines(folder, digest) if self._path.exists() else []
        while self.chain != chain:
            if not lines:
                rule = f"must continue the releases in {LEDGER}; use another folder with -o"
                raise InputError.one("checkpoint", rule, str(folder))
            _, self.chain = lines.pop(0)
        self._ahead.extend(line for line, _ in lines)

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Write the releases, or compare them with the lines that are there already.

        Raises:
            InputError: when a replayed release is not the one in the file, or it cannot be
                written.
        """
        text = ""
        for record in records:
            line, self.chain = chained(record, self.chain)
            if not self._ahead:
                text += line
            elif self._ahead.popleft() != line:
                rule = (
                    f"round {record.round} came out differently when it was replayed (another "
                    "machine or version?); use another folder with -o"
                )
                raise InputError.one("ledger", rule, str(self._path))
        if text:
            _append(self._path, text.encode("utf-8"))


def _sound_lines(folder: Path, digest: str) -> list[tuple[str, str]]:
    """Each line with the hash after it; a last line that was cut off is removed from the file."""
    ledger = read_ledger(folder, digest)
    if ledger.fault is not None and not ledger.torn:
        raise InputError.one("ledger", f"must be as it was written; {ledger.fault}", str(folder))
    lines, chain = [], digest
    for record in ledger.records:
        line, chain = chained(record, chain)
        lines.append((line, chain))
    if ledger.torn:
        size = sum(len(line.encode("utf-8")) for line, _ in lines)
        with open(folder / LEDGER, "r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
    return lines


def _append(path: Path, content: bytes) -> None:
    try:
        with open(path, "ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError.one("ledger", f"must be writable ({error.strerror})", str(path)) from None
