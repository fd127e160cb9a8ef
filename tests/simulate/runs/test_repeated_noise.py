"""Runs that share noise without purpose are reported; those of one comparison's seed are not."""

import json

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import LEDGER, RECORD
from simulate.runs.compare import repeated_noise, run_folders
from tests.simulate.conftest import digits_spec


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repeated")
    solve(digits_spec(rounds=3), second_opinion=False).save(folder / "plan.json")
    done = compared(folder, "iid", "first")
    assert done.exit_code == 0, done.output
    assert "repeated noise" not in done.output
    return folder


def compared(folder, partition, name, *more):
    common = ["--algorithms", "GDPFed,GDPFed+", "--seeds", "2", "--partition", partition]
    command = ["compare", str(folder / "plan.json"), *common, "-o", str(folder / name), *more]
    return CliRunner().invoke(main, command)


def test_the_same_seeds_on_other_data_are_reported(comparison):
    first = comparison / "first"
    done = compared(comparison, "dirichlet:1", "second", "--against", str(first))
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if "repeated noise" in line]
    assert len(lines) == 8  # two algorithms here and there, for each of two seeds
    rounds = Plan.load(comparison / "plan.json").spec.rounds
    expected = f"second/GDPFed/seed-0 and {first}/GDPFed/seed-0 have {3 * rounds} equal noise"
    assert any(expected in line for line in lines)


def test_noise_that_a_run_repeats_is_reported(comparison, tmp_path):
    [run, *_] = run_folders(comparison / "first")
    lines = (run / LEDGER).read_text().splitlines(keepends=True)
    (tmp_path / LEDGER).write_text("".join([*lines, lines[0]]))
    (tmp_path / RECORD).write_text((run / RECORD).read_text())
    assert list(repeated_noise([tmp_path])) == [
        f"repeated noise: {tmp_path} draws 1 times from an earlier state"
    ]


def test_releases_without_noise_states_are_no_repetition(comparison, tmp_path):
    [run, *_] = run_folders(comparison / "first")
    line = json.loads((run / LEDGER).read_text().splitlines()[0])
    line["release"]["noise_state"] = ""
    (tmp_path / LEDGER).write_text(2 * (json.dumps(line) + "\n"))
    (tmp_path / RECORD).write_text((run / RECORD).read_text())
    assert list(repeated_noise([tmp_path])) == []
