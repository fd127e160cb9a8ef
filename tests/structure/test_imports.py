"""The planning core stands alone: no torch, no simulate, and a quick command line."""

import subprocess
import sys

import pytest

import privplan

BLOCK = """
import importlib.abc, sys
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "simulate", "opacus"):
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Refuse())
"""


def _without_torch(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_every_public_name_loads_without_torch() -> None:
    code = "import privplan; [getattr(privplan, name) for name in privplan.__all__]; print('ok')"
    done = _without_torch(code)
    assert done.stdout.strip() == "ok", done.stderr


def test_plans_and_accounts_without_torch(tmp_path) -> None:
    spec = tmp_path / "spec.yaml"
    for arguments in (
        ["init", "--preset", "gdpfed-fmnist", "-o", str(spec)],
        ["solve", str(spec), "-o", str(tmp_path / "plan.json")],
        [
            "account",
            "--noise-multiplier=1.5",
            "--sampling-ratio=.02",
            "--rounds=50",
            "--delta=1e-5",
        ],
    ):
        done = _without_torch(f"from privplan.cli import main; main({arguments!r})")
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_simulation_commands_say_which_extra_they_need(command: str) -> None:
    done = _without_torch(f"from privplan.cli import main; main([{command!r}])")
    assert done.returncode == 2
    assert "privplan[simulate]" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, privplan, privplan.cli\n"
        "print([m for m in ('numpy', 'scipy', 'torch', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nosuch"):
        privplan.nosuch  # noqa: B018
