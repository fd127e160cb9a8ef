"""``privplan doctor``: what is installed, and what is missing."""

from __future__ import annotations

import json

import numpy
import pytest
from click.testing import CliRunner

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
    monkeypatch.setattr(environment, "requires", lambda name: REQUIRED)


def test_a_missing_required_package_is_exit_code_2() -> None:
    done = CliRunner().invoke(main, ["doctor", "--format", "json"])
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    by_name = {one["package"]: one for one in found["packages"]}
    assert set(by_name) == {"numpy", "nosuchpackage", "torch", "elsewhere"}
    assert by_name["numpy"]["found"] == numpy.__version__
    assert by_name["nosuchpackage"] == {
        "package": "nosuchpackage", "extra": None, "needed": "3.1", "found": None,
        "problem": "missing",
    }  # fmt: skip
    assert found["missing"] == {"required": ["nosuchpackage"], "cluster": ["elsewhere"]}
    assert found["devices"]["cpu_cores"] >= 1


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "requires", lambda name: [REQUIRED[0], REQUIRED[3]])
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 0
    assert "missing, extra cluster: elsewhere; pip install 'privplan[cluster]'" in done.stdout


@pytest.mark.parametrize(
    ("found", "needed", "problem"),
    [
        ("2.10.0", "2.9", ""),
        ("2.6.0+cpu", "2.6", ""),
        ("1.13.1", "2", "too old"),
        (None, "", "missing"),
        ("0.6.0rc1", "0.6", ""),
    ],
)
def test_versions_are_compared_as_numbers(found: str | None, needed: str, problem: str) -> None:
    assert environment.problem(found, needed) == (problem or None)
