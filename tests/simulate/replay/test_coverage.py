"""Replay executes every algorithm under every law, but for those that it names."""

from functools import cache
from itertools import product

import pytest

from privplan.accounting.release import SamplingLaw
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.algorithms.registry import ALGORITHMS, executable
from simulate.recipe import NotExecuted
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import replayed

LAWS = (*(str(law) for law in SamplingLaw), "cyclic_poisson:3")
ROUNDS = 6
GROUPS = [("strict", 1.0), ("middle", 2.0), ("loose", 4.0)]


@cache
def plan(law, unit):
    """A plan of three groups of 12 clients, for a sampling law and a unit."""
    records = {"records": 20} if unit == "record" else {}
    groups = [
        {"name": name, "clients": 12, "epsilon": epsilon, **records}
        for name, epsilon in GROUPS
    ]
    data = {
        "name": "tiny",
        "groups": groups,
        "rounds": ROUNDS,
        "cohort": 36 if law == "full" else 10,
        "sampling": law,
        "clipping_norm": 0.3,
        "unit": unit,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "delta": 1e-3,
        "local": {"steps": 3, "batch_size": 8, "momentum": 0.5},
        "planning": {"slack": 0},
    }
    return solve(Spec.parse(data), second_opinion=False)


def runs():
    """(algorithm, law, unit) of all runs: records are sampled by Poisson's law only."""
    cases = []
    for law, unit in [*product(LAWS, ["client"]), ("poisson", "record")]:
        for name in executable(plan(law, unit)):
            unit_of_method = ALGORITHMS.get(name).unit_under(plan(law, unit))
            if (unit_of_method == "record") == (unit == "record"):
                cases.append((name, law, unit))
    return cases


QUICK = {
    ("DP2-FedSAM", "poisson", "client"),
    ("planned", "cyclic_poisson:3", "client"),
}


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(
            run, marks=() if run in QUICK else pytest.mark.slow, id="-".join(run)
        )
        for run in runs()
    ],
)
def test_an_honest_run_is_executed_again(run, tmp_path):
    name, law, unit = run
    execute(Request(plan(law, unit), name, "digits", tmp_path / "run", seed=3))
    report = replayed(tmp_path / "run")
    recipe = recipe_of(name, plan(law, unit))
    if isinstance(recipe, NotExecuted):
        assert report.outcome == "not shown"
        reason = f"missing: {name} cannot be executed again: {recipe.reason}"
        assert report.reason == reason
        return
    assert report.outcome == "passed", report.reason
    assert report.rounds == tuple(range(1, ROUNDS + 1))


def recipe_of(name, executed):
    return ALGORITHMS.get(name).recipe(executed, "paper")


def test_every_private_algorithm_but_two_registers_how_it_is_executed_again():
    of_clients = plan("poisson", "client")
    named = {
        name
        for name, entry in ALGORITHMS.items()
        if entry.unit != "none" and isinstance(recipe_of(name, of_clients), NotExecuted)
    }
    assert named == {"Local-only", "DP-FedAvg-BLUR+LUS"}
