"""What all tests share: property-based tests draw the same few examples in each run.

HYPOTHESIS_PROFILE=random draws others, and more of them, as ``make test-all`` does.
"""

import gc
import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
# gw0, gw1, and so on; nothing where one process runs all tests.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if WORKER:
    # Each worker has its core: further threads would only wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nothing that is loaded becomes garbage; to look for some takes a fifth of the time.
gc.disable()

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


NO_PICTURE = b"\x89PNG\r\n\x1a\n"
"""What runs and comparisons of the tests write in place of their pictures.

Those cost half their time.
"""


DRAWN = (("simulate.runs.records", "run_picture"), ("simulate.runs.compare", "picture"))
"""What draws the picture of a run, and those of a comparison, and where it is called."""


def pytest_collection(session):
    """Let every second worker load all tests from the last file to the first.

    In a fresh checkout each worker compiles what no other has compiled before, so that
    each does half of that.
    """
    is_whole_suite = session.config.args_source.name == "TESTPATHS"
    if not is_whole_suite or not WORKER or int(WORKER.removeprefix("gw")) % 2 == 0:
        return
    for file in sorted(TESTS.rglob("test_*.py"), reverse=True):
        # Its tests have a process of their own, whose PyTorch knows a further device.
        if file.name == "test_device.py":
            continue
        module_names = file.relative_to(TESTS.parent).with_suffix("").parts
        # What cannot be loaded is said, or skipped, when its turn comes.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(module_names))


def pytest_collection_finish():
    """Freeze what is loaded, so that no collection of garbage looks at it again."""
    for module, name in DRAWN:
        if loaded := sys.modules.get(module):
            # Whoever moves the function must move its line, too.
            assert hasattr(loaded, name)
            setattr(loaded, name, lambda *arguments, **options: NO_PICTURE)
    # No test ends with a power failure, the only thing that this protects from.
    os.fsync = lambda descriptor: None
    gc.enable()
    gc.collect()
    gc.freeze()
    # Fewer looks at what the tests make, most of which goes without them.
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_teardown():
    """Forget modules that a command named: workers of later tests would import them."""
    if processes := sys.modules.get("privplan.processes"):
        processes.OWN_MODULES.clear()


@pytest.fixture
def pictures(monkeypatch):
    """Runs and comparisons draw their pictures, as they do outside of the tests."""
    from privplan.report.plots import run_picture
    from privplan.report.style import picture
    from simulate.runs import compare, records

    monkeypatch.setattr(records, "run_picture", run_picture)
    monkeypatch.setattr(compare, "picture", picture)
