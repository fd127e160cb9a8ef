"""Short commands: init, explain, account and calibrate, doctor."""

import json

import numpy
import pytest
from click.testing import CliRunner

import privplan.cli.doctor as environment
from privplan.accounting.calibrate import UNKNOWNS
from privplan.cli import account as calibrate
from privplan.cli import main
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.command import answer, privplan, refused


def test_keeps_a_file_that_exists_unless_forced(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("mine")
    assert "must not exist yet" in refused("init", "-o", path)
    assert path.read_text() == "mine"
    answer("init", "-o", path, "--force")
    assert Spec.load(path).name == "digits"


@pytest.mark.parametrize("unit", ["client", "record"])
def test_an_interview_writes_a_spec_that_is_planned(unit, tmp_path):
    path = tmp_path / "spec.yaml"
    if unit == "client":
        answers = "1\na 9 -1\na 90 1\n\n\n\n7\n\n\n\nmany\n2\ntwo words\npatient\n"
        person = "patient"
    else:
        answers = "2\n4\n3\na 90\na 90 500 1\n\n\n\n\n\n\nmany\n2\n"
        person = None

    # A delta that promises nothing is said at once.
    typed = "1\na 90 1\n\n\n\n7\n0.5\n"
    done = CliRunner().invoke(main, ["init", "--interactive"], input=typed)
    assert "warning: groups.a.delta: 0.5 is not below 1/clients" in done.output

    # Input that ends early leaves no file.
    for typed, code in ((answers[:7], 130), (answers, 0)):
        assert not path.exists()
        words = ["init", "--interactive", "-o", str(path)]
        assert CliRunner().invoke(main, words, input=typed).exit_code == code
    group = solve(Spec.load(path)).groups[0]
    assert group.clients == 90
    assert group.epsilon == 1
    assert Spec.load(path).unit == unit
    assert group.contributions == 2
    assert Spec.load(path).person == person


@pytest.mark.parametrize(("epsilon", "is_least"), [(3000, True), (3, False)])
def test_calibrate_says_when_a_budget_allows_less_noise_than_can_be_certified(
    epsilon, is_least
):
    arguments = [
        "--epsilon",
        epsilon,
        "--delta",
        1e-5,
        "--sampling-ratio",
        0.04,
        "--rounds",
        30,
    ]
    done = privplan("calibrate", *arguments)
    assert done.exit_code == 0
    assert (
        "0.050005 is the least that can be calibrated by pld here" in done.stderr
    ) == is_least
    assert done.stdout.startswith("noise_multiplier: 0.050005 ") == is_least


def test_account_says_what_a_law_of_turns_costs_and_which_names_are_near():
    words = ["--noise-multiplier", 2, "--delta", 1e-5, "--rounds", 60, "--sampling"]
    assert "60 rounds cost what 100 do" in answer(
        "account", *words, "min_separation:50"
    )
    line = refused("account", *words, "random_allocation:50")
    assert line.startswith("rounds: must be a multiple of 50 under random allocation")
    line = refused("account", *words, "random_allocation:30", "--accountant", "rdp")
    assert line.startswith("rdp: no moment bound")
    line = refused("account", *words, "random_alocation:50")
    assert "'banded_separation:B' with B in [2, 999]" in line
    assert "(did you mean random_allocation?)" in line


def test_calibrate_says_what_correlated_noise_leaves_in_the_last_model():
    arguments = [
        "calibrate",
        "--epsilon",
        "1.5",
        "--delta",
        "6.98e-5",
        "--rounds",
        "50",
    ]
    shown = answer(*arguments, "--sampling", "cyclic_allocation:10:5")
    assert "noise in the last model as much as independent: 0.4679 clip" in shown
    shown = answer(*arguments, "--sampling", "random_allocation:50")
    assert "last model" not in shown


def test_calibrate_offers_every_unknown():
    assert tuple(UNKNOWNS) == calibrate.UNKNOWNS


REQUIRED = [
    "numpy>=2.0",
    "nosuchpackage[fast]>=3.1",
    'torch>=2.6; extra == "simulate"',
    'elsewhere; extra == "cluster"',
    'pytest>=8; extra == "dev"',
]


@pytest.fixture(autouse=True)
def _requirements(monkeypatch):
    monkeypatch.setattr(environment, "requires", {"privplan": REQUIRED}.get)


def test_a_missing_required_package_is_exit_code_2():
    done = privplan("doctor", "--format", "json")
    report = json.loads(done.stdout)
    assert done.exit_code == 2
    by_name = {row["package"]: row for row in report["packages"]}
    assert set(by_name) == {"numpy", "nosuchpackage", "torch", "elsewhere"}
    assert by_name["numpy"]["found"] == numpy.__version__
    assert by_name["nosuchpackage"]["problem"] == "missing"
    assert report["missing"] == {
        "required": ["nosuchpackage"],
        "cluster": ["elsewhere"],
    }
    assert report["devices"]["cpu_cores"] >= 1


def test_a_pin_that_another_installation_broke_is_seen(monkeypatch):
    needs = {
        "privplan": ["outer>=1"],
        "outer": ["inner<2; python_version > '3'", "x; extra == 'y'"],
    }
    monkeypatch.setattr(environment, "requires", needs.get)
    monkeypatch.setattr(environment, "_version", {"outer": "1.0", "inner": "2.1"}.get)
    [row] = environment.packages()
    assert row["problem"] == "outer needs inner<2, found 2.1"
