"""Cases that must be refused: the exact words, and the exit code."""

from pathlib import Path

import yaml

from tests.golden.steps import Case, Edit, Put, Step, call, spec

# By the parser in C, in a tenth of the time of the other.
TABLE = yaml.load(
    (Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"),
    yaml.CSafeLoader,
)
BASE = TABLE["base"]
RECORDS = TABLE["records"]
# Blanks of a name become hyphens in its file's name; commas and apostrophes go.
FILE_NAME = str.maketrans(" ", "-", ",'")


def _specs(base, kind):
    """The base with parts replaced, or another text, for each name of the table."""
    for name, changes in TABLE[kind].items():
        text = base if isinstance(changes, list) else changes
        for old, new in changes if isinstance(changes, list) else ():
            assert old in text, (name, old)
            text = text.replace(old, new)
        path = f"{name.translate(FILE_NAME)}.yaml"
        yield Put(path, text)
        yield call(f"solve {path} --details")


def _calls(kind):
    return map(call, TABLE[kind])


def _budgets():
    head = "name: base\nrounds: 5\ncohort: 30\nmodel: {name: mlp-digits, parameters: 2410}\n"
    for name, text in TABLE["budgets"].items():
        yield Put(f"{name}.csv", text)
        yield Put(f"{name}.yaml", f"{head}delta: 1.0e-3\ngroups_from: {name}.csv\n")
        yield call(f"solve {name}.yaml")
    for name, fields in TABLE["budgets in specs"].items():
        yield Put(f"{name}.yaml", f"{head}{fields}")
        yield call(f"solve {name}.yaml")


def refusals():
    """Every case that must be refused."""
    base = Put("spec.yaml", BASE)
    records = Put("records.yaml", RECORDS)
    plan = call("solve spec.yaml --details --format json -o plan.json")
    yield Case("refused-specs", tuple(_specs(BASE, "clients")))
    yield Case("refused-record-specs", tuple(_specs(RECORDS, "records of clients")))
    yield Case("refused-infeasible", tuple(_specs(BASE, "infeasible")))
    yield Case("refused-options", (base, *_calls("options")))
    yield Case("refused-accounting", tuple(_calls("accounting")))
    yield Case("refused-sweeps", (base, records, *_calls("sweeps")))
    yield Case("refused-budgets", tuple(_budgets()))

    # Files that are not what a command asks for.
    files: tuple[Step, ...] = (
        Put("latin.yaml", "name: caf\xe9\n".encode("latin-1")),
        Put("list.json", "[1, 2]\n"),
        Put("empty.json", ""),
        Put(
            "bad.json", '{"spec": {"rounds": 0}, "groups": 5, "certificate": "none"}\n'
        ),
    )
    edit = Edit("plan.json", '"clients": 200', '"clients": 201')
    edited = (edit, *_calls("files with an edited plan"))
    yield Case(
        "refused-files",
        (base, plan, *files, Put("none.json", "{}"), *_calls("files"), *edited),
    )

    # Runs of plans, one of which another release needs, in a folder that is not empty.
    prepared: tuple[Step, ...] = (
        base,
        plan,
        spec("full-balanced", "joint.yaml"),
        call("solve joint.yaml -o joint.json"),
        spec("records-digits", "records.yaml"),
        call("solve records.yaml -o records.json"),
        Put("busy/notes.txt", "mine\n"),
    )
    yield Case("refused-runs", (*prepared, *_calls("runs")))
