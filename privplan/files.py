"""Files: reading with one-line errors, atomic writing, and folders locked by one process."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import re
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from privplan.errors import InputError
from privplan.limits import MOST_LINE, MOST_YAML, regular

LOCK = ".lock"  # name of the file in a folder that is locked while a process uses the folder


def read_text(path: Path | str, what: str) -> str:
    """The text of a file."""
    with (
        _one_line_errors(path, what),
        open(path, encoding="utf-8", opener=regular()) as file,
    ):
        return file.read()


def read_lines(path: Path | str, what: str) -> Iterator[str]:
    """The lines of a file one after another, each with its line feed."""
    with (
        _one_line_errors(path, what),
        open(path, encoding="utf-8", newline="\n", opener=regular()) as file,
    ):
        while line := file.readline(MOST_LINE):
            yield line


@contextmanager
def _one_line_errors(path: Path | str, what: str) -> Iterator[None]:
    """Convert errors of reading a file to one-line errors."""
    if path == "":
        raise InputError.one(what, "must be the name of a file", "")
    try:
        yield
    except FileNotFoundError:
        raise InputError.one(what, "must be a file that exists", str(path)) from None
    except IsADirectoryError:
        raise InputError.one(
            what, "must be a file, not a directory", str(path)
        ) from None
    except UnicodeDecodeError:
        raise InputError.one(what, "must be UTF-8 text", str(path)) from None
    except ValueError:
        raise InputError.one(what, "must be the name of a file", str(path)) from None
    except OSError as error:
        raise InputError.one(
            what, f"must be readable ({error.strerror})", str(path)
        ) from None


def refuse_overwriting(
    inputs: Iterable[Path | str], outputs: Iterable[Path | str | None]
) -> None:
    """Raise an error when an output is one of the inputs."""
    read = {os.path.realpath(path) for path in inputs}
    for output in outputs:
        if output is not None and os.path.realpath(output) in read:
            raise InputError.one(
                "output", "must be another file than what is read", str(output)
            )


def write_bytes(path: Path | str, content: bytes, *, private: bool = False) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part.

    The content is written to a temporary file in the same folder, which is then renamed.
    Temporary files of writers that were killed are removed. Of a link the file it leads to is
    replaced; a device or a pipe is not a file to replace: the content is written into it.

    Args:
        path: the file.
        content: what it holds afterwards.
        private: whether only its owner may read it (mode 600), from the first byte on.
    """
    path, temporary = Path(os.path.realpath(path)), None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp", delete=False
        ) as file:
            temporary = Path(file.name)
            # The lock is held until the file is closed, so that no other writer removes it.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if not private:  # temporary files have mode 600
                temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        _remove_temporary_files(path)
    except OSError as error:
        raise InputError.one(
            "output", f"must be writable ({error.strerror})", str(path)
        ) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _remove_temporary_files(path: Path) -> None:
    """Remove temporary files whose writers have ended; a writer holds a lock on its own."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:  # an empty one may not be locked yet
                part.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file of ``write_bytes`` with what killed writers left of it; it may be absent."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError.one(
            "output", f"must be removable ({error.strerror})", str(path)
        ) from None
    _remove_temporary_files(path)


def write_text(path: Path | str, content: str) -> None:
    """Replace a file atomically by UTF-8 text, as ``write_bytes``."""
    write_bytes(path, content.encode("utf-8"))


def append_bytes(path: Path, content: bytes, what: str, *, sync: bool = False) -> None:
    """Append to a file."""
    try:
        with open(path, "ab") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise InputError.one(
            what, f"must be writable ({error.strerror})", str(path)
        ) from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder until the block or the process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / LOCK, "a")  # noqa: SIM115
    except OSError as error:
        rule = f"must be a folder that can be written ({error.strerror})"
        raise InputError.one("output", rule, str(folder)) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK)):
                raise OSError  # another run has just removed it
        except OSError:
            rule = "must not be in use by another run"
            raise InputError.one("output", rule, str(folder)) from None
        yield


def missing_folders(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist, the innermost first."""
    return [one for one in (folder, *folder.parents) if not os.path.exists(one)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that are empty."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


# --- Files of secrets, which only their owner may read. ------------------------------------------

MOST_SECRET = 1 << 16  # largest size of a secret file in bytes


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
        rule = f"must be writable ({getattr(error, 'strerror', None) or error})"
        raise InputError.one(what, rule, str(path)) from None


def read_secret(path: Path, what: str) -> bytes:
    """The content of a file that only its owner may read."""
    try:
        with open(path, "rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(MOST_SECRET + 1)
    except (OSError, ValueError) as error:
        rule = f"must be a file that can be read ({getattr(error, 'strerror', None) or error})"
        raise InputError.one(what, rule, str(path)) from None
    if mode & 0o077:
        rule = "must be accessible to its owner only (chmod 600)"
        raise InputError.one(what, rule, f"{path} with mode {mode & 0o777:o}")
    if len(content) > MOST_SECRET:
        raise InputError.one(what, f"must have at most {MOST_SECRET} bytes", str(path))
    return content


# --- Plain data from JSON and YAML text, loaded safely and strictly. -----------------------------


def load_json(text: str) -> Any:
    """Plain data from JSON text."""
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path | str, field: str) -> Any:
    """Plain data from a JSON file."""
    try:
        return load_json(read_text(path, field))
    except ValueError:
        raise InputError.one(field, "must be JSON", str(path)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


# --- YAML text: a loader that is safe and strict, and edits that keep comments. ------------------

MOST_NODES = (
    1_000_000  # largest number of values in a document after all aliases are expanded
)

Convert = Callable[[Any], Any]
MERGE = "tag:yaml.org,2002:merge"
MOST_DEPTH = (
    100  # largest depth of nested brackets; the time of parsing grows with its square
)


class _UniqueKeys(yaml.SafeLoader):
    """PyYAML's safe loader that rejects duplicate keys and exponentially growing aliases."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= MOST_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MOST_DEPTH} brackets")
        super().fetch_flow_collection_start(token)

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and _size(node, {}) > MOST_NODES:
            raise yaml.YAMLError(
                f"more than {MOST_NODES} values when aliases are written out"
            )
        return node

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        seen = set()
        for node_of_key, _ in node.value:
            if node_of_key.tag == MERGE:
                continue
            key = self.construct_object(node_of_key, deep=True)
            if not isinstance(key, Hashable) or key in seen:
                raise yaml.YAMLError(
                    f"the key {str(key)[:80]!r} stands twice or is no key"
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_OCTAL = re.compile(r"[-+]?0[0-7_]*[1-7][0-7_]*")


def _decimal(kind: str) -> Any:
    """A constructor that refuses numbers to base 60 (1:30) and 8 (014), as YAML 1.1 reads them."""
    usual = getattr(yaml.SafeLoader, f"construct_yaml_{kind}")

    def construct(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
        base = 60 if ":" in node.value else 8 if _OCTAL.fullmatch(node.value) else None
        if base is not None:
            rule = "write a decimal number" + (
                "" if base == 60 else " without zeros before it"
            )
            raise yaml.YAMLError(f"{node.value} is a number to base {base}; {rule}")
        return usual(loader, node)

    return construct


for _kind in ("int", "float"):
    _UniqueKeys.add_constructor(f"tag:yaml.org,2002:{_kind}", _decimal(_kind))


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values in a node after all aliases are expanded; above the limit for a recursive node."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST_NODES + 1  # a node met again below itself is recursive
        parts = chain.from_iterable(
            one if isinstance(one, tuple) else (one,) for one in node.value
        )
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


_YAML_FAULTS = (
    yaml.YAMLError, ArithmeticError, LookupError, ValueError, TypeError, RecursionError,
)  # fmt: skip


def load_yaml(text: str, what: str) -> Any:
    """Plain data from YAML text."""
    if len(text) > MOST_YAML:
        raise InputError.one(
            what, f"must be YAML of at most {MOST_YAML} letters", len(text)
        )
    try:
        return yaml.load(text, Loader=_UniqueKeys)
    except _YAML_FAULTS as error:
        raise InputError.one(
            what, "must be YAML", " ".join(str(error).split())[:160]
        ) from None


def edited(
    text: str, edit: Callable[[Any, Convert], None], wanted: Any, what: str
) -> str:
    """YAML text with other values, in which comments, order and layout stay where they can."""
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError
    except ImportError:
        rule = "needs the library ruamel.yaml: pip install 'privplan[simulate]'"
        raise InputError.one(what, rule, "no module named ruamel") from None
    document = YAML()
    document.preserve_quotes, document.width = True, 100
    document.indent(mapping=2, sequence=4, offset=2)
    result = StringIO()
    try:
        content = document.load(text)
        edit(
            content, lambda value: document.load(yaml.safe_dump(value, sort_keys=False))
        )
        document.dump(content, result)
    except (YAMLError, AttributeError, *_YAML_FAULTS) as error:
        line = " ".join(str(error).split())
        raise InputError.one(
            what, "must be YAML that can be edited", line[:160]
        ) from None
    if load_yaml(result.getvalue(), what) != wanted:
        rule = (
            "must be YAML that can be edited; write it without anchors and merged keys"
        )
        raise InputError.one(what, rule, "other data when edited")
    return result.getvalue()


# --- Files of another kind than asked for: refused in one line instead of one line per field. ----

PLAN = "a plan"
SPEC = "a spec"
RECORD = "the record of a run"
VERDICT = "a verdict"
TABLE = "a table of proxy runs"

_FIELDS = {
    PLAN: ("spec", "certificate"),
    RECORD: ("plan_digest", "algorithm", "rounds_done"),
    VERDICT: ("algorithm", "worst", "checks"),
    TABLE: ("dataset", "classes", "runs"),
    SPEC: ("name", "rounds", "model"),
}
"""Fields by which a kind is known, the first that fits."""


def spec_mapping(text: str, path: Path | str) -> dict[str, Any]:
    """Plain data of the text of a spec's file."""
    data = load_yaml(text, "spec")
    if not isinstance(data, dict):
        raise InputError.one("spec", "must be a mapping of fields", str(path))
    return data


def refuse_yaml_of_other_kind(text: str, wanted: str, field: str) -> None:
    """Raise InputError for text that is no JSON, but YAML of a known kind; see below."""
    try:
        data = load_yaml(text, field)
    except InputError:
        return
    refuse_other_kind(data, wanted, field)


def refuse_other_kind(data: Any, wanted: str, field: str) -> None:
    """Raise InputError for plain data that are certainly of another kind than asked for."""
    if not isinstance(data, dict):
        return
    found = next(
        (kind for kind, names in _FIELDS.items() if {*names} <= data.keys()), wanted
    )
    if found != wanted:
        rule = f"must be {wanted}, not {found}"
        raise InputError.one(field, rule, f"fields {', '.join(_FIELDS[found])}")
