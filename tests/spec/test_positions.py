"""Faults of a spec's file name their line, and groups of one name are told apart."""

import pytest

from privplan.errors import InputError
from privplan.spec.spec import Spec
from tests.command import privplan, refused

TEXT = """\
name: lines
groups:
  - {name: strict, clients: 100, epsilon: -1}
  - name: a
    clients: 0
    epsilon: 2
  - name: a
    clients: 50
    epsilon: .nan
rounds: 10
cohort: 5
local:
  steps: 2
  learning_rate: 0
model: {name: net, parameters: 10}
epocs: 3
"""
FAULTS = {
    "groups.strict.epsilon": 3,
    "groups.1.clients": 5,
    "groups.2.epsilon": 9,
    "local.learning_rate": 14,
    "epocs": 16,
}


def test_each_fault_names_its_line(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(TEXT)
    with pytest.raises(InputError) as caught:
        Spec.load(file)
    places = {fault.field: fault.place for fault in caught.value.faults}
    for field, line in FAULTS.items():
        assert places[field] == f"{file}:{line}", places
    first_line = str(caught.value).splitlines()[0]
    assert first_line.endswith(f"found -1 ({file}:3)")


def test_a_field_that_is_missing_has_the_line_of_what_is_around_it(tmp_path):
    file = tmp_path / "spec.yaml"
    text = TEXT.replace("epsilon: -1", "epsilon: 1").replace("    epsilon: 2\n", "")
    file.write_text(text.replace("rounds: 10\n", ""))
    with pytest.raises(InputError) as caught:
        Spec.load(file)
    places = {fault.field: fault.place for fault in caught.value.faults}
    assert places["groups.1.epsilon"] == f"{file}:4"
    assert places["rounds"] == ""


@pytest.mark.parametrize(
    "words",
    [
        ("solve",),
        ("what-if", "rounds=10,20"),
        ("compare", "--algorithms", "planned", "-o", "results"),
        ("proxy", "tune", "--dataset", "digits", "-o", "tuned.yaml"),
        ("proxy", "pilot", "--dataset", "digits", "-o", "measured.yaml"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_each_command_that_reads_a_spec_names_the_line(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = words[:2] if words[0] == "proxy" else words[:1]
    options = words[len(names) :]
    (tmp_path / "spec.yaml").write_text(TEXT)
    done = privplan(*names, "spec.yaml", *options)
    written = done.stderr
    assert done.exit_code == 2
    assert "epocs: is not a known field" in written
    assert "(spec.yaml:16)" in written
    (tmp_path / "spec.yaml").write_text("name: x\nrounds: [3\nmodel: {}\n")
    written = refused(*names, "spec.yaml", *options)
    assert "spec: must be YAML, found \"expected ',' or ']', but got ':'\"" in written
    assert "(spec.yaml:3)" in written


def test_a_key_that_stands_twice_has_a_line(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text("name: x\nrounds: 3\nrounds: 4\n")
    rule = rf"the key 'rounds' stands twice or is no key\" \({file}:3\)"
    with pytest.raises(InputError, match=rule):
        Spec.load(file)


def test_a_mapping_has_no_lines():
    with pytest.raises(InputError) as caught:
        Spec.parse({"name": "lines", "epocs": 3})
    assert {fault.place for fault in caught.value.faults} == {""}
