"""Ledger writers: they book releases before their result is used."""

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
        """Hash of the last line, which the next line includes."""

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Write releases permanently; only afterwards may their result be used."""


class MemoryLedger:
    """A ledger in memory.

    Args:
        digest: digest of the plan.
    """

    def __init__(self, digest: str) -> None:
        self.chain = digest
        self.records: list[ReleaseRecord] = []

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Append the releases to the list."""
        for record in records:
            _, self.chain = chained(record, self.chain)
            self.records.append(record)


class RemoteLedger:
    """Ledger of a non-zero rank, whose releases the main rank writes."""

    chain = ""

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Does nothing; the next round begins only after the main rank has written."""


class FileLedger:
    """The ledger file ``ledger.jsonl``, synchronised to disk before ``append`` returns.

    A release that is already in the file is not written again: a round replayed after an
    interruption must reproduce its line exactly, because it is the same release.

    Args:
        folder: the run folder.
        digest: digest of the plan.
        chain: hash of the last line included in the checkpoint; the plan's digest without a
            checkpoint. Later lines are replayed.

    Raises:
        InputError: when the file was changed, or lacks the checkpoint's last line.
    """

    def __init__(self, folder: Path, digest: str, chain: str) -> None:
        self._path = folder / LEDGER
        self.chain = digest
        self._replayed: deque[str] = deque()
        lines = _valid_lines(folder, digest) if self._path.exists() else []
        while self.chain != chain:
            if not lines:
                rule = f"must continue the releases in {LEDGER}; use another folder with -o"
                raise InputError.one("checkpoint", rule, str(folder))
            _, self.chain = lines.pop(0)
        self._replayed.extend(line for line, _ in lines)

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Write the releases, or compare replayed ones with their lines in the file.

        Raises:
            InputError: when a replayed release differs from its line, or the file cannot be
                written.
        """
        text = ""
        for record in records:
            line, self.chain = chained(record, self.chain)
            if not self._replayed:
                text += line
            elif self._replayed.popleft() != line:
                rule = (
                    f"round {record.round} came out differently when it was replayed (another "
                    "machine or version?); use another folder with -o"
                )
                raise InputError.one("ledger", rule, str(self._path))
        if text:
            _append(self._path, text.encode("utf-8"))


def _valid_lines(folder: Path, digest: str) -> list[tuple[str, str]]:
    """The lines with their hashes; an incomplete last line is removed from the file."""
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
