"""Anchors: the head of a run's statements in an external append-only log.

A head that a log outside the operator's control holds proves that the statements up to
it existed then; statements cannot be changed or dropped before it later. Two logs are
provided: a local file, for a disk or a machine of another party, and time-stamping
authorities (RFC 3161; extra ``attest``). A receipt is what a log returns;
``anchors.jsonl`` of the run folder keeps them.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

from privplan.contrib.attestation.statements import read_attestation
from privplan.errors import InputError, UnsupportedError
from privplan.files import append_bytes, load_json, read_lines
from privplan.plan import Plan
from privplan.values import Count, Value, parse

ANCHORS = "anchors.jsonl"
Kind = Literal["local", "rfc3161"]
MOST_RESPONSE = 1 << 20
"""Largest response of an authority in bytes."""
SECONDS = 30
"""Time that an authority has to answer."""


class AnchorLog(Protocol):
    """An external log of heads; ``kind`` is what anchors name."""

    kind: Kind

    def submit(self, head: str) -> str:
        """Append a head; returns the receipt."""

    def problem(self, head: str, receipt: str) -> str | None:
        """Why the log does not confirm a head; None when it does."""


class Anchor(Value):
    """A head in a log.

    Attributes:
        log: kind of the log.
        statements: number of statements up to the head.
        head: hash of the last of them.
        receipt: what the log returned.
    """

    log: Kind
    statements: Count
    head: str
    receipt: str


class LocalLog:
    """A file with one head per line, chained by hashes; lines are only appended.

    Args:
        path: the file.
    """

    kind: Kind = "local"

    def __init__(self, path: Path) -> None:
        self._path = path

    def submit(self, head: str) -> str:
        """Append a head; the receipt is the hash of its line."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                before = self._lines()
                chain = before[-1][1] if before else ""
                line, receipt = _log_line(head, int(time.time()), chain)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            rule = f"must be writable ({error.strerror})"
            raise InputError.one("log", rule, str(self._path)) from None
        return receipt

    def check(self) -> None:
        """Read the file."""
        if not self._lines():
            rule = "must be a log of anchors (privplan attest anchor --log), but it is empty"
            raise InputError.one("log", rule, str(self._path))

    def problem(self, head: str, receipt: str) -> str | None:
        """Why the file does not hold the head with this receipt."""
        if (head, receipt) in self._lines():
            return None
        return f"{self._path} does not hold it"

    def _lines(self) -> list[tuple[str, str]]:
        """Head and hash of each line."""
        entries: list[tuple[str, str]] = []
        chain = ""
        for number, line in enumerate(read_lines(self._path, "log"), start=1):
            try:
                entry = load_json(line)["entry"]
                expected, chain = _log_line(
                    str(entry["head"]), int(entry["time"]), chain
                )
            except (ValueError, KeyError, TypeError):
                expected = ""
            if line != expected:
                rule = f"must be an unbroken log, but line {number} is not"
                raise InputError.one("log", rule, str(self._path))
            entries.append((str(entry["head"]), chain))
        return entries


def _log_line(head: str, seconds: int, before: str) -> tuple[str, str]:
    """A line of a local log and its hash."""
    body = json.dumps({"head": head, "time": seconds}, separators=(",", ":"))
    chain = hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()
    return f'{{"entry":{body},"chain":"{chain}"}}\n', chain


class TimeStamps:
    """A time-stamping authority (RFC 3161), by the package ``rfc3161-client``.

    Args:
        post: function of a DER request that returns the DER response; None to verify
            only.
        certificates: PEM file with the root certificate that the reader trusts; None to
            request only.
    """

    kind: Kind = "rfc3161"

    def __init__(
        self,
        post: Callable[[bytes], bytes] | None = None,
        certificates: Path | None = None,
    ) -> None:
        self._post = post
        self._certificates = certificates

    def submit(self, head: str) -> str:
        """Have a head time-stamped; the receipt is the response in base 64."""
        client = _client()
        if self._post is None:
            raise InputError.one(
                "tsa", "must be the address of an authority", "nothing"
            )
        request = client.TimestampRequestBuilder().data(bytes.fromhex(head)).build()
        answer = self._post(request.as_bytes())
        try:
            response = client.decode_timestamp_response(answer)
            granted = response.status == 0 and response.tst_info.nonce == request.nonce
        except ValueError:
            granted = False
        if not granted:
            raise InputError.one("tsa", "must grant a time stamp", "another response")
        return base64.b64encode(answer).decode()

    def problem(self, head: str, receipt: str) -> str | None:
        """Why the receipt is no time stamp of the head by the trusted authority."""
        client = _client()
        from cryptography.x509 import load_pem_x509_certificates

        if self._certificates is None:
            return "no certificate of the authority is given"
        try:
            roots = load_pem_x509_certificates(self._certificates.read_bytes())
        except (OSError, ValueError):
            rule = "must be a PEM file with certificates"
            raise InputError.one(
                "tsa-certificate", rule, str(self._certificates)
            ) from None
        builder = client.VerifierBuilder()
        for root in roots:
            builder = builder.add_root_certificate(root)
        try:
            response = client.decode_timestamp_response(
                base64.b64decode(receipt, validate=True)
            )
            builder.build().verify_message(response, bytes.fromhex(head))
        except (client.VerificationError, ValueError, binascii.Error) as error:
            return f"not a time stamp of it ({' '.join(str(error).split())[:80]})"
        return None


def _client() -> Any:
    try:
        import rfc3161_client
    except ModuleNotFoundError:
        line = "needs the package rfc3161-client: pip install 'privplan[attest]'"
        raise UnsupportedError(f"time stamps: {line}") from None
    return rfc3161_client


def post_to(address: str) -> Callable[[bytes], bytes]:
    """A function that sends a DER request to an authority and returns its response."""
    if not address.startswith(("https://", "http://")):
        raise InputError.one(
            "tsa", "must be an address with https:// or http://", address
        )
    import urllib.request  # 15 ms, which few commands need

    def post(request: bytes) -> bytes:
        headers = {"Content-Type": "application/timestamp-query"}
        query = urllib.request.Request(address, request, headers)
        try:
            with urllib.request.urlopen(query, timeout=SECONDS) as answer:
                response: bytes = answer.read(MOST_RESPONSE)
        except (OSError, ValueError) as error:
            raise InputError.one("tsa", f"must respond ({error})", address) from None
        return response

    return post


def anchor(folder: Path, plan: Plan, log: AnchorLog) -> Anchor:
    """Submit the head of a run's statements to a log.

    The receipt is stored in the run folder.
    """
    attestation = read_attestation(folder)
    if attestation is None or not attestation.statements:
        raise InputError.one("attestation", "must hold signed statements", str(folder))
    head = plan.digest
    for signed in attestation.statements:
        head = signed.head(head)
    new_anchor = Anchor(
        log=log.kind,
        statements=len(attestation.statements),
        head=head,
        receipt=log.submit(head),
    )
    line = f"{new_anchor.model_dump_json()}\n"
    append_bytes(folder / ANCHORS, line.encode(), "anchors", sync=True)
    return new_anchor


def read_anchors(folder: Path) -> list[Anchor]:
    """The anchors of a run folder; none without the file."""
    if not (folder / ANCHORS).exists():
        return []
    anchors = []
    for number, line in enumerate(read_lines(folder / ANCHORS, "anchors"), start=1):
        try:
            anchors.append(parse(Anchor, load_json(line)))
        except ValueError:
            rule = f"must be anchors, but line {number} is none"
            raise InputError.one("anchors", rule, str(folder / ANCHORS)) from None
    return anchors
