"""The registry of algorithms: lookup, requirements, and other distributions."""

import inspect
import json
import re

import pytest

from privplan.errors import InputError
from privplan.planning.baselines import strictest
from privplan.record import RECORD
from privplan.report.style import picture
from simulate.algorithm import compose
from simulate.algorithms import registry
from simulate.mechanisms import gaussian_joint
from simulate.runs.rows import rows_in
from simulate.server import laplacian
from simulate.transforms import clip
from tests.command import answer, privplan
from tests.simulate import tiny

MODEL = {"name": "mlp-digits", "parameters": 2410}


@pytest.mark.parametrize("name", registry.ALGORITHMS.names())
def test_each_algorithm_states_its_source_unit_releases_and_deviations(name):
    entry = registry.ALGORITHMS.get(name)
    assert entry.name == name
    assert entry.unit in ("client", "record", "none")
    documentation = inspect.getdoc(entry.function) or ""
    assert re.search("^Deviations: .", documentation, re.MULTILINE)
    assert entry.released
    assert entry.source
    complete = entry.complete(registry.Hyperparameters())
    assert complete == entry.complete(complete)
    assert list(complete.values) == list(entry.hyperparameters)


def test_gdpfed_plus_plans_by_itself_under_a_joint_plan():
    joint = tiny.plan(release="joint", sampling="poisson", cohort=2, model=MODEL)
    plan = registry.algorithm("GDPFed+", joint).plan
    assert plan.release == "per_group"
    assert plan.spec.planning.ratios == "gdpfed_plus"
    assert registry.algorithm("GDPFed+", plan).plan == plan
    assert not registry.not_executable(joint)


@pytest.mark.parametrize("law", ["full", "fixed_size"])
def test_ratios_of_their_own_need_poisson_sampling(law):
    plan = tiny.plan(sampling=law, model=MODEL)
    names = ["IDP-FedAvg-Sample", "Time-adaptive HDPFL"]
    for name in names:
        rule = f"plan.sampling: must be poisson for {name}; planned"
        with pytest.raises(InputError, match=rule):
            registry.algorithm(name, plan)
    assert not set(names) & set(registry.executable(plan))
    reason = f"plan.sampling: must be poisson, found '{law}'"
    assert registry.not_executable(plan)[reason] == names


def toy(plan, hyperparameters):
    """DP-FedAvg with a smoothed step, defined outside the package."""
    return compose(
        "any name",
        plan,
        transforms=(clip(plan.spec.clipping_norm),),
        mechanism=gaussian_joint(),
        server=laplacian(hyperparameters["strength"]),
    )


def registered(name):
    """The decorator that registers ``toy`` under a name."""
    strength = registry.Hyperparameter(0.5, "strength of the smoothing")
    return registry.register(
        name,
        plan=registry.from_spec(strictest),
        unit="client",
        released="one noisy sum per round",
        source="this test",
        hyperparameters={"strength": strength},
    )


@pytest.fixture
def restored():
    """The registry as it was, once the test is over."""
    registry.ALGORITHMS.names()
    before = dict(vars(registry.ALGORITHMS))
    for name in ("_components", "_points"):
        vars(registry.ALGORITHMS)[name] = dict(before[name])
    yield
    vars(registry.ALGORITHMS).clear()
    vars(registry.ALGORITHMS).update(before)


@pytest.mark.usefixtures("restored")
def test_an_algorithm_from_outside_is_listed_trained_compared_and_verified(
    short_path, tmp_path, monkeypatch
):
    assert registered("Toy")(toy) is toy
    rows = json.loads(privplan("simulate", "--algorithms=json").stdout)
    listed = {row["algorithm"]: row for row in rows}
    assert listed["Toy"]["released"] == "one noisy sum per round"
    assert listed["Toy"]["hyperparameters"]["strength"]["default"] == 0.5
    row = "| Toy | client | one noisy sum per round | this test | strength=0.5 |"
    assert row in privplan("simulate", "--algorithms=markdown").stdout.splitlines()

    run = tmp_path / "run"
    options = ("--algorithm=toy", "--set=strength=2", "--seed", 3, "--device", "cpu")
    answer("simulate", short_path, *options, "-o", run)
    record = json.loads((run / RECORD).read_text())
    assert record["algorithm"] == "Toy"
    assert record["configuration"]["numbers"] == {"strength": 2.0}
    assert privplan("verify", run).exit_code == 0

    # Drawn in full here, unlike in other tests.
    monkeypatch.setattr("simulate.runs.compare.picture", picture)
    options = ("--algorithms=FedAvg,Toy", "--seeds=1", "--device=cpu")
    answer("compare", short_path, *options, "-o", tmp_path / "results")
    for form, begin in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        drawn = (tmp_path / "results" / f"accuracy.{form}").read_bytes()
        assert drawn.startswith(begin)
        assert len(drawn) > 5000
    assert len(list((tmp_path / "results" / "Toy").glob(f"seed-*/{RECORD}"))) == 1
    table = (tmp_path / "results" / "results.csv").read_text()
    assert re.search(r"^Toy,client,", table, re.MULTILINE)

    # Somebody else, without the method, reads of its ledger whom it protects.
    fedavg = {"FedAvg": registry.ALGORITHMS.get("FedAvg")}
    monkeypatch.setattr("simulate.runs.rows.ALGORITHMS", fedavg)
    units = {row.algorithm: row.unit for row in rows_in(tmp_path / "results")}
    assert units == {"FedAvg": "none", "Toy": "client"}
