"""The command line: one module per command, imported only when the command is called.

Commands of other packages, of the simulation backend and of optional parts are entry
points of the group ``privplan.commands``: the name is the command's, the value a
``click.Command``. A name with a dot, ``proxy.tuning-cost``, is a command of a group of
commands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from privplan.errors import InputError, PrivplanError
from privplan.processes import INTERRUPTED, require_one_process

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "privplan.commands"
OPTIONS = "privplan.options"
"""Entry points of further options: COMMAND.PART, whose value is a list of ``click.Option``."""
SECTIONS = ("plan", "run", "verify", "ask", "data", "tools")
"""Sections of ``privplan --help``; a command that names none is in the last."""
COMMANDS = {
    "init": ("plan", "plan", "Write a commented spec to start from."),
    "solve": ("plan", "plan", "Solve a spec: the plan and its certificate."),
    "what-if": ("plan", "plan", "Solve a spec with some of its numbers varied."),
    "explain": ("plan", "plan", "Say what a plan gives whom and why; then its formulas."),
    "verify": ("plan", "verify", "Say what a run really spent, and whether it kept the plan."),
    "publish": ("publish", "verify", "Write what may be published of a run, computed anew."),
    "book": ("book", "verify", "What groups have spent over all runs, and what is left."),
    "account": ("account", "ask", "What a mechanism costs, by every accountant."),
    "calibrate": ("account", "ask", "Find the one parameter that meets a budget."),
    "doctor": ("doctor", "tools", "Show versions, extras and devices, and what is missing."),
}  # fmt: skip
"""Commands of this package: module of ``NAME_command``, section and line of help."""

VERBOSITY = "privplan.verbosity"
"""Key in ``click.Context.meta``: -1 with --quiet, else the number of -v."""
WITNESSING = "privplan.witnessing"
"""Key under which an option passes a witness of a run in."""
TRUSTED = "privplan.trusted"
"""Key of a list to which options add what the reader of a run trusts."""
CALLED = "privplan.called"
"""Key of the command that is called, and its words."""
PROVE = (
    "Prove the upper bounds that carry the guarantee in exact arithmetic, by a program "
    "of its own (needs the extra proof)."
)
"""Help of the option ``--prove``."""


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: int) -> None:
    from privplan.cli import render

    if not value:
        return
    verbosity = ctx.meta.get(VERBOSITY, 0) + value
    ctx.meta[VERBOSITY] = -1 if param.name == "quiet" else verbosity
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


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version of the distribution, and end."""
    from privplan.cli import render
    from privplan.distribution import own_version

    if value:
        render.text(f"privplan, version {own_version()}")
        ctx.exit()


def _cluster_of_command(
    context: click.Context, parameter: click.Parameter, address: str | None
) -> None:
    """Compute the sweeps of the command on a cluster, until it ends."""
    if address is not None:
        # Before a scheduler is asked, which may take a while; they are read earlier.
        require_one_process(context.params.get("jobs", 1))
        from privplan.clusters import spread_on

        context.with_resource(spread_on(address))


ON = click.option(
    "--on",
    metavar="CLUSTER",
    expose_value=False,
    callback=_cluster_of_command,
    help="Where the runs are computed: dask://HOST:PORT, or slurm:timeout_min=60,...  "
    "[this machine]",
)
"""The option of sweeps that computes their runs on a cluster."""


C = TypeVar("C", bound=click.Command)


def in_section(name: str) -> Callable[[C], C]:
    """Lists a command of an entry point in that section of ``privplan --help``."""

    def mark(command: C) -> C:
        command.section = name  # type: ignore[attr-defined]
        return command

    return mark


class SuggestingGroup(click.Group):
    """A group that suggests the nearest command for an unknown one.

    Its commands take ``--quiet`` and ``--verbose``, before or after the command's name.
    Entry points whose name begins with the group's name and a dot are further commands
    of it.
    """

    prefix: str | None = None
    """What the names of such entry points begin with, where it is not the group's name."""

    def points(self) -> dict[str, EntryPoint]:
        """Entry points of this group's commands by the name of the command."""
        prefix = f"{self.name}." if self.prefix is None else self.prefix
        points = {}
        for name, point in _extensions().items():
            command_name = name.removeprefix(prefix)
            # A further dot is that of a command of a group in this one.
            if name.startswith(prefix) and "." not in command_name:
                points[command_name] = point
        return points

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the group's own commands and of those of entry points."""
        return list(dict.fromkeys([*super().list_commands(ctx), *self.points()]))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The group's own command, else that of an entry point."""
        command = super().get_command(ctx, name)
        point = self.points().get(name)
        if command is not None or point is None:
            return command
        return _load(point)

    def listed(self, ctx: click.Context, name: str) -> tuple[str, str] | None:
        """Section and line of a command, or why it cannot be loaded.

        None of a hidden one.
        """
        try:
            command = self.get_command(ctx, name)
        except click.ClickException as error:
            return SECTIONS[-1], error.format_message().partition(": ")[2]
        if command is None or command.hidden:
            return None
        section = getattr(command, "section", SECTIONS[-1])
        return section, command.get_short_help_str(limit=100)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes the commands with one line each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, _, line in self.lines(ctx)])

    def lines(self, ctx: click.Context) -> list[tuple[str, str, str]]:
        """Name, section and line of each command that is not hidden."""
        lines = []
        for name in self.list_commands(ctx):
            listed = self.listed(ctx, name)
            if listed is not None:
                lines.append((name, *listed))
        return lines

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, with the options of verbosity."""
        return _with_verbosity(super().get_params(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name."""
        from privplan.distribution import own_version

        command = self.get_command(ctx, args[0])
        if command is None:
            if args[0].startswith("-"):
                return super().resolve_command(ctx, args)
            own_version()  # without which most commands are unknown
            ctx.fail(f"No such command {args[0]!r}{_unknown_command(self, ctx, args)}.")
        if not isinstance(command, SuggestingGroup):
            command.params = _with_verbosity(_with_contributed(command).params)
            _refuse_repeated(command, args[1:])
            ctx.meta[CALLED] = (command, args[1:])
        return args[0], command, args[1:]


def _refuse_repeated(command: click.Command, words: list[str]) -> None:
    """Refuse an option with one value that stands twice: click would keep the last."""
    names = [word.partition("=")[0] for word in words]
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        if param.multiple or param.count or param.is_flag:
            continue
        times = sum(names.count(option) for option in param.opts)
        if times > 1:
            rule = (
                "must stand once; commas separate several values, where it takes them"
            )
            line = f"{param.opts[-1]}: {rule}, found {times} times"
            raise click.ClickException(line)


def _refuse_other_files(command: click.Command, words: list[str]) -> None:
    """Raise InputError for a file of a kind that a command does not take."""
    from privplan.file_kinds import refuse_other_file

    context = click.Context(command)
    values, _, _ = command.make_parser(context).parse_args([*words])
    for param in command.params:
        if isinstance(param, click.Argument):
            value = values.get(param.name or "")
            for path in value if isinstance(value, list | tuple) else [value]:
                refuse_other_file(path, command.name or "", param.name or "")


def _with_contributed(command: click.Command) -> click.Command:
    """The command with the options that optional parts declare for it.

    Each of them sets ``ctx.meta``.
    """
    words: set[str] = set()
    for param in command.params:
        words.update(param.opts)
    # A command may take the options of another one.
    name = getattr(command, "options_of", command.name)
    for point in _extensions(OPTIONS).values():
        if not point.name.startswith(f"{name}."):
            continue
        try:
            options = [
                option for option in point.load() if words.isdisjoint(option.opts)
            ]
        except (ImportError, AttributeError, TypeError) as error:
            entry_point = f"entry point {point.value!r} of group {OPTIONS}"
            rule = f"{entry_point} must be a list of options"
            line = f"{point.name}: {rule}, found {error}"
            raise click.ClickException(line) from None
        command.params = [*command.params, *options]
    return command


def _with_verbosity(params: list[click.Parameter]) -> list[click.Parameter]:
    """The parameters of a command and the options of verbosity, each once.

    These stand before ``--help``.
    """
    words: set[str] = set()
    for param in params:
        words.update(param.opts, param.secondary_opts)
    added = [option for option in _VERBOSITY_OPTIONS if words.isdisjoint(option.opts)]
    helps = [param for param in params if param.name == "help"]
    return [*(param for param in params if param not in helps), *added, *helps]


class _Commands(SuggestingGroup):
    """A group that imports a command when it is called.

    An error is one line, never a traceback.
    """

    prefix = ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys([*COMMANDS, *super().list_commands(ctx)]))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            module = import_module(f"{__name__}.{COMMANDS[name][0]}")
            command = getattr(module, f"{name.replace('-', '_')}_command")
            return cast(click.Command, command)
        return super().get_command(ctx, name)

    def listed(self, ctx: click.Context, name: str) -> tuple[str, str] | None:
        if name in COMMANDS:
            _, section, line = COMMANDS[name]
            return section, line
        return super().listed(ctx, name)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        lines = self.lines(ctx)
        for section in SECTIONS:
            rows = [(name, line) for name, place, line in lines if place == section]
            if rows:
                with formatter.section(section.capitalize()):
                    formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        from privplan.cli import render

        render.configure(ctx.meta.get(VERBOSITY, 0))
        try:
            return super().invoke(ctx)
        except InputError:
            _refuse_other_files(*ctx.meta[CALLED])
            raise
        except ModuleNotFoundError as error:
            name = ctx.invoked_subcommand or ""
            # Not a package to install, but an error in this one.
            if (error.name or "").partition(".")[0] == "privplan":
                raise
            raise _missing(name, _extensions().get(name), error) from None

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.NoSuchOption as error:
            code = _refuse(_unknown_option(error), PrivplanError.exit_code)
        except click.ClickException as error:
            line = " ".join(error.format_message().split())
            line = line.replace("a valid integer range", "a whole number")
            if isinstance(error, click.UsageError):
                line += _instead_of_words(error)
            line = line.replace(".;", ";").replace(". (", " (")
            code = _refuse(line, PrivplanError.exit_code)
        except PrivplanError as error:
            code = _refuse(str(error), error.exit_code)
        except click.Abort:
            code = _refuse("interrupted", INTERRUPTED)
        except OSError as error:
            line = f"{error.filename or 'output'}: {error.strerror or error}"
            code = _refuse(line, PrivplanError.exit_code)
        except MemoryError:
            code = _refuse("memory: does not suffice for this", PrivplanError.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


def _unknown_command(
    group: SuggestingGroup, context: click.Context, words: list[str]
) -> str:
    """What to use instead of a word that is no command, as the end of a line."""
    from privplan.vocabulary import SURE, command_meant, nearest, purpose, said_in

    word = words[0]
    commands = group.list_commands(context)
    prefix = "" if context.parent is None else f"{group.name}."
    meant = command_meant(f"{prefix}{word}") or command_meant(word)
    if meant is not None:
        return f"; use {meant}"
    near = nearest(word, commands, SURE)
    if near is not None:
        return f" (did you mean {near}?)"
    for path, _ in _all_commands(context.find_root()):
        if path.endswith(f" {word}"):
            return f"; use {path}"
    served = purpose(word)
    if served is not None:
        return f"; {served}"
    near = nearest(word, commands)
    if near is not None:
        return f" (did you mean {near}?)"
    for path, command in _all_commands(context.find_root()):
        helps = [
            command.help,
            *(getattr(param, "help", "") for param in command.params),
        ]
        for line in helps:
            if said_in(word, line or ""):
                return f"; use {path}: {(line or '').partition('. ')[0].strip('. ')}"
    return f"; it has {', '.join(commands)}"


def _unknown_option(error: click.NoSuchOption) -> str:
    """What a user may have meant by an option that a command does not have."""
    option = error.option_name
    line = f"No such option {option!r}"
    if error.ctx is None:
        return line
    return f"{line}{_instead_of_option(option.lstrip('-'), error.ctx)}."


def _instead_of_option(name: str, context: click.Context) -> str:
    """What to write for an option that a command does not have, the surest first."""
    from privplan.guidance import place_in_spec
    from privplan.vocabulary import SURE, meaning, nearest, purpose, purpose_there

    command = context.command
    served = purpose_there(name, command.name or "")
    if served is not None:
        return f"; {served}"
    options: dict[str, click.Option] = {}
    arguments: dict[str, str] = {}
    for param in command.params:
        if isinstance(param, click.Option):
            options |= {word[2:]: param for word in param.opts if word[:2] == "--"}
        elif param.name is not None:
            arguments[param.name] = param.make_metavar(context)
    meant = meaning(name, options)
    if meant is not None:
        return f"; write --{meant}"
    argument = meaning(name, arguments)
    if argument is not None:
        return f"; {arguments[argument]} stands without a dash"
    for written, param in options.items():
        choices = param.make_metavar(context).strip("[]").lower().split("|")
        chosen = meaning(name, choices) if len(choices) > 1 else None
        if chosen is not None:
            return f"; write --{written} {chosen}"
    served = purpose(name, command.name or "")
    if served is not None:
        return f"; {served}"
    near = nearest(name, options, SURE)
    if near is not None:
        return f" (did you mean --{near}?)"
    place = place_in_spec(name)
    if "named" in arguments and (place is not None or not nearest(name, options)):
        return _without_dashes(place_in_spec(name, of_number=True) or name)
    if place is not None and not arguments.keys().isdisjoint(("plan", "spec")):
        return f": {place} is a field of the spec; change it there and solve"
    return _elsewhere(name, options, context)


def _without_dashes(place: str) -> str:
    """How ``what-if`` takes a number of a spec, by a group's name or its place."""
    rule = "; a group or field is named without dashes: "
    if not place.startswith("groups"):
        return f"{rule}{place}=1,2"
    # Of a group's fields its budget is the one that its name alone stands for.
    field = place.removeprefix("groups.GROUP").replace(".epsilon", "")
    example = f"strict{field.removeprefix('groups')}=1,2"
    return f"{rule}{example} for a group that the spec calls strict"


def _elsewhere(
    name: str, options: Mapping[str, click.Option], context: click.Context
) -> str:
    """Where an option is that its command lacks, or what comes nearest to it."""
    from privplan.vocabulary import nearest, said_in

    all_commands = list(_all_commands(context.find_root()))
    commands = []
    for path, command in all_commands:
        if any(f"--{name}" in param.opts for param in command.params):
            commands.append(path.removeprefix("privplan "))
    if commands:
        return f"; it is an option of {', '.join(commands)}"
    near = nearest(name, options)
    if near is not None:
        return f" (did you mean --{near}?)"
    for written, param in options.items():
        if said_in(name, param.help or ""):
            return f"; --{written}: {(param.help or '').rstrip('.')}"
    for path, command in all_commands:
        for option in command.params:
            help_line = getattr(option, "help", None) or ""
            if said_in(name, help_line):
                return f"; {path} {option.opts[-1]}: {help_line.rstrip('.')}"
    return f"; it takes {', '.join(f'--{word}' for word in options)}"


def _all_commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, with its words; a group's after its name."""
    waiting = [("privplan", context.command)]
    while waiting:
        path, command = waiting.pop(0)
        if not isinstance(command, click.Group):
            yield path, command
            continue
        for name in command.list_commands(context):
            # Of an optional part that is not installed.
            with suppress(click.ClickException, ModuleNotFoundError):
                inner = command.get_command(context, name)
                if inner is not None:
                    waiting.append((f"{path} {name}", inner))


_PLACES_OF_FILES = {
    "algorithms": "; commas without spaces stand between names, and a folder to write "
    "is named by -o FOLDER",
    "plan": "; the plan that was approved is named by --plan FILE, and each run by a "
    "command of its own",
    "group": "; a group is named by --group NAME",
    "output": "; a file to write is named by -o FILE",
}
"""What a further word may have been, by the option that takes it."""
_PLACES_OF_KINDS = {
    "a budget book": ("address", "book", "from_book"),
    "a table of records": ("source", "data"),
}
"""Options that take a file of a kind."""


def _instead_of_words(error: click.UsageError) -> str:
    """What to write for a word that a command lacks, has no place for or cannot read.

    One without a place is mostly its output, or the plan that was approved.
    """
    from privplan.errors import did_you_mean
    from privplan.file_kinds import kind_of
    from privplan.vocabulary import number_meant, purpose

    if error.ctx is None:
        return ""
    example = f" {error.ctx.command.epilog or ''}".rstrip()
    if isinstance(error, click.MissingParameter):
        return example
    if isinstance(error, click.BadParameter):
        value = error.message.partition("'")[2].partition("'")[0]
        explained = getattr(error.param, "help", None) or ""
        if "is not a valid float" in error.message:
            hint = number_meant(value)
            return f"{hint}. {explained}" if hint else f" {explained}"
        if "is not a valid" in error.message:
            return f" {explained}".rstrip()
        choices = getattr(error.param and error.param.type, "choices", ())
        served = purpose(value, error.ctx.command.name or "") if choices else None
        return did_you_mean(value, choices) or (f"; {served}." if served else "")
    if not error.message.startswith("Got unexpected extra"):
        return ""
    options = [
        param
        for param in error.ctx.command.params
        if param.param_type_name == "option" and param.expose_value
    ]
    word = error.message.partition("(")[2].rstrip(")").partition(" ")[0]
    if "=" in word:
        field = word.partition("=")[0]
        return f"; a field of the spec is changed in its file, or tried by what-if {field}="
    kind = kind_of(word)
    places = _PLACES_OF_KINDS.get(kind, ())
    for option in options:
        if option.name in places:
            return f"; {kind} is named by {option.opts[-1]} {word}"
    for name, hint in _PLACES_OF_FILES.items():
        if any(param.name == name for param in options):
            return hint
    return example


def _refuse(message: str, code: int) -> int:
    from privplan.cli import render

    render.error(message)
    return code


def _extensions(group: str = GROUP) -> dict[str, EntryPoint]:
    """Entry points of a group by name; the first of several with equal names."""
    from privplan.registry import points

    by_name: dict[str, EntryPoint] = {}
    for point in points(group):
        by_name.setdefault(point.name, point)
    return by_name


def _load(point: EntryPoint) -> click.Command:
    """The command of an entry point."""
    rule = f"entry point {point.value!r} of group {GROUP} must be a click command"
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        raise _missing(point.name, point, error) from None
    except (ImportError, AttributeError) as error:
        raise click.ClickException(f"{point.name}: {rule}, found {error}") from None
    if not isinstance(command, click.Command):
        line = f"{point.name}: {rule}, found {type(command).__name__}"
        raise click.ClickException(line)
    return command


def _missing(
    name: str, point: EntryPoint | None, error: ImportError
) -> click.ClickException:
    """A line that names the package to install.

    The backend's commands are this project's.
    """
    package = (error.name or "a package").partition(".")[0]
    needs = f"the package {package}, which is not installed"
    extra_name = _extra_with(package)
    if extra_name is not None:
        needs = f"the package {package}: pip install 'privplan[{extra_name}]'"
    if package == "torch" or _is_of_backend(point):
        extra = "pip install 'privplan[simulate]'"
        needs = f"the simulation backend (no {package}); {extra}"
    return click.ClickException(f"{name}: needs {needs}")


def _extra_with(package: str) -> str | None:
    """The first extra of this project that brings a package; None where none does."""
    from importlib.metadata import PackageNotFoundError, requires

    requirements: list[str] = []
    with suppress(PackageNotFoundError):
        requirements = requires("privplan") or []
    for requirement in requirements:
        of_extra = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)", requirement)
        if of_extra is not None and of_extra[1] == package:
            return of_extra[2]
    return None


def _is_of_backend(point: EntryPoint | None) -> bool:
    """Whether a command is one of this project's simulation backend."""
    if point is None or point.dist is None or point.dist.name != "privplan":
        return False
    return point.module.startswith("simulate.")


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan a privacy budget, certify it, try it in simulation, and know what was "
    "spent.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """The command ``privplan``."""
