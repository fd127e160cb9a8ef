"""Kinds of files by their fields.

A file of another kind than the expected one is refused in one line instead of one line
per field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privplan.errors import InputError

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
"""Fields by which a kind is recognised, the first that fits."""
_FIRST_BYTES = b"SQLite format 3\0"  # of the file of a book


def spec_mapping(text: str, path: Path | str) -> dict[str, Any]:
    """Plain data of the text of a spec's file."""
    # Not at the top: who reads plans and runs reads no YAML.
    from privplan.yaml_text import load_yaml

    data = load_yaml(text, "spec", path)
    if not isinstance(data, dict):
        raise InputError.one("spec", "must be a mapping of fields", str(path))
    return data


def refuse_yaml_of_other_kind(text: str, kind: str, field: str) -> None:
    """Raise InputError for text that is no JSON, but YAML of another kind."""
    from privplan.yaml_text import load_yaml

    try:
        data = load_yaml(text, field)
    except InputError:
        return
    refuse_other_kind(data, kind, field)


def refuse_other_kind(data: Any, kind: str, field: str) -> None:
    """Raise InputError for plain data that are certainly of another kind."""
    if not isinstance(data, dict):
        return
    for recognised_kind, names in _FIELDS.items():
        if not data.keys() >= {*names}:
            continue
        if recognised_kind != kind:
            rule = f"must be {kind}, not {recognised_kind}"
            if (kind, recognised_kind) == (PLAN, SPEC):
                rule += "; privplan solve makes a plan of a spec"
            raise InputError.one(field, rule, f"fields {', '.join(names)}")
        return


def is_book(source: Path | str) -> bool:
    """Whether a source is the file of a book, or an address of a database."""
    if "://" in str(source):
        return True
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES
