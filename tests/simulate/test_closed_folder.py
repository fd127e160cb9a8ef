"""Every text of a run folder: another one is refused, or claimed and in no bundle."""

import json
import os
import shutil
from itertools import cycle, islice

import numpy as np
import pytest

import privplan
from privplan.errors import InputError, PrivplanError
from privplan.evidence import replay
from privplan.evidence.clients import CLIENTS, clients_digest
from privplan.evidence.rounds import EVIDENCE
from privplan.folder import PLOT
from privplan.ledger import _next_link
from privplan.plan import Plan
from privplan.record import LEDGER, RECORD, REPLAY
from privplan.report.verdicts import headline
from privplan.verification import verdict
from tests.command import privplan as command
from tests.simulate import flips

TEXTS = ("x; drop", "xdrop", "0" * 64)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A finished run folder, under a law whose cohorts the seed draws."""
    return flips.make(tmp_path_factory.mktemp("closed") / "run", 0)


@pytest.fixture
def folder(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def texts_of(value, path=()):
    """The path of every text in plain data, and whether it is a key.

    Of numbered keys, such as the digits' classes, the first stands for all.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            if key.isdecimal() and key != "0":
                continue
            yield (*path, key), True
            yield from texts_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_of(item, (*path, index))
    elif isinstance(value, str):
        yield path, False


def changed(value, path, is_key, text):
    """The data with another text at a path."""
    value = json.loads(json.dumps(value))
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    if is_key:
        inner[text] = inner.pop(path[-1])
    else:
        inner[path[-1]] = text
    return value


def read_lines(path, key):
    return [json.loads(line)[key] for line in path.read_text().splitlines()]


def chain(folder, name, key, values):
    """Write lines whose chain of hashes is made anew; returns the hash of each."""
    link = Plan.load(folder).digest
    lines = []
    links = []
    for value in values:
        body = json.dumps(value, separators=(",", ":"))
        link = _next_link(link, body)
        links.append(link)
        lines.append(f'{{"{key}":{body},"chain":"{link}"}}\n')
    (folder / name).write_text("".join(lines))
    return links


def rewrite(folder, releases, evidence, record):
    """What somebody writes who makes all chains anew."""
    links = chain(folder, LEDGER, "release", releases)
    rounds = [release.get("round", 0) for release in releases]
    for line in evidence[1:]:
        written = sum(round_ <= line["round"] for round_ in rounds)
        line["ledger"] = links[written - 1]
    chain(folder, EVIDENCE, "evidence", evidence)
    (folder / RECORD).write_text(json.dumps({**record, "chain": links[-1]}))


def contents(folder):
    """The releases, the evidence and the record of a run folder."""
    return (
        read_lines(folder / LEDGER, "release"),
        read_lines(folder / EVIDENCE, "evidence"),
        json.loads((folder / RECORD).read_text()),
    )


def answer(folder, **options):
    """The outcome of a verdict, or ``refused``; and its first line."""
    try:
        verdict = privplan.verify(folder, **options)
    except PrivplanError as error:
        return "refused", str(error)
    return verdict.outcome, headline(verdict)


def published(folder):
    """The bundle of a run of which a round is executed; the run stays as it is."""
    try:
        return flips.published(folder)
    finally:
        (folder / REPLAY).unlink(missing_ok=True)


def holds(folder, before):
    """Whether a run is not kept, or has the same bundle and claims its names."""
    outcome, line = answer(folder, rounds=0)
    if outcome != "kept":
        return True
    try:
        after = published(folder)
    except PrivplanError:
        after = before
    return after == before and "names are only claimed" in line


@pytest.mark.parametrize(
    "texts_at_path", [1, pytest.param(len(TEXTS), marks=pytest.mark.slow)]
)
def test_no_text_of_the_record_reaches_a_bundle_unsaid(texts_at_path, folder):
    """The quick tests write the texts in turn, one at each place."""
    texts = cycle(TEXTS)
    record = json.loads((folder / RECORD).read_text())
    before = published(folder)
    for path, is_key in texts_of(record):
        for text in islice(texts, texts_at_path):
            new = changed(record, path, is_key, text)
            (folder / RECORD).write_text(json.dumps(new))
            assert holds(folder, before), (path, is_key, text)


def test_the_picture_is_not_read(folder):
    before = published(folder)
    (folder / PLOT).write_bytes(b"no picture")
    assert published(folder) == before
    (folder / PLOT).unlink()
    assert published(folder) == before


def kept_texts(folder, line, write):
    """The texts of a line that may be another one; ``write`` makes the chains anew."""
    for path, is_key in texts_of(line):
        for text in TEXTS:
            write(changed(line, path, is_key, text))
            if answer(folder, rounds=0)[0] == "kept":
                yield path, text


def test_no_text_of_the_ledger_may_be_another_one(folder):
    releases, evidence, record = contents(folder)
    first_release, *further = releases

    def write(line):
        rewrite(folder, [line, *further], evidence, record)

    write(first_release)
    assert answer(folder, rounds=0)[0] == "kept"
    assert list(kept_texts(folder, first_release, write)) == []


@pytest.mark.parametrize("number", [0, 1])
def test_no_text_of_the_evidence_may_be_another_one(number, folder):
    lines = read_lines(folder / EVIDENCE, "evidence")

    def write(line):
        new = [*lines[:number], line, *lines[number + 1 :]]
        chain(folder, EVIDENCE, "evidence", new)

    write(lines[number])
    assert answer(folder, rounds=0)[0] == "kept"
    assert list(kept_texts(folder, lines[number], write)) == []


NAMES = {
    "device": lambda record: record.update(device="xdrop"),
    "version": lambda record: record["versions"].update(numpy="3.1-drop"),
    "algorithm": lambda record: record.update(algorithm="x; drop"),
    "spelling": lambda record: record.update(algorithm="PLANNED"),
    "data set": lambda record: record.update(dataset="Digits"),
    "partition": lambda record: record.update(partition="x; drop"),
    "metric": lambda record: record["configuration"].update(metric="x; drop"),
    "task": lambda record: record["configuration"].update(task="x-drop"),
    "nothing": lambda record: record["configuration"].update(own_loss=None),
    "aggregator": lambda record: record["executed"].update(aggregator="x; drop"),
    "coordinates": lambda record: record["executed"].update(coordinates=2411),
    "class": lambda record: record["accuracy_by_class"].update({"x; drop": 0.1}),
    "group": lambda record: record["accuracy_by_group"].update({"x; drop": 0.1}),
    "parts": lambda record: record.update(parts={"x; drop": [1]}),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_nothing_has_is_not_executed_again(name, folder):
    record = json.loads((folder / RECORD).read_text())
    NAMES[name](record)
    (folder / RECORD).write_text(json.dumps(record))
    outcome, line = answer(folder, rounds="all")
    executed = "executed again (all" in line
    assert outcome != "kept" or not executed, line


NUMBERS = {
    "fractions": lambda arrays: arrays.update(group=arrays["group"] + 0.25),
    "further places": lambda arrays: arrays.update(
        group=np.append(arrays["group"], [7, 9])
    ),
    "another start": lambda arrays: arrays["starts"].__setitem__(0, 5),
    "falling starts": lambda arrays: arrays["starts"].__setitem__(2, 1000),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_assignment_of_clients_has_no_free_number(name, folder):
    with np.load(folder / CLIENTS) as stored:
        arrays = {key: stored[key].copy() for key in stored.files}
    NUMBERS[name](arrays)
    np.savez(folder / CLIENTS, **arrays)
    releases, evidence, record = contents(folder)
    evidence[0]["clients"] = clients_digest(arrays)
    rewrite(folder, releases, evidence, record)
    assert answer(folder, rounds=0)[0] in ("broken", "refused")


def test_a_folder_that_nobody_can_write_has_its_verdict(folder, monkeypatch):
    """As one in an archive: what was executed counts, though nothing keeps it."""

    def write_text(path, content):
        raise InputError.one("output", "must be writable (Read-only file system)", "")

    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    monkeypatch.setattr(replay, "write_text", write_text)
    monkeypatch.setattr(verdict, "write_text", write_text)
    answered = command("verify", folder, "--rounds", 1)
    assert answered.exit_code == 0
    assert "kept, executed again (1 of" in answered.stdout
    assert answered.stderr.count("is not kept: output: must be writable") == 2
    assert privplan.judge(folder, 1).level == "executed"
