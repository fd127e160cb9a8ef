"""A law with a behaviour of its own is one file: no other file names it or branches for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release, SamplingLaw
from tests.extensions import own_law
from tests.extensions.installed import install, run
from tests.extensions.test_entry_points import SPEC, epsilons

OWN = SPEC.replace("SAMPLING", "one_of_four").replace("ACCOUNTANT", "pld")
OWN = OWN.replace("cohort: 16", "cohort: 10").replace("rounds: 4", "rounds: 8")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    points = "[privplan.laws]\none_of_four = own_law:OneOfFour\n"
    return install(tmp_path_factory.mktemp("site"), Path(own_law.__file__), points)


def test_from_spec_to_book(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(OWN)
    run(installed, tmp_path, "solve", "spec.yaml", "-o", "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    for group in plan["groups"]:  # two Gaussian releases to each client
        twice = History.repeated(Release(group["noise_multiplier"], 1.0, SamplingLaw.FULL), 2)
        spent = accountant("pld").epsilon(twice, group["delta"], "add_remove")
        assert 0.99 * group["epsilon"] < spent.upper <= group["epsilon"]
    simulated = ("simulate", "plan.json", "--algorithm=planned", "--seed=3", "--device=cpu")
    run(installed, tmp_path, *simulated, "-o", "run")
    verdict = json.loads(run(installed, tmp_path, "verify", "run", "--format=json"))
    assert verdict["kept"]
    assert not [one["name"] for one in verdict["checks"] if one["outcome"] == "failed"]
    for group, planned in zip(verdict["groups"], plan["groups"], strict=True):
        assert 0.99 * planned["epsilon"] < group["realised_lower"] <= group["realised_upper"]
        assert group["realised_upper"] <= planned["epsilon"]
    book = ("--address", "book.sqlite")
    run(installed, tmp_path, "book", "add", "run", *book)
    shown = json.loads(run(installed, tmp_path, "book", "show", *book, "--format=json"))
    assert {(one["group"], one["releases"], one["kept"]) for one in shown} == {
        (group["name"], 8, 1) for group in plan["groups"]
    }
    left = run(installed, tmp_path, "book", "left", "--group=strict", "--epsilon=6", *book)
    assert "one_of_four" in left


def test_accounting_counts_the_rounds_of_a_client(installed: Path, tmp_path: Path) -> None:
    given = ("--noise-multiplier=3", "--delta=1e-5", "--sampling-ratio=1", "--format=json")
    own = run(installed, tmp_path, "account", *given, "--rounds=80", "--sampling=one_of_four")
    full = run(installed, tmp_path, "account", *given, "--rounds=20", "--sampling=full")
    assert epsilons(own)["pld"] == epsilons(full)["pld"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rounds: 8", "rounds: 9", "rounds: must be a multiple of 4 under one_of_four sampling"),
        ("ratios: uniform", "ratios: balanced", "planning.ratios: must be uniform under one_of_"),
    ],
)
def test_what_it_excludes(
    old: str, new: str, message: str, installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "spec.yaml").write_text(OWN.replace(old, new))
    assert message in run(installed, tmp_path, "solve", "spec.yaml", code=2)
