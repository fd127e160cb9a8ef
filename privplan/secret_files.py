"""Files of secrets, which only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path

from privplan.errors import InputError

# Largest size of a secret file in bytes.
MOST_SECRET = 1 << 16


def write_secret(path: Path, content: bytes, what: str) -> None:
    """Write a new file that only its owner may read (mode 600)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "wb") as out:
            os.fchmod(file, 0o600)
            out.write(content)
            out.flush()
            os.fsync(file)
    except FileExistsError:
        raise InputError.one(
            what, "must be a new file; none is replaced", str(path)
        ) from None
    except (OSError, ValueError) as error:
        rule = f"must be writable ({_reason(error)})"
        raise InputError.one(what, rule, str(path)) from None


def read_secret(path: Path, what: str) -> bytes:
    """The content of a file that only its owner may read."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MOST_SECRET + 1)
    except (OSError, ValueError) as error:
        rule = f"must be a file that can be read ({_reason(error)})"
        raise InputError.one(what, rule, str(path)) from None
    # Any right of the group or of all others.
    if mode & 0o077:
        rule = "must be accessible to its owner only (chmod 600)"
        raise InputError.one(what, rule, f"{path} with mode {mode & 0o777:o}")
    if len(content) > MOST_SECRET:
        raise InputError.one(what, f"must have at most {MOST_SECRET} bytes", str(path))
    return content


def _reason(error: OSError | ValueError) -> str:
    """What the system says; a name with a zero byte has no error number."""
    return str(getattr(error, "strerror", None) or error)
