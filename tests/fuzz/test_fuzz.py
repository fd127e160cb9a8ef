"""Malformed input of every kind: it works, or it is refused in lines that say why."""

import importlib.util
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.promise import PROPERTIES

LONG = sum(entry.long for entry in PROPERTIES.values())
ATHERIS = 10_000


def fed(entry, count):
    """A function that feeds a reader with malformed inputs, the same in every run."""

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(entry.inputs)
    def feed(value):
        entry.check(value)

    return feed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROPERTIES)
def test_malformed_input(name):
    fed(PROPERTIES[name], PROPERTIES[name].quick)()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROPERTIES)
def test_much_malformed_input(name):
    assert LONG >= 10_000
    fed(PROPERTIES[name], PROPERTIES[name].long)()


@pytest.mark.slow
def test_input_that_coverage_guides(tmp_path):
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    flags = [f"-runs={ATHERIS}", "-seed=1", "-len_control=0", "-max_len=2048"]
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.guided",
        *flags,
        f"-artifact_prefix={tmp_path}/",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {ATHERIS} runs" in done.stderr
