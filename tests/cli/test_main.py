"""The command line as a whole: help, exit codes, one line for bad input."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import click
import pytest

from privplan.cli import COMMANDS, main
from tests.command import answer, privplan, refused

BACKEND = ("simulate", "compare", "attack", "replay", "check-data", "proxy")
NO_RESULT = {
    "init",
    "app",
    "book open",
    "book reserve",
    "book commit",
    "attest keys new",
    "attest keys show",
    "export",
    "proxy tune",
    "proxy forecast",
}
"""Commands that write a file, or print one as it is."""


def _leaf_commands(group, words="privplan"):
    """Words and command of each command that is no group of further ones."""
    context = click.Context(group)
    leaves = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            leaves += _leaf_commands(command, f"{words} {name}")
        else:
            leaves.append((f"{words} {name}", command))
    return leaves


def test_help_lists_all_commands_and_imports_no_backend():
    code = (
        "import sys; from privplan.cli import main\n"
        "try:\n    main(['--help'])\n"
        "finally:\n    print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    listed = {
        line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")
    }
    assert {*COMMANDS, *BACKEND} <= listed
    assert done.stdout.splitlines()[-1] == "[]"


@click.command(help="Say hello. Nothing else.")
def hello():
    click.echo("hello")


@click.command()
def needing():
    raise ModuleNotFoundError("No module named 'nowhere.inside'", name="nowhere.inside")


broken = "no command"


@pytest.fixture
def third_party(monkeypatch):
    points = [
        EntryPoint(name, f"{__name__}:{value}", "privplan.commands")
        for name, value in {
            "hello": "hello", "needing": "needing", "broken": "broken", "absent": "absent",
            "solve": "hello",
        }.items()
    ] + [
        EntryPoint("nowhere", "nowhere.cli:command", "privplan.commands"),
        EntryPoint("book.hello", f"{__name__}:hello", "privplan.commands"),
        EntryPoint("book.broken", f"{__name__}:broken", "privplan.commands"),
    ]  # fmt: skip
    monkeypatch.setattr("privplan.registry.points", lambda group: points)


@pytest.mark.usefixtures("third_party")
def test_a_command_of_another_package_is_listed_and_called():
    assert privplan("hello").stdout == "hello\n"
    shown = privplan("--help").stdout
    assert "Say hello." in shown
    assert "Nothing else" not in shown
    solve = privplan("solve", "--help").stdout
    assert "certificate" in solve  # a command of this project is never replaced


@pytest.mark.usefixtures("third_party")
def test_an_entry_point_with_a_dot_is_a_command_of_a_group():
    assert privplan("book", "hello").stdout == "hello\n"
    assert "book.hello" not in privplan("--help").stdout
    shown = privplan("book", "--help").stdout
    assert "Say hello." in shown
    assert "must be a click command, found str" in shown
    assert "Verify RUN" in shown  # its own commands stay
    assert privplan("book", "broken").exit_code == 2
    assert privplan("book.hello").exit_code == 2


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("needing", "needs the package nowhere, which is not installed"),
        ("nowhere", "needs the package nowhere, which is not installed"),
        ("broken", "must be a click command, found str"),
        ("absent", "must be a click command, found module"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_one_line(name, reason):
    line = refused(name)
    assert line.startswith(f"{name}: ")
    assert reason in line


@pytest.mark.parametrize(("words", "command"), _leaf_commands(main))
def test_the_example_in_the_help_of_a_command_is_one_of_it(words, command):
    start, _, example = (command.epilog or "").partition(": ")
    assert start == "Example"
    assert example.startswith(f"{words} ")
    options = set()
    for param in command.params:
        options.update(param.opts, param.secondary_opts)
    for word in example.split():
        assert not word.startswith("-") or word.partition("=")[0] in options
    assert "Usage:" in answer(*words.split()[1:], "--help")


def test_every_command_with_a_result_prints_json():
    for words, command in _leaf_commands(main):
        formats = [param for param in command.params if "--format" in param.opts]
        if not any("json" in param.type.choices for param in formats):
            assert words.removeprefix("privplan ") in NO_RESULT


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
        ("privplan", "privplan.cli.plan", ["solve", "nosuch.yaml"]),
        ("privplan", "numpy", ["solve", "nosuch.yaml"]),
        ("privplan", "torch", ["simulate", "nosuch.json", "--algorithm", "GDPFed"]),
        ("simulate", "torch", ["nosuch.json", "--algorithm", "GDPFed"]),
    ],
)
def test_ctrl_c_while_libraries_load_is_one_line(program, imported, arguments):
    command = [sys.executable, "-c", INTERRUPTED, program, imported, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr == "privplan: interrupted\n"


def test_ctrl_c_stays_ignored_where_it_was():
    ignored = INTERRUPTED.replace("signal.default_int_handler", "signal.SIG_IGN")
    command = [sys.executable, "-c", ignored, "privplan", "click", "--version"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
