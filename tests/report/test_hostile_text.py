"""Text of files hides nothing and does nothing, whichever command shows it."""

import json
import re
import shutil

import pytest
import yaml
from click.testing import CliRunner

from privplan.cli import main
from privplan.spec.presets import preset
from tests.book.runs import run
from tests.command import refused

# Of these letters nothing is seen, or they move a cursor or turn the order around.
UNSEEN = "\x1b\x07\x7f\x9b\u200b\u200d\u202e\u2066\ufeff\u3164\ufe0f\u034f\U000e0101"
NAME = f"x\x1b[31m{UNSEEN}y"
MARKUP = f"<b>]({NAME})![a](b)|`=1+1"
BLANK = "strict\ufe0f\u3164"  # which the rules of a spec let pass
HUMAN = (".html", ".csv", ".tex", ".md", ".svg")


def output_of(*words):
    """All that a command writes for a terminal, with its escapes."""
    done = CliRunner().invoke(main, [str(word) for word in words], color=True)
    assert done.exception is None or isinstance(done.exception, SystemExit), (
        done.exception
    )
    assert done.exit_code in (0, 2, 4, 5), done.output
    assert done.output
    return done.output


def hidden(text):
    """Letters of a text that cannot be seen, besides lines and tabs."""
    lines = "\n\t"
    unseen = [
        letter
        for letter in text
        if letter in UNSEEN or not (letter.isprintable() or letter in lines)
    ]
    return sorted(map(hex, map(ord, unseen)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose record and ledger hold hostile text wherever a reader takes it."""
    base = tmp_path_factory.mktemp("hostile")
    run(base / "run")
    record = json.loads((base / "run" / "record.json").read_text())
    record |= {"algorithm": MARKUP, "dataset": NAME, "partition": NAME, "model": NAME}
    record |= {
        "device": NAME,
        "versions": {NAME: NAME},
        "accuracy_by_class": {NAME: 0.5},
    }
    record["configuration"] |= {"metric": MARKUP, "numbers": {NAME: 1.0}, "task": NAME}
    (base / "run" / "record.json").write_text(json.dumps(record))
    shutil.copytree(base / "run", base / "ledger")
    ledger = base / "ledger" / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    lines[3] = lines[3].replace('"strict"', json.dumps(NAME))
    ledger.write_text("".join(lines))
    shutil.copytree(base / "run", base / NAME)
    spec = yaml.safe_load(preset("digits")) | {"name": BLANK}
    (base / "spec.yaml").write_text(yaml.safe_dump(spec))
    return base


@pytest.mark.parametrize("name", ["run", "ledger", NAME])
def test_of_runs_and_books(folder, tmp_path, name):
    source = folder / name
    book = tmp_path / "book.sqlite"
    commands = [
        ("verify", source, "--rounds", "0", "--details"),
        ("verify", source, "--rounds", "0", "--format", "json"),
        ("verify", source),
        ("replay", source),
        ("report", source, "-o", tmp_path / "page.html"),
        ("report", source, "--format", "markdown", "-o", tmp_path / "page.md"),
        ("report", source, "--format", "markdown"),
        ("report", source, "--format", "json"),
        ("book", "add", source, "--address", book),
        ("book", "show", "--address", book),
        ("book", "left", "--group", NAME, "--epsilon", "3", "--address", book),
    ]
    for command in commands:
        assert not hidden(output_of(*command)), command
    # No run writes such a record, so it is refused, and nothing is written of it.
    assert not (tmp_path / "page.html").exists()
    assert not (tmp_path / "page.md").exists()


def test_of_specs_and_plans(folder, tmp_path):
    plan = tmp_path / "plan.json"
    swept = ("what-if", folder / "spec.yaml", "--vary", "rounds=20:40:2")
    commands = [
        ("solve", folder / "spec.yaml", "--details", "-o", plan),
        ("explain", plan),
        ("report", plan, "-o", tmp_path / "page.html"),
        ("report", plan, "--format", "markdown", "-o", tmp_path / "page.md"),
        (*swept, "--workers", "1", "-o", tmp_path / "out"),
        (*swept, "--workers", "1", "--html", tmp_path / "slider.html"),
    ]
    for command in commands:
        assert not hidden(output_of(*command)), command
    written = [path for path in tmp_path.rglob("*") if path.suffix in HUMAN]
    assert {path.suffix for path in written} >= {".html", ".md", ".csv"}
    for path in written:
        text = path.read_text()
        # The page of sliders reads JSON, whose escapes become letters again.
        for data in re.findall(
            r'type="application/json">(.*?)</script>', text, flags=re.DOTALL
        ):
            text += str(json.loads(data))
        assert not hidden(text), path


def test_of_refusals():
    for command in (
        ["solve", NAME],
        ["verify", NAME],
        ["report", NAME],
        ["explain", NAME],
    ):
        assert not hidden(refused(*command))
