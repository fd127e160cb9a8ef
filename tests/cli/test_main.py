"""The command line as a whole: help, exit codes, one line for bad input."""

import subprocess
import sys

import pytest

from privplan.cli import COMMANDS, SIMULATION


def _privplan(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "privplan", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", [*COMMANDS, *SIMULATION])
def test_every_command_has_help(name: str) -> None:
    done = _privplan(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout


def test_the_table_of_commands_misses_no_file() -> None:
    from pathlib import Path

    import privplan.cli

    files = {path.stem for path in Path(privplan.cli.__path__[0]).glob("*.py")}
    modules = {module.rsplit(".", 1)[1] for module, _ in COMMANDS.values()}
    assert files - {"__init__", "render"} == modules


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["nosuch"], "nosuch"),
        (["solve"], "SPEC"),
        (["solve", "."], "directory"),
        (["solve", "nosuch.yaml"], "exists"),
        (["solve", ""], "must be the name of a file, found ''"),
        (["verify", "nosuch"], "run folder"),
        (["account", "--rounds", "many"], "rounds"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], found: str) -> None:
    done = _privplan(*arguments)
    assert done.returncode == 2
    assert found in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


INTERRUPTED = """
import os, runpy, signal, sys

program, imported, *sys.argv[1:] = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background


class Finder:
    def find_spec(name, *rest):
        if name == imported:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                print("swallowed, as libraries do")


sys.meta_path.insert(0, Finder)
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("program", "imported", "arguments"),
    [
        ("privplan", "click", ["--version"]),
        ("privplan", "privplan.cli.solve", ["solve", "nosuch.yaml"]),
        ("privplan", "numpy", ["solve", "nosuch.yaml"]),
        ("privplan", "torch", ["simulate", "nosuch.json", "--algorithm", "GDPFed"]),
        ("simulate", "torch", ["nosuch.json", "--algorithm", "GDPFed"]),
    ],
)
def test_ctrl_c_while_libraries_load_is_one_line(
    program: str, imported: str, arguments: list[str]
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, program, imported, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "privplan: interrupted\n"


def test_ctrl_c_stays_ignored_where_it_was() -> None:
    ignored = INTERRUPTED.replace("signal.default_int_handler", "signal.SIG_IGN")
    command = [sys.executable, "-c", ignored, "privplan", "click", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
