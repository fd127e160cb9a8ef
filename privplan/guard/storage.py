"""Durable files of a guarded run: the open draw, released sums, models, and the ledger.

The order of writing makes a kill harmless: a released sum is on disk before anybody may use it, the
model that follows from it after that, and then the line of the ledger. When a run is opened, a
released sum whose line is missing is booked, since it may have been used.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import zlib
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.evidence.noise import NOISE_EVIDENCE, NoiseEvidence, read_noise_evidence
from privplan.files import append_bytes, load_json, write_text
from privplan.ledger import chained, read_ledger, repaired_lines
from privplan.plan import Plan
from privplan.record import LEDGER, PLAN, RECORD, ReleaseRecord, RunRecord
from privplan.values import parse

FOLDER = (
    "guard"  # in the run folder: the draw of the open round, released sums and models
)
DRAW = "draw.json"
RELEASE = "release"
MODEL = "model"
_NUMBERED = re.compile(r"(release|model)-(\d+)\.bin")

Arrays = Mapping[str, np.ndarray]


def open_record(folder: Path, plan: Plan, evidence: str, framework: str) -> RunRecord:
    """The record of the run in a folder, which is created in a new or an empty folder."""
    path = folder / RECORD
    if not path.exists():
        others = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
        known = (folder / PLAN).exists() and Plan.load(
            folder / PLAN
        ).digest == plan.digest
        if any(name != PLAN for name in others) or (PLAN in others and not known):
            rule = "must be the folder of a guarded run, a new folder or an empty one"
            raise InputError.one("ledger", rule, str(folder))
        if evidence == "internal":
            folder.chmod(0o700)  # who takes part is for nobody else
        plan.save(folder / PLAN)
        versions = {name: version(name) for name in ("privplan", "numpy")}
        record = RunRecord(
            plan_digest=plan.digest,
            algorithm=framework,
            configuration={"evidence": evidence},
            versions={"python": platform.python_version(), **versions},
            status="running",
            rounds_done=0,
            noise="secure",
        )
        record.save(folder)
        return record
    record = RunRecord.load(folder)
    if record.seed is not None or record.configuration.get("evidence") is None:
        raise InputError.one(
            "ledger", "must not hold the run of a simulation", str(folder)
        )
    if record.plan_digest != plan.digest:
        raise InputError.one(
            "plan", f"must be the one of the run in {folder}", plan.digest
        )
    if record.configuration["evidence"] != evidence:
        rule = f"must be {record.configuration['evidence']}, as in {folder}"
        raise InputError.one("evidence", rule, evidence)
    return record


class Storage:
    """The files of a run; one process at a time, which holds the folder's lock.

    ``keep`` is the number of released sums and of models that are kept; None for all.
    ``records`` are all releases in the ledger; ``chains`` are the plan's digest and the hash of the
    ledger after each line.
    """

    def __init__(self, folder: Path, digest: str, keep: int | None) -> None:
        self._ledger, self._folder, self._keep = folder / LEDGER, folder / FOLDER, keep
        self._folder.mkdir(exist_ok=True)
        found = (_NUMBERED.fullmatch(name) for name in os.listdir(self._folder))
        numbers = [(one[1], int(one[2])) for one in found if one is not None]
        self._rounds = {
            kind: sorted(number for known, number in numbers if known == kind)
            for kind in (RELEASE, MODEL)
        }
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
        measured, _ = read_noise_evidence(
            folder
        )  # a round that was never released is drawn anew
        kept = [one for one in measured.values() if one.round <= self.round]
        if (folder / NOISE_EVIDENCE).exists():
            write_text(folder / NOISE_EVIDENCE, "".join(one.line for one in kept))

    def measure(self, found: Sequence[NoiseEvidence]) -> None:
        """Append measurements of the noise of a round, before its release is stored."""
        if found:
            text = "".join(one.line for one in found)
            append_bytes(
                self._ledger.with_name(NOISE_EVIDENCE), text.encode(), "noise evidence"
            )

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
            raise InputError.one(
                "guard.release", rule, str(self._path(RELEASE, round_))
            )
        if stored[len(booked) :]:
            self.append(stored[len(booked) :])

    @property
    def round(self) -> int:
        """The last round in the ledger, 0 when there is none."""
        return max((record.round for record in self.records[-1:]), default=0)

    @property
    def chain(self) -> str:
        """The hash of the ledger after its last line."""
        return self.chains[-1]

    def chain_with(self, records: Sequence[ReleaseRecord]) -> str:
        """The hash that the ledger will have after further lines."""
        chain = self.chain
        for record in records:
            chain = chained(record, chain)[1]
        return chain

    def append(self, records: Sequence[ReleaseRecord]) -> None:
        """Write lines of the ledger; they are on disk when the method returns."""
        text, chains = "", [self.chain]
        for record in records:
            line, chain = chained(record, chains[-1])
            text += line
            chains.append(chain)
        append_bytes(self._ledger, text.encode("utf-8"), "ledger", sync=True)
        self.records.extend(records)
        self.chains.extend(chains[1:])

    def chain_after(self, record: ReleaseRecord) -> str:
        """Hash of the ledger up to and with the lines of a round, of which this is one."""
        later = sum(one.round > record.round for one in self.records)
        return self.chains[len(self.records) - later]

    def save_draw(
        self,
        round_: int,
        drawn: Mapping[str, Sequence[int]],
        streams: Mapping[str, tuple[int, bytes]],
        *,
        sync: bool = False,
    ) -> None:
        """Store a round's draw and the streams of later ones; on disk on return with ``sync``."""
        data = {
            "round": round_,
            "drawn": {name: list(found) for name, found in drawn.items()},
            "streams": {
                name: (first, key.hex()) for name, (first, key) in streams.items()
            },
        }
        self._write(self._folder / DRAW, [json.dumps(data).encode()], sync=sync)

    def draw(self, round_: int) -> dict[str, tuple[int, ...]] | None:
        """What the law drew for a round before an interruption; None when it was not drawn."""
        found, drawn, _ = self._drawn()
        return drawn if found == round_ else None

    def streams(self) -> tuple[int, dict[str, tuple[int, bytes]]]:
        """The last round that was drawn, 0 for none, and the streams that it left to later ones."""
        last, _, streams = self._drawn()
        released = (one.round for one in self.records if not one.failure)
        return max(last, *released, 0), streams

    def _drawn(
        self,
    ) -> tuple[int, dict[str, tuple[int, ...]], dict[str, tuple[int, bytes]]]:
        path = self._folder / DRAW
        if not path.exists():
            return 0, {}, {}
        try:
            data = load_json(path.read_text(encoding="utf-8"))
            drawn = {
                str(k): tuple(int(one) for one in v) for k, v in data["drawn"].items()
            }
            streams = {
                str(k): (int(v[0]), bytes.fromhex(v[1]))
                for k, v in data.get("streams", {}).items()
            }
            return int(data["round"]), drawn, streams
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            rule = "must be as it was written; remove it to draw the open round again"
            rule += ", but for laws that draw several rounds at once"
            raise InputError.one("guard.draw", rule, str(path)) from None

    def save_release(
        self,
        round_: int,
        records: Sequence[ReleaseRecord],
        vectors: Sequence[np.ndarray],
    ) -> None:
        """Store the released sums of a round with the lines that will book them."""
        lines = [record.model_dump(mode="json") for record in records]
        arrays = {str(index): vector for index, vector in enumerate(vectors)}
        self._save(RELEASE, round_, arrays, lines)

    def release(self, round_: int) -> tuple[list[ReleaseRecord], list[np.ndarray]]:
        """The lines and the released sums of a round, which must be stored."""
        arrays, lines = self._load(RELEASE, round_)
        return [parse(ReleaseRecord, line) for line in lines], list(arrays.values())

    def remove_release(self, round_: int) -> None:
        """Remove a stored release that nobody got."""
        self._path(RELEASE, round_).unlink(missing_ok=True)
        self._rounds[RELEASE] = [one for one in self._rounds[RELEASE] if one != round_]

    def save_model(self, round_: int, arrays: Arrays) -> None:
        """Store the model after a round."""
        self._save(MODEL, round_, arrays, [])

    def model(self, round_: int) -> dict[str, np.ndarray]:
        """The model after a round, which must be stored."""
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
            np.ascontiguousarray(a).reshape(-1).view(np.uint8).data
            for a in arrays.values()
        ]
        described = [
            [name, one.dtype.str, list(one.shape), zlib.crc32(part)]
            for (name, one), part in zip(arrays.items(), parts, strict=True)
        ]
        text = json.dumps(lines, allow_nan=False)
        head = json.dumps(
            {"arrays": described, "lines": text, "sum": zlib.crc32(text.encode())}
        )
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
            raise InputError.one(
                f"guard.{kind}", "must be as it was written", str(path)
            ) from None

    def _write(
        self, path: Path, parts: Sequence[bytes | memoryview], *, sync: bool
    ) -> None:
        """Replace a file; with ``sync``, file and folder are on disk when the method returns."""
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


# --- Updates as vectors: named arrays in one vector and back, and clipping. -----------------------

_ROUNDING = (
    1 - 2.0**-22
)  # on a clipped update, so that its norm is within the bound in float32


def clip(update: np.ndarray, bound: float) -> np.ndarray:
    """The update [d], shortened to norm ``bound`` where it is longer; zero if it is not finite.

    The norm is computed in double precision, and a shortened update is a little shorter than the
    bound, so that rounding it to single precision does not exceed the bound.
    """
    vector = np.asarray(update, dtype=np.float64)
    norm = float(np.linalg.norm(vector))
    if not math.isfinite(norm):
        return np.zeros_like(vector)
    return vector if norm <= bound else vector * (bound / norm * _ROUNDING)


def keep_largest(vector: np.ndarray, fraction: float) -> np.ndarray:
    """The released vector [d] with all but its largest coordinates, one at least, set to zero."""
    zeroed = vector.size - max(1, round(fraction * vector.size))
    if zeroed <= 0:
        return vector
    found = vector.copy()
    found[np.argpartition(np.abs(vector), zeroed - 1)[:zeroed]] = 0.0
    return found


@dataclass(frozen=True)
class Layout:
    """Names, shapes and types of a model's arrays; only those of floating point leave a client."""

    names: tuple[str, ...]  # names of the arrays that are in the vector, in order
    shapes: tuple[tuple[int, ...], ...]  # their shapes
    types: tuple[np.dtype[Any], ...]  # their types
    # names of the arrays that are not of floating point; the server keeps its own
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, arrays: Arrays) -> Layout:
        """The layout of a model's arrays."""
        names = [
            name
            for name, one in arrays.items()
            if np.issubdtype(one.dtype, np.floating)
        ]
        if not names:
            raise InputError.one(
                "model", "must have arrays of floating point", list(arrays)
            )
        return cls(
            tuple(names),
            tuple(arrays[name].shape for name in names),
            tuple(arrays[name].dtype for name in names),
            tuple(name for name in arrays if name not in set(names)),
        )

    @property
    def size(self) -> int:
        """Length of the vector (d)."""
        return sum(math.prod(shape) for shape in self.shapes)

    def vector(self, arrays: Arrays) -> np.ndarray:
        """The arrays as one vector [d], float64."""
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name not in arrays or arrays[name].shape != shape:
                found = arrays[name].shape if name in arrays else "nothing"
                raise InputError.one(
                    f"model.{name}", f"must have the shape {shape}", found
                )
        return np.concatenate(
            [np.asarray(arrays[n], np.float64).ravel() for n in self.names]
        )

    def arrays(self, vector: np.ndarray, like: Arrays) -> dict[str, np.ndarray]:
        """A vector [d] as arrays in the order of ``like``, from which the others are taken."""
        parts, start = {}, 0
        for name, shape, kind in zip(self.names, self.shapes, self.types, strict=True):
            end = start + math.prod(shape)
            parts[name] = vector[start:end].reshape(shape).astype(kind)
            start = end
        return {name: parts.get(name, like[name]) for name in like}
