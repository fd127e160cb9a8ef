"""Documents made to fill memory, run code, leave their folder or break a line."""

import pytest

from privplan.errors import InputError
from privplan.files import load_json
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.record import LEDGER, RECORD, RunRecord
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from tests.planning.problems import spec_data

LAUGHS = "\n".join(
    [
        "a0: &a0 [x, x, x]",
        *(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]" for i in range(1, 20)),
    ]
)
MERGES = "\n".join(
    [
        "a0: &a0 {x: 1}",
        *(f"a{i}: &a{i} {{<<: [{f'*a{i - 1}, ' * 9}]}}" for i in range(1, 20)),
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        MERGES,
        "a: &a [*a]",
        "&a {*a : 1}",
        "[" * 10_000,
        "{a: " * 10_000,
        "- " * 10_000,
        "a: 1\na: 2",
        "? [1]\n: 2",
        "!!python/object/apply:os.mkdir [x]",
        "!!python/name:os.system",
        "a: 2020-13-45",
        "a: \x00",
        "a: !!int abc",
        "a: !!float x",
        "%YAML 9\n---",
    ],
)
def test_yaml_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="spec: must be YAML") as caught:
        load_yaml(text, "spec")
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "NaN", "[Infinity]", "9" * 5000, "{", "\ud800x"]
)
def test_json_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match=r".+"):
        load_json(text)
    data = text.encode("utf-8", "surrogatepass")
    for name in ("plan.json", RECORD, LEDGER):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match="plan: must be"):
        Plan.load(tmp_path / "plan.json")
    with pytest.raises(InputError, match="record: must be"):
        RunRecord.load(tmp_path)
    if "\ud800" not in text:
        (tmp_path / LEDGER).write_bytes(data + b"\n")
        assert read_ledger(tmp_path, "0" * 64).fault == "line 1 is not a release"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "a\nb"}, "name: must be printable text on one line"),
        ({"name": "\x1b[31m"}, "name: must be printable"),
        ({"name": "\u202ecod"}, "name: must be printable"),
        ({"rounds": 10**400}, "rounds: must be 1e+15 or less"),
        ({"rounds": int("9" * 4000)}, "rounds: must be 1e+15 or less"),
        ({"delta": 10**400}, "delta: must be a number in"),
        ({"delta": 5e-324}, "delta: must be in (0, 1), 1e-30 or more"),
        ({"delta": "n^-999999"}, "delta: must be in [1e-30, 1)"),
        ({"clipping_norm": 1e300}, "clipping_norm: must be 1e+40 or less"),
        ({"groups_from": "a\0b", "groups": []}, "groups_from: must be the name of a file"),
        ({"unit": "person"}, "unit: must be client or record; make a person or a group of records"),
        ({"unknown\nfield": 1}, "unknown\\nfield: is not a known field"),
    ],
)  # fmt: skip
def test_specs_are_refused_in_one_line(changes, reason):
    with pytest.raises(InputError) as caught:
        Spec.parse({**spec_data(), **changes})
    [line] = str(caught.value).splitlines()
    assert reason in line
    assert len(line) < 3000


NAMES = (
    'x"""; __import__("os").system("id")',
    "../../escaped",
    "/etc/escaped",
    "[/bold]",
    "[red]x[/red]",
    "$\\frac$",
    ":smile:",
    "{0}%s",
)


def test_names_that_are_more_than_a_name_are_refused_together():
    groups = [{"name": name, "clients": 100, "epsilon": 2.0} for name in NAMES]
    with pytest.raises(InputError) as caught:
        Spec.parse(spec_data(groups=groups))
    assert [fault.found for fault in caught.value.faults] == list(NAMES)
    for name in ("Klinik Süd", "group-1", "a_b.c"):
        assert (
            Spec.parse(spec_data(groups=[{**groups[0], "name": name}])).groups[0].name
            == name
        )
