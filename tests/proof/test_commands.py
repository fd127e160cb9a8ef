"""The option ``--prove`` of the commands, and what it says without its library."""

import json
import sys

import pytest

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.proof import VERSION
from privplan.spec.presets import preset
from tests.command import answer, refused

RELEASES = [
    "--noise-multiplier=1.5",
    "--sampling-ratio=.02",
    "--rounds=9",
    "--delta=1e-5",
]


def test_account_shows_what_is_proven():
    assert "yes (" in answer("account", *RELEASES, "--prove")
    (row, *_) = json.loads(answer("account", *RELEASES, "--prove", "--format=json"))
    (finding,) = row["proven"]
    assert finding["outcome"] == "proven"
    assert finding["version"] == VERSION


def test_account_says_why_nothing_is_proven():
    releases = [
        "--noise-multiplier=9",
        "--sampling-ratio=.1",
        "--rounds=2",
        "--delta=1e-30",
    ]
    text = answer("account", *releases, "--prove")
    assert "all: not proven: epsilon" in text


def test_a_plan_stores_what_was_proven(tmp_path):
    (tmp_path / "spec.yaml").write_text(
        preset("digits").replace("rounds: 60 ", "rounds: 4 ")
    )
    plan_file = tmp_path / "plan.json"
    text = answer("solve", tmp_path / "spec.yaml", "--prove", "-o", plan_file)
    # A narrow table breaks a cell after its first word.
    assert text.count("yes") == 3
    plan = Plan.load(plan_file)
    assert [(row.outcome, row.version) for row in plan.proven] == [
        ("proven", VERSION)
    ] * 3
    upper = {row.group: row.epsilon_upper for row in plan.certificate if row.guarantee}
    assert {row.group: row.epsilon for row in plan.proven} == upper

    # A stored proof is of a bound that the certificate has.
    data = json.loads(plan_file.read_text())
    for changes, reason in (
        ({"epsilon": 0.001}, "must be the certificate's"),
        ({"delta": 1e-9}, "must be the certificate's"),
        ({"group": "nobody"}, "must be a group with a guarantee"),
    ):
        proven = [{**data["proven"][0], **changes}]
        with pytest.raises(InputError, match=reason):
            Plan.parse({**data, "proven": proven})


def test_the_book_shows_what_is_proven(tmp_path):
    book = f"--address={tmp_path / 'book.sqlite'}"
    numbers = ["--clients=500", "--noise-multiplier=14", "--delta=1e-5"]
    whose = ["--group=strict", "--noise=laplace"]
    answer("book", "declare", "ages", *whose, *numbers, book)
    assert "yes (" in answer("book", "show", "--prove", book)
    (row,) = json.loads(answer("book", "show", "--prove", "--format=json", book))
    assert row["proven"]["outcome"] == "proven"


@pytest.mark.parametrize("command", ["account", "solve", "verify", "book"])
def test_the_library_that_is_missing_is_named(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    monkeypatch.delitem(sys.modules, "privplan.proof")
    words = {
        "account": ["account", *RELEASES],
        "solve": ["solve", tmp_path / "spec.yaml"],
        "verify": ["verify", tmp_path],
        "book": ["book", "show", f"--address={tmp_path / 'book.sqlite'}"],
    }
    line = refused(*words[command], "--prove")
    assert line == (
        "prove: needs the library python-flint: pip install 'privplan[proof]', "
        "found 'not installed'"
    )
