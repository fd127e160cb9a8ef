"""Code of the user that a command line names: imported, with its errors in one line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.processes import OWN_MODULES, importable


def imported(field: str, text: str) -> Any:
    """The object that ``package.module:name`` names.

    Args:
        field: of the error.
        text: names it; modules of the working directory are found, too.

    Raises:
        InputError: for another form, or for a module that cannot be imported.
    """
    module, _, name = text.partition(":")
    if not all(map(str.isidentifier, (*module.split("."), name))):
        raise InputError.one(field, "must be package.module:name", text)
    folder = str(Path.cwd())
    try:
        with importable(folder):
            result = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = f"must be importable as {text}"
        raise InputError.one(field, rule, error_line(error)) from None
    OWN_MODULES.append((folder, module))
    return result


def error_line(error: BaseException) -> str:
    """Type and first line of an error in the user's code, for a message of one line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
