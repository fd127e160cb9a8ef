"""What an optional package is missing for is one line that names its extra."""

import sys

import pytest

import privplan
from privplan.planning.solver import solve
from privplan.report import show
from privplan.spec.spec import Spec
from tests.command import refused
from tests.planning.problems import spec_data


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    solve(Spec.parse(spec_data()), second_opinion=False).save(path)
    return path


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [("sympy", "explain", "explain"), ("marimo", "app", "app")],
)
def test_a_command_without_its_package_names_the_extra(
    package, command, extra, plan_file, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    line = refused(command, plan_file)
    assert f"pip install 'privplan[{extra}]'" in line


def test_what_if_without_pandas_is_a_list_that_draws(monkeypatch):
    monkeypatch.setattr(show, "find_spec", lambda name: None)
    rows = privplan.what_if(spec_data(), {"strict": [1.0]})
    assert [row["group"] for row in rows] == ["strict", "loose"]
    assert rows.plot().draw("png").startswith(b"\x89PNG")
