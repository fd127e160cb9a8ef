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
PUBLISHED = "the verdict of a bundle"
CERTIFICATE = "a certificate"
TABLE = "a table of proxy runs"

_FIELDS = {
    PLAN: ("spec", "certificate"),
    RECORD: ("plan_digest", "algorithm", "rounds_done"),
    VERDICT: ("algorithm", "worst", "checks"),
    PUBLISHED: ("plan", "outcome", "level"),
    CERTIFICATE: ("plan", "rows"),
    TABLE: ("dataset", "classes", "runs"),
    SPEC: ("name", "rounds", "model"),
}
"""Fields by which a kind is recognised, the first that fits."""
RUN = "a run folder"
BUNDLE = "a bundle"
RESULTS = "the folder of a comparison"
BOOK = "a budget book"
RECORDS = "a table of records"
SCRIPT = "a Python file"
MODEL = "a model"
PACKED = "a packed file"
_FIRST_BYTES = b"SQLite format 3\0"  # of the file of a book
# A folder is of the first kind of whose files it has one.
_FILES = {
    RUN: ("record.json", "ledger.jsonl"),
    BUNDLE: ("certificate.json",),
    RESULTS: ("results.csv",),
}
_ENDINGS = {
    ".csv .tsv .parquet .npz .xlsx": RECORDS,
    ".py .ipynb": SCRIPT,
    ".pt .pth .safetensors .onnx": MODEL,
    ".zip .gz .tar .tgz .bz2 .xz": PACKED,
    ".html .htm .pdf .png .svg": "a page or picture",
}
_TAKEN_BY = {
    PLAN: "privplan explain, simulate, compare and report take",
    SPEC: "privplan solve makes a plan of",
    RUN: "privplan verify, publish, report and book add take, and whose plan is its "
    "plan.json",
    BUNDLE: "privplan verify takes",
    RESULTS: "privplan report takes",
    BOOK: "privplan book takes by --address, and privplan report",
    RECORDS: "privplan check-data takes, and simulate by --data",
    RECORD: "privplan verify takes with its folder",
    VERDICT: "privplan verify RUN writes",
    PUBLISHED: "privplan verify takes with its folder",
    CERTIFICATE: "privplan publish writes",
    TABLE: "privplan solve takes by --forecast",
    MODEL: "privplan publish writes, and no command takes",
    PACKED: "must be unpacked",
    SCRIPT: "privplan lint takes, and simulate by --model MODULE:CLASS",
}
"""What takes a file of a kind, as a clause."""
# What takes files of its kinds, by the name of a command or function.
_TAKERS = {
    PLAN: "explain simulate compare report attack export verify reserve what-if app "
    "train Plan.load forecast",
    SPEC: "solve what-if app forecast pilot tune compare attack what_if frontier Spec.load",
    RUN: "verify publish add replay attack report load_run judge commit Plan.load",
    BUNDLE: "verify report add publish load_run",
    RESULTS: "report",
    BOOK: "report Book",
    RECORDS: "check-data Data.load",
    SCRIPT: "lint",
}


def spec_mapping(text: str, path: Path | str) -> dict[str, Any]:
    """Plain data of the text of a spec's file."""
    # Not at the top: who reads plans and runs reads no YAML.
    from privplan.yaml_text import load_yaml

    data = load_yaml(text, "spec", path)
    if not isinstance(data, dict):
        rule = "must be a mapping of fields, in YAML or JSON"
        raise InputError.one("spec", rule, str(path))
    return data


def refuse_other_kind(data: Any, kind: str, field: str) -> None:
    """Raise InputError for plain data that are certainly of another kind."""
    if not isinstance(data, dict):
        return
    for recognised_kind, names in _FIELDS.items():
        if not data.keys() >= {*names}:
            continue
        if recognised_kind != kind:
            rule = f"must be {kind}, not {recognised_kind}"
            raise InputError.one(field, rule, f"fields {', '.join(names)}")
        return


def kind_of(path: Path | str) -> str:
    """The kind of what is at a path; empty of an unknown one, or of nothing."""
    place = Path(path)
    if path == "":  # which is the working directory to Path
        return ""
    if place.is_dir():
        for kind, names in _FILES.items():
            if any((place / name).exists() for name in names):
                return kind
        return ""
    if not place.is_file():
        return ""
    for endings, kind in _ENDINGS.items():
        if place.suffix.lower() in endings.split():
            return kind
    if is_book(place):
        return BOOK
    return _kind_of_text(place)


def _kind_of_text(path: Path) -> str:
    """The kind of a file of plain data; empty of another one."""
    from privplan.files import load_json, read_text
    from privplan.yaml_text import load_yaml

    try:
        text = read_text(path, "file")
        if path.suffix.lower() == ".json":
            data = load_json(text)
        else:
            data = load_yaml(text, "file")
    except (InputError, ValueError):
        return ""
    for kind, names in _FIELDS.items():
        if isinstance(data, dict) and data.keys() >= {*names}:
            return kind
    return ""


def refuse_other_file(path: object, taker: str, field: str) -> None:
    """Raise InputError for a path of a kind that a command or function does not take.

    It is asked after a fault was found, as a kind is only probable.

    Args:
        path: that it was given.
        taker: name of the command or function.
        field: which of its arguments the path is.
    """
    takes = [kind for kind, takers in _TAKERS.items() if taker in takers.split()]
    if not takes or not isinstance(path, str | Path):
        return
    try:
        kind = kind_of(path)
    except (OSError, ValueError):
        # No text that a system takes for a path.
        return
    if kind and kind not in takes:
        use = f", which {_TAKEN_BY[kind]}" if kind in _TAKEN_BY else ""
        rule = f"must be {' or '.join(takes)}, not {kind}{use}"
        raise InputError.one(field, rule, str(path))


def is_book(source: Path | str) -> bool:
    """Whether a source is the file of a book, or an address of a database."""
    if "://" in str(source):
        return True
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES
