"""Files: replaced whole, of the kind that is asked for; YAML's numbers as written."""

import fcntl
import json
import os
import stat
import threading
import time
from itertools import product

import pytest

from privplan import file_kinds as kinds
from privplan.errors import InputError
from privplan.files import LOCK, locked, write_bytes
from privplan.forecast.proxy_table import ProxyTable
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import RunRecord
from privplan.spec.spec import Spec
from privplan.values import Value
from privplan.verification.verdict import Verdict
from privplan.yaml_text import load_yaml
from tests.command import refused
from tests.planning.problems import make_spec, spec_data


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    target = tmp_path / "plan.json"
    target.write_bytes(b"before")
    write_bytes(target, b"after")
    assert target.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_the_file_that_a_link_leads_to_is_replaced(tmp_path):
    target = tmp_path / "folder" / "plan.json"
    link = tmp_path / "link"
    target.parent.mkdir()
    target.write_bytes(b"before")
    link.symlink_to(target)
    write_bytes(link, b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"


def test_what_killed_writers_left_is_removed_once_the_folder_is_locked(tmp_path):
    written, empty, fresh, going_on = (
        tmp_path / f".{name}.x_1.tmp" for name in ("plan.json", "a", "b", "c")
    )
    unrelated = tmp_path / "other.tmp"
    written.write_text("a part of a plan")
    going_on.write_text("a part")
    for path in (empty, fresh, unrelated):
        path.touch()
    hour_ago = time.time() - 3600
    os.utime(empty, (hour_ago, hour_ago))
    with open(going_on, "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with locked(tmp_path):
            remaining = {path.name for path in tmp_path.iterdir()}
    assert remaining == {LOCK, fresh.name, going_on.name, unrelated.name}


def test_a_pipe_is_written_into(tmp_path):
    pipe = tmp_path / "pipe"
    read = list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"content")
    reader.join(10)
    assert read == [b"content"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


FILES: dict[str, tuple[str, type[Value]]] = {
    "plan": (kinds.PLAN, Plan),
    "spec": (kinds.SPEC, Spec),
    "record": (kinds.RECORD, RunRecord),
    "verdict": (kinds.VERDICT, Verdict),
    "table": (kinds.TABLE, ProxyTable),
}
READERS = {
    kinds.PLAN: ["explain", "FILE"],
    kinds.SPEC: ["solve", "FILE"],
    kinds.TABLE: ["solve", "spec.json", "--forecast", "FILE"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plan, a spec, and the first fields of the other kinds."""
    folder = tmp_path_factory.mktemp("kinds")
    solve(make_spec()).save(folder / "plan.json")
    (folder / "spec.json").write_text(json.dumps(spec_data()))
    for name in ("record", "verdict", "table"):
        fields = dict.fromkeys(FILES[name][1].model_fields, 1)
        (folder / f"{name}.json").write_text(json.dumps(fields))
    return folder


@pytest.mark.parametrize(
    ("kind", "file"),
    [(kind, file) for kind, file in product(READERS, FILES) if FILES[file][0] != kind],
)
def test_a_file_of_another_kind_is_one_line(kind, file, folder, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = [f"{file}.json" if word == "FILE" else word for word in READERS[kind]]
    line = refused(*arguments)
    assert f": must be {kind}" in line
    assert f", not {FILES[file][0]}, " in line


def test_a_spec_in_yaml_for_a_plan_is_named(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\nrounds: 3\nmodel: {name: own, parameters: 3}\n")
    assert refused("explain", path).startswith(
        "plan: must be a plan, not a spec, which privplan solve makes a plan of"
    )
    path.write_text("rounds: 3\n")
    assert refused("explain", path) == f"plan: must be JSON, found '{path}'"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", "1e3"), ("1.0e+3", 1000.0), ("0x1f", 31), ("-7", -7), ("1_000", 1000)],
)
def test_numbers_are_those_of_yaml(text, value):
    assert load_yaml(f"rounds: {text}", "spec") == {"rounds": value}


@pytest.mark.parametrize("text", ["1:30", "-2:10:00", "1:30.5"])
def test_numbers_to_base_60_are_refused(text):
    with pytest.raises(InputError, match=f"spec: .*{text} is a number to base 60"):
        load_yaml(f"rounds: {text}", "spec")


@pytest.mark.parametrize("text", ["014", "-014", "+014", "0_14", "010", "007", "00_1"])
def test_numbers_to_base_8_are_refused(text):
    """As a number and as a name: the field does not matter, as for base 60."""
    for document in (f"rounds: {text}", f"name: {text}", f"[1, {text}]", f"{text}: 1"):
        with pytest.raises(InputError) as caught:
            load_yaml(document, "spec")
        reason = f"{text} is a number to base 8; write a decimal number"
        assert reason in str(caught.value)
