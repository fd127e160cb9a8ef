"""A file to lint: a Python script, a configuration in TOML, YAML or JSON, or a log."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from privplan.errors import InputError
from privplan.io.files import read_text
from privplan.io.kinds import refuse_other_kind
from privplan.io.text import load_json, load_yaml
from privplan.lint.expressions import UNKNOWN
from privplan.lint.script import Script

_CONFIGS = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML", ".json": "JSON"}


_NAMES = {
    "flower": "flower|flwr",
    "opacus": "opacus|privacy_?engine",
    "tff": "tff|tensorflow.federated",
}
"""How a framework is named in its files, where not by its own name."""


@dataclass(frozen=True)
class Source:
    """One file, parsed by its kind.

    Attributes:
        path: the file, for messages.
        kind: ``script``, ``config`` or ``log``.
        text: its content.
        script: the parsed script; None for other kinds.
        data: plain data of a configuration; None for other kinds.
        settings: scalar values by normalised last key (lower case, ``_`` for ``-``); keys that
            occur with different values are ``UNKNOWN``.
    """

    path: str
    kind: Literal["script", "config", "log"]
    text: str
    script: Script | None = None
    data: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def setting(self, *keys: str) -> Any:
        """The value of the first of these keys that the configuration has; else ``UNKNOWN``."""
        return next((self.settings[key] for key in keys if key in self.settings), UNKNOWN)

    def has(self, *keys: str) -> bool:
        """Whether the configuration has one of these keys."""
        return any(key in self.settings for key in keys)


def load(path: Path | str) -> Source:
    """Read a file.

    Args:
        path: a ``.py`` script, a ``.toml``, ``.yaml``, ``.yml`` or ``.json`` configuration; any
            other file is a log.

    Raises:
        InputError: when it cannot be read or is not of its kind.
    """
    text = read_text(path, "file")
    suffix = Path(path).suffix.lower()
    if suffix == ".py":
        try:
            return Source(str(path), "script", text, Script(text, _project(Path(path))))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = getattr(error, "msg", None) or str(error) or type(error).__name__
            line = getattr(error, "lineno", None)
            at = f" (line {line}: {reason})" if line else f" ({reason})"
            raise InputError.one("file", f"must be a Python script{at}", str(path)) from None
    if suffix in _CONFIGS:
        data = _parsed(text, _CONFIGS[suffix], str(path))
        return Source(str(path), "config", text, None, data, flattened(data))
    return Source(str(path), "log", text)


def refuse_foreign(source: Source, framework: str, *, shows: bool) -> None:
    """Refuse a configuration or a log in which nothing is of the framework.

    Args:
        source: the file; scripts are never refused.
        framework: its name.
        shows: whether anything was read from the file.

    Raises:
        InputError: for a file of privplan, or one that shows nothing and does not name the
            framework.
    """
    if source.script is not None:
        return
    data = source.data
    if isinstance(data, dict) and ("rounds" not in data or {"groups", "groups_from"} & data.keys()):
        refuse_other_kind(data, f"a configuration of {framework}", "file")
    named = re.search(_NAMES.get(framework, re.escape(framework)), source.text, re.IGNORECASE)
    if not shows and named is None:
        rule = f"must be a script, a configuration or a log of {framework}, and shows nothing of it"
        raise InputError.one("file", rule, source.path)


def _parsed(text: str, kind: str, path: str) -> Any:
    try:
        if kind == "TOML":
            data: Any = tomllib.loads(text)
        elif kind == "JSON":
            data = load_json(text)
        else:
            data = load_yaml(text, path)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError.one("file", f"must be {kind} ({reason})", path) from None
    if not isinstance(data, dict | list):
        raise InputError.one("file", f"must be {kind} with named values", path)
    return data


def _project(script: Path) -> dict[str, Any]:
    """Settings of Flower's project file, in the folder of the script or the one above it."""
    for folder in (script.parent, script.parent.parent):
        try:
            data = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        app = data.get("tool", {}).get("flwr", {}).get("app", {})
        return flattened(app.get("config", {}))
    return {}


def key(text: object) -> str:
    """The normalised form of a key."""
    return str(text).strip().lower().replace("-", "_").replace(" ", "_")


def walk(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All values of plain data with the key that holds them, outermost first."""
    yield name, data
    if isinstance(data, dict):
        for inner, value in data.items():
            yield from walk(value, key(inner))
    elif isinstance(data, list):
        for value in data:
            yield from walk(value, name)


def flattened(data: Any) -> dict[str, Any]:
    """Scalar values by normalised key; ``UNKNOWN`` where one key has several values."""
    found: dict[str, Any] = {}
    for name, value in walk(data):
        if isinstance(value, dict | list) or not name:
            continue
        if isinstance(value, str):
            value = _number(value)
        known = name in found and (type(found[name]), found[name]) != (type(value), value)
        found[name] = UNKNOWN if known else value
    return found


def _number(text: str) -> Any:
    """The number that a text spells, such as 1e-5 in YAML; else the text."""
    try:
        return float(text)
    except ValueError:
        return text
