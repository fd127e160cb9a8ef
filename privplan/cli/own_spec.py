"""Own data and models of a command that solves: options, and the spec with what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.errors import InputError

if TYPE_CHECKING:
    from privplan.spec.spec import Spec

READING = ("task", "label", "client", "group", "groups", "features", "statistics")
"""Options of check-data that say how own data are read."""


def reading_options(command: Any) -> Any:
    """Adds the options that check-data reads data with."""
    for name in reversed(READING):
        help_ = f"How --data are read, as in check-data --{name}."
        command = click.option(f"--{name}", metavar="VALUE", help=help_)(command)
    return command


def measured(own: Mapping[str, Any]) -> dict[str, Any] | None:
    """What check-data, a command of the simulation backend, finds of data and model.

    Returns:
        ``clients``, numbers by name of the group, None where the data name no clients;
        ``parameters``, None without a model. None without data and model.
    """
    words = []
    for name in ("data", "model", *READING, "model_args", "fix"):
        value, option = own[name], name.replace("_", "-")
        if value and own["data"] is None and name in READING:
            raise InputError.one(option, "is only for --data", value)
        if value and own["model"] is None and name in ("model_args", "fix"):
            raise InputError.one(option, "is only for --model", value)
        if value:
            words += [] if name == "data" else [f"--{option}"] + [value] * (value is not True)
    if own["data"] is None and own["model"] is None:
        return None
    from privplan.cli import main

    check = main.get_command(click.Context(main), "check-data")
    if check is None:
        raise InputError.one("data", "needs the simulation backend, privplan[simulate]", "none")
    source = [] if own["data"] is None else [own["data"]]
    found: dict[str, Any] = check.main(["--for-spec", *words, *source], standalone_mode=False)
    return found


def with_measured(data: Any, folder: Path, found: Mapping[str, Any]) -> Spec:
    """The spec with the clients of own data and the parameters of an own model.

    Raises:
        InputError: when groups of the data and of the spec differ, or for other faults.
    """
    from privplan.spec.spec import Spec

    if not isinstance(data, dict):
        return Spec.parse(data)
    clients, parameters = found["clients"], found["parameters"]
    if clients is not None:
        groups = data.get("groups")
        if not isinstance(groups, list) or not all(isinstance(one, dict) for one in groups):
            raise InputError.one("groups", "must be a list of groups with --data", groups)
        names = [str(one.get("name")) for one in groups]
        if None in clients and len(groups) == 1:
            clients = {names[0]: clients[None]}
        if None in clients and len(groups) > 1:
            rule = f"must name the groups {', '.join(names)}, by --group or --groups"
            raise InputError.one("data.group", rule, "none")
        if sorted(names) != sorted(map(str, clients)):
            rule = f"must be the groups of the data, {', '.join(sorted(map(str, clients)))}"
            raise InputError.one("groups", rule, ", ".join(names))
        data["groups"] = [{**one, "clients": clients[str(one["name"])]} for one in groups]
    if parameters is not None:
        named = data.get("model")
        model = named if isinstance(named, dict) else {}
        data["model"] = {"name": "own-model", **model, "parameters": parameters}
    return Spec.parse(data, folder)
