"""The check of the signed statements about a run (``attestation.jsonl``).

It is required where the plan names signers. Signatures are verified with the keys in the plan; a
reader who wants to know whose keys these are compares them with keys got by other means.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from privplan.contrib.attestation.anchors import (
    ANCHORS,
    Anchor,
    LocalLog,
    TimeStamps,
    read_anchors,
)
from privplan.contrib.attestation.keys import signed_by
from privplan.contrib.attestation.statements import (
    ATTESTATION,
    WRITERS,
    Attestation,
    Signed,
    Statement,
    cohort_commitment,
    read_attestation,
)
from privplan.errors import InputError, UnsupportedError
from privplan.evidence.rounds import read_evidence
from privplan.verification.checks.check import (
    Check,
    RunCheck,
    failed,
    lacking,
    not_shown,
    passed,
)
from privplan.verification.run import Run

NAME = "attestation"


def _signed(run: Run) -> bool:
    """Whether the plan names signers, or the run folder has signed statements."""
    written = run.folder is not None and (run.folder / ATTESTATION).exists()
    return written or bool(run.plan.spec.signers)


def attestation(run: Run) -> Check:
    """Every ledger line was signed, in order, by a party of the plan that may state it."""
    required = bool(run.plan.spec.signers)
    found = None if run.folder is None else read_attestation(run.folder)
    if found is None:
        return not_shown(
            NAME, [f"signed statements ({ATTESTATION})"], required=required
        )
    if not required:
        return not_shown(NAME, ["the signers' public keys in the plan"], required=False)
    try:
        reading = _read(run, found)
    except UnsupportedError as error:
        return not_shown(NAME, [str(error)])
    if isinstance(reading, str):
        return failed(NAME, reading)
    missing = tuple(_missing(run, found, reading))
    if missing:
        return not_shown(NAME, missing)
    return passed(
        NAME, f"{_parties(run, found)}; all {reading.lines} lines signed", "attested"
    )


def anchored(run: Run) -> Check:
    """Heads in external logs are those of the statements; the reader gives the logs.

    A run without a receipt of a log that the reader gives lacks required evidence: its statements
    may have been signed anew.
    """
    name, heads = "anchors", [run.plan.digest]
    found = None if run.folder is None else read_attestation(run.folder)
    for signed in () if found is None else found.statements:
        heads.append(signed.head(heads[-1]))
    known, missing = {log.kind: log for log in _logs(run)}, list[str]()
    made = _anchors(run)
    for one in made:
        if one.statements >= len(heads) or heads[one.statements] != one.head:
            return failed(name, f"{one.statements} statements are not those anchored")
        log = known.get(one.log)
        problem = None if log is None else log.problem(one.head, one.receipt)
        if problem is not None:
            return failed(name, f"head after {one.statements} statements: {problem}")
        if log is None:
            missing.append(_GIVE[one.log])
    if known.keys() - {one.log for one in made}:
        return not_shown(name, [f"a head in the given log ({ANCHORS})"])
    if missing:
        return not_shown(name, dict.fromkeys(missing), required=False)
    return passed(
        name, f"{len(made)} heads, the last after {made[-1].statements} statements"
    )


_GIVE = {
    "local": "the log of anchors (--anchor-log)",
    "rfc3161": "the certificate of the time-stamping authority (--tsa-certificate)",
}


def _anchors(run: Run) -> list[Anchor]:
    return [] if run.folder is None else read_anchors(run.folder)


def _logs(run: Run) -> list[LocalLog | TimeStamps]:
    return [log for log in run.trusted if isinstance(log, LocalLog | TimeStamps)]


SIGNED = RunCheck(
    attestation,
    order=170,
    applies=_signed,
    of_signers=True,
    files=frozenset({ATTESTATION}),
)
ANCHORED = RunCheck(
    anchored,
    order=171,
    applies=lambda run: bool(_logs(run) or _anchors(run)),
    files=frozenset({ANCHORS}),
)


@dataclass
class _Reading:
    """What the statements so far have established."""

    heads: list[str]  # hash of each line
    # the cohort statement of each round, with the hash of its line
    cohorts: dict[int, tuple[Statement, str]] = field(default_factory=dict)
    lines: int = 0  # ledger lines that are signed
    ended: bool = False  # whether the end is stated
    # for each round with participants in the ledger, whether its commitment stays shut
    closed: list[bool] = field(default_factory=list)


def _read(run: Run, found: Attestation) -> _Reading | str:
    """What the statements establish, or the first fault."""
    if found.fault is not None and not found.torn:
        return found.fault
    reading = _Reading([run.plan.digest])
    for number, signed in enumerate(found.statements, start=1):
        problem = next(_problems(run, reading, signed), None)
        if problem is not None:
            return f"line {number}: {problem}"
        reading.heads.append(signed.head(reading.heads[-1]))
    return next(_of_releases(run, found), reading)


def _problems(run: Run, reading: _Reading, signed: Signed) -> Iterator[str]:
    """Faults of a statement; the reading takes it in when there is none."""
    statement = signed.statement
    signers = {one.name: one for one in run.plan.spec.signers}
    signer = signers.get(statement.signer)
    if signer is None:
        yield f"signed by {statement.signer}, who is not in the plan"
        return
    if WRITERS[statement.kind] != signer.role:
        yield f"a {signer.role} cannot state {statement.kind}"
    if not signed_by(signer.key, statement.message(run.plan.digest), signed.signature):
        yield f"the signature is not that of {statement.signer}"
    where = (
        f"{statement.kind} of round {statement.round}"
        if statement.round
        else statement.kind
    )
    _, before = reading.cohorts.get(statement.round, (None, ""))
    expected = before if statement.kind == "update" else reading.heads[-1]
    if statement.previous != expected:
        yield f"{where} does not follow the statement before it; lines were dropped or reordered"
    if (statement.kind == "start") != (len(reading.heads) == 1) or reading.ended:
        yield f"{where} is out of place"
    match statement.kind:
        case "cohort":
            if statement.round <= max(reading.cohorts, default=0):
                yield f"{where} comes after that of round {max(reading.cohorts)}"
            reading.cohorts[statement.round] = statement, signed.head(reading.heads[-1])
        case "release":
            yield from _new_lines(run, reading, statement)
        case "end":
            if (statement.lines, statement.ledger) != (
                reading.lines,
                _link(run, reading.lines),
            ):
                yield "the end is not that of the signed lines"
            reading.ended = True


def _link(run: Run, lines: int) -> str:
    return run.ledger.link(lines) if lines else run.plan.digest


def _new_lines(run: Run, reading: _Reading, statement: Statement) -> Iterator[str]:
    """Faults of a statement about ledger lines."""
    first, last, total = reading.lines, statement.lines, len(run.ledger.records)
    if last != first + len(statement.releases) or last == first:
        yield f"{last} lines after {first} are not its {len(statement.releases)} releases"
    if last > total:
        yield f"{last} ledger lines are signed, {total} are there"
        return
    if statement.ledger != _link(run, last):
        yield f"ledger line {last} is not the one that was signed"
    lines = run.ledger.records[first:last]
    if any(line.round != statement.round for line in lines):
        yield f"ledger lines {first + 1} to {last} are not of round {statement.round}"
    if statement.round not in reading.cohorts:
        yield f"the cohort of round {statement.round} was not committed before its release"
        return
    cohort, named = defaultdict[str, list[int]](list), True
    for share in (share for line in lines for share in line.shares):
        named = named and share.participants is not None
        cohort[share.group].extend(share.participants or ())
    committed, _ = reading.cohorts[statement.round]
    if statement.opening:
        try:
            salt = bytes.fromhex(statement.opening)
        except ValueError:
            salt = b""
        if cohort_commitment(salt, statement.round, cohort) != committed.commitment:
            yield f"the participants of round {statement.round} are not those committed"
    if named:
        reading.closed.append(not statement.opening)
    reading.lines = last


def _of_releases(run: Run, found: Attestation) -> Iterator[str]:
    """Faults of the committed releases, where the run stores their hashes for a replay."""
    try:
        evidence = (
            None if run.folder is None else read_evidence(run.folder, run.plan.digest)
        )
    except InputError:
        evidence = None
    stored = {} if evidence is None else evidence.rounds
    signed = defaultdict[int, list[str]](list)
    for one in found.statements:
        if one.statement.kind == "release":
            signed[one.statement.round].extend(one.statement.releases)
    for round_, digests in signed.items():
        if round_ in stored and list(stored[round_].releases) != digests:
            yield f"the releases of round {round_} are not those committed"


def _missing(run: Run, found: Attestation, reading: _Reading) -> Iterator[str]:
    """Evidence that the statements lack."""
    total = len(run.ledger.records)
    if found.torn:
        yield "the rest of a last line that was cut off"
    if reading.lines < total:
        yield f"signatures of ledger lines {reading.lines + 1} to {total}"
    if total == 0:
        yield "signed releases"
    if run.record.status == "complete" and not reading.ended:
        yield "the signed end of the run"
    yield from lacking("openings of committed cohorts", reading.closed)


def _parties(run: Run, found: Attestation) -> str:
    """How many statements of each kind each party signed."""
    counts = Counter(
        (one.statement.signer, one.statement.kind) for one in found.statements
    )
    by_party: dict[str, list[str]] = {}
    for (party, kind), count in counts.items():
        by_party.setdefault(party, []).append(f"{count} {kind}")
    roles = {one.name: one.role for one in run.plan.spec.signers}
    shown = [
        f"{name} ({roles[name]}) signed {', '.join(what)}"
        for name, what in by_party.items()
    ]
    more = len(shown) - 10
    return "; ".join(shown[:10]) + (f"; and {more} more parties" if more > 0 else "")
