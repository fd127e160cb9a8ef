"""The ledger of a run: one release per line, read, written and turned into a history.

Each line has a hash that chains it to the line before it, starting from the digest of the plan, so
an edit can be located. ``evidence.jsonl`` has lines of the same form.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from privplan.accounting.release import History, Release
from privplan.errors import InputError
from privplan.files import load_json, read_lines
from privplan.record import LEDGER, ReleaseRecord, line_fault
from privplan.values import Value, parse

if TYPE_CHECKING:
    from privplan.plan import Plan

LINK = 32  # bytes of one hash of the hash chain
Key = Literal["release", "evidence"]
T = TypeVar("T", bound=BaseModel)


def chained(value: BaseModel, previous: str, key: Key = "release") -> tuple[str, str]:
    """A line for a value, and the hash that the next line builds on."""
    body = json.dumps(
        value.model_dump(mode="json"), separators=(",", ":"), allow_nan=False
    )
    chain = hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
    return f'{{"{key}":{body},"chain":"{chain}"}}\n', chain


def parse_chained(
    line: str, previous: str, kind: type[T], key: Key = "release"
) -> tuple[T, str] | None:
    """The value of a line and its hash; None if ``chained`` does not make the line of it."""
    before, after = f'{{"{key}":', ',"chain":"'
    body = line[len(before) : -len(f'{after}"}}\n') - 2 * LINK]
    chain = hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
    if line != f'{before}{body}{after}{chain}"}}\n':
        return None
    value = kind.model_validate_json(body)
    # Usually the compiled writer gives the same text; it writes some numbers in another form.
    same = value.model_dump_json() == body or chained(value, previous, key)[0] == line
    return (value, chain) if same else None


class LedgerText(Value):
    """A ledger as read: its sound lines, and what is wrong with the rest."""

    # the releases of the lines that are sound and follow the chain
    records: tuple[ReleaseRecord, ...]
    chain: str  # hash of the last sound line
    links: bytes = b""  # the hash of each sound line, 32 bytes per line
    fault: str | None = (
        None  # one line on the first line that is not sound; None when all are
    )
    torn: bool = (
        False  # whether the fault is a last line that was cut off while it was written
    )

    def link(self, lines: int) -> str:
        """The hash of the line of a number, from 1."""
        return self.links[(lines - 1) * LINK : lines * LINK].hex()


def read_ledger(folder: Path, plan_digest: str) -> LedgerText:
    """Read ``ledger.jsonl`` line by line, keeping every sound line before the first fault.

    A line that no release can be (``line_fault``) is a fault, also where the chain holds. Equal
    values of different lines are one object: 100,000 releases need about a kilobyte each.
    """
    records: list[ReleaseRecord] = []
    chain, known, links, fault, torn = (
        plan_digest,
        dict[Any, Any](),
        bytearray(),
        None,
        False,
    )
    for number, line in enumerate(read_lines(folder / LEDGER, "ledger"), start=1):
        try:
            found = parse_chained(line, chain, ReleaseRecord)
            if found is None:
                parse(ReleaseRecord, load_json(line)["release"])
                fault = f"line {number} does not follow from the lines before it"
            elif (rule := line_fault(found[0])) is not None:
                fault = f"line {number}: {rule}"
        except (ValueError, KeyError, TypeError, InputError):
            found, fault = None, f"line {number} is not a release"
        if torn := not line.endswith("\n"):
            fault = f"line {number} is torn"
        if fault is not None or found is None:
            break
        records.append(_compact(found[0], known))
        chain = found[1]
        links += bytes.fromhex(chain)
    return LedgerText(
        records=tuple(records), chain=chain, links=bytes(links), fault=fault, torn=torn
    )


def repaired_lines(folder: Path, digest: str) -> list[tuple[str, str]]:
    """The ledger's lines with their hashes; an incomplete last line is removed from the file."""
    ledger = read_ledger(folder, digest)
    if ledger.fault is not None and not ledger.torn:
        raise InputError.one(
            "ledger", f"must be as it was written; {ledger.fault}", str(folder)
        )
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


def _compact(record: ReleaseRecord, known: dict[Any, Any]) -> ReleaseRecord:
    """The same release, in which group names and client numbers are the objects in ``known``."""
    for value in (record, record.residual, *record.shares):
        if value is not None:
            fields = value.__pydantic_fields_set__  # copied by whatever changes it
            shared = known.setdefault(frozenset(fields), fields)
            object.__setattr__(value, "__pydantic_fields_set__", shared)
    for share in record.shares:
        share.__dict__["group"] = known.setdefault(share.group, share.group)
        if share.participants is not None:
            numbers = map(known.setdefault, share.participants, share.participants)
            share.__dict__["participants"] = tuple(numbers)
    return record


def history_of(
    records: Iterable[ReleaseRecord],
    group: str,
    planned: Iterable[tuple[int, Release]] = (),
) -> History:
    """What a client of ``group`` may have taken part in, as an accounting history.

    With ``planned`` rounds and their releases, as if they had happened, too.

    A release that protects clients counts for every client of the group whom its law could draw,
    whoever was drawn: the sampling law accounts for that. A release that protects the records of
    one client counts for that client alone; each kind of it counts here as often as it did where
    it happened most often, so the history covers every client of the group.
    """
    rounds: dict[Release, list[int]] = {}
    for round_, release in planned:
        rounds.setdefault(release, []).append(round_)
    alone: dict[tuple[int, ...] | None, Counter[Release]] = {}
    for record in records:
        for share in record.shares:
            if share.group != group:
                continue
            release = record.release_for(share)
            if record.unit == "record":
                alone.setdefault(share.participants, Counter())[release] += record.steps
            else:
                rounds.setdefault(release, []).extend([record.round] * record.steps)
    total = alone.pop(None, Counter())
    for release, found in rounds.items():
        total[release] += release.sampling.law.most_of_client(found)
    most: Counter[Release] = Counter()
    for tally in alone.values():
        most |= tally
    return History((total + most).items())


def worst_client(
    records: Iterable[ReleaseRecord],
    group: str,
    clients: int,
    *,
    complete: bool = False,
) -> tuple[int | None, History]:
    """The client of the group with the largest signal, and its history.

    Where releases protect clients, all whom the law can draw in the same rounds have the same
    history. Where each protects the records of one client, clients are ranked by the sum of
    (ratio / noise multiplier)^2 over their own releases; the epsilon of the first one is a lower
    bound on the epsilon of the group's worst-off client.
    """
    own: dict[int, Counter[Release]] = {}
    parts: dict[
        Sequence[int], dict[Release, list[int]]
    ] = {}  # rounds of those who can be drawn
    records = tuple(records)
    last = max((record.round for record in records), default=0)
    for record in records:
        for share in record.shares:
            if share.group != group:
                continue
            law, release = share.sampling.law, record.release_for(share)
            if complete and law.complete_at(record.round) > last:
                continue
            if record.unit == "record" and share.participants is not None:
                for client in share.participants:
                    own.setdefault(client, Counter())[release] += record.steps
                continue
            part = parts.setdefault(law.places(record.round, clients), {})
            part.setdefault(release, []).extend([record.round] * record.steps)
    shared = Counter[Release]()
    for client in {
        places[0] for places in parts if places
    }:  # alike for all of those places
        rounds: dict[Release, list[int]] = {}
        for found in (found for places, found in parts.items() if client in places):
            for release, of_release in found.items():
                rounds.setdefault(release, []).extend(of_release)
        most = {one: one.sampling.law.most_of_client(rounds[one]) for one in rounds}
        everybody = all(len(places) == clients for places in parts)
        (shared if everybody else own.setdefault(client, Counter())).update(most)
    if not own:
        return None, History(shared.items())
    worst = max(own, key=lambda client: (_signal(own[client]), -client))
    return worst, History((shared + own[worst]).items())


def _signal(releases: Counter[Release]) -> float:
    return sum(
        count * (release.sampling_ratio / release.noise_multiplier) ** 2
        if release.noise_multiplier > 0
        else float("inf")
        for release, count in releases.items()
    )


# --- What testifies to a run while it happens: the hook of the training loop and of the guard. ---
# A witness learns of each cohort before it is used and of each release before it leaves, and writes
# down what a third party can check later. The core has none; an optional part passes one in.


class Witness(Protocol):
    """Testifies to one run; after an interruption calls are repeated with equal arguments."""

    @property
    def lines(self) -> int:
        """Number of ledger lines that it has testified to."""

    def cohort(
        self, round_: int, cohort: Mapping[str, Sequence[int]], model: str = ""
    ) -> object:
        """Called before a round's participants are used."""

    def release(
        self,
        round_: int,
        releases: Sequence[str],
        ledger: str,
        *,
        reveal_cohort: bool = True,
    ) -> None:
        """Called after the ledger's new lines were written, before their releases are used."""

    def end(self, ledger: str) -> None:
        """Called after the last round, with the hash of the ledger's last line."""


class Witnessing(Protocol):
    """Opens the witness of a run."""

    def check(self, plan: Plan) -> None:
        """Refuse a plan, before anything is written."""

    def open(
        self,
        folder: Path,
        plan: Plan,
        ledger: Sequence[str],
        noise_commitment: str = "",
    ) -> Witness:
        """The witness of the run in a folder, new or continued."""
