"""Ledger writers, which book releases before their result is used; their check."""

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
"""Measurements of the noise of releases."""


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
    """The ledger file ``ledger.jsonl``, to which ``append`` writes before it returns.

    A round after the checkpoint is replayed: a release that is in the file already must
    be reproduced exactly, and its noise is measured again.

    Args:
        folder: the run folder.
        digest: of the plan, with which the chain of hashes begins.
        chain: the checkpoint's last hash; the plan's digest before the first round.
        sync: whether lines are on disk, and not only with the system, when ``append``
            returns.

    Raises:
        InputError: for a file that was changed, or that lacks the checkpoint's last
            line.
    """

    def __init__(
        self, folder: Path, digest: str, chain: str, *, sync: bool = True
    ) -> None:
        self._sync = sync
        self._path = folder / LEDGER
        self._noise_path = folder / NOISE_EVIDENCE
        self.chain = digest
        lines = deque(repaired_lines(folder, digest) if self._path.exists() else ())
        last_round = 0
        while self.chain != chain:
            if not lines:
                rule = (
                    f"must continue the releases in {LEDGER}; "
                    "use another folder (-o, folder=)"
                )
                raise InputError.one("checkpoint", rule, str(folder))
            line, self.chain = lines.popleft()
            last_round = int(load_json(line)["release"]["round"])
        self._replayed = deque(line for line, _ in lines)
        # The noise of rounds after the checkpoint is measured again.
        if self._noise_path.exists():
            measured, _ = read_noise_evidence(folder)
            before = (noise for noise in measured.values() if noise.round <= last_round)
            write_text(self._noise_path, "".join(noise.line for noise in before))

    def append(self, records: Sequence[ReleaseRecord], measured: Measured = ()) -> None:
        """Write the releases, or compare replayed ones with their lines in the file.

        Raises:
            InputError: where a replayed release differs from its line.
        """
        if measured:
            noise_lines = "".join(noise.line for noise in measured)
            append_bytes(self._noise_path, noise_lines.encode(), "ledger")
        text = ""
        for record in records:
            line, self.chain = chained(record, self.chain)
            if not self._replayed:
                text += line
            elif self._replayed.popleft() != line:
                rule = (
                    f"round {record.round} came out differently when it was replayed "
                    "(another machine or version?); use another folder (-o, folder=)"
                )
                raise InputError.one("ledger", rule, str(self._path))
        if text:
            append_bytes(self._path, text.encode("utf-8"), "ledger", sync=self._sync)


def check_finished(folder: Path, record: RunRecord) -> None:
    """Raise if the ledger of a finished run differs from the one that the run wrote."""
    advice = "what was lost cannot be recovered, so choose another folder (-o, folder=)"
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
