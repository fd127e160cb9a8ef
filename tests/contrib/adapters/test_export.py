"""Plans as projects of other frameworks; the slow tests of each run the projects."""

import ast
import hashlib
import json
import os
import re
import subprocess
import tomllib
import venv
import zipfile
from base64 import urlsafe_b64decode

import numpy as np
import pytest

from privplan.contrib.adapters.export import export, package_of
from privplan.ledger import read_ledger
from tests.command import privplan
from tests.guard.plans import SIZE, plan_of, two_groups


def exported(folder, target, **changes):
    """The command, on a plan of two groups."""
    two_groups(5, **changes).save(folder / "plan.json")
    arguments = [
        "export",
        str(folder / "plan.json"),
        "--to",
        target,
        "-o",
        str(folder / "out"),
    ]
    return privplan(*arguments)


def files_of_wheel(wheel):
    """Names of a wheel's files; RECORD has the hash and the size of each."""
    with zipfile.ZipFile(wheel) as packed:
        [record] = [name for name in packed.namelist() if name.endswith("/RECORD")]
        rows = [line.split(",") for line in packed.read(record).decode().splitlines()]
        names = {name for name, _, _ in rows}
        assert names == set(packed.namelist())
        for name, digest, size in rows[:-1]:
            data = packed.read(name)
            recorded_hash = urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
            assert recorded_hash == hashlib.sha256(data).digest()
            assert int(size) == len(data)
    return names


PACKAGE = f"guarded_guarded_{two_groups(5).digest[:8]}"
"""Of the plan named guarded."""


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (
            "flower",
            [f"{PACKAGE}/{name}.py" for name in ("client_app", "server_app", "task")],
        ),
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
    [wheel] = out.glob("*.whl")
    assert f'pip install ./{wheel.name} "' in readme
    modules = {"privplan/guard/guard.py", "simulate/__init__.py"}
    assert modules < files_of_wheel(wheel)

    if target == "flower":
        project = tomllib.loads((out / "pyproject.toml").read_text())
        assert f"privplan @ {wheel.as_uri()}" in project["project"]["dependencies"]
        assert project["tool"]["flwr"]["app"]["config"] == {"folder": str(out)}
        assert project["tool"]["flwr"]["app"]["components"] == {
            "serverapp": f"{PACKAGE}.server_app:app",
            "clientapp": f"{PACKAGE}.client_app:app",
        }
        assert 'numpy.load("model.npz")' in readme
        assert "restart them after you change its code" in readme
        assert "num-supernodes=100" in readme


@pytest.mark.parametrize("target", ["flower", "nvflare"])
def test_the_model_of_an_example_has_the_length_of_the_plan(tmp_path, target):
    """A fit of five numbers within the model of the plan, whose rest it leaves."""
    export(two_groups(5), target, tmp_path)
    [source] = tmp_path.glob("**/task.py")
    task = {}
    exec(compile(source.read_text(), str(source), "exec"), task)
    model = task["initial_model"]()
    assert sum(array.size for array in model.values()) == SIZE
    trained = task["train"](model, task["load_data"](3))
    assert {name: array.shape for name, array in trained.items()} == {
        name: array.shape for name, array in model.items()
    }
    assert trained["weight"].any()


def test_the_example_of_pfl_has_the_length_of_the_plan(tmp_path):
    export(two_groups(5), "pfl", tmp_path)
    [unused] = re.findall(r"torch\.zeros\((\d+)\)", (tmp_path / "train.py").read_text())
    assert int(unused) + 4 + 1 == SIZE


def test_a_package_is_named_by_its_plan(tmp_path):
    """What one process imports for a plan is not the code of another plan."""
    sources = {}
    for rounds in (5, 6):
        project = tmp_path / str(rounds)
        export(two_groups(rounds), "flower", project)
        [package] = {path.parent.name for path in project.glob("*/*.py")}
        settings = tomllib.loads((project / "pyproject.toml").read_text())
        assert settings["project"]["name"] == package.replace("_", "-")
        sources[package] = "".join(
            path.read_text() for path in project.glob(f"{package}/*_app.py")
        )
        assert f"from {package}.task import" in sources[package]
    assert len(sources) == 2


@pytest.mark.parametrize("name", ["2024: Müller & Söhne", "集計", "x" * 200])
def test_a_package_of_any_name_can_be_imported(name):
    plan = two_groups(5)
    named = plan.model_copy(update={"spec": plan.spec.replace(name=name)})
    package = package_of(named)
    assert package.isidentifier()
    # Flower takes letters, digits and hyphens, 32 at most.
    assert re.fullmatch("[a-z][a-z0-9_]{0,31}", package)


def test_json_has_every_number(tmp_path):
    exported(tmp_path, "json")
    data = json.loads((tmp_path / "out" / "deployment.json").read_text())
    assert data["sampling"] == "poisson"
    assert data["relation"] == "add_remove"
    assert data["rounds"] == 5
    strict, loose = data["groups"]
    assert strict["rounds"] == [
        {"rounds": 5, "sampling_ratio": 0.1, "noise_multiplier": 2.0}
    ]
    assert strict["scale"] == 0.75
    assert loose["scale"] == 1.0
    assert (
        strict["noise_std_of_first_round"] == loose["noise_std_of_first_round"] == 0.75
    )
    assert strict["weight_of_sum"] == pytest.approx(1 / (0.75 * 6 + 8))


@pytest.mark.parametrize(
    ("target", "changes", "line"),
    [
        (
            "tff",
            {},
            "to: must be one of flower, nvflare, opacus, pfl, json, found 'tff'",
        ),
        ("flwr", {}, "to: is not known (did you mean flower?); must be one of "),
        (
            "opacus",
            {},
            "plan.groups: must be one; Opacus has one noise multiplier for all records",
        ),
        (
            "pfl",
            {"release": "per_group"},
            "plan.release: must be joint; pfl adds the updates",
        ),
    ],
)
def test_what_a_framework_cannot_express_is_refused(tmp_path, target, changes, line):
    assert line in exported(tmp_path, target, **changes).output
    assert not (tmp_path / "out").exists()


def test_a_framework_may_be_written_in_any_case(tmp_path):
    assert exported(tmp_path, "Flower").exit_code == 0
    assert (tmp_path / "out" / "pyproject.toml").exists()


def test_a_folder_with_files_is_not_overwritten(tmp_path):
    exported(tmp_path, "json")
    assert (
        "output: must be a new or an empty folder" in exported(tmp_path, "json").output
    )


SINGLE = {"records": (100, 9.0, 0.1, 1.1)}
PAIRS = {"strict": (2, 60.0, 1.0, 6.0), "loose": (2, 60.0, 1.0, 3.0)}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["flower", "nvflare", "opacus", "pfl"])
def test_a_project_runs_by_its_readme_in_an_empty_environment(tmp_path, target):
    """Nothing is there but Python; the README's two commands install and train.

    The second one, repeated, goes on where it was.
    """
    project = tmp_path / "out"
    python = tmp_path / "venv" / "bin"
    groups = PAIRS
    sampling = "full"
    if target == "opacus":
        groups = SINGLE
        sampling = "poisson"
    the_plan = plan_of(groups, 3, delta=1e-3, sampling=sampling)
    export(the_plan, target, project)
    install, command = re.findall(
        "^    (.+)$", (project / "README.md").read_text(), re.MULTILINE
    )

    # No path of the Python that runs the tests is left in the environment.
    venv.create(tmp_path / "venv", with_pip=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    environment |= {"PATH": f"{python}:{os.defpath}", "HOME": str(tmp_path)}
    options = {
        "shell": True,
        "cwd": project,
        "env": environment,
        "capture_output": True,
        "text": True,
    }
    done = subprocess.run(install, timeout=900, check=False, **options)
    if done.returncode:
        pytest.skip(f"{target} cannot be installed: {done.stderr[-300:]}")
    for _ in range(2):
        done = subprocess.run(command, timeout=600, check=False, **options)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    if target == "flower":
        assert "trained 3 rounds; numpy.load(" in done.stdout
        with np.load(project / "model.npz") as model:
            assert model["weight"].any()

    verdict = subprocess.run("privplan verify run", check=False, **options)
    assert verdict.stdout.startswith("kept as recorded"), (
        verdict.stdout + verdict.stderr
    )
    assert len(read_ledger(project / "run", the_plan.digest).records) == 3
