"""Ed25519 keys of the parties that sign statements (RFC 8032), by ``cryptography``.

A secret key is a PEM file (PKCS #8, not encrypted) that only its owner may read. A
public key is 64 hexadecimal digits, as in ``signers`` of a spec.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from privplan.errors import InputError, UnsupportedError
from privplan.secret_files import read_secret, write_secret

_EXTRA = "needs the package cryptography: pip install 'privplan[attest]'"


def _ed25519() -> Any:
    """The module of Ed25519 keys."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise UnsupportedError(f"keys: {_EXTRA}") from None
    return ed25519


class SigningKey:
    """A secret key.

    Args:
        private: the key as an object of ``cryptography``.
    """

    def __init__(self, private: Any) -> None:
        self._private = private
        self.public: str = private.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """The signature of a message, 128 hexadecimal digits.

        It is equal for equal messages.
        """
        signature: bytes = self._private.sign(message)
        return signature.hex()

    def secret(self, context: str) -> bytes:
        """32 bytes that only the key's owner can derive; equal for equal contexts.

        They are the hash of a signature, which is deterministic and unforgeable, of a
        message that no statement has.
        """
        message = f"privplan derived secret v1\n{context}".encode()
        return hashlib.sha256(bytes.fromhex(self.sign(message))).digest()

    @classmethod
    def load(cls, path: Path | str) -> SigningKey:
        """Read a secret key."""
        ed25519 = _ed25519()
        content = read_secret(Path(path), "signing-key")
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private = load_pem_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            rule = "must be an Ed25519 key in PEM, without a password"
            raise InputError.one("signing-key", rule, str(path))
        return cls(private)


def new_key(path: Path | str) -> SigningKey:
    """Write a new secret key to a file that only its owner may read."""
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives import serialization

    private = ed25519.Ed25519PrivateKey.generate()
    content = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_secret(Path(path), content, "key")
    return SigningKey(private)


def signed_by(public: str, message: bytes, signature: str) -> bool:
    """Whether a signature is that of a message under a public key."""
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True
