"""Code of the user that a command line names: imported, with its errors in one line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from privplan.errors import InputError, did_you_mean
from privplan.guidance import public_names
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
    if module.endswith(".py") or not _is_name(module, name):
        raise InputError.one(field, f"must be package.module:name{_meant(text)}", text)
    folder = str(Path.cwd())
    try:
        with importable(folder):
            holder = import_module(module)
            if not hasattr(holder, name):
                near = did_you_mean(name, public_names(holder))
                raise AttributeError(f"module {module!r} has no {name!r}{near}")
            result = getattr(holder, name)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = f"must be importable as {text}"
        raise InputError.one(field, rule, error_line(error)) from None
    OWN_MODULES.append((folder, module))
    return result


def _meant(text: str) -> str:
    """What to write for a file's path, or for a name with a dot before it."""
    dotted = text.replace(".py", "").replace("/", ".").replace(":", ".")
    module, _, name = dotted.rpartition(".")
    return f"; write {module}:{name}" if _is_name(module, name) else ""


def _is_name(module: str, name: str) -> bool:
    """Whether both parts are names as Python writes them."""
    return all(map(str.isidentifier, (*module.split("."), name)))


def error_line(error: BaseException) -> str:
    """Type and first line of an error in the user's code, for a message of one line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
