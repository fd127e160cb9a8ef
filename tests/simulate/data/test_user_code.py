"""Names of the user's code: what is written otherwise is said as it must be written."""

import pytest

from privplan.errors import InputError
from simulate.data.user_code import imported


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "clinic_nets.py").write_text("class Net: pass\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("clinic_nets.Net", "must be package.module:name; write clinic_nets:Net"),
        ("clinic_nets.py:Net", "must be package.module:name; write clinic_nets:Net"),
        ("nets/clinic.py:Net", "must be package.module:name; write nets.clinic:Net"),
        ("Net", "must be package.module:name"),
        ("two words:Net", "must be package.module:name"),
        (
            "clinic_nets:net",
            'must be importable as clinic_nets:net, found "AttributeError: module '
            "'clinic_nets' has no 'net' (did you mean Net?)\"",
        ),
    ],
)
def test_a_name_that_is_not_found_is_said_as_it_must_be(text, rule, module):
    with pytest.raises(InputError) as raised:
        imported("model", text)
    line = str(raised.value)
    assert line.startswith(f"model: {rule}")
    assert ("write" in line) == ("write" in rule)


def test_a_class_of_a_file_in_the_working_directory_is_found(module):
    assert imported("model", "clinic_nets:Net").__name__ == "Net"
