"""Verdicts on the runs of a horizon: one composition, against the accountant on all rounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release
from privplan.cli import main
from privplan.contrib.horizons.models import Horizon
from privplan.contrib.horizons.plans import HorizonPlan
from privplan.contrib.horizons.verdict import judge_horizon
from privplan.errors import InputError
from privplan.verification.verify import load_run
from tests.verification.honest_run import GROUPS, plan, releases, spec, write_run

RUNS = 3


def _spent(sigma: float, ratio: float, runs: int) -> float:
    """Epsilon of that many runs at the delta of the honest run."""
    history = History.repeated(Release(sigma, ratio, spec().sampling), runs * spec().rounds)
    return accountant("pld").epsilon(history, 1e-4, spec().relation).upper


@pytest.fixture(scope="module")
def horizon(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HorizonPlan]:
    """A horizon of three equal runs in a folder, with its runs of seeds 1 to 3."""
    folder = tmp_path_factory.mktemp("horizon")
    plans = tuple(plan(spec(name=f"two-run-{n}")) for n in range(1, RUNS + 1))
    groups = [  # what two runs spend: more than one run, less than three
        {"name": name, "clients": clients, "epsilon": _spent(sigma, ratio, 2) * 1.001}
        for name, (clients, _, ratio, sigma) in GROUPS.items()
    ]
    whole, runs = spec(groups=groups), Horizon(runs=RUNS)
    planned = HorizonPlan(
        spec=whole, horizon=runs, shares=(1 / 3,) * RUNS, plans=plans, certificate=()
    )
    planned.save(folder / "years.json")
    for number, one in enumerate(plans, start=1):
        write_run(folder / f"run-{number}", releases(one, number), one)
    return folder, planned


def command(folder: Path, *runs: str) -> tuple[int, str]:
    arguments = ["book", "horizon", str(folder / "years.json"), "--verify"]
    done = CliRunner().invoke(main, [*arguments, *(str(folder / run) for run in runs)])
    return done.exit_code, done.output


def test_all_runs_are_one_composition(horizon: tuple[Path, HorizonPlan]) -> None:
    folder, planned = horizon
    verdict = judge_horizon(planned, [load_run(folder / f"run-{n}") for n in (1, 2)])
    for group in verdict.groups:
        _, _, ratio, sigma = GROUPS[group.group]
        assert group.realised_upper == pytest.approx(_spent(sigma, ratio, 2), rel=1e-9)
        assert group.kept
    assert verdict.missing == ("two-run-3",)
    assert [run.model for run in verdict.runs] == ["two-run-1", "two-run-2"]


def test_equal_noise_and_foreign_plans_break_a_horizon(
    horizon: tuple[Path, HorizonPlan], tmp_path: Path
) -> None:
    folder, planned = horizon
    first = load_run(folder / "run-1")
    verdict = judge_horizon(planned, [first, first])
    assert any("has the noise of" in fault for fault in verdict.faults)
    foreign = plan(spec(name="another"))
    write_run(tmp_path / "foreign", releases(foreign, 9), foreign)
    verdict = judge_horizon(planned, [first, load_run(tmp_path / "foreign")])
    assert any("not of this horizon" in fault for fault in verdict.faults)
    assert verdict.exit_code == 4


def test_the_command_judges_a_horizon(horizon: tuple[Path, HorizonPlan]) -> None:
    folder, _ = horizon
    code, output = command(folder, "run-1")
    assert code == 0
    assert "horizon kept" in output
    assert "not among the runs, so without a cost: two-run-2, two-run-3" in output
    code, output = command(folder, "run-1", "run-2", "run-3")
    assert code == 4
    assert "over all runs exceeds the budget" in output


def _paths(data: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all numbers of plain data."""
    if isinstance(data, dict | list):
        keys = data if isinstance(data, dict) else range(len(data))
        for key in keys:
            yield from _paths(data[key], (*path, key))  # type: ignore[index]
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path


def test_an_edited_horizon_is_refused(horizon: tuple[Path, HorizonPlan], tmp_path: Path) -> None:
    folder, planned = horizon
    text = (folder / "years.json").read_text()
    found = list(_paths(json.loads(text)))
    assert ("spec", "groups", 0, "epsilon") in found
    for path in found:
        data = json.loads(text)
        inner = data
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] *= 2
        if inner[path[-1]] == 0:
            continue
        (tmp_path / "years.json").write_text(json.dumps(data))
        with pytest.raises(InputError):
            HorizonPlan.load(tmp_path / "years.json")
    data = json.loads(text)
    assert data.pop("digest") == planned.digest
    (tmp_path / "years.json").write_text(json.dumps(data))
    arguments = ["book", "horizon", str(tmp_path / "years.json"), "--verify"]
    done = CliRunner().invoke(main, [*arguments, str(folder / "run-1")])
    assert done.exit_code == 2
    assert "horizon.digest: must be the hash of the horizon" in done.stderr
    assert len(done.stderr.splitlines()) == 1
