"""A million clients: what a round needs does not grow with the population."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLIENTS = 10**6
BYTES_A_CLIENT = 48
"""Most bytes per client: its number in a group, and the same while groups are drawn."""
CODE = """
import runpy, sys
found = runpy.run_path(sys.argv[1])["measure"](int(sys.argv[2]))
print(found.before, found.peak)
"""


@pytest.mark.slow
def test_a_round_of_a_million_clients_fits():
    root = Path(__file__).parents[3]
    script = str(root / "benchmarks" / "population.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", CODE, script, str(CLIENTS)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    before, peak = map(float, done.stdout.split())
    assert (peak - before) * 2**20 < BYTES_A_CLIENT * CLIENTS
    assert peak < 4096
