"""Plans as projects of other frameworks; the projects are run by the slow tests of each."""

import ast
import json
import sys
import tomllib

import pytest

from tests.command import privplan
from tests.contrib.adapters.environments import run
from tests.guard.plans import plan_of, two_groups


def exported(folder, target, **changes):
    """The command, on a plan of two groups."""
    two_groups(5, **changes).save(folder / "plan.json")
    arguments = ["export", str(folder / "plan.json"), "--to", target, "-o", str(folder / "out")]
    return privplan(*arguments)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("flower", ["guarded/client_app.py", "guarded/server_app.py", "guarded/task.py"]),
        ("nvflare", ["client.py", "job.py", "task.py"]),
        ("pfl", ["train.py"]),
    ],
)
def test_projects_are_complete(tmp_path, target, names):
    done = exported(tmp_path, target)
    assert done.exit_code == 0
    out = tmp_path / "out"
    assert (out / "plan.json").read_text() == (tmp_path / "plan.json").read_text()
    for name in names:
        text = (out / name).read_text()
        ast.parse(text)
        assert "$" not in text
        assert f"wrote {out / name}" in done.output
    readme = (out / "README.md").read_text()
    assert "- strict: 0 to 59, epsilon 2" in readme
    assert "- loose: 60 to 99, epsilon 4" in readme
    if target == "flower":
        project = tomllib.loads((out / "pyproject.toml").read_text())
        assert project["tool"]["flwr"]["app"]["components"] == {
            "serverapp": "guarded.server_app:app",
            "clientapp": "guarded.client_app:app",
        }
        assert "num-supernodes=100" in readme


def test_json_has_every_number(tmp_path):
    exported(tmp_path, "json")
    data = json.loads((tmp_path / "out" / "deployment.json").read_text())
    assert (data["sampling"], data["relation"], data["rounds"]) == ("poisson", "add_remove", 5)
    strict, loose = data["groups"]
    assert strict["rounds"] == [{"rounds": 5, "sampling_ratio": 0.1, "noise_multiplier": 2.0}]
    assert (strict["scale"], loose["scale"]) == (0.75, 1.0)
    assert strict["noise_std_of_first_round"] == loose["noise_std_of_first_round"] == 0.75
    assert strict["weight_of_sum"] == pytest.approx(1 / (0.75 * 6 + 8))


@pytest.mark.parametrize(
    ("target", "changes", "line"),
    [
        ("tff", {}, "to: must be one of flower, nvflare, opacus, pfl, json, found 'tff'"),
        ("opacus", {}, "plan.groups: must be one; Opacus has one noise multiplier for all records"),
        ("pfl", {"release": "per_group"}, "plan.release: must be joint; pfl adds the updates"),
    ],
)
def test_what_a_framework_cannot_express_is_refused(tmp_path, target, changes, line):
    done = exported(tmp_path, target, **changes)
    assert line in done.output
    assert not (tmp_path / "out").exists()


def test_a_folder_with_files_is_not_overwritten(tmp_path):
    exported(tmp_path, "json")
    again = exported(tmp_path, "json")
    assert "output: must be a new or an empty folder" in again.output


@pytest.mark.slow
def test_an_exported_project_of_opacus_trains_and_resumes(tmp_path):
    pytest.importorskip("opacus")
    plan_of({"records": (100, 9.0, 0.1, 1.1)}, 6).save(tmp_path / "plan.json")
    arguments = ["export", str(tmp_path / "plan.json"), "--to", "opacus", "-o", str(tmp_path / "o")]
    assert "wrote" in privplan(*arguments).output
    for _ in range(2):
        done = run([sys.executable, "-W", "ignore", str(tmp_path / "o" / "train.py")])
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("6 steps, epsilon at most ")
