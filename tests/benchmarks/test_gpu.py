"""``benchmarks/gpu.sh``: one line without a device; its program on a small slice of the work."""

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
    found = json.loads(file.read_text())
    assert [one["model"] for one in found["workloads"]] == [
        "cnn-2",
        "resnet-18",
        "cnn-2",
    ]
    waits = [one["synchronisations"] for one in found["workloads"]]
    assert waits == ([None] * 3 if device == "cpu" else [0] * 3)
    for one in found["workloads"]:
        assert one["difference"] < 1e-2
        median = sorted(one["seconds"]["simulator"])[0]
        assert one["images_per_second"]["simulator"] == pytest.approx(
            one["images"] / median
        )
