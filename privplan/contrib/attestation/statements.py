"""Statements of the parties of a run, one signed line each (``attestation.jsonl``).

A signature covers the plan's digest and the body. The body of a server's statement
names the hash of the line before it, so that lines cannot be reordered, inserted or
dropped; that of a client's statement names the hash of the cohort statement of its
round. The hash of a line covers the body, the signature and the hash of the line
before; the first builds on the plan's digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from privplan.errors import InputError
from privplan.files import load_json, read_lines
from privplan.values import Name, Natural, Value, is_empty, parse

ATTESTATION = "attestation.jsonl"
Kind = Literal["start", "cohort", "update", "release", "end"]
WRITERS = {
    "start": "server",
    "cohort": "server",
    "update": "client",
    "release": "server",
    "end": "server",
}
"""Role of the party that may write a statement of a kind."""


def _is_zero(value: int) -> bool:
    return value == 0


class Statement(Value):
    """What a party states.

    Attributes:
        kind: ``start`` before the first round; ``cohort`` before a round's cohort is
            used; ``update`` for what a client sends; ``release`` after the ledger's
            lines were written and before the releases are used; ``end`` after the last
            round.
        signer: name of the party in the plan.
        previous: hash of an earlier line; see the module.
        round: training round, from 1; 0 for start and end.
        commitment: of start, to the key of the noise (empty for noise from a recorded
            seed); of cohort, to the participants; of update, the digest of what the
            client sends.
        model: digest of the model that the cohort receives.
        releases: digest of each released vector, in the order of the new ledger lines.
        lines: number of ledger lines so far; of release and end.
        ledger: hash of the last of these ledger lines.
        opening: the salt that opens the round's commitment to its participants; empty
            where they are kept secret.
    """

    kind: Kind
    signer: Name
    previous: str
    round: Natural = Field(0, exclude_if=_is_zero)
    commitment: str = Field("", exclude_if=is_empty)
    model: str = Field("", exclude_if=is_empty)
    releases: tuple[str, ...] = Field((), exclude_if=lambda digests: not digests)
    lines: Natural = Field(0, exclude_if=_is_zero)
    ledger: str = Field("", exclude_if=is_empty)
    opening: str = Field("", exclude_if=is_empty)

    def message(self, plan_digest: str) -> bytes:
        """The bytes that its signer signs."""
        return f"privplan statement v1\n{plan_digest}\n{self.body}".encode()

    @property
    def body(self) -> str:
        """The statement as canonical JSON."""
        return json.dumps(
            self.model_dump(mode="json"), separators=(",", ":"), sort_keys=True
        )


class Signed(Value):
    """A statement with its signature, 128 hexadecimal digits."""

    statement: Statement
    signature: str

    @property
    def line(self) -> str:
        """The line of the file."""
        return f'{{"statement":{self.statement.body},"signature":"{self.signature}"}}\n'

    def head(self, before: str) -> str:
        """The hash of the line and of all lines before it."""
        text = f"{before}\n{self.statement.body}\n{self.signature}"
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def parse_line(cls, line: str) -> Signed:
        """A statement from its line."""
        try:
            signed = parse(cls, load_json(line))
        except ValueError:
            signed = None
        if signed is None or signed.line != line:
            raise InputError.one(
                "attestation", "must be a line with a signed statement", line
            )
        return signed


class Attestation(Value):
    """The statements as read.

    Attributes:
        statements: those up to the first line that is none.
        fault: what is wrong with that line; None when all are sound.
        torn: whether the fault is a last line that was cut off while it was written.
    """

    statements: tuple[Signed, ...]
    fault: str | None = None
    torn: bool = False


def read_attestation(folder: Path) -> Attestation | None:
    """The statements of a run folder; None without the file.

    Their signatures are not verified.
    """
    path = folder / ATTESTATION
    if not path.exists():
        return None
    statements: list[Signed] = []
    for number, line in enumerate(read_lines(path, "attestation"), start=1):
        if not line.endswith("\n"):
            fault = f"line {number} is torn"
            return Attestation(statements=tuple(statements), fault=fault, torn=True)
        try:
            statements.append(Signed.parse_line(line))
        except InputError:
            fault = f"line {number} is not a signed statement"
            return Attestation(statements=tuple(statements), fault=fault)
    return Attestation(statements=tuple(statements))


def cohort_commitment(
    salt: bytes, round_: int, cohort: Mapping[str, Sequence[int]]
) -> str:
    """The commitment to a round's participants.

    SHA-256 of a secret salt, the round and the participants by group.
    """
    groups = {
        name: sorted(map(int, participants))
        for name, participants in cohort.items()
        if len(participants)
    }
    data = {"round": round_, "groups": groups}
    text = json.dumps(data, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(b"privplan cohort v1\n" + salt + text.encode()).hexdigest()
