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
def test_the_program_measures_all_workloads(tmp_path):
    program = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--device=cpu", "--repeats=1"]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [*program, "--output", str(tmp_path)], check=True, capture_output=True, env=environment
    )
    [file] = tmp_path.glob("gpu-*.json")
    found = json.loads(file.read_text())
    assert [one["model"] for one in found["workloads"]] == ["cnn-2", "resnet-18", "cnn-2"]
    for one in found["workloads"]:
        assert one["difference"] < 1e-2
        median = sorted(one["seconds"]["simulator"])[0]
        assert one["images_per_second"]["simulator"] == pytest.approx(one["images"] / median)
