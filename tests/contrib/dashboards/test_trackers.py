"""Trackers of the project: what their programs read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import privplan
from privplan.record import RunRecord
from tests.command import refused
from tests.simulate.conftest import digits_spec

ROOT = Path(privplan.__file__).parents[1]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    privplan.solve(digits_spec(rounds=3)).save(path)
    return path


def test_a_missing_package_is_named_before_anything_is_written(
    plan, tmp_path, monkeypatch
):
    monkeypatch.setattr("simulate.tracking.find_spec", lambda name: None)
    words = ["simulate", plan, "--algorithm", "planned", "--track", "mlflow"]
    line = refused(*words, "-o", tmp_path / "run")
    assert line.startswith("track: needs its package: pip install 'privplan[mlf")
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
def test_trackers_write_what_their_programs_read(kind, plan, tmp_path):
    pytest.importorskip(kind)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}",
    }
    words = [
        "simulate",
        str(plan),
        "--algorithm=planned",
        "--device=cpu",
        f"--track={kind}",
    ]
    command = [sys.executable, "-W", "ignore", "-m", "privplan", *words, "-o", "run"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run" / "tracking" / kind
    record = RunRecord.load(tmp_path / "run")
    if kind == "wandb":
        [file] = folder.glob("wandb/offline-run-*/run-*.wandb")
        assert b"accuracy" in file.read_bytes()
        return

    # The tracker's program reads the folder in a process of its own.
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ, kind, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    values_by_name = json.loads(shown.stdout)
    assert [step for step, _ in values_by_name["seconds"]] == [1, 2, 3]
    points = [[point.round, pytest.approx(point.accuracy)] for point in record.metrics]
    assert values_by_name["accuracy"] == points
    if kind == "mlflow":
        assert values_by_name["params"]["algorithm"] == "planned"
        assert "final/epsilon_by_group/strict" in values_by_name
