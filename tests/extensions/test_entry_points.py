"""Components of other distributions, by entry points, through the commands."""

import json
from pathlib import Path

import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.spec.presets import preset
from privplan.yaml_text import load_yaml
from tests.extensions import own_law, toy_package
from tests.extensions.installed import install, process_with, run

SPEC = """
name: toy
groups:
  - {name: strict, clients: 20, epsilon: 3.0}
  - {name: loose, clients: 20, epsilon: 12.0}
delta: n^-1.1
rounds: 4
cohort: 16
sampling: SAMPLING
local: {steps: 2, batch_size: 5, learning_rate: 0.1, momentum: 0.0}
model: {name: mlp-digits, parameters: 2410}
planning: {accountant: ACCOUNTANT, ratios: uniform}
"""
POINTS = """
[privplan.laws]
coins = toy_package:Coins
broken = no_such_package:Law
[privplan.accountants]
doubled = toy_package:Doubled
broken = no_such_package:Accountant
[privplan.server_optimisers]
sign = toy_package:sign
[privplan.objectives]
near_population = toy_package:NearPopulation
"""
MECHANISM = [
    "--noise-multiplier=1.5",
    "--rounds=50",
    "--delta=1e-5",
    "--sampling-ratio=.02",
]

SIMULATE = ("simulate", "plan.json", "--algorithm=planned", "--seed=3", "--device=cpu")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = install(
        tmp_path_factory.mktemp("site"), Path(toy_package.__file__), POINTS
    )
    install(
        folder,
        Path(own_law.__file__),
        "[privplan.laws]\none_of_four = own_law:OneOfFour\n",
    )
    with process_with(folder) as process:
        yield process


def epsilons(text):
    return {row["accountant"]: float(row["epsilon_upper"]) for row in json.loads(text)}


def test_account_and_calibrate(installed, tmp_path):
    as_json = ["--format=json"]
    coins = run(
        installed, tmp_path, "account", *MECHANISM, "--sampling=coins", *as_json
    )
    poisson = run(installed, tmp_path, "account", *MECHANISM, *as_json)
    by_coins = epsilons(coins)
    by_poisson = epsilons(poisson)
    assert by_coins["pld"] == pytest.approx(by_poisson["pld"], rel=1e-12)
    assert by_coins["rdp"] == pytest.approx(by_poisson["rdp"], rel=1e-9)
    assert by_coins["doubled"] == pytest.approx(2 * by_coins["rdp"])
    assert not {"gdp", "closed_form"} & set(by_coins)
    assert "coins" in run(installed, tmp_path, "account", "--help")
    noise = run(
        installed,
        tmp_path,
        *("calibrate", "--solve-for=noise_multiplier", "--epsilon=2", "--rounds=50"),
        *(
            "--delta=1e-5",
            "--sampling-ratio=.02",
            "--sampling=coins",
            "--accountant=doubled",
        ),
        *as_json,
    )
    assert "coins" in noise


def test_a_broken_entry_point_fails_only_where_it_is_asked_for(installed, tmp_path):
    message = run(
        installed, tmp_path, "account", *MECHANISM, "--accountant=broken", code=2
    )
    assert "accountant: entry point 'no_such_package:Accountant'" in message
    message = run(
        installed, tmp_path, "account", *MECHANISM, "--sampling=broken", code=2
    )
    assert "sampling: entry point 'no_such_package:Law'" in message
    assert message.count("\n") == 1


@pytest.mark.slow
def test_an_objective_is_minimised_and_explained(installed, tmp_path):
    data = load_yaml(preset("gdpfed-fmnist"), "preset")
    constants = {"smoothness": 2.0, "initial_gap": 1.0}
    planning = {
        "accountant": "rdp",
        "ratios": "near_population",
        "constants": constants,
    }
    (tmp_path / "spec.json").write_text(json.dumps({**data, "planning": planning}))
    solved = run(
        installed, tmp_path, "solve", "spec.json", "--details", "-o", "plan.json"
    )
    assert "near-population error: mean_noise_std" in solved
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["release"] == "per_group"
    assert plan["objective"]["name"] == "near_population"
    assert plan["objective"]["value"] == pytest.approx(plan["mean_noise_std"], rel=1e-3)
    people = sum(group["clients"] for group in plan["groups"])
    for group in plan["groups"]:
        assert group["weight"] == pytest.approx(group["clients"] / people, rel=1e-4)
    assert "2*toy_factor" in run(installed, tmp_path, "explain", "plan.json")
    schema = json.loads(run(installed, tmp_path, "init", "--schema"))
    assert (
        "near_population" in schema["$defs"]["Planning"]["properties"]["ratios"]["enum"]
    )


@pytest.mark.slow
def test_a_server_optimiser_trains_and_is_kept_as_recorded(installed, tmp_path):
    text = SPEC.replace("SAMPLING", "poisson").replace("ACCOUNTANT", "pld")
    (tmp_path / "spec.yaml").write_text(
        text + "server: {optimizer: sign, learning_rate: 0.02}\n"
    )
    run(installed, tmp_path, "solve", "spec.yaml", "-o", "plan.json")
    assert "test accuracy" in run(installed, tmp_path, *SIMULATE, "-o", "run")
    assert (
        json.loads((tmp_path / "run" / "record.json").read_text())["status"]
        == "complete"
    )
    # What another distribution's server makes of the data nobody checks.
    verified = run(installed, tmp_path, "verify", "run")
    assert verified.startswith("kept as recorded")
    assert "its server optimiser sign is your own" in " ".join(verified.split())


ONE_OF_FOUR = (
    SPEC.replace("SAMPLING", "one_of_four")
    .replace("ACCOUNTANT", "pld")
    .replace("cohort: 16", "cohort: 10")
    .replace("rounds: 4", "rounds: 8")
)


def test_from_spec_to_book(installed, tmp_path):
    (tmp_path / "spec.yaml").write_text(ONE_OF_FOUR)
    run(installed, tmp_path, "solve", "spec.yaml", "-o", "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())

    # Eight rounds are two Gaussian releases to each client.
    for group in plan["groups"]:
        twice = History.repeated(
            Release(group["noise_multiplier"], 1.0, SamplingLaw.FULL), 2
        )
        spent = accountant("pld").epsilon(twice, group["delta"], "add_remove")
        assert 0.99 * group["epsilon"] < spent.upper <= group["epsilon"]
    run(installed, tmp_path, *SIMULATE, "-o", "run")
    verdict = json.loads(run(installed, tmp_path, "verify", "run", "--format=json"))
    assert verdict["kept"]
    # What a law of another distribution costs is its author's word.
    assert verdict["level"] == "recorded"
    assert "the law one_of_four is not privplan's" in verdict["not_executed"]
    for check in verdict["checks"]:
        assert check["outcome"] != "failed", check["name"]
    for group, planned in zip(verdict["groups"], plan["groups"], strict=True):
        budget = planned["epsilon"]
        lower = group["realised_lower"]
        assert 0.99 * budget < lower <= group["realised_upper"] <= budget

    book = ("--address", "book.sqlite")
    run(installed, tmp_path, "book", "add", "run", *book)
    shown = json.loads(run(installed, tmp_path, "book", "show", *book, "--format=json"))
    booked = {(row["group"], row["releases"], row["kept"]) for row in shown}
    assert booked == {(group["name"], 8, 1) for group in plan["groups"]}
    answer = run(
        installed, tmp_path, "book", "left", "--group=strict", "--epsilon=6", *book
    )
    assert "one_of_four" in answer


def test_accounting_counts_the_rounds_of_a_client(installed, tmp_path):
    release = (
        "--noise-multiplier=3",
        "--delta=1e-5",
        "--sampling-ratio=1",
        "--format=json",
    )
    of_client = run(
        installed,
        tmp_path,
        "account",
        *release,
        "--rounds=80",
        "--sampling=one_of_four",
    )
    full = run(
        installed, tmp_path, "account", *release, "--rounds=20", "--sampling=full"
    )
    assert epsilons(of_client)["pld"] == epsilons(full)["pld"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "rounds: 8",
            "rounds: 9",
            "rounds: must be a multiple of 4 under one_of_four sampling",
        ),
        (
            "ratios: uniform",
            "ratios: balanced",
            "planning.ratios: must be uniform under one_of_",
        ),
    ],
)
def test_what_it_excludes(old, new, message, installed, tmp_path):
    (tmp_path / "spec.yaml").write_text(ONE_OF_FOUR.replace(old, new))
    assert message in run(installed, tmp_path, "solve", "spec.yaml", code=2)
