"""Durable files of a guarded run: the open draw, released sums, models, and the ledger.

The order of writing makes a kill harmless: a released sum is on disk before anybody may use it, the
model that follows from it after that, and then the line of the ledger. When a run is opened, a
released sum whose line is missing is booked, since it may have been used.
"""

from __future__ import annotations

import json
import math
import os
import re
import zlib
from bisect import insort
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.io.files import append_bytes
from privplan.io.text import load_json
from privplan.ledger import chained, read_ledger, repaired_lines
from privplan.record import LEDGER, ReleaseRecord
from privplan.values import parse

FOLDER = "guard"
"""Folder in the run folder with the draw of the open round, released sums and models."""
DRAW = "draw.json"
RELEASE = "release"
MODEL = "model"
_NUMBERED = re.compile(r"(release|model)-(\d+)\.bin")

Arrays = Mapping[str, np.ndarray]


class Storage:
    """The files of a run; one process at a time, which holds the folder's lock.

    Args:
        folder: the run folder.
        digest: digest of the plan.
        keep: number of released sums and of models that are kept; None for all.

    Attributes:
        records: all releases in the ledger.
        chain: hash of the ledger's last line.

    Raises:
        InputError: when the ledger was edited or a file is damaged.
    """

    def __init__(self, folder: Path, digest: str, keep: int | None) -> None:
        self._ledger, self._folder, self._keep = folder / LEDGER, folder / FOLDER, keep
        self._digest = digest
        self._folder.mkdir(exist_ok=True)
        found = (_NUMBERED.fullmatch(name) for name in os.listdir(self._folder))
        numbers = [(one[1], int(one[2])) for one in found if one is not None]
        self._rounds = {
            kind: sorted(number for known, number in numbers if known == kind)
            for kind in (RELEASE, MODEL)
        }
        self.records: list[ReleaseRecord] = []
        self.chain = digest
        if self._ledger.exists():
            repaired_lines(folder, digest)
            ledger = read_ledger(folder, digest)
            self.records, self.chain = list(ledger.records), ledger.chain
        self._book_stored()

    def _book_stored(self) -> None:
        """Append the lines of a stored release that the ledger lacks."""
        round_ = self.last(RELEASE)
        if round_ is None or round_ < self.round:
            return
        if round_ > self.round + 1:
            rule = f"must be of round {self.round + 1} or earlier, as in the ledger"
            raise InputError.one("guard.release", rule, round_)
        stored = self.release(round_)[0]
        booked = [record for record in self.records if record.round == round_]
        if stored[: len(booked)] != booked:
            rule = f"must be the release of round {round_} in the ledger"
            raise InputError.one("guard.release", rule, str(self._path(RELEASE, round_)))
        if stored[len(booked) :]:
            self.append(stored[len(booked) :])

    @property
    def round(self) -> int:
        """The last round in the ledger, 0 when there is none."""
        return max((record.round for record in self.records[-1:]), default=0)

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Write lines of the ledger; they are on disk when the method returns."""
        text, chain = "", self.chain
        for record in records:
            line, chain = chained(record, chain)
            text += line
        append_bytes(self._ledger, text.encode("utf-8"), "ledger", sync=True)
        self.records.extend(records)
        self.chain = chain

    def chain_after(self, record: ReleaseRecord) -> str:
        """Hash of the ledger up to and with one of its last lines."""
        later = [one for one in self.records if one.round > record.round]
        if not later:
            return self.chain
        chain = self._digest
        for one in self.records[: -len(later)]:
            chain = chained(one, chain)[1]
        return chain

    def save_draw(
        self, round_: int, drawn: Mapping[str, Sequence[int]], *, sync: bool = False
    ) -> None:
        """Store what the law drew for a round.

        Args:
            round_: training round, from 1.
            drawn: positions by group.
            sync: whether it is on disk when the method returns; a draw that is lost with the
                machine was not released, so only a signed one needs that.
        """
        data = {"round": round_, "drawn": {name: list(found) for name, found in drawn.items()}}
        self._write(self._folder / DRAW, [json.dumps(data).encode()], sync=sync)

    def draw(self, round_: int) -> dict[str, tuple[int, ...]] | None:
        """What the law drew for a round before an interruption; None when it was not drawn.

        Raises:
            InputError: when the file is damaged.
        """
        path = self._folder / DRAW
        if not path.exists():
            return None
        try:
            data = load_json(path.read_text(encoding="utf-8"))
            drawn = {str(k): tuple(int(one) for one in v) for k, v in data["drawn"].items()}
            return drawn if data["round"] == round_ else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            rule = "must be as it was written; remove it to draw the open round again"
            raise InputError.one("guard.draw", rule, str(path)) from None

    def save_release(
        self, round_: int, records: Sequence[ReleaseRecord], vectors: Sequence[np.ndarray]
    ) -> None:
        """Store the released sums of a round with the lines that will book them."""
        lines = [record.model_dump(mode="json") for record in records]
        arrays = {str(index): vector for index, vector in enumerate(vectors)}
        self._save(RELEASE, round_, arrays, lines)

    def release(self, round_: int) -> tuple[list[ReleaseRecord], list[np.ndarray]]:
        """The lines and the released sums of a round.

        Raises:
            InputError: when they are not stored, or the file is damaged.
        """
        arrays, lines = self._load(RELEASE, round_)
        return [parse(ReleaseRecord, line) for line in lines], list(arrays.values())

    def save_model(self, round_: int, arrays: Arrays) -> None:
        """Store the model after a round."""
        self._save(MODEL, round_, arrays, [])

    def model(self, round_: int) -> dict[str, np.ndarray]:
        """The model after a round.

        Raises:
            InputError: when it is not stored, or the file is damaged.
        """
        return self._load(MODEL, round_)[0]

    def last(self, kind: str) -> int | None:
        """The last round of which a release or a model is stored; no other process writes any."""
        return max(self._rounds[kind], default=None)

    def prune(self) -> None:
        """Remove releases and models beyond those to keep."""
        if self._keep is None:
            return
        for kind, rounds in self._rounds.items():
            for round_ in rounds[: -self._keep]:
                self._path(kind, round_).unlink(missing_ok=True)
            del rounds[: -self._keep]

    def remove_draw(self) -> None:
        """Remove the draw of the last round, which names its cohort."""
        (self._folder / DRAW).unlink(missing_ok=True)

    def _path(self, kind: str, round_: int) -> Path:
        return self._folder / f"{kind}-{round_}.bin"

    def _save(self, kind: str, round_: int, arrays: Arrays, lines: list[Any]) -> None:
        """Write a line of JSON with names, shapes, types and checksums, then the arrays' bytes."""
        parts = [
            np.ascontiguousarray(one).reshape(-1).view(np.uint8).data for one in arrays.values()
        ]
        described = [
            [name, one.dtype.str, list(one.shape), zlib.crc32(part)]
            for (name, one), part in zip(arrays.items(), parts, strict=True)
        ]
        text = json.dumps(lines, allow_nan=False)
        head = json.dumps({"arrays": described, "lines": text, "sum": zlib.crc32(text.encode())})
        self._write(self._path(kind, round_), [head.encode(), b"\n", *parts], sync=True)
        if round_ not in self._rounds[kind]:
            insort(self._rounds[kind], round_)

    def _load(self, kind: str, round_: int) -> tuple[dict[str, np.ndarray], list[Any]]:
        path = self._path(kind, round_)
        if not path.exists():
            rule = f"must be stored; of earlier rounds only the last {self._keep} are"
            raise InputError.one(f"guard.{kind}", rule, f"round {round_}")
        try:
            first, _, content = path.read_bytes().partition(b"\n")
            head, arrays, start = load_json(first.decode("utf-8")), {}, 0
            for name, kind_, shape, checksum in head["arrays"]:
                count, dtype = math.prod(shape), np.dtype(kind_)
                part = content[start : start + count * dtype.itemsize]
                start += len(part)
                if zlib.crc32(part) != checksum:
                    raise ValueError(name)
                arrays[str(name)] = np.frombuffer(part, dtype).reshape(shape).copy()
            if zlib.crc32(head["lines"].encode()) != head["sum"]:
                raise ValueError("lines")
            return arrays, list(load_json(head["lines"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError.one(f"guard.{kind}", "must be as it was written", str(path)) from None

    def _write(self, path: Path, parts: Sequence[bytes | memoryview], *, sync: bool) -> None:
        """Replace a file; with ``sync``, file and folder are on disk when the method returns.

        The lock on the run folder keeps other writers away from the temporary file.
        """
        temporary = f"{path}.tmp"
        try:
            with open(temporary, "wb") as file:
                for part in parts:
                    file.write(part)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if sync:
                folder = os.open(self._folder, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            rule = f"must be writable ({error.strerror})"
            raise InputError.one("guard", rule, str(path)) from None
