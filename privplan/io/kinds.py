"""Files of another kind than asked for: refused in one line instead of one line per field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.io.text import load_yaml

PLAN = "a plan"
HORIZON = "a horizon of several plans"
SPEC = "a spec"
RECORD = "the record of a run"
VERDICT = "a verdict"
TABLE = "a table of proxy runs"

SPEC_FIELD = "spec"
"""The field that messages on the file of a spec name."""

_FIELDS = {
    HORIZON: ("spec", "shares", "plans", "certificate"),
    PLAN: ("spec", "certificate"),
    RECORD: ("plan_digest", "algorithm", "rounds_done"),
    VERDICT: ("algorithm", "worst", "checks"),
    TABLE: ("dataset", "classes", "runs"),
    SPEC: ("name", "rounds", "model"),
}
"""Fields by which a kind is known, the first that fits."""

_CURES = {
    (PLAN, HORIZON): "; name one of its plans, which stand beside it",
    (PLAN, SPEC): "; privplan solve makes it of one",
    (PLAN, RECORD): "; the plan stands beside it",
    (PLAN, VERDICT): "; the plan stands beside it",
    (SPEC, PLAN): " that was solved from one",
    (SPEC, HORIZON): " that was solved from one",
    (TABLE, SPEC): "; privplan forecast-proxy makes it of one",
}
"""What to do instead, by the kind that is asked for and the one that is found."""


def spec_mapping(text: str, path: Path | str) -> dict[str, Any]:
    """Plain data of the text of a spec's file.

    Args:
        text: of the file.
        path: the file, for the message.

    Raises:
        InputError: when the text is not YAML, or no mapping.
    """
    data = load_yaml(text, SPEC_FIELD)
    if not isinstance(data, dict):
        raise InputError.one(SPEC_FIELD, "must be a mapping of fields", str(path))
    return data


def refuse_yaml_of_other_kind(text: str, wanted: str, field: str) -> None:
    """Raise InputError for text that is no JSON, but YAML of a known kind; see below."""
    try:
        data = load_yaml(text, field)
    except InputError:
        return
    refuse_other_kind(data, wanted, field)


def refuse_other_kind(data: Any, wanted: str, field: str) -> None:
    """Raise InputError for plain data that are certainly of another kind than asked for.

    Args:
        data: of the file.
        wanted: the kind that is asked for, one of this module's.
        field: the field that the message names.
    """
    if not isinstance(data, dict):
        return
    found = next((kind for kind, names in _FIELDS.items() if {*names} <= data.keys()), wanted)
    if found != wanted:
        rule = f"must be {wanted}, not {found}{_CURES.get((wanted, found), '')}"
        raise InputError.one(field, rule, f"fields {', '.join(_FIELDS[found])}")
