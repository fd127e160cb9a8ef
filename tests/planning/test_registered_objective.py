"""An objective of another distribution, found by its entry point, through every command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from privplan.files import load_yaml
from privplan.spec.presets import preset

MODULE = '''
from privplan.planning.bounds import Bound, symbols
from privplan.planning.error import Coefficients
from privplan.planning.objectives import Noise

FACTOR = 1e6


class NearPopulation(Noise):
    """Noise, with a bias so expensive that the weights are the population's."""

    unit = "near-population error"
    default_release = "per_group"
    required = ("constants",)
    assumed = {"bias": "b"}

    def coefficients(self, spec, problem):
        noise = super().coefficients(spec, problem)
        return Coefficients(noise.noise, 0.0, FACTOR * noise.noise, noise.shares)

    def bound(self, groups, joint):
        (factor,) = symbols("toy_factor")
        return Bound("near_population", "nowhere", "no unit", {"twice": 2 * factor})

    def symbols(self, spec):
        return {"toy_factor": FACTOR}
'''
CONSTANTS = {"smoothness": 2.0, "initial_gap": 1.0}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the distribution as an installer would leave it, and a spec."""
    folder = tmp_path_factory.mktemp("distribution")
    (folder / "toy_objective.py").write_text(MODULE)
    info = folder / "toy_objective-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-objective\nVersion: 1.0\n")
    point = "near_population = toy_objective:NearPopulation"
    (info / "entry_points.txt").write_text(f"[privplan.objectives]\n{point}\n")
    write_spec(folder / "spec.json", ratios="near_population", constants=CONSTANTS)
    return folder


def write_spec(path: Path, **planning: object) -> None:
    data = load_yaml(preset("gdpfed-fmnist"), "preset")
    path.write_text(json.dumps({**data, "planning": {"accountant": "rdp", **planning}}))


def privplan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(folder), str(root)])
    return subprocess.run(
        [sys.executable, "-m", "privplan", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_solve_minimises_it_and_explain_shows_its_bound(installed: Path) -> None:
    done = privplan(installed, "solve", "spec.json", "-o", "plan.json")
    assert done.returncode == 0, done.stderr
    assert "near-population error: mean_noise_std" in done.stdout
    plan = json.loads((installed / "plan.json").read_text())
    assert plan["release"] == "per_group"
    assert plan["objective"]["name"] == "near_population"
    assert plan["objective"]["value"] == pytest.approx(plan["mean_noise_std"], rel=1e-3)
    people = sum(group["clients"] for group in plan["groups"])
    for group in plan["groups"]:
        assert group["weight"] == pytest.approx(group["clients"] / people, rel=1e-4)
    done = privplan(installed, "explain", "plan.json", "--bound", "near_population")
    assert done.returncode == 0, done.stderr
    assert "2*toy_factor" in done.stdout
    assert "2e+06" in done.stdout


@pytest.mark.slow
def test_frontier_varies_its_assumed_constant(installed: Path) -> None:
    done = privplan(installed, "what-if", "spec.json", "--frontier", "--format", "json")
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    wrong = {answer["what"] for answer in answers if answer["question"] == "wrong_constant"}
    assert wrong == {"b x 0.5", "b x 2"}
    rounds = {a["what"]: a["noise"] for a in answers if a["question"] == "rounds"}
    assert len(rounds) == 5
    assert all(noise > 0 for noise in rounds.values())


def test_the_schema_lists_it(installed: Path) -> None:
    schema = json.loads(privplan(installed, "init", "--schema").stdout)
    assert "near_population" in schema["$defs"]["Planning"]["properties"]["ratios"]["enum"]
