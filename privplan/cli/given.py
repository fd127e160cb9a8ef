"""Options that a command line names although they have no effect there."""

from __future__ import annotations

from collections.abc import Iterable

import click


def is_given(context: click.Context, name: str) -> bool:
    """Whether the command line names an option."""
    return context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def refuse_given(context: click.Context, names: Iterable[str], rule: str) -> None:
    """Raises for each of the options that the command line names."""
    from privplan.errors import Fault, InputError

    options = {option.name: option.opts[0] for option in context.command.params}
    values = {name: context.params[name] for name in names if is_given(context, name)}
    given = [
        Fault(
            options[name].lstrip("-"),
            rule,
            " ".join(value) if isinstance(value, tuple) else str(value),
        )
        for name, value in values.items()
    ]
    if given:
        raise InputError(given)
