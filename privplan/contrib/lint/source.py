"""A file to lint: a script, a notebook or page with code, or a configuration."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privplan.contrib.lint.script import UNKNOWN, Script
from privplan.errors import InputError
from privplan.files import load_json, read_text
from privplan.yaml_text import load_yaml

_UNREADABLE = (
    ValueError,
    SyntaxError,
    RecursionError,
    MemoryError,
    LookupError,
    TypeError,
)
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)\s*\{?\s*([\w-]*)")
# Commands of a notebook: to its shell, or to the notebook itself.
_MAGIC = re.compile(r"^(\s*)([%!].*)$", re.MULTILINE)
_BYTE_ORDER_MARK = "\ufeff"
# Texts that YAML and habit write for truth values.
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True)
class Source:
    """One file, parsed by its kind."""

    path: str  # the file, for messages
    text: str  # its content; of a notebook or a page, its code
    script: Script | None = None  # the parsed script; None for other kinds
    data: Any = None  # plain data of a configuration; None for other kinds
    # values by normalised last key (lower case, ``_`` for ``-``); keys that occur with
    # different values are ``UNKNOWN``
    settings: dict[str, Any] = field(default_factory=dict)

    def line(self, pattern: str) -> int:
        """The first line with a key or a pattern; 0 where there is none."""
        named = pattern.replace("_", "[-_ ]")
        place = re.search(rf"\b(?:{named})", self.text, re.IGNORECASE)
        if not place:
            return 0
        return self.text.count("\n", 0, place.start()) + 1


def load(path: str) -> Source:
    """Read a file."""
    text = read_text(path, "file").removeprefix(_BYTE_ORDER_MARK)
    kind = Path(path).suffix.lower().replace(".yml", ".yaml")
    if kind == ".ipynb":
        text = _checked(_cells, text, "a notebook", path)
    elif kind == ".md":
        text = _code(text)
    if kind in (".ipynb", ".md", ".py"):
        python = f"code that Python {sys.version_info[0]}.{sys.version_info[1]} reads"
        return Source(path, text, _checked(_script, text, python, path))
    parsers: dict[str, Callable[[str], Any]] = {
        ".toml": tomllib.loads,
        ".yaml": lambda content: load_yaml(content, path),
        ".json": load_json,
    }
    if kind not in parsers:
        rule = "must be .py, .ipynb, .md, .toml, .yaml or .json"
        raise InputError.one("file", rule, path)
    data = _checked(parsers[kind], text, kind.removeprefix(".").upper(), path)
    if not isinstance(data, dict | list):
        raise InputError.one("file", "must have named values", path)
    return Source(path, text, None, data, _flattened(data))


def _checked(parse: Callable[[str], Any], text: str, kind: str, path: str) -> Any:
    try:
        return parse(text)
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError.one("file", f"must be {kind} ({reason})", path) from None


def _script(text: str) -> Script:
    try:
        return Script(text)
    except SyntaxError:
        # each command of a notebook becomes a call, so that it is named as not
        # understood
        commands = _MAGIC.sub(
            lambda command: f"{command[1]}magic({command[2]!r})", text
        )
        if commands == text:
            raise
        return Script(commands)


def _cells(text: str) -> str:
    """The code of a notebook, cell after cell."""
    cells = load_json(text)["cells"]
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    return "\n".join("".join(source) for source in code)


def _code(page: str) -> str:
    """The Python of a page, every line at its place."""
    lines: list[str] = []
    fence = language = ""
    for line in page.split("\n"):
        mark = _FENCE.match(line)
        inside = not mark and language.startswith(("py", "ipython"))
        lines.append(line if inside else "")
        if mark:
            language = "" if fence else mark[2].lower()
            fence = "" if fence else mark[1]
    return "\n".join(lines)


def walk(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All values of plain data with the key of each, outermost first."""
    yield name, data
    if isinstance(data, dict):
        for key, value in data.items():
            yield from walk(
                value, str(key).strip().lower().replace("-", "_").replace(" ", "_")
            )
    elif isinstance(data, list):
        for value in data:
            yield from walk(value, name)


def _flattened(data: Any) -> dict[str, Any]:
    """Values by normalised key, sections too; ``UNKNOWN`` where one has several."""
    settings: dict[str, Any] = {}
    for name, value in walk(data):
        plain = _plain(value)
        same = name not in settings or settings[name] == plain
        settings[name] = plain if same else UNKNOWN
    return settings


def _plain(value: Any) -> Any:
    """A value without the quotes that hide a number or a truth value."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError):
        return float(value)
    return _TRUTH.get(value.strip().lower(), value)
