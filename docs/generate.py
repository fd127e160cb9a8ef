"""Writes the pages of docs/reference that follow from the code: fields, registries, API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT_PAGES = ("CONTRIBUTING", "SECURITY", "CHANGELOG")
"""Pages of the repository's root that the site has, too."""


def write(docs: Path) -> None:
    """Write all pages."""
    folder = docs / "reference"
    (folder / "fields.md").write_text(fields_page(), encoding="utf-8")
    (folder / "registries.md").write_text(registries_page(), encoding="utf-8")
    (folder / "api.md").write_text(api_page(), encoding="utf-8")
    (folder / "components.md").write_text(components_page(), encoding="utf-8")
    for name in ROOT_PAGES:
        text = (docs.parent / f"{name}.md").read_text(encoding="utf-8")
        (docs / f"{name.lower()}.md").write_text(
            on_site(text, "docs/"), encoding="utf-8"
        )


def on_site(text: str, folder: str = "") -> str:
    """A page with its links as the site has them: to other pages, or to nothing outside of it."""
    for name in ROOT_PAGES:
        text = text.replace(f"](../{name}.md", f"]({name.lower()}.md")
    text = re.sub(
        r"\[([^\]]*)\]\((?:\.\./)*(?:examples|docs/plugin-template)/[^)]*\)",
        r"\1",
        text,
    )
    return text.replace(f"]({folder}", "](") if folder else text


def fields_page() -> str:
    """Every field of a spec: what it means, what it may be, and its default."""
    from privplan.spec.spec import Spec

    schema = Spec.model_json_schema()
    rows = "\n".join(
        f"| `{path}` | {meaning} | {values}; {default} |"
        for path, meaning, values, default in fields(schema, schema["$defs"])
    )
    return (
        "# Fields of a spec\n\n"
        "After this page you know every field that a spec may have. It is written from the schema "
        "that `privplan init --schema` prints.\n"
        "`groups.*` are the fields of each group. A field that is left out has its default; "
        "a field that does not exist is refused with the nearest name.\n\n"
        f"| field | meaning | values; default |\n|---|---|---|\n{rows}\n"
    )


def fields(
    node: dict[str, Any], known: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """Path, meaning, values and default of each field below a node of the schema."""
    for name, one in node.get("properties", {}).items():
        where, found = f"{path}{name}", _resolved(one, known)
        meaning = one.get("description") or found.get("description", "")
        default = (
            "required"
            if name in node.get("required", ())
            else _shown(one.get("default"))
        )
        yield (
            where,
            _cell(meaning.split("\n\n")[0]),
            _cell(_values(found)),
            _cell(default),
        )
        if "properties" in found:
            yield from fields(found, known, f"{where}.")
        items = _resolved(found.get("items", {}), known)
        if "properties" in items:
            yield from fields(items, known, f"{where}.*.")


def _resolved(node: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """The node that a reference, or the first alternative that is not null, names."""
    if "$ref" in node:
        return known[node["$ref"].rpartition("/")[2]]
    for one in node.get("anyOf", ()):
        if "$ref" in one:
            return _resolved(one, known)
    return node


def _values(node: dict[str, Any]) -> str:
    alternatives = node.get("anyOf", [node])
    return " or ".join(dict.fromkeys(filter(None, map(_one_value, alternatives))))


def _one_value(node: dict[str, Any]) -> str:
    if "enum" in node:
        return ", ".join(map(str, node["enum"]))
    if "const" in node:
        return str(node["const"])
    signs = {"gt": "above", "exclusiveMinimum": "above", "ge": "from", "minimum": "from",
             "lt": "below", "exclusiveMaximum": "below", "le": "to", "maximum": "to"}  # fmt: skip
    kinds = {"number": "number", "integer": "whole number", "string": "text",
             "boolean": "true, false", "array": "list", "object": "fields"}  # fmt: skip
    kind = kinds.get(node.get("type", ""), "")
    limits = [f"{word} {node[key]:g}" for key, word in signs.items() if key in node]
    return " ".join([kind, *limits]).strip()


def _shown(default: Any) -> str:
    return {None: "left out", True: "true", False: "false"}.get(
        default if isinstance(default, bool | None) else "", f"`{default}`"
    )


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("``", "`").strip()


def registries_page() -> str:
    """What can be named: sampling laws, accountants, algorithms, models, data, partitions."""
    from privplan.accounting.accountant import ACCOUNTANTS
    from privplan.laws.law import FAMILIES, LAWS
    from privplan.spec.planning import OBJECTIVES
    from privplan.verification.checks.check import CHECKS
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.attacks.view import ATTACKS
    from simulate.data.partition.schemes import PARTITIONS
    from simulate.data.registry import DATASETS
    from simulate.models.registry import MODELS
    from simulate.server import SERVER_OPTIMISERS

    rows = "\n".join(
        f"| {name} | {entry.unit} | {_cell(entry.released)} | {_cell(entry.source)} |"
        for name in ALGORITHMS.names()
        for entry in [ALGORITHMS.get(name)]
    )
    lists = {
        "Sampling laws": LAWS, "Families of sampling laws (name and number)": FAMILIES,
        "Accountants": ACCOUNTANTS, "Objectives of the planner": OBJECTIVES,
        "Optimisers of the server": SERVER_OPTIMISERS, "Models": MODELS, "Data sets": DATASETS,
        "Partitions": PARTITIONS, "Attacks": ATTACKS, "Checks of a verdict": CHECKS,
    }  # fmt: skip
    named = "\n\n".join(
        f"## {title}\n\n" + ", ".join(f"`{name}`" for name in registry.names())
        for title, registry in lists.items()
    )
    return (
        "# Names that the commands take\n\n"
        "After this page you know every algorithm, model, data set and accountant by its name. It "
        "is written from the registries; an installed package may add more.\n\n"
        "## Algorithms\n\n`privplan simulate --algorithms` prints this list, too. The unit is whom "
        "the algorithm protects.\n\n"
        "| name | unit | what is released | source |\n|---|---|---|---|\n"
        f"{rows}\n\n{named}\n"
    )


def api_page() -> str:
    """The stable names of the Python API, from their docstrings."""
    import privplan
    import simulate

    planning, training = (
        "\n".join(_described(name, where) for name, where in stable(package).items())
        for package in (privplan, simulate)
    )
    return (
        "# Python API\n\nAfter this page you can use every stable name from Python. "
        "[From Python](../api.md) shows them at work.\n\n"
        f"## import privplan\n\n{planning}\n## import simulate\n\n{training}"
    )


def components_page() -> str:
    """The ready components of algorithms, and the interface of each."""
    import inspect
    from importlib import import_module

    kinds = ("Aggregator", "LocalRule", "Mechanism", "Personalisation", "Sampler", "Server",
             "Split", "Transform")  # fmt: skip
    modules = [
        import_module(f"simulate.{name}")
        for name in ("samplers", "splits", "personalisations", "local.sgd", "local.dp_sgd",
                     "transforms", "mechanisms", "aggregators", "client_aggregators",
                     "projections", "server")
    ]  # fmt: skip
    rows = [
        f"| {kind} | `{module.__name__}.{name}{_call(found)}` | {_cell(_first_line(found))} |"
        for kind in kinds
        for module in modules
        for name, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__
        if name[0] != "_" and found.__annotations__.get("return") == kind
    ]
    table = "\n".join(rows)
    return (
        "# Components of an algorithm\n\nAfter this page you can replace any part of a training "
        "algorithm by your own.\n\n`simulate.algorithm.compose(name, plan, ...)` takes "
        "`sampler`, `split`, `local`, `transforms`, `mechanism`, `aggregator`, `server` and "
        "`personalisation`; one that is left out is FedAvg's. "
        "[A method of your own](own-method.md) has examples.\n\n"
        f"## Ready to use\n\n| kind | component | what it does |\n|---|---|---|\n{table}\n\n"
        "## Interfaces\n\nAn own component is a value of one of these classes.\n\n"
        ":::{literalinclude} ../../simulate/components.py\n:language: python\n:::\n\n"
        "## Models\n\nA local rule gets the network as one of these, without its parameters.\n\n"
        ":::{literalinclude} ../../simulate/models/network.py\n:pyobject: Model\n:::\n"
    )


OPTIONS = {
    "asked": "What to find; the other numbers are given.",
    "device": "Where to train: auto takes a GPU where there is one. This version never ran on one.",
    "expires_days": "Days after which nothing can be spent from the reservation.",
    "first_seed": "The first seed; the others follow it.",
    "form": "How the answer is printed.",
    "output": "Folder or file that is written.",
    "relation": "Which data sets are neighbours: with one client more or less, or with one "
    "replaced by another (replace_one) or by one that sends zero (zero_out).",
    "role": "Whose key it is.",
    "rounds": "Number of rounds.",
    "seed": "Seed of the random numbers.",
    "seeds": "Runs of each method, each with a seed of its own.",
    "solve_for": "What to find; the other numbers are given.",
}  # fmt: skip
"""What options mean that say nothing in the terminal, where their name must do."""
ARGUMENTS = {
    "ACCOUNT": "POPULATION/GROUP, or the name of a ceiling.",
    "CONFIG|SCRIPT": "File of another framework.",
    "DATA": "File, folder or package.module:function, as --data of simulate takes it.",
    "FILE": "File of the key.",
    "NAME": "Name of the declaration, which the book shows.",
    "NAME=VALUE,...": "Numbers of the spec and their values, such as strict=1,2,4 or rounds=20,40.",
    "PLAN": "A plan, plan.json.",
    "PLAN...|RUN|RESULTS|BOOK": "A plan or several, the folder of a run or of a comparison, or a "
    "budget book.",
    "PLAN|RUN": "A plan, plan.json, or the folder of a finished run.",
    "RESERVATION": "What book reserve printed.",
    "RUN": "Folder of a run.",
    "SPEC": "A spec, spec.yaml; what-if and app take a plan, too.",
    "TABLE": "Name of a table, such as gdpfed-plus-table-1; without one all are listed.",
}
"""What the arguments of commands are."""


def explain_options(group: Any) -> None:
    """Completes the options of all commands: their help, names in it, and what they take."""
    import click

    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            explain_options(command)
            continue
        for option in (one for one in command.params if isinstance(one, click.Option)):
            option.get_help_record(context)  # fills in the names of a registry
            option.help = option.help or OPTIONS[option.name]
            if option.metavar is None and not (option.is_flag or option.count):
                kinds = {
                    "choice": "CHOICE",
                    "integer": "N",
                    "integer range": "N",
                    "text": "TEXT",
                }
                kinds |= {"float": "NUMBER", "float range": "NUMBER"}
                option.metavar = kinds.get(option.type.name, "PATH")


def explain_arguments(app: Any, context: Any, lines: list[str]) -> None:
    """Says what an argument of a command is, not only whether it is required."""
    known = ""
    for at, line in enumerate(lines):
        known = line.partition("option:: ")[2].strip("[]") or known
        if found := re.fullmatch(r"( *(?:Optional|Required)) argument(?:\(s\))?", line):
            lines[at] = f"{found[1]}. {ARGUMENTS[known]}"


def example_as_code(app: Any, context: Any, lines: list[str]) -> None:
    """Sets the example of a command as code."""
    text = " ".join(lines).strip()
    if text.startswith("Example: "):
        lines[:] = ["Example:", "", ".. code-block:: sh", "", f"   {text[9:]}", ""]


def _call(found: Any) -> str:
    from inspect import signature

    return f"({', '.join(signature(found).parameters)})"


def _first_line(found: Any) -> str:
    return (found.__doc__ or "").split("\n\n")[0]


def stable(package: Any) -> dict[str, str]:
    """Module of each public name."""
    return dict(getattr(package, "STABLE", None) or package._WHERE)


def _described(name: str, where: str) -> str:
    from importlib import import_module

    found = getattr(import_module(where), name)
    kind = "autoclass" if isinstance(found, type) else "autofunction"
    return f"```{{eval-rst}}\n.. {kind}:: {where}.{name}\n```\n"
