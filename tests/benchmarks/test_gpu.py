"""``benchmarks/gpu.py`` on a small slice of its work, without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "pretend"])
def test_the_program_measures_all_workloads(device, tmp_path):
    program = [
        sys.executable,
        str(ROOT / "benchmarks" / "gpu.py"),
        f"--device={device}",
    ]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*program, "--repeats=1", "--output", str(tmp_path)],
        check=True,
        capture_output=True,
        env=environment,
    )
    [file] = tmp_path.glob("gpu-*.json")
    result = json.loads(file.read_text())
    assert [workload["model"] for workload in result["workloads"]] == [
        "cnn-2",
        "resnet-18",
        "cnn-2",
    ]
    waits = [workload["synchronisations"] for workload in result["workloads"]]
    assert waits == ([None] * 3 if device == "cpu" else [0] * 3)
    for workload in result["workloads"]:
        assert workload["difference"] < 1e-2
        median = sorted(workload["seconds"]["simulator"])[0]
        assert workload["images_per_second"]["simulator"] == pytest.approx(
            workload["images"] / median
        )
