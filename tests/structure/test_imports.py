"""The planning core stands alone: no torch, no simulate, and a quick command line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from privplan.cli import COMMANDS
from privplan.planning.solver import solve
from privplan.spec.presets import preset
from simulate.cli import options
from simulate.data.partition.schemes import forms
from simulate.data.registry import DATASETS
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.conftest import digits_spec

ROOT = Path(__file__).parents[2]

BLOCK = """
BLOCKED = ("torch", "simulate", "opacus")
import importlib.abc, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Refuse())
"""


def _without_torch(code, folder=ROOT):
    command = [sys.executable, "-c", BLOCK + code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
        env=environment,
    )


EACH_NAME = """
import privplan
for name in privplan.__all__:
    getattr(privplan, name)
"""
EACH_COMMAND = """
from click.testing import CliRunner
from privplan.cli import main
for line in {lines!r}:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 0, done.output
"""


def test_every_public_name_plans_and_accounts_without_torch(tmp_path):
    lines = (
        "init --preset gdpfed-fmnist -o spec.yaml",
        "solve spec.yaml -o plan.json",
        "account --noise-multiplier=1.5 --sampling-ratio=.02 --rounds=50 --delta=1e-5",
    )
    code = EACH_NAME + EACH_COMMAND.format(lines=lines)
    done = _without_torch(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.json").exists()


SIMULATING = (
    "simulate plan.json --algorithm=planned -o run",
    "compare plan.json --algorithms=planned",
    "simulate --algorithms",
    "proxy pilot spec.yaml --dataset=digits",
)
SIMULATE_EACH = """
from click.testing import CliRunner
from privplan.cli import main
for line in {lines!r}:
    done = CliRunner().invoke(main, line.split())
    print(done.exit_code, done.stderr.splitlines()[-1])  # a pilot first warns
    assert "Traceback" not in done.stderr
"""


@pytest.mark.parametrize(
    "blocked", [("torch", "simulate", "opacus"), ("torch", "opacus")]
)
def test_simulation_commands_say_which_extra_they_need(blocked, tmp_path):
    solve(digits_spec()).save(tmp_path / "plan.json")
    (tmp_path / "spec.yaml").write_text(preset("digits"))
    done = _without_torch(
        f"BLOCKED = {blocked!r}\n{SIMULATE_EACH.format(lines=SIMULATING)}", tmp_path
    )
    assert done.returncode == 0, done.stderr
    for command, line in zip(SIMULATING, done.stdout.splitlines(), strict=True):
        name = command.split()[0]
        assert line.startswith(f"2 privplan: {name}: needs the simulation backend")
        assert "pip install 'privplan[simulate]'" in line


HEAVY = (
    "torch",
    "sklearn",
    "matplotlib",
    "pandas",
    "sqlalchemy",
    "sympy",
    "prv_accountant",
    "dp_accounting",
    "opacus",
    "scipy.stats",
    "scipy.optimize",
    "scipy.fft",
    "rich.progress",
)
"""Modules that no planning command below may import: each takes longer than the work."""


RELEASES = "--noise-multiplier=1 --sampling-ratio=.01 --rounds=9 --delta=1e-5"
ALLOWED: dict[str, tuple[str, set[str]]] = {
    "help": ("--help", set()),
    "version": ("--version", set()),
    "init": ("init -o new.yaml", set()),
    "solve": ("solve spec.yaml", set()),
    "solve --plot": ("solve spec.yaml --plot=plan.png", {"matplotlib"}),
    "explain": ("explain plan.json", {"sympy"}),
    "account": (f"account {RELEASES}", set()),
    "calibrate": (
        "calibrate --epsilon=1 --delta=1e-5 --sampling-ratio=.01 --rounds=9",
        set(),
    ),
    "account --tradeoff": (f"account {RELEASES} --tradeoff", set()),
    "what-if": ("what-if spec.yaml --vary=rounds=10:20:2 --workers=1", {"matplotlib"}),
    "export": ("export plan.json --to flower -o project", {"sqlalchemy"}),
    "verify": ("verify run --rounds=0", set()),
    "publish": ("publish run --rounds=0 -o bundle", {"torch"}),
    "reproduce": ("reproduce gdpfed-plus-table-1", set()),
    "report": ("report plan.json", {"matplotlib"}),
    "lint": ("lint train.py --of=opacus --population=1000", set()),
    "book": ("book add run --rounds=0", {"sqlalchemy"}),
    "simulate --help": ("simulate --help", set()),
    "compare --help": ("compare --help", set()),
    "attack --help": ("attack --help", set()),
    "simulate --algorithms": ("simulate --algorithms", {"torch"}),
    **{
        algorithm: (
            f"simulate plan.json --algorithm={algorithm} --device=cpu -o {algorithm}",
            {"torch", "matplotlib"},
        )
        for algorithm in ("planned", "HyperFL-LPM")
    },
}
"""Every command, and the heavy modules that it may import."""


FORKS = """
import json, os, sys
import numpy, privplan.planning.solver, privplan.verification.verify, privplan.cli

heavy, commands = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for name, words, allowed in [("nothing", [], []), *commands]:
    if "torch" in allowed:
        import torch
    child = os.fork()
    if not child:
        code = None
        try:
            privplan.cli.main(words) if words else None
        except SystemExit as done:
            code = done.code
        found = [one for one in heavy if one in sys.modules]
        print(json.dumps([name, code, found]), file=out, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Each command in a fork of one process, which has loaded what all of them may load."""


LONG = (
    "solve --plot",
    "explain",
    "simulate --algorithms",
    "export",
    "publish",
    "reproduce",
    "report",
    "planned",
    "HyperFL-LPM",
)
"""Commands that take more than a second, or load torch, which does."""
SHORT = ("nothing", *(name for name in ALLOWED if name not in LONG))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with a spec, its plan and a finished run."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "spec.yaml").write_text(
        preset("digits").replace("rounds: 60 ", "rounds: 2 ")
    )
    plan = solve(digits_spec(rounds=2))
    plan.save(folder / "plan.json")
    (folder / "train.py").write_text("import opacus\n")
    execute(Request(plan, "planned", "digits", folder / "run", device="cpu"))
    return folder


def imports_of(names, folder):
    """Exit code and heavy modules of each of these commands, and of none."""
    commands = [
        (name, words.split(), sorted(allowed))
        for name, (words, allowed) in ALLOWED.items()
        if name in names
    ]
    commands.sort(key=lambda command: "torch" in command[2])
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=json.dumps([HEAVY, commands]),
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    rows = map(json.loads, done.stdout.splitlines())
    return {name: (code, modules) for name, code, modules in rows}


@pytest.fixture(scope="module")
def imported(workplace):
    return imports_of(SHORT, workplace)


@pytest.fixture(scope="module")
def imported_by_long(workplace):
    return imports_of(LONG, workplace)


def check_imports(name, imports):
    code, modules = imports[name]
    assert code in (None, 0, 5)
    assert set(modules) <= (ALLOWED[name][1] if name in ALLOWED else set())


@pytest.mark.parametrize("name", SHORT)
def test_commands_import_no_heavy_module(name, imported):
    check_imports(name, imported)


UNNEEDED = ("torch", "scipy.sparse", "yaml")
VERIFY = f"""
import sys
from privplan.cli import main
try:
    main("verify run --plan=approved.json --rounds=0".split())
finally:
    print([name for name in {UNNEEDED} if name in sys.modules], file=sys.stderr)
"""


def test_a_verdict_without_execution_loads_little(workplace):
    """Beside NumPy, scipy.special and pydantic, which take two thirds of its time."""
    shutil.copy(workplace / "plan.json", workplace / "approved.json")
    done = subprocess.run(
        [sys.executable, "-c", VERIFY],
        capture_output=True,
        text=True,
        check=True,
        cwd=workplace,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.startswith("kept as recorded")
    assert done.stderr == "[]\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_long_commands_import_no_heavy_module(name, imported_by_long):
    check_imports(name, imported_by_long)


def test_the_help_lists_what_is_registered():
    assert tuple(sorted(DATASETS)) == options.DATASETS
    assert tuple(forms()) == options.PARTITIONS


def test_every_planning_command_has_its_list_of_modules():
    named = {words.split()[0] for words, _ in ALLOWED.values()}
    later = {"doctor"}  # it looks for what is installed
    assert set(COMMANDS) - later <= named
