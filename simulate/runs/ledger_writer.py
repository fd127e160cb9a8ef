"""Ledger writers, which book releases before their result is used; a check of what was booked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from privplan.errors import InputError
from privplan.evidence.noise import NOISE_EVIDENCE, NoiseEvidence, read_noise_evidence
from privplan.files import append_bytes, load_json, write_text
from privplan.ledger import chained, read_ledger, repaired_lines
from privplan.record import LEDGER, ReleaseRecord, RunRecord

Measured = Sequence[NoiseEvidence]


class LedgerWriter(Protocol):
    """An append-only list of releases, chained by hashes."""

    @property
    def chain(self) -> str:
        """Hash of the last line, which the next line includes."""

    def append(self, records: Sequence[ReleaseRecord], measured: Measured = ()) -> None:
        """Write releases permanently; only afterwards may their result be used."""


class MemoryLedger:
    """A ledger in memory, which begins with the digest of the plan."""

    def __init__(self, digest: str) -> None:
        self.chain = digest
        self.records: list[ReleaseRecord] = []
        self.measured: list[NoiseEvidence] = []

    def append(self, records: Sequence[ReleaseRecord], measured: Measured = ()) -> None:
        """Append the releases and the measurements to the lists."""
        self.measured.extend(measured)
        for record in records:
            _, self.chain = chained(record, self.chain)
            self.records.append(record)


class RemoteLedger:
    """Ledger of a non-zero rank, whose releases the main rank writes."""

    chain = ""

    def append(self, records: Sequence[ReleaseRecord], measured: Measured = ()) -> None:
        """Does nothing; the next round begins only after the main rank has written."""


class FileLedger:
    """The ledger file ``ledger.jsonl``, synchronised to disk before ``append`` returns.

    A release that is in the file already must be reproduced exactly by a replayed round; its noise
    is measured again. ``digest`` is the plan's, ``chain`` the checkpoint's last hash; a file that
    was changed, or lacks the checkpoint's last line, is refused.
    """

    def __init__(self, folder: Path, digest: str, chain: str) -> None:
        self._path, self._noise = folder / LEDGER, folder / NOISE_EVIDENCE
        self.chain = digest
        self._replayed: deque[str] = deque()
        lines = repaired_lines(folder, digest) if self._path.exists() else []
        done = 0
        while self.chain != chain:
            if not lines:
                rule = f"must continue the releases in {LEDGER}; use another folder with -o"
                raise InputError.one("checkpoint", rule, str(folder))
            line, self.chain = lines.pop(0)
            done = int(load_json(line)["release"]["round"])
        self._replayed.extend(line for line, _ in lines)
        if (
            self._noise.exists()
        ):  # of rounds after the checkpoint they are measured again
            measured, _ = read_noise_evidence(folder)
            kept = [one.line for one in measured.values() if one.round <= done]
            write_text(self._noise, "".join(kept))

    def append(self, records: Sequence[ReleaseRecord], measured: Measured = ()) -> None:
        """Write the releases, or compare replayed ones with their lines in the file."""
        if measured:
            append_bytes(
                self._noise, "".join(one.line for one in measured).encode(), "ledger"
            )
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
            append_bytes(self._path, text.encode("utf-8"), "ledger", sync=True)


def check_finished(folder: Path, record: RunRecord) -> None:
    """Raises if the ledger of a finished run differs from the one that the run wrote."""
    advice = "what was lost cannot be recovered, so choose another folder with -o"
    if not (folder / LEDGER).exists():
        rule = f"must be in the folder of a finished run; {advice}"
        raise InputError.one("ledger", rule, f"no {folder / LEDGER}")
    ledger = read_ledger(folder, record.plan_digest)
    fault = ledger.fault
    if fault is None and record.chain not in ("", ledger.chain):
        fault = f"only {len(ledger.records)} releases"
    if fault is not None:
        rule = f"must be as the finished run wrote it; {advice}"
        raise InputError.one("ledger", rule, f"{fault} of {folder / LEDGER}")
