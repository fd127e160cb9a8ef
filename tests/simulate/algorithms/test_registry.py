"""The registry of algorithms: lookup, requirements, hyperparameters, and other distributions."""

import inspect
import json
import re

import pytest

from privplan.errors import InputError
from privplan.planning.baselines import strictest
from privplan.record import RECORD
from simulate.algorithm import compose
from simulate.algorithms import registry
from simulate.mechanisms import gaussian_joint
from simulate.server import laplacian
from simulate.transforms import clip
from tests.command import answer, privplan
from tests.simulate import tiny

KNOWN = {"name": "mlp-digits", "parameters": 2410}


@pytest.mark.parametrize("name", registry.ALGORITHMS.names())
def test_each_algorithm_states_its_source_unit_releases_and_deviations(name):
    entry = registry.ALGORITHMS.get(name)
    assert entry.name == name
    assert entry.unit in ("client", "record", "none")
    assert re.search(
        "^Deviations: .", inspect.getdoc(entry.function) or "", re.MULTILINE
    )
    assert entry.released
    assert entry.source
    complete = entry.complete(registry.Hyperparameters())
    assert complete == entry.complete(complete)
    assert list(complete.values) == list(entry.hyperparameters)


def test_gdpfed_plus_plans_by_itself_under_a_joint_plan():
    joint = tiny.plan(release="joint", sampling="poisson", cohort=2, model=KNOWN)
    own = registry.algorithm("GDPFed+", joint).plan
    assert (own.release, own.spec.planning.ratios) == ("per_group", "gdpfed_plus")
    assert registry.algorithm("GDPFed+", own).plan == own
    assert not registry.not_executable(joint)


@pytest.mark.parametrize("law", ["full", "fixed_size"])
def test_ratios_of_their_own_need_poisson_sampling(law):
    plan = tiny.plan(sampling=law, model=KNOWN)
    own = ["IDP-FedAvg-Sample", "Time-adaptive HDPFL"]
    for name in own:
        with pytest.raises(
            InputError, match=f"plan.sampling: must be poisson for {name}; planned"
        ):
            registry.algorithm(name, plan)
    assert not set(own) & set(registry.executable(plan))
    assert (
        registry.not_executable(plan)[f"plan.sampling: must be poisson, found '{law}'"]
        == own
    )


def toy(plan, hyperparameters):
    """DP-FedAvg with a smoothed step, defined outside the package."""
    return compose(
        "any name", plan, transforms=(clip(plan.spec.clipping_norm),), mechanism=gaussian_joint(),
        server=laplacian(hyperparameters["strength"]),
    )  # fmt: skip


def registered(name):
    """The decorator that registers ``toy`` under a name."""
    return registry.register(
        name, plan=registry.from_spec(strictest), unit="client", released="one noisy sum per round",
        source="this test",
        hyperparameters={"strength": registry.Hyperparameter(0.5, "strength of the smoothing")},
    )  # fmt: skip


@pytest.fixture
def restored():
    """The registry as it was, once the test is over."""
    registry.ALGORITHMS.names()
    before = dict(vars(registry.ALGORITHMS))
    vars(registry.ALGORITHMS).update(
        {name: dict(before[name]) for name in ("_components", "_points")}
    )
    yield
    vars(registry.ALGORITHMS).clear()
    vars(registry.ALGORITHMS).update(before)


@pytest.mark.usefixtures("restored")
def test_an_algorithm_from_outside_is_listed_trained_compared_and_verified(
    short_path, tmp_path
):
    assert registered("Toy")(toy) is toy
    listed = {
        one["algorithm"]: one
        for one in json.loads(privplan("simulate", "--algorithms=json").stdout)
    }
    assert listed["Toy"]["released"] == "one noisy sum per round"
    assert listed["Toy"]["hyperparameters"]["strength"]["default"] == 0.5
    row = "| Toy | client | one noisy sum per round | this test | strength=0.5 |"
    assert row in privplan("simulate", "--algorithms=markdown").stdout.splitlines()

    run = tmp_path / "run"
    options = ("--seed", 3, "--device", "cpu")
    answer(
        "simulate",
        short_path,
        "--algorithm=toy",
        *options,
        "--set=strength=2",
        "-o",
        run,
    )
    record = json.loads((run / RECORD).read_text())
    assert record["algorithm"] == "Toy"
    assert record["configuration"]["numbers"] == {"strength": 2.0}
    assert privplan("verify", run).exit_code == 0

    arguments = (
        "compare",
        short_path,
        "--algorithms=FedAvg,Toy",
        "--seeds=1",
        "--device=cpu",
    )
    answer(*arguments, "-o", tmp_path / "results")
    assert len(list((tmp_path / "results" / "Toy").glob(f"seed-*/{RECORD}"))) == 1
    table = (tmp_path / "results" / "results.csv").read_text()
    assert re.search(r"^Toy,client,", table, re.MULTILINE)
