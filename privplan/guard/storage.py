"""Durable files of a guarded run: the open draw, released sums, models, and the ledger.

The order of writing makes a kill harmless: a released sum is on disk before anybody may
use it, the model that follows from it after that, and then the line of the ledger. When
a run is opened, a released sum whose line is missing is booked, since it may have been
used.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from bisect import insort
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privplan.errors import InputError
from privplan.evidence.noise import (
    NOISE_EVIDENCE,
    NoiseEvidence,
    read_noise_evidence,
)
from privplan.files import append_bytes, load_json, write_text
from privplan.guard.cohort import Positions, Stream, Streams
from privplan.guard.vectors import Arrays
from privplan.ledger import chained, read_ledger, repaired_lines
from privplan.record import LEDGER, RESERVED, ReleaseRecord
from privplan.values import parse

# In the run folder: the draw of the open round, released sums and models.
FOLDER = "guard"
DRAW = "draw.json"
RELEASE = "release"
MODEL = "model"
_NUMBERED = re.compile(r"(release|model)-(\d+)\.bin")


class StoredDraw(NamedTuple):
    """What the law drew last."""

    round: int  # 0 when nothing was drawn
    positions: Positions
    streams: Streams  # that later rounds go on with


class StoredRelease(NamedTuple):
    """The release of a round."""

    records: list[ReleaseRecord]  # its lines
    vectors: list[np.ndarray]  # its noisy sums [d]; none where others drew the noise


class Storage:
    """The files of a run; one process at a time, which holds the folder's lock.

    Args:
        folder: the run folder.
        digest: of the plan, with which the ledger's chain begins.
        keep: number of released sums and of models that are kept; None for all.

    Attributes:
        records: all releases in the ledger.
        chains: the plan's digest, and the hash of the ledger after each line.
        reservation: file with the name of what the run reserved in its book.

    Raises:
        InputError: when a file was changed.
    """

    def __init__(self, folder: Path, digest: str, keep: int | None) -> None:
        self._ledger = folder / LEDGER
        self._folder = folder / FOLDER
        self.reservation = folder / RESERVED
        self._keep = keep
        self._folder.mkdir(exist_ok=True)

        # Rounds of which a file is stored, by kind. No other process writes any.
        self._rounds: dict[str, list[int]] = {RELEASE: [], MODEL: []}
        for name in os.listdir(self._folder):
            match = _NUMBERED.fullmatch(name)
            if match is not None:
                insort(self._rounds[match[1]], int(match[2]))

        self.records: list[ReleaseRecord] = []
        self.chains: list[str] = [digest]
        if self._ledger.exists():
            repaired_lines(folder, digest)
            ledger = read_ledger(folder, digest)
            self.records = list(ledger.records)
            self.chains += [
                ledger.link(line) for line in range(1, len(self.records) + 1)
            ]
        self._book_stored()
        self._drop_measurements(folder)

    def _book_stored(self) -> None:
        """Append the lines of a stored release that the ledger lacks."""
        round_ = self.last(RELEASE)
        if round_ is None or round_ < self.round:
            return
        if round_ > self.round + 1:
            rule = f"must be of round {self.round + 1} or earlier, as in the ledger"
            raise InputError.one("guard.release", rule, round_)
        stored = self.release(round_).records
        booked = [record for record in self.records if record.round == round_]
        if stored[: len(booked)] != booked:
            rule = f"must be the release of round {round_} in the ledger"
            path = self._path(RELEASE, round_)
            raise InputError.one("guard.release", rule, str(path))
        missing = stored[len(booked) :]
        if missing:
            self.append(missing)

    def _drop_measurements(self, folder: Path) -> None:
        """Drop those of a round that was never released: its noise is drawn anew."""
        measurements, _ = read_noise_evidence(folder)
        if (folder / NOISE_EVIDENCE).exists():
            lines = (
                measurement.line
                for measurement in measurements.values()
                if measurement.round <= self.round
            )
            write_text(folder / NOISE_EVIDENCE, "".join(lines))

    def measure(self, measurements: Sequence[NoiseEvidence]) -> None:
        """Append measurements of the noise of a round, before its release is stored."""
        if measurements:
            text = "".join(measurement.line for measurement in measurements)
            path = self._ledger.with_name(NOISE_EVIDENCE)
            append_bytes(path, text.encode(), "noise evidence")

    @property
    def round(self) -> int:
        """The last round in the ledger, 0 when there is none."""
        if self.records:
            return self.records[-1].round
        return 0

    @property
    def chain(self) -> str:
        """The hash of the ledger after its last line."""
        return self.chains[-1]

    def chain_with(self, records: Sequence[ReleaseRecord]) -> str:
        """The hash that the ledger will have after further lines."""
        chain = self.chain
        for record in records:
            _, chain = chained(record, chain)
        return chain

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Write lines of the ledger; they are on disk when the method returns."""
        text = ""
        chains = []
        chain = self.chain
        for record in records:
            line, chain = chained(record, chain)
            text += line
            chains.append(chain)
        append_bytes(self._ledger, text.encode("utf-8"), "ledger", sync=True)
        self.records.extend(records)
        self.chains.extend(chains)

    def chain_after(self, record: ReleaseRecord) -> str:
        """Hash of the ledger with all lines of a round, of which this is one."""
        later = sum(line.round > record.round for line in self.records)
        return self.chains[len(self.records) - later]

    def save_draw(self, draw: StoredDraw, *, sync: bool = False) -> None:
        """Store a round's draw and the streams of later ones.

        Args:
            draw: of the open round.
            sync: whether it is on disk when the method returns.
        """
        data = {
            "round": draw.round,
            "drawn": draw.positions,
            "streams": {
                name: (stream.first_round, stream.key.hex())
                for name, stream in draw.streams.items()
            },
        }
        self._write(self._folder / DRAW, [json.dumps(data).encode()], sync=sync)

    def draw(self, round_: int) -> Positions | None:
        """What the law drew for a round; None when it was not drawn last."""
        draw = self._draw()
        if draw.round == round_:
            return draw.positions
        return None

    @property
    def last_drawn(self) -> int:
        """The last round that was drawn, 0 for none."""
        return self.streams()[0]

    @property
    def has_begun(self) -> bool:
        """Whether a cohort was drawn."""
        return max(self.last_drawn, self.round) > 0

    def streams(self) -> tuple[int, Streams]:
        """The last round that was drawn, 0 for none, and the streams that it left."""
        draw = self._draw()
        released = (record.round for record in self.records if not record.failure)
        return max(draw.round, *released, 0), draw.streams

    def _draw(self) -> StoredDraw:
        path = self._folder / DRAW
        if not path.exists():
            return StoredDraw(0, {}, {})
        try:
            data = load_json(path.read_text(encoding="utf-8"))
            positions = {
                str(name): tuple(map(int, clients))
                for name, clients in data["drawn"].items()
            }
            # Draws of version 0.1.0 have no streams.
            streams = {
                str(name): Stream(int(fields[0]), bytes.fromhex(fields[1]))
                for name, fields in data.get("streams", {}).items()
            }
            return StoredDraw(int(data["round"]), positions, streams)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            rule = (
                "must be as it was written; remove it to draw the open round again, but "
                "for laws that draw several rounds at once"
            )
            raise InputError.one("guard.draw", rule, str(path)) from None

    def remove_draw(self) -> None:
        """Remove the draw of the last round, which names its cohort."""
        (self._folder / DRAW).unlink(missing_ok=True)

    def save_release(self, round_: int, release: StoredRelease) -> None:
        """Store the released sums of a round with the lines that will book them."""
        lines = [record.model_dump(mode="json") for record in release.records]
        arrays = {str(index): vector for index, vector in enumerate(release.vectors)}
        self._save(RELEASE, round_, arrays, lines)

    def release(self, round_: int) -> StoredRelease:
        """The release of a round, which must be stored."""
        arrays, lines = self._load(RELEASE, round_)
        records = [parse(ReleaseRecord, line) for line in lines]
        return StoredRelease(records, list(arrays.values()))

    def remove_release(self, round_: int) -> None:
        """Remove a stored release that nobody got."""
        self._path(RELEASE, round_).unlink(missing_ok=True)
        if round_ in self._rounds[RELEASE]:
            self._rounds[RELEASE].remove(round_)

    def save_model(self, round_: int, arrays: Arrays) -> None:
        """Store the model after a round."""
        self._save(MODEL, round_, arrays, [])

    def model(self, round_: int) -> dict[str, np.ndarray]:
        """The model after a round, which must be stored."""
        arrays, _ = self._load(MODEL, round_)
        return arrays

    def last(self, kind: str) -> int | None:
        """The last round of which a release or a model is stored; None without any."""
        return max(self._rounds[kind], default=None)

    def prune(self) -> None:
        """Remove releases and models beyond those to keep."""
        if self._keep is None:
            return
        for kind, rounds in self._rounds.items():
            for round_ in rounds[: -self._keep]:
                self._path(kind, round_).unlink(missing_ok=True)
            del rounds[: -self._keep]

    def _path(self, kind: str, round_: int) -> Path:
        return self._folder / f"{kind}-{round_}.bin"

    def _save(self, kind: str, round_: int, arrays: Arrays, lines: list[Any]) -> None:
        """Write arrays, after a line of JSON that describes them.

        The line has their names, types, shapes and checksums, and the lines of a
        release with a checksum of their own.
        """
        contents: list[bytes | memoryview] = []
        described = []
        for name, array in arrays.items():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            contents.append(data)
            fields = [name, array.dtype.str, list(array.shape), zlib.crc32(data)]
            described.append(fields)
        text = json.dumps(lines, allow_nan=False)
        head = {"arrays": described, "lines": text, "sum": zlib.crc32(text.encode())}
        first_line = [json.dumps(head).encode(), b"\n"]
        self._write(self._path(kind, round_), first_line + contents, sync=True)
        if round_ not in self._rounds[kind]:
            insort(self._rounds[kind], round_)

    def _load(self, kind: str, round_: int) -> tuple[dict[str, np.ndarray], list[Any]]:
        """Arrays and lines as ``_save`` wrote them."""
        path = self._path(kind, round_)
        if not path.exists():
            rule = f"must be stored; of earlier rounds only the last {self._keep} are"
            raise InputError.one(f"guard.{kind}", rule, f"round {round_}")
        try:
            first_line, _, content = path.read_bytes().partition(b"\n")
            head = load_json(first_line.decode("utf-8"))
            if zlib.crc32(head["lines"].encode()) != head["sum"]:
                raise ValueError("lines")
            arrays = _arrays_of(head["arrays"], content)
            return arrays, list(load_json(head["lines"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            rule = "must be as it was written"
            raise InputError.one(f"guard.{kind}", rule, str(path)) from None

    def _write(
        self, path: Path, contents: Sequence[bytes | memoryview], *, sync: bool
    ) -> None:
        """Replace a file.

        Args:
            path: of the file.
            contents: its content.
            sync: whether file and folder are on disk when the method returns.
        """
        temporary = f"{path}.tmp"
        try:
            # They name cohorts, and hold the key of a law that draws several rounds.
            with open(temporary, "wb", opener=_private) as file:
                file.writelines(contents)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if sync:
                _sync_folder(self._folder)
        except OSError as error:
            rule = f"must be writable ({error.strerror})"
            raise InputError.one("guard", rule, str(path)) from None


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner reads (mode 600)."""
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk, without which a new file may be lost."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _arrays_of(described: Any, content: bytes) -> dict[str, np.ndarray]:
    """Arrays from their bytes, each compared with its checksum."""
    arrays = {}
    start = 0
    for name, type_, shape, checksum in described:
        dtype = np.dtype(type_)
        data = content[start : start + math.prod(shape) * dtype.itemsize]
        start += len(data)
        if zlib.crc32(data) != checksum:
            raise ValueError(name)
        arrays[str(name)] = np.frombuffer(data, dtype).reshape(shape).copy()
    return arrays
