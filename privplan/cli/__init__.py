"""The command line: one file a command, loaded only when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from privplan.errors import PrivplanError
from privplan.io.interrupts import INTERRUPTED

# name: (module, one line of help); each module holds a click command named ``command``.
COMMANDS = {
    "init": ("privplan.cli.init", "Write a commented spec to start from."),
    "solve": ("privplan.cli.solve", "Solve a spec: the plan and its certificate."),
    "explain": ("privplan.cli.explain", "Show each term of the bounds, formula and number."),
    "what-if": ("privplan.cli.what_if", "Solve a spec with some of its numbers varied."),
    "frontier": ("privplan.cli.frontier", "Show what rounds, cohort and budgets buy."),
    "verify": ("privplan.cli.verify", "Say what a run really spent, and whether it kept the plan."),
    "book": ("privplan.cli.book", "What groups have spent over all runs, and what is left."),
    "account": ("privplan.cli.account", "What a mechanism costs, by every accountant."),
    "calibrate": ("privplan.cli.calibrate", "Find the one parameter that meets a budget."),
    "tradeoff": ("privplan.cli.tradeoff", "What the best attacker can achieve, as a curve."),
}
# Commands of the simulation backend, which is an extra.
SIMULATION = {
    "pilot": "Measure the constants of planning on public or proxy data.",
    "algorithms": "List the algorithms that can be trained.",
    "simulate": "Train an algorithm under a plan.",
    "compare": "Train several algorithms under a plan, side by side.",
}


class _Commands(click.Group):
    """A group that imports a command when it is called; an error is one line, never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *SIMULATION]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            found = import_module(COMMANDS[name][0]).command
            return found if isinstance(found, click.Command) else None
        if name in SIMULATION:
            return _simulation_command(name)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, line) for name, (_, line) in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*rows, *SIMULATION.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            code = _refuse(" ".join(error.format_message().split()), PrivplanError.exit_code)
        except PrivplanError as error:
            code = _refuse(str(error), error.exit_code)
        except click.Abort:
            code = _refuse("interrupted", INTERRUPTED)
        except OSError as error:
            what = error.filename or "output"
            code = _refuse(f"{what}: {error.strerror or error}", PrivplanError.exit_code)
        except MemoryError:
            code = _refuse("memory: does not suffice for this", PrivplanError.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str, code: int) -> int:
    from privplan.cli import render

    render.error(message)
    return code


def _simulation_command(name: str) -> click.Command:
    from importlib.metadata import entry_points

    found = [e for e in entry_points(group="privplan.commands") if e.name == name]
    try:
        command = found[0].load()
    except (IndexError, ModuleNotFoundError):
        raise click.ClickException(
            f"{name}: needs the simulation backend; pip install 'privplan[simulate]'"
        ) from None
    return command if isinstance(command, click.Command) else click.Command(name)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="privplan")
def main() -> None:
    """Plan a privacy budget, certify it, try it in simulation, and know what was spent."""
