"""The writer of a run's statements, which the server owns, and clients' statements."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from privplan.contrib.attestation.keys import SigningKey, signed_by
from privplan.contrib.attestation.statements import (
    ATTESTATION,
    WRITERS,
    Kind,
    Signed,
    Statement,
    cohort_commitment,
    read_attestation,
)
from privplan.errors import InputError
from privplan.files import append_bytes
from privplan.plan import Plan


def signer_of(plan: Plan, key: SigningKey, role: str) -> str:
    """Name of the party of the plan that has a key."""
    for signer in plan.spec.signers:
        if signer.key == key.public and signer.role == role:
            return signer.name
    rule = f"must be the key of a {role} in the plan's signers"
    raise InputError.one("signing-key", rule, key.public)


def client_statement(
    plan: Plan, key: SigningKey, round_: int, previous: str, content: bytes
) -> str:
    """The line with which a client signs what it sends."""
    statement = Statement(
        kind="update",
        signer=signer_of(plan, key, "client"),
        previous=previous,
        round=round_,
        commitment=hashlib.sha256(content).hexdigest(),
    )
    return Signed(
        statement=statement, signature=key.sign(statement.message(plan.digest))
    ).line


class Attestor:
    """Appends signed statements to ``attestation.jsonl``, synchronised to disk.

    A server calls ``start`` once, then in each round ``cohort`` before the model is
    sent, ``add`` for each statement of a client, and ``release`` after the ledger's
    lines were written and before a release is used; finally ``end``. After an
    interruption the calls since the last checkpoint are repeated with equal arguments;
    a repeated statement is compared, not written.

    Args:
        folder: the run folder.
        plan: the plan, whose signers include the server.
        key: the server's secret key.
        ledger: hash of the last ledger line before the calls that follow; the plan's
            digest at the start of a run.

    Raises:
        InputError: when the key is not that of a server in the plan, or the file is
            damaged or lacks statements about the ledger's lines.
    """

    def __init__(
        self, folder: Path, plan: Plan, key: SigningKey, ledger: str = ""
    ) -> None:
        self._path = folder / ATTESTATION
        self._plan = plan
        self._key = key
        self._salt = b""
        self.signer = signer_of(plan, key, "server")
        self.head = plan.digest
        self.lines = 0
        self._replayed: deque[Signed] = deque()
        earlier = read_attestation(folder)
        if earlier is None:
            if ledger not in ("", plan.digest):
                self._refuse("must state every line of the ledger, to be continued")
            return
        if earlier.fault is not None and not earlier.torn:
            self._refuse(f"must be as it was written; {earlier.fault}")

        # Of a line that was cut off while it was written nothing was used.
        if earlier.torn:
            size = sum(len(signed.line.encode()) for signed in earlier.statements)
            with open(self._path, "r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())
        self._continue(earlier.statements, ledger or plan.digest)

    def _continue(self, statements: Sequence[Signed], ledger: str) -> None:
        """Take the statements up to that on a ledger line as done.

        The statements after it are repeated.
        """
        is_reached = ledger == self._plan.digest
        repeated = deque(statements)
        while repeated and not is_reached:
            signed = repeated.popleft()
            self.head = signed.head(self.head)
            if signed.statement.kind == "release":
                self.lines = signed.statement.lines
                is_reached = signed.statement.ledger == ledger
        if not is_reached:
            self._refuse("must state every line of the ledger, to be continued")
        self._replayed = repeated

    def _refuse(self, rule: str) -> None:
        raise InputError.one(
            "attestation", f"{rule}; use another folder", str(self._path)
        )

    @property
    def started(self) -> bool:
        """Whether the statement of the start precedes the calls that follow."""
        return self.head != self._plan.digest

    def start(self, noise_commitment: str = "") -> None:
        """State the start of the run; does nothing when the run is continued."""
        if not self.started:
            self._sign("start", commitment=noise_commitment)

    def cohort(
        self, round_: int, cohort: Mapping[str, Sequence[int]], model: str = ""
    ) -> str:
        """Commit to a round's participants, before they are used."""
        self._salt = self._key.secret(f"{self._plan.digest}\n{self.head}\n{round_}")
        commitment = cohort_commitment(self._salt, round_, cohort)
        self._sign("cohort", round=round_, commitment=commitment, model=model)
        return self.head

    def add(self, line: str) -> None:
        """Append the statement of a client."""
        signed = Signed.parse_line(line)
        statement = signed.statement
        signers = self._plan.spec.signers
        client_keys = {
            signer.name: signer.key for signer in signers if signer.role == "client"
        }
        message = statement.message(self._plan.digest)
        is_valid = WRITERS[statement.kind] == "client"
        is_valid = is_valid and statement.signer in client_keys
        if is_valid:
            key = client_keys[statement.signer]
            is_valid = signed_by(key, message, signed.signature)
        if not is_valid:
            rule = "must be signed by a client in the plan's signers"
            raise InputError.one("attestation", rule, line)
        self._append(signed)

    def release(
        self,
        round_: int,
        releases: Sequence[str],
        ledger: str,
        *,
        reveal_cohort: bool = True,
    ) -> None:
        """State new ledger lines and their releases, before the releases are used."""
        self.lines += len(releases)
        self._sign(
            "release",
            round=round_,
            releases=tuple(releases),
            lines=self.lines,
            ledger=ledger,
            opening=self._salt.hex() if reveal_cohort else "",
        )

    def end(self, ledger: str) -> None:
        """State the end of the run."""
        self._sign("end", lines=self.lines, ledger=ledger)

    def _sign(self, kind: Kind, **fields: object) -> None:
        values = {"kind": kind, "signer": self.signer, "previous": self.head, **fields}
        statement = Statement.model_validate(values)
        signature = self._key.sign(statement.message(self._plan.digest))
        self._append(Signed(statement=statement, signature=signature))

    def _append(self, signed: Signed) -> None:
        """Write a statement, or compare a repeated one with the line in the file."""
        if self._replayed:
            if self._replayed.popleft() != signed:
                self._refuse(
                    "must be repeated as it was signed (another key or machine?)"
                )
        else:
            append_bytes(self._path, signed.line.encode(), "attestation", sync=True)
        self.head = signed.head(self.head)


class Signing:
    """Signs runs with a server's key; a witness for the training loop and the guard.

    Args:
        key: the secret key, or its file.
    """

    def __init__(self, key: SigningKey | Path | str) -> None:
        self._key = key

    def _loaded(self) -> SigningKey:
        if isinstance(self._key, SigningKey):
            return self._key
        return SigningKey.load(self._key)

    def check(self, plan: Plan) -> None:
        """Refuse a plan whose signers do not include the server."""
        signer_of(plan, self._loaded(), "server")

    def open(
        self,
        folder: Path,
        plan: Plan,
        ledger: Sequence[str],
        noise_commitment: str = "",
    ) -> Attestor:
        """The attestor of a run, after the last of its ledger lines that was signed."""
        key = self._loaded()
        signed_lines = {""}
        earlier = read_attestation(folder)
        if earlier is not None:
            signed_lines = {signed.statement.ledger for signed in earlier.statements}
        last = ledger[0]
        for line in reversed(ledger):
            if line in signed_lines:
                last = line
                break
        attestor = Attestor(folder, plan, key, last)
        attestor.start(noise_commitment)
        return attestor
