"""The pilot: what it trains is the engine's, what it writes is a spec that can be solved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.cli.proxy import pilot as command
from simulate.engine.loop import initial_state, run_round
from simulate.proxy.pilot import Pilot, pilot_experiment, run
from simulate.runs.ledger_writer import MemoryLedger

SPEC = preset("digits")
SMALL = ["--dataset", "digits", "--rounds", "2", "--clients", "12"]


def pilot_of(tmp_path: Path, **changes: object) -> Pilot:
    (tmp_path / "spec.yaml").write_text(SPEC)
    asked = Pilot(Spec.load(tmp_path / "spec.yaml"), "digits", rounds=2, clients=12)
    return replace(asked, **changes)


def test_updates_that_are_seen_make_the_engine_s_step(tmp_path):
    setting, seen = pilot_experiment(pilot_of(tmp_path))
    begun = initial_state(setting)
    after = run_round(setting, begun, MemoryLedger(setting.algorithm.plan.digest))
    updates = torch.cat([part for parts in seen.values() for part in parts])
    torch.testing.assert_close(after.theta - begun.theta, updates.mean(0), atol=1e-6, rtol=1e-4)


def test_groups_that_hold_other_classes_differ(tmp_path):
    """The intervals of h are apart, and one of groups alike reaches down to 0."""
    asked = pilot_of(tmp_path, clients=60)
    alike = run(asked).heterogeneity
    names = [group.name for group in asked.spec.groups]
    apart = run(replace(asked, partition=f"by-class:{names[0]}=0,8,9")).heterogeneity
    assert alike.low == 0
    assert apart.low > alike.high


def test_measured_norms_are_quantiles_of_the_same_norms(tmp_path):
    found = run(pilot_of(tmp_path))
    assert list(found.update_norms) == sorted(found.update_norms)
    square = float(np.mean(np.square(found.update_norms)))
    assert square == pytest.approx(found.update_norm.value**2, rel=0.1)
    assert found.update_norm.low < found.update_norm.value < found.update_norm.high
    assert np.log(10) < found.initial_gap.value < np.log(10) + 0.6
    assert found.noise_curvature.value < found.smoothness.value


def test_command_writes_a_spec_that_solve_accepts(tmp_path):
    source, target = tmp_path / "spec.yaml", tmp_path / "out.yaml"
    source.write_text(SPEC)
    done = CliRunner().invoke(command, [str(source), *SMALL, "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert "nothing here is private" in done.stderr
    text = target.read_text()
    kept = [line for line in SPEC.splitlines() if line.startswith("#")]
    assert all(line in text for line in kept)
    spec = Spec.load(target)
    assert spec.planning.update_norms
    assert solve(spec, second_opinion=False).groups
    again = CliRunner().invoke(command, [str(source), *SMALL])
    assert again.stdout == text
    assert source.read_text() == SPEC
