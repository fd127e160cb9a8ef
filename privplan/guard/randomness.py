"""Random streams of a deployment: cryptographic, keyed by the operating system, never recorded."""

from __future__ import annotations

import secrets

from privplan.secure_streams import KEY_BYTES, SecureStream


def secure_stream() -> SecureStream:
    """A stream with a new key from the operating system, for one draw.

    The ledger has a hash of its key and position, from which the key cannot be found.
    """
    return SecureStream(secrets.token_bytes(KEY_BYTES))
