"""The algorithms in examples/algorithms: what each registers, trains and pays for."""

import importlib.util
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from privplan import Spec, accountant, judge, load_run, solve
from privplan.accounting.families import NOISE_FAMILIES
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.laws import law as laws
from privplan.laws.law import LAWS
from privplan.verification.checks.check import CHECKS
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.contrib.sensitivity import bench_plans, check_sensitivity
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate import small

FOLDER = Path(__file__).parents[3] / "examples" / "algorithms"
REGISTRIES = (ALGORITHMS, LAWS, NOISE_FAMILIES, CHECKS)


@pytest.fixture(scope="module")
def examples():
    """The modules by name; what they register is forgotten afterwards."""
    for registry in REGISTRIES:
        registry.names()
    before = [dict(vars(registry)) for registry in REGISTRIES]
    known = dict(laws._INTERNED)
    for registry, state in zip(REGISTRIES, before, strict=True):
        vars(registry).update({name: dict(state[name]) for name in ("_components", "_points")})
    modules = {}
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
        module = modules[path.stem] = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    yield modules
    for registry, state in zip(REGISTRIES, before, strict=True):
        vars(registry).clear()
        vars(registry).update(state)
    laws._INTERNED.clear()
    laws._INTERNED.update(known)


def turns_plan(rounds=8, **changes):
    """A small plan in turns of four rounds, a budget for all."""
    data = bench_plans()["per group"].spec.model_dump(mode="json")
    groups = [{"name": one["name"], "clients": 12, "epsilon": 6.0} for one in data["groups"]]
    planning = {"accountant": "pld", "ratios": "uniform"}
    data |= {"groups": groups, "cohort": 9, "sampling": "turns", "rounds": rounds}
    return solve(Spec.parse({**data, "planning": planning, **changes}), second_opinion=False)


def built(name, **values):
    """The algorithm in the small world without clipping and noise."""
    return ALGORITHMS.get(name).build(small.plan(), Hyperparameters(values=values))


def test_fedprox_is_sgd_on_a_proximal_loss(examples):
    def client(network, batches, rate):
        start, optimiser = small.flat(network), small.sgd(network, rate)
        for images, labels in batches:
            optimiser.zero_grad()
            change = nn.utils.parameters_to_vector(network.parameters()) - start
            (small.loss(network, images, labels) + 2.0 / 2 * change.square().sum()).backward()
            optimiser.step()

    algorithm = built("DP-FedProx", mu=2.0)
    expected = small.averaged(small.setting(algorithm), client)
    torch.testing.assert_close(small.moved(algorithm), expected, rtol=1e-4, atol=1e-6)
    without = small.moved(built("DP-FedProx", mu=0.0))
    assert float((without - expected).norm()) > 0.05 * float(expected.norm())


def test_a_tree_gives_each_prefix_the_noise_of_its_nodes(examples):
    """Prefix t has the nodes of the binary form of t; a round is in at most h nodes."""
    step, epoch = examples["dp_ftrl"].tree_increment, 12
    levels = examples["dp_ftrl"].levels_of(epoch)
    nodes, prefix = torch.zeros(levels, epoch, dtype=torch.float64), torch.zeros(epoch)
    inside = np.zeros(epoch + 1, int)
    for turn in range(1, epoch + 1):
        fresh = torch.zeros(epoch, dtype=torch.float64)
        fresh[turn - 1] = 1.0  # the node that round t completes is known by its coordinate
        moved, nodes = step(turn, nodes, fresh)
        prefix = prefix + moved
        ends, rest = [], turn
        while rest:
            ends.append(rest)
            rest &= rest - 1
        assert sorted(prefix.nonzero().flatten().tolist()) == sorted(end - 1 for end in ends)
        lowest = turn & -turn
        inside[turn - lowest + 1 : turn + 1] += 1
    assert inside.max() == levels == 4


def test_an_epoch_costs_the_gaussian_of_its_levels(examples):
    """mu = sqrt(E h) / s: the certificate is that of E sums with noise s / sqrt(h)."""
    plan = turns_plan()
    group = plan.groups[0]
    assert group.sampling_ratio == pytest.approx(0.25)
    history = History.repeated(Release(group.noise_multiplier, 1.0, SamplingLaw.FULL), 2)
    expected = accountant("pld").epsilon(history, group.delta, plan.spec.relation)
    rows = [row for row in plan.certificate if row.group == group.name and row.guarantee]
    assert rows[0].epsilon_upper == pytest.approx(expected.upper, rel=1e-3)
    family = NOISE_FAMILIES.get("tree of 3 levels")
    assert family.noise_multiplier(2.0 * math.sqrt(3), 0.5) == pytest.approx(4.0)


def test_a_run_in_turns_is_kept_and_a_broken_epoch_is_not(examples, tmp_path):
    plan = turns_plan()
    execute(Request(plan, "DP-FTRL", "digits", tmp_path / "run", seed=1))
    run = load_run(tmp_path / "run")
    verdict = judge(run)
    assert verdict.kept, verdict.checks
    for group, found in zip(run.plan.groups, verdict.groups, strict=True):
        assert found.realised_upper == pytest.approx(found.planned, rel=1e-6)
        assert found.realised_upper <= group.epsilon
    seen = [share.participants for line in run.ledger.records for share in line.shares[:1]]
    assert seen == [tuple(range(3 * turn, 3 * turn + 3)) for turn in (0, 1, 2, 3)] * 2
    records = run.ledger.records[:-1]
    cut = replace(run, ledger=run.ledger.model_copy(update={"records": records}))
    assert not examples["dp_ftrl"].whole_epochs(cut).passed


@pytest.mark.parametrize("name", ["DP-FedProx", "DP-SCAFFOLD-like", "DP-FTRL"])
def test_the_claims_hold_on_neighbouring_data(name, examples):
    """The bound is reached: both vectors of SCAFFOLD are in it."""
    plans = {"turns": turns_plan()}
    if name != "DP-FTRL":
        plans = {key: bench_plans()[key] for key in ("per group", "adaptive clipping")}
    reports = check_sensitivity(name, plans)
    assert len(reports) == len(plans)
    for report in reports:
        assert report.passed, report.violations
        assert report.largest_ratio == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("fedprox", 0.8), ("scaffold", 0.2), ("dp_ftrl", 0.5)])
def test_the_example_trains_on_the_digits(name, least, tmp_path):
    command = [sys.executable, str(FOLDER / f"{name}.py"), str(tmp_path / "run")]
    env = {"PYTHONPATH": str(FOLDER.parents[1]), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert "verdict kept" in done.stdout
    assert float(done.stdout.split()[1].rstrip(",")) >= least
