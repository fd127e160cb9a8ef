"""Callbacks and trackers: what they see, and what they write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

import privplan
from privplan.cli import main
from privplan.files import load_yaml
from privplan.plan import Plan
from privplan.record import RunRecord
from privplan.spec.presets import preset
from simulate.runs.request import Request, prepare
from simulate.runs.run import run_prepared
from simulate.tracking import TRACKERS, Callback

ROOT = Path(privplan.__file__).parents[1]


class Recorder(Callback):
    """Notes every call."""

    def __init__(self, stop_at: int = 0) -> None:
        self.calls: list[tuple[str, int]] = []
        self.spent: Mapping[str, float] = {}
        self._stop_at = stop_at

    def on_start(self, plan: Plan, record: RunRecord) -> None:
        self.calls.append(("start", record.rounds_done))

    def on_round(self, record: RunRecord) -> None:
        self.calls.append(("round", record.rounds_done))
        if record.rounds_done == self._stop_at:
            raise KeyboardInterrupt

    def on_end(self, record: RunRecord, spent: Mapping[str, float]) -> None:
        assert record.status == "complete"
        self.calls.append(("end", record.rounds_done))
        self.spent = spent

    def close(self) -> None:
        self.calls.append(("close", 0))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = {**load_yaml(preset("digits"), "spec"), "rounds": 3}
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    privplan.solve(privplan.Spec.parse(data)).save(path)
    return path


def _request(plan: Path, folder: Path, **more: object) -> Request:
    return Request(Plan.load(plan), "planned", "digits", folder, device="cpu", **more)


def test_a_callback_sees_start_every_round_and_the_end(plan: Path, tmp_path: Path) -> None:
    request, recorder = _request(plan, tmp_path / "run"), Recorder()
    run_prepared(request, prepare(request), callbacks=[recorder])
    rounds = [("round", number) for number in (1, 2, 3)]
    assert recorder.calls == [("start", 0), *rounds, ("end", 3), ("close", 0)]
    verdict = privplan.judge(privplan.load_run(tmp_path / "run"))
    for group in verdict.groups:
        upper, lower = group.realised_upper, group.realised_lower
        assert upper is not None
        assert lower is not None
        assert lower <= recorder.spent[group.group] <= min(upper * (1 + 2e-3), group.budget or 0)


def test_a_tracker_changes_nothing_of_the_run(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def build(folder: Path) -> Callback:
        folders.append(folder)
        return Recorder()

    monkeypatch.setitem(TRACKERS._components, "recorder", build)
    plain = _request(plan, tmp_path / "plain")
    tracked = _request(plan, tmp_path / "tracked", track=("recorder",))
    records = [run_prepared(one, prepare(one)).record for one in (plain, tracked)]
    assert records[0].chain == records[1].chain
    assert records[0].metrics == records[1].metrics
    assert folders == [tmp_path / "tracked" / "tracking" / "recorder"]


def test_a_missing_package_is_named_before_anything_is_written(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulate.tracking.find_spec", lambda name: None)
    words = ["simulate", str(plan), "--algorithm", "planned", "--track", "mlflow"]
    done = CliRunner().invoke(main, [*words, "-o", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert done.stderr.startswith("privplan: track: needs its package: pip install 'privplan[mlf")
    assert not (tmp_path / "run").exists()


READ = """
import json, sys
kind, folder = sys.argv[1:]
if kind == "tensorboard":
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(folder).Reload()
    found = {name: [[e.step, e.value] for e in events.Scalars(name)]
             for name in events.Tags()["scalars"]}
else:
    import os
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri="file://" + folder)
    [run] = client.search_runs([client.get_experiment_by_name("privplan").experiment_id])
    found = {name: [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, name)]
             for name in run.data.metrics}
    found["params"] = run.data.params
    assert run.info.status == "FINISHED", run.info.status
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensorboard", "mlflow", "wandb"])
def test_trackers_write_what_their_programs_read(kind: str, plan: Path, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"}
    words = ["simulate", str(plan), "--algorithm=planned", "--device=cpu", f"--track={kind}"]
    command = [sys.executable, "-W", "ignore", "-m", "privplan", *words, "-o", "run"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run" / "tracking" / kind
    record = RunRecord.load(tmp_path / "run")
    if kind == "wandb":
        [file] = folder.glob("wandb/offline-run-*/run-*.wandb")
        assert b"accuracy" in file.read_bytes()
        return
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ, kind, str(folder)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert [step for step, _ in found["seconds"]] == [1, 2, 3]
    assert found["accuracy"] == [
        [point.round, pytest.approx(point.accuracy)] for point in record.metrics
    ]
    if kind == "mlflow":
        assert found["params"]["algorithm"] == "planned"
        assert "final/epsilon_by_group/strict" in found
