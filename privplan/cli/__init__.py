"""The command line: one module per command, imported only when the command is called.

Commands of other packages are entry points of the group ``privplan.commands``: the name is the
command's, the value a ``click.Command``. Those of the simulation backend are declared the same
way, so that this package lists none of them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from privplan.errors import PrivplanError
from privplan.processes import INTERRUPTED, keep_freed

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "privplan.commands"
COMMANDS = {
    "init": "Write a commented spec to start from.",
    "solve": "Solve a spec: the plan and its certificate.",
    "explain": "Show each term of the bounds, formula and number.",
    "what-if": "Solve a spec with some of its numbers varied.",
    "frontier": "Show what rounds, cohort and budgets buy.",
    "verify": "Say what a run really spent, and whether it kept the plan.",
    "keys": "Keys of the parties that sign statements about a run.",
    "anchor": "Put the head of a run's signed statements into an external log.",
    "book": "What groups have spent over all runs, and what is left.",
    "account": "What a mechanism costs, by every accountant.",
    "calibrate": "Find the one parameter that meets a budget.",
    "tradeoff": "What the best attacker can achieve, as a curve.",
    "report": "The public report of a plan or run.",
    "doctor": "Show versions, extras and devices, and what is missing.",
}
"""Commands of this package with one line of help; each is ``command`` of the module so named."""


MODULES = {
    "init": "plan:init_command",
    "solve": "plan:solve_command",
    "explain": "plan:explain_command",
    "what-if": "plan:what_if_command",
    "frontier": "plan:frontier_command",
    "verify": "verify:verify_command",
    "report": "verify:report_command",
    "keys": "keys:command",
    "anchor": "anchor:command",
    "book": "book:command",
    "account": "account:account_command",
    "calibrate": "account:calibrate_command",
    "tradeoff": "account:tradeoff_command",
    "doctor": "doctor:doctor_command",
}
"""Where each command is, as module and attribute."""

VERBOSITY = "privplan.verbosity"
"""Key of ``click.Context.meta``: -1 with --quiet, 1 with --verbose, 2 with two of them."""


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: int) -> None:
    from privplan.cli import render

    if value:
        ctx.meta[VERBOSITY] = -1 if param.name == "quiet" else ctx.meta.get(VERBOSITY, 0) + value
        render.configure(ctx.meta[VERBOSITY])


_VERBOSITY_OPTIONS = (
    click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=_set_verbosity,
        help="Show the result only: no warnings, no progress.",
    ),
    click.Option(
        ["-v", "--verbose"],
        count=True,
        expose_value=False,
        callback=_set_verbosity,
        help="Log each step to standard error; twice for details.",
    ),
)


class SuggestingGroup(click.Group):
    """A group that suggests the nearest command for an unknown one.

    Its commands take ``--quiet`` and ``--verbose``, before or after the command's name.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, with the options of verbosity."""
        return _with_verbosity(super().get_params(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name.

        Raises:
            UsageError: for an unknown command; the message names the nearest one.
        """
        from privplan.errors import did_you_mean

        command = self.get_command(ctx, args[0])
        if command is None:
            if args[0].startswith("-"):
                return super().resolve_command(ctx, args)
            near = did_you_mean(args[0], self.list_commands(ctx))
            ctx.fail(f"No such command {args[0]!r}{near}.")
        if not isinstance(command, SuggestingGroup):
            command.params = _with_verbosity(command.params)
        return args[0], command, args[1:]


def _with_verbosity(params: list[click.Parameter]) -> list[click.Parameter]:
    """The parameters of a command and the options of verbosity, each once, before ``--help``."""
    taken = {word for param in params for word in (*param.opts, *param.secondary_opts)}
    added = [one for one in _VERBOSITY_OPTIONS if taken.isdisjoint(one.opts)]
    helps = [one for one in params if one.name == "help"]
    return [*(one for one in params if one not in helps), *added, *helps]


class _Commands(SuggestingGroup):
    """A group that imports a command when it is called; an error is one line, never a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_extensions()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            module, _, attribute = MODULES[name].partition(":")
            command = getattr(import_module(f"{__name__}.{module}"), attribute)
            return command if isinstance(command, click.Command) else None
        point = _extensions().get(name)
        return None if point is None else _load(point)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = [(name, _help_line(point)) for name, point in _extensions().items()]
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items(), *lines])

    def invoke(self, ctx: click.Context) -> Any:
        from privplan.cli import render

        render.configure(ctx.meta.get(VERBOSITY, 0))
        keep_freed()
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand or ""
            if (error.name or "").partition(".")[0] == "privplan":
                raise  # not a package to install, but an error in this one
            raise _missing(name, _extensions().get(name), error) from None

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
            file = error.filename or "output"
            code = _refuse(f"{file}: {error.strerror or error}", PrivplanError.exit_code)
        except MemoryError:
            code = _refuse("memory: does not suffice for this", PrivplanError.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str, code: int) -> int:
    from privplan.cli import render

    render.error(message)
    return code


def _extensions() -> dict[str, EntryPoint]:
    """Entry points of commands by name; the first of several with equal names."""
    from importlib.metadata import entry_points

    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        points.setdefault(point.name, point)
    return points


def _load(point: EntryPoint) -> click.Command:
    """The command of an entry point.

    Raises:
        ClickException: when it cannot be imported, or is no command.
    """
    rule = f"entry point {point.value!r} of group {GROUP} must be a click command"
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        raise _missing(point.name, point, error) from None
    except (ImportError, AttributeError) as error:
        raise click.ClickException(f"{point.name}: {rule}, found {error}") from None
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{point.name}: {rule}, found {type(command).__name__}")
    return command


def _help_line(point: EntryPoint) -> str:
    """First sentence of a command's help, or why the command cannot be loaded."""
    try:
        return _load(point).get_short_help_str(limit=100)
    except click.ClickException as error:
        return error.format_message().removeprefix(f"{point.name}: ")


def _missing(
    name: str, point: EntryPoint | None, error: ModuleNotFoundError
) -> click.ClickException:
    """A line that names the package to install; the backend's commands are this project's."""
    package = (error.name or "a package").partition(".")[0]
    own = point is not None and point.dist is not None and point.dist.name == "privplan"
    if own or package == "torch":  # solve --data and --model call a command of the backend
        needs = f"the simulation backend (no {package}); pip install 'privplan[simulate]'"
    else:
        needs = f"the package {package}, which is not installed"
    return click.ClickException(f"{name}: needs {needs}")


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="privplan")
def main() -> None:
    """Plan a privacy budget, certify it, try it in simulation, and know what was spent."""
