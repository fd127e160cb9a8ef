"""The check of the signed statements about a run (``attestation.jsonl``).

It is required where the plan names signers. Signatures are verified with the keys in
the plan; a reader who wants to know whose keys these are compares them with keys got by
other means.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

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
# A run may have thousands of clients that sign.
_SHOWN_PARTIES = 10


def _signed(run: Run) -> bool:
    """Whether the plan names signers, or the run folder has signed statements."""
    written = run.folder is not None and (run.folder / ATTESTATION).exists()
    return written or bool(run.plan.spec.signers)


def attestation(run: Run) -> Check:
    """Every ledger line was signed, in order, by a party that may state it."""
    required = bool(run.plan.spec.signers)
    attested = _attestation(run)
    if attested is None:
        return not_shown(
            NAME, [f"signed statements ({ATTESTATION})"], required=required
        )
    if not required:
        return not_shown(NAME, ["the signers' public keys in the plan"], required=False)
    try:
        established = _established(run, attested)
    except UnsupportedError as error:
        return not_shown(NAME, [str(error)])
    if isinstance(established, str):
        return failed(NAME, established)
    missing = tuple(_missing(run, attested, established))
    if missing:
        return not_shown(NAME, missing)
    parties = _parties(run, attested)
    return passed(NAME, f"{parties}; all {established.lines} lines signed", "attested")


def _attestation(run: Run) -> Attestation | None:
    """The signed statements of a run; None without any."""
    if run.folder is None:
        return None
    return read_attestation(run.folder)


def anchored(run: Run) -> Check:
    """Heads in external logs are those of the statements; the reader gives the logs.

    A run without a receipt of a log that the reader gives lacks required evidence: its
    statements may have been signed anew.
    """
    name = "anchors"
    # The head after each number of statements.
    heads = [run.plan.digest]
    attested = _attestation(run)
    for signed in () if attested is None else attested.statements:
        heads.append(signed.head(heads[-1]))

    trusted_logs = {log.kind: log for log in _logs(run)}
    missing: list[str] = []
    anchors = _anchors(run)
    for anchor in anchors:
        count = anchor.statements
        if count >= len(heads) or heads[count] != anchor.head:
            return failed(name, f"{count} statements are not those anchored")
        log = trusted_logs.get(anchor.log)
        if log is None:
            missing.append(_GIVE[anchor.log])
            continue
        problem = log.problem(anchor.head, anchor.receipt)
        if problem is not None:
            return failed(name, f"head after {count} statements: {problem}")
    if trusted_logs.keys() - {anchor.log for anchor in anchors}:
        return not_shown(name, [f"a head in the given log ({ANCHORS})"])
    if missing:
        return not_shown(name, dict.fromkeys(missing), required=False)
    last = anchors[-1].statements
    total = len(heads) - 1
    if run.record.status == "complete" and last < total:
        later = f"an anchored head after the last of {total} statements, not {last}"
        return not_shown(name, [later], required=False)
    return passed(name, f"{len(anchors)} heads, the last after {last} statements")


# What a reader must give so that a receipt of a log can be checked.
_GIVE = {
    "local": "the log of anchors (--anchor-log)",
    "rfc3161": "the certificate of the time-stamping authority (--tsa-certificate)",
}


def _anchors(run: Run) -> list[Anchor]:
    if run.folder is None:
        return []
    return read_anchors(run.folder)


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
class _Established:
    """What the statements so far have established.

    Attributes:
        heads: hash of each line.
        cohorts: the cohort statement of each round, with the hash of its line.
        lines: ledger lines that are signed.
        ended: whether the end is stated.
        closed: for each round with participants in the ledger, whether its commitment
            stays shut.
    """

    heads: list[str]
    cohorts: dict[int, tuple[Statement, str]] = field(default_factory=dict)
    lines: int = 0
    ended: bool = False
    closed: list[bool] = field(default_factory=list)


def _established(run: Run, attested: Attestation) -> _Established | str:
    """What the statements establish, or the first fault."""
    if attested.fault is not None and not attested.torn:
        return attested.fault
    established = _Established([run.plan.digest])
    for number, signed in enumerate(attested.statements, start=1):
        problem = next(_problems(run, established, signed), None)
        if problem is not None:
            return f"line {number}: {problem}"
        established.heads.append(signed.head(established.heads[-1]))
    return next(_of_releases(run, attested), established)


def _problems(run: Run, established: _Established, signed: Signed) -> Iterator[str]:
    """Faults of a statement; without any it adds to what is established."""
    statement = signed.statement
    signers = {signer.name: signer for signer in run.plan.spec.signers}
    signer = signers.get(statement.signer)
    if signer is None:
        yield f"signed by {statement.signer}, who is not in the plan"
        return
    if WRITERS[statement.kind] != signer.role:
        yield f"a {signer.role} cannot state {statement.kind}"
    if not signed_by(signer.key, statement.message(run.plan.digest), signed.signature):
        yield f"the signature is not that of {statement.signer}"
    where: str = statement.kind
    if statement.round:
        where = f"{statement.kind} of round {statement.round}"

    # A client's statement follows that of its cohort, any other the line before it.
    expected = established.heads[-1]
    if statement.kind == "update":
        _, expected = established.cohorts.get(statement.round, (None, ""))
    if statement.previous != expected:
        yield (
            f"{where} does not follow the statement before it; lines were dropped or "
            "reordered"
        )
    is_first = len(established.heads) == 1
    if (statement.kind == "start") != is_first or established.ended:
        yield f"{where} is out of place"
    yield from _established_by(run, established, signed, where)


def _established_by(
    run: Run, established: _Established, signed: Signed, where: str
) -> Iterator[str]:
    """What a statement adds to the others, and faults that show only then."""
    statement = signed.statement
    match statement.kind:
        case "start":
            # Who chose the key later could choose cohorts and noise by it.
            recorded = run.record.configuration.get("noise_commitment", "")
            if statement.commitment != recorded:
                yield "the start commits to another key than the run's"
        case "cohort":
            last_round = max(established.cohorts, default=0)
            if statement.round <= last_round:
                yield f"{where} comes after that of round {last_round}"
            head = signed.head(established.heads[-1])
            established.cohorts[statement.round] = (statement, head)
        case "release":
            yield from _new_lines(run, established, statement)
        case "end":
            link = _link(run, established.lines)
            if statement.lines != established.lines or statement.ledger != link:
                yield "the end is not that of the signed lines"
            established.ended = True


def _link(run: Run, lines: int) -> str:
    """The hash of the last of so many ledger lines."""
    if lines:
        return run.ledger.link(lines)
    return run.plan.digest


def _new_lines(
    run: Run, established: _Established, statement: Statement
) -> Iterator[str]:
    """Faults of a statement about ledger lines."""
    first = established.lines
    last = statement.lines
    total = len(run.ledger.records)
    releases = len(statement.releases)
    if last != first + releases or last == first:
        yield f"{last} lines after {first} are not its {releases} releases"
    if last > total:
        yield f"{last} ledger lines are signed, {total} are there"
        return
    if statement.ledger != _link(run, last):
        yield f"ledger line {last} is not the one that was signed"
    lines = run.ledger.records[first:last]
    if any(line.round != statement.round for line in lines):
        yield f"ledger lines {first + 1} to {last} are not of round {statement.round}"
    if statement.round not in established.cohorts:
        yield (
            f"the cohort of round {statement.round} was not committed before its "
            "release"
        )
        return

    # The participants in the ledger are those that were committed.
    cohort = defaultdict[str, list[int]](list)
    names_participants = True
    for share in chain.from_iterable(line.shares for line in lines):
        if share.participants is None:
            names_participants = False
        cohort[share.group].extend(share.participants or ())
    committed, _ = established.cohorts[statement.round]
    if statement.opening:
        try:
            salt = bytes.fromhex(statement.opening)
        except ValueError:
            salt = b""
        if cohort_commitment(salt, statement.round, cohort) != committed.commitment:
            yield f"the participants of round {statement.round} are not those committed"
    if names_participants:
        established.closed.append(not statement.opening)
    established.lines = last


def _of_releases(run: Run, attested: Attestation) -> Iterator[str]:
    """Faults of the committed releases, where the run stores their hashes."""
    evidence = None
    if run.folder is not None:
        # Another check says what is wrong with them.
        with suppress(InputError):
            evidence = read_evidence(run.folder, run.plan.digest)
    stored = {} if evidence is None else evidence.rounds
    signed_digests = defaultdict[int, list[str]](list)
    for signed in attested.statements:
        statement = signed.statement
        if statement.kind == "release":
            signed_digests[statement.round].extend(statement.releases)
    for round_, digests in signed_digests.items():
        if round_ in stored and list(stored[round_].releases) != digests:
            yield f"the releases of round {round_} are not those committed"


def _missing(
    run: Run, attested: Attestation, established: _Established
) -> Iterator[str]:
    """Evidence that the statements lack."""
    total = len(run.ledger.records)
    if attested.torn:
        yield "the rest of a last line that was cut off"
    if established.lines < total:
        yield f"signatures of ledger lines {established.lines + 1} to {total}"
    if total == 0:
        yield "signed releases"
    if run.record.status == "complete" and not established.ended:
        yield "the signed end of the run"
    yield from lacking("openings of committed cohorts", established.closed)


def _parties(run: Run, attested: Attestation) -> str:
    """How many statements of each kind each party signed."""
    counts = Counter(
        (signed.statement.signer, signed.statement.kind)
        for signed in attested.statements
    )
    by_party: dict[str, list[str]] = {}
    for (party, kind), count in counts.items():
        by_party.setdefault(party, []).append(f"{count} {kind}")
    roles = {signer.name: signer.role for signer in run.plan.spec.signers}
    lines = [
        f"{name} ({roles[name]}) signed {', '.join(counted)}"
        for name, counted in by_party.items()
    ]
    if len(lines) > _SHOWN_PARTIES:
        hidden = len(lines) - _SHOWN_PARTIES
        lines = [*lines[:_SHOWN_PARTIES], f"and {hidden} more parties"]
    return "; ".join(lines)
