"""``privplan doctor``: what is installed, and what is missing."""

from __future__ import annotations

import json

import numpy
import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

import privplan.cli.doctor as environment
from privplan.cli import main

REQUIRED = [
    "numpy>=2.0",
    "nosuchpackage[fast]>=3.1",
    'torch>=2.6; extra == "simulate"',
    'elsewhere; extra == "cluster"',
    'pytest>=8; extra == "dev"',
]


@pytest.fixture(autouse=True)
def _requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "requires", {"privplan": REQUIRED}.get)


def test_a_missing_required_package_is_exit_code_2() -> None:
    done = CliRunner().invoke(main, ["doctor", "--format", "json"])
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    by_name = {one["package"]: one for one in found["packages"]}
    assert set(by_name) == {"numpy", "nosuchpackage", "torch", "elsewhere"}
    assert by_name["numpy"]["found"] == numpy.__version__
    assert by_name["nosuchpackage"] == {
        "package": "nosuchpackage", "extra": None, "needed": ">=3.1", "found": None,
        "problem": "missing",
    }  # fmt: skip
    assert found["missing"] == {"required": ["nosuchpackage"], "cluster": ["elsewhere"]}
    assert found["devices"]["cpu_cores"] >= 1


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "requires", {"privplan": [REQUIRED[0], REQUIRED[3]]}.get)
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 0
    assert (
        "missing or broken, extra cluster: elsewhere; pip install 'privplan[cluster]'"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("found", "needed", "problem"),
    [
        ("2.10.0", "a>=2.9", None),
        ("2.6.0+cpu", "a>=2.6", None),
        ("1.13.1", "a>=2", "not >=2"),
        (None, "a", "missing"),
        ("0.6.0rc1", "a>=0.5", None),
    ],
)
def test_versions_are_compared_as_numbers(monkeypatch, found, needed, problem):
    monkeypatch.setattr(environment, "_version", lambda name: found)
    assert environment.problem(Requirement(needed)) == problem


def test_a_pin_that_another_installation_broke_is_seen(monkeypatch):
    needs = {
        "privplan": ["outer>=1"],
        "outer": ["inner<2; python_version > '3'", "x; extra == 'y'"],
    }
    monkeypatch.setattr(environment, "requires", needs.get)
    monkeypatch.setattr(environment, "_version", {"outer": "1.0", "inner": "2.1"}.get)
    [row] = environment.packages()
    assert row["problem"] == "outer needs inner<2, found 2.1"
