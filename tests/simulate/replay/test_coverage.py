"""Replay executes every algorithm under every law, but for those that it names."""

from functools import cache
from itertools import product

import pytest

from privplan.accounting.release import SamplingLaw
from privplan.planning.solver import solve
from privplan.releases import of_finished_run
from privplan.spec.spec import Spec
from privplan.verification.verify import load_run
from simulate.algorithms.registry import ALGORITHMS, executable
from simulate.recipe import NotExecuted
from simulate.runs.evidence_writer import expected_releases
from simulate.runs.request import Request, prepare
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
    return solve(Spec.parse(data))


def methods(law, unit):
    """Algorithms that run under a law and protect a unit."""
    executed = plan(law, unit)
    names = []
    for name in executable(executed):
        protected = ALGORITHMS.get(name).unit_under(executed)
        if (protected == "record") == (unit == "record"):
            names.append(name)
    return names


def require_executed_again(name, law, unit, folder):
    """Fail unless replay executes a run, or names the algorithm that it does not."""
    request = Request(plan(law, unit), name, "digits", folder / name, seed=3)
    execute(request)
    run = load_run(folder / name)
    # Whether releases are stored, the verifier decides by the ledger.
    if run.ledger.records:
        written = of_finished_run(run.ledger, run.plan)
        assert expected_releases(prepare(request)) == written, name
    report = replayed(folder / name)
    recipe = recipe_of(name, plan(law, unit))
    if isinstance(recipe, NotExecuted):
        assert report.outcome == "not shown", name
        reason = f"missing: {name} cannot be executed again: {recipe.reason}"
        assert report.reason == reason
        return
    assert report.outcome == "passed", (name, report.reason)
    assert report.rounds == tuple(range(1, ROUNDS + 1)), name


QUICK = [("DP2-FedSAM", "poisson"), ("planned", "cyclic_poisson:3")]


@pytest.mark.parametrize(("name", "law"), QUICK)
def test_an_honest_run_is_executed_again(name, law, tmp_path):
    assert name in methods(law, "client")
    require_executed_again(name, law, "client", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "unit"), [*product(LAWS, ["client"]), ("poisson", "record")]
)
def test_each_algorithm_is_executed_again(law, unit, tmp_path):
    """Under each law; records are sampled by Poisson's law only."""
    names = methods(law, unit)
    assert names
    for name in names:
        require_executed_again(name, law, unit, tmp_path)


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
