"""Signed statements about a run, written before its releases are used, and checks.

The package holds keys, statements (``attestation.jsonl``), the writer of statements,
and anchors of their head in external logs, and the checks of both; ``cryptography``
(extra ``attest``) is imported when a key is used. Pass ``Signing(key)`` to a guard or
to the request of a run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privplan.contrib.attestation.attestor import (
        Attestor,
        Signing,
        client_statement,
    )
    from privplan.contrib.attestation.keys import SigningKey, new_key
    from privplan.contrib.attestation.statements import (
        ATTESTATION,
        Attestation,
        read_attestation,
    )

__all__ = [
    "ATTESTATION",
    "Attestation",
    "Attestor",
    "Signing",
    "SigningKey",
    "client_statement",
    "new_key",
    "read_attestation",
]


def __getattr__(name: str) -> object:
    """A name of the package, imported when it is used.

    ``privplan --help`` loads the commands of the package, and needs none of these.
    """
    if name in __all__:
        for module in ("statements", "keys", "attestor"):
            members = vars(import_module(f"{__name__}.{module}"))
            if name in members:
                return members[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
