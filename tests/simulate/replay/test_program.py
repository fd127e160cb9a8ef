"""The replay program is small and imports nothing of the engine."""

import ast
import subprocess
import sys

from tests.simulate.replay.runs import ROOT

PACKAGE = ROOT / "simulate" / "replay"


ALLOWED = (
    "simulate.own_parts",
    "simulate.tasks",  # and which rounds and test records a run is evaluated on
    "privplan.errors",
    "privplan.evidence",
    "privplan.ledger",
    "privplan.plan",
    "privplan.planning.error",  # the plan's factors on sums, as formulas
    "privplan.record",
    "privplan.accounting.release",
    "privplan.discrete_gaussian",  # the sampler of a law and the streams of a key: primitives
    "privplan.streams",
    "privplan.spec.training",  # constants of the server optimisers
    "simulate.data",
    "simulate.models",
    "simulate.replay",
)


def test_the_package_imports_no_part_of_the_engine():
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                own = name.partition(".")[0] in ("privplan", "simulate")
                assert not own or name.startswith(ALLOWED), (path.name, name)


def test_the_program_is_small():
    texts = (path.read_text() for path in PACKAGE.glob("*.py"))
    lines = [line.strip() for text in texts for line in text.splitlines()]
    assert len([line for line in lines if line and not line.startswith("#")]) <= 1_100


def test_the_engine_is_not_loaded_by_an_import_of_an_import():
    code = "import sys, simulate.replay.replay; print(*sorted(sys.modules))"
    python = [sys.executable, "-c", code]
    done = subprocess.run(python, capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = [name for name in done.stdout.split() if name.startswith("simulate.")]
    parts = ("engine", "mechanisms", "local", "aggregators", "algorithms", "runs", "parallel")
    found = {name for name in loaded if name.split(".")[1] in parts}
    assert not found
    assert not {"simulate.algorithm", "simulate.transforms", "simulate.server"} & set(loaded)
    assert "privplan.verification.verify" not in done.stdout.split()
