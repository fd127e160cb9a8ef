"""The ledger of a run: one release per line, read, written and turned into a history.

Each line has a hash that chains it to the line before it, starting from the digest of
the plan, so an edit can be located. ``evidence.jsonl`` has lines of the same form.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from privplan.accounting.release import History, Release
from privplan.errors import InputError
from privplan.files import load_json, read_lines
from privplan.line_rules import line_fault
from privplan.record import LEDGER, GroupShare, ReleaseRecord
from privplan.values import Value, parse

# Bytes of one hash of the hash chain.
LINK = 32
Key = Literal["release", "evidence"]
T = TypeVar("T", bound=BaseModel)


def chained(value: BaseModel, previous: str, key: Key = "release") -> tuple[str, str]:
    """A line for a value, and the hash that the next line builds on."""
    data = value.model_dump(mode="json")
    body = json.dumps(data, separators=(",", ":"), allow_nan=False)
    chain = _next_link(previous, body)
    return f'{{"{key}":{body},"chain":"{chain}"}}\n', chain


def _next_link(previous: str, body: str) -> str:
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def parse_chained(
    line: str, previous: str, kind: type[T], key: Key = "release"
) -> tuple[T, str] | None:
    """The value of a line and its hash; None if ``chained`` makes another line of it.

    Args:
        line: with its line feed.
        previous: hash of the line before it.
        kind: class of the value.
        key: under which the line has it.
    """
    beginning = f'{{"{key}":'
    separator = ',"chain":"'
    # The hash has two letters a byte.
    ending_length = len(f'{separator}"}}\n') + 2 * LINK
    body = line[len(beginning) : -ending_length]
    chain = _next_link(previous, body)
    if line != f'{beginning}{body}{separator}{chain}"}}\n':
        return None
    value = kind.model_validate_json(body)
    # Usually the compiled writer gives the same text; it writes some numbers in another
    # form.
    is_same = value.model_dump_json() == body
    if not is_same:
        rewritten, _ = chained(value, previous, key)
        is_same = rewritten == line
    if is_same:
        return (value, chain)
    return None


class LedgerText(Value):
    """A ledger as read: its sound lines, and what is wrong with the following.

    Attributes:
        records: the releases of the lines that are sound and follow the chain.
        chain: hash of the last sound line.
        links: the hash of each sound line, ``LINK`` bytes per line.
        fault: one line on the first line that is not sound; None when all are.
        torn: whether the fault is a last line that was cut off while it was written.
    """

    records: tuple[ReleaseRecord, ...]
    chain: str
    links: bytes = b""
    fault: str | None = None
    torn: bool = False

    def link(self, lines: int) -> str:
        """The hash of the line of a number, from 1."""
        return self.links[(lines - 1) * LINK : lines * LINK].hex()


def read_ledger(folder: Path, plan_digest: str) -> LedgerText:
    """Read ``ledger.jsonl`` line by line, keeping every sound line before a fault.

    A line that no release can be (``line_fault``) is a fault, also where the chain
    holds. Equal values of different lines are one object: 100,000 releases need about a
    kilobyte each.
    """
    records: list[ReleaseRecord] = []
    links = bytearray()
    chain = plan_digest
    shared: dict[Any, Any] = {}
    fault: str | None = None
    torn = False
    for number, line in enumerate(read_lines(folder / LEDGER, "ledger"), start=1):
        parsed, fault = _parse_line(line, chain)
        if fault is not None:
            fault = f"line {number}{fault}"
        torn = not line.endswith("\n")
        if torn:
            fault = f"line {number} is torn"
        if fault is not None or parsed is None:
            break
        record, chain = parsed
        records.append(_compact(record, shared))
        links += bytes.fromhex(chain)
    return LedgerText(
        records=tuple(records), chain=chain, links=bytes(links), fault=fault, torn=torn
    )


def _parse_line(
    line: str, chain: str
) -> tuple[tuple[ReleaseRecord, str] | None, str | None]:
    """The release of a line and its hash, and what is wrong with the line."""
    try:
        parsed = parse_chained(line, chain, ReleaseRecord)
        if parsed is None:
            # A release whose hash is another one, or no release at all.
            parse(ReleaseRecord, load_json(line)["release"])
            return None, " does not follow from the lines before it"
        broken_rule = line_fault(parsed[0])
    except (ValueError, KeyError, TypeError, InputError):
        return None, " is not a release"
    if broken_rule is None:
        return parsed, None
    return parsed, f": {broken_rule}"


def repaired_lines(folder: Path, digest: str) -> list[tuple[str, str]]:
    """The ledger's lines with their hashes.

    An incomplete last line is removed from the file.

    Raises:
        InputError: when the ledger has another fault.
    """
    ledger = read_ledger(folder, digest)
    if ledger.fault is not None and not ledger.torn:
        rule = f"must be as it was written; {ledger.fault}"
        raise InputError.one("ledger", rule, str(folder))
    lines = []
    chain = digest
    for record in ledger.records:
        line, chain = chained(record, chain)
        lines.append((line, chain))
    if ledger.torn:
        size = sum(len(line.encode("utf-8")) for line, _ in lines)
        with open(folder / LEDGER, "r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())
    return lines


def _compact(record: ReleaseRecord, shared: dict[Any, Any]) -> ReleaseRecord:
    """The same release, in which group names and client numbers are shared objects.

    Args:
        record: as parsed; it is changed.
        shared: each object under itself; it grows.
    """
    for value in (record, record.residual, *record.shares):
        if value is not None:
            # Whatever changes the value copies its set of fields.
            fields = value.__pydantic_fields_set__
            same_fields = shared.setdefault(frozenset(fields), fields)
            object.__setattr__(value, "__pydantic_fields_set__", same_fields)
    for share in record.shares:
        share.__dict__["group"] = shared.setdefault(share.group, share.group)
        if share.participants is not None:
            numbers = map(shared.setdefault, share.participants, share.participants)
            share.__dict__["participants"] = tuple(numbers)
    return record


def history_of(
    records: Iterable[ReleaseRecord],
    group: str,
    planned: Iterable[tuple[int, Release]] = (),
) -> History:
    """What a client of ``group`` may have taken part in, as an accounting history.

    A release that protects clients counts for every client of the group whom its law
    could draw, whoever was drawn: the sampling law accounts for that. A release that
    protects the records of one client counts for that client alone; each kind of it
    counts here as often as it did where it happened most often, so the history covers
    every client of the group.

    Args:
        records: of the ledger.
        group: name of the group.
        planned: rounds and their releases, which count as if they had happened, too.
    """
    # Rounds by release, which may repeat.
    rounds_of: dict[Release, list[int]] = defaultdict(list)
    for round_, release in planned:
        rounds_of[release].append(round_)
    # Releases that protect records, by the client whose they are.
    alone: dict[tuple[int, ...] | None, Counter[Release]] = defaultdict(Counter)
    for record in records:
        for share in record.shares:
            if share.group != group:
                continue
            release = record.release_for(share)
            if record.unit == "record":
                alone[share.participants][release] += record.steps
            else:
                rounds_of[release].extend([record.round] * record.steps)

    # Where the client is not recorded, a release may be of any.
    total = alone.pop(None, Counter())
    for release, rounds in rounds_of.items():
        total[release] += release.sampling.law.most_of_client(rounds)
    largest: Counter[Release] = Counter()
    for counts in alone.values():
        largest |= counts
    return History((total + largest).items())


def worst_client(
    records: Iterable[ReleaseRecord],
    group: str,
    clients: int,
    *,
    complete: bool = False,
) -> tuple[int | None, History]:
    """The client of the group with the largest signal, and its history.

    Where releases protect clients, all whom the law can draw in the same rounds have
    the same history. Where each protects the records of one client, clients are ranked
    by the sum of (ratio / noise multiplier)^2 over their own releases; the epsilon of
    the first one is a lower bound on the epsilon of the group's worst-off client.

    Args:
        records: of the ledger.
        group: name of the group.
        clients: number of its clients.
        complete: whether only participations count of which all is released. Where a
            round failed, those that take several rounds do not: a client's choice may
            have been that round.

    Returns:
        The position of the client, None where all have the same history; and that.
    """
    of_client: dict[int, Counter[Release]] = defaultdict(Counter)
    # Rounds by release, by the positions of those who can be drawn in them.
    of_places: dict[Sequence[int], dict[Release, list[int]]] = {}
    for record, share in _counted(tuple(records), group, complete):
        release = record.release_for(share)
        if record.unit == "record" and share.participants is not None:
            for client in share.participants:
                of_client[client][release] += record.steps
            continue
        places = share.sampling.law.places(record.round, clients)
        rounds_of = of_places.setdefault(places, {})
        rounds_of.setdefault(release, []).extend([record.round] * record.steps)

    shared = Counter[Release]()
    everybody = all(len(places) == clients for places in of_places)
    # All of those places are alike: the first one stands for them.
    for client in {places[0] for places in of_places if places}:
        counts = _most_releases(of_places, client)
        if everybody:
            shared.update(counts)
        else:
            of_client[client].update(counts)
    if not of_client:
        return None, History(shared.items())
    worst = max(of_client, key=lambda client: (_signal(of_client[client]), -client))
    return worst, History((shared + of_client[worst]).items())


def _counted(
    records: Sequence[ReleaseRecord], group: str, complete: bool
) -> Iterator[tuple[ReleaseRecord, GroupShare]]:
    """The releases with the group's share, all of them or those that are complete."""
    last_round = max((record.round for record in records), default=0)
    has_failures = any(record.failure for record in records)
    for record in records:
        for share in record.shares:
            if share.group != group:
                continue
            law = share.sampling.law
            is_partial = law.complete_at(record.round) > last_round
            is_partial |= has_failures and law.complete_at(1) > 1
            if not (complete and is_partial):
                yield record, share


def _most_releases(
    of_places: dict[Sequence[int], dict[Release, list[int]]], client: int
) -> dict[Release, int]:
    """How often each release can have drawn a client.

    Args:
        of_places: rounds by release, by the positions of those who can be drawn.
        client: position of the client.
    """
    rounds_of: dict[Release, list[int]] = defaultdict(list)
    for places, releases in of_places.items():
        if client in places:
            for release, rounds in releases.items():
                rounds_of[release].extend(rounds)
    return {
        release: release.sampling.law.most_of_client(rounds)
        for release, rounds in rounds_of.items()
    }


def _signal(releases: Counter[Release]) -> float:
    """Sum of (ratio / noise multiplier)^2; infinite without noise."""
    signal = 0.0
    for release, count in releases.items():
        if release.noise_multiplier > 0:
            signal += count * (release.sampling_ratio / release.noise_multiplier) ** 2
        else:
            signal = math.inf
    return signal
