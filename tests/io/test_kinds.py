"""Files of another kind than asked for: one line, whichever reader gets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privplan import files as kinds
from privplan.forecast.features import ProxyTable
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import RunRecord
from privplan.spec.spec import Spec
from privplan.values import Value
from privplan.verification.verify import Verdict
from tests.command import refused
from tests.planning.problems import make_spec, spec_data

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan, a spec, and the first fields of the other kinds."""
    folder = tmp_path_factory.mktemp("kinds")
    solve(make_spec(), second_opinion=False).save(folder / "plan.json")
    (folder / "spec.json").write_text(json.dumps(spec_data()))
    for name in ("record", "verdict", "table"):
        fields = dict.fromkeys(FILES[name][1].model_fields, 1)
        (folder / f"{name}.json").write_text(json.dumps(fields))
    return folder


@pytest.mark.parametrize(
    ("wanted", "file"),
    [(wanted, file) for wanted in READERS for file in FILES if FILES[file][0] != wanted],
)
def test_a_file_of_another_kind_is_one_line(
    wanted: str, file: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    arguments = [f"{file}.json" if word == "FILE" else word for word in READERS[wanted]]
    line = refused(*arguments)
    assert f": must be {wanted}, not {FILES[file][0]}" in line
    assert ", found 'fields " in line


def test_a_spec_in_yaml_for_a_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\nrounds: 3\nmodel: {name: own, parameters: 3}\n")
    assert refused("explain", path).startswith("plan: must be a plan, not a spec, found ")
    path.write_text("rounds: 3\n")
    assert refused("explain", path) == f"plan: must be JSON, found '{path}'"
