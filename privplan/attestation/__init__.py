"""Signed statements about a run, written before its releases are used, and their verification.

The package holds keys, statements (``attestation.jsonl``), the writer of statements, and anchors
of their head in external logs. It imports values, files, the plan and the record, and no torch;
``cryptography`` (extra ``attest``) is imported when a key is used.
"""

from __future__ import annotations

from privplan.attestation.attestor import Attestor, client_statement
from privplan.attestation.keys import SigningKey, new_key
from privplan.attestation.statements import ATTESTATION, Attestation, read_attestation

__all__ = [
    "ATTESTATION",
    "Attestation",
    "Attestor",
    "SigningKey",
    "client_statement",
    "new_key",
    "read_attestation",
]
