"""The questions of ``privplan init --interactive``: who is protected, and by how much."""

from __future__ import annotations

import json
from typing import Any

import click

from privplan.cli import render
from privplan.errors import InputError
from privplan.yaml_text import load_yaml

_HOLDS = """What does one client hold?
  1: the data of one person, such as a phone or an account
  2: records of many people, such as a hospital
Answer"""
_WHOM = """Whom shall a budget protect?
  1: a whole client
  2: each person, with all records
  3: each record
Answer"""
_PROTECTED = {
    "11": "all data of one person. Who has several clients: contributions in a group, else 1",
    "21": "a whole client: whether it took part at all. Few clients need much noise",
    "22": "a person with all records. Count people as clients, and name their column with "
    "--client when you train. Hospitals cannot be Flower's nodes then: "
    "docs/reference/hospitals.md",
    "23": "one record. Several records of a person: contributions in a group, else 1",
}
_UNNAMED = "client"
_LOCAL = {
    "client": "{steps: 5, batch_size: 5, learning_rate: 0.1}    # mini-batch SGD on a client",
    "record": "{epochs: 1, batch_size: 32, learning_rate: 0.05} # DP-SGD on a client",
}


def _text(given: dict[str, Any]) -> str:
    most = str(given["contributions"])
    persons = f", contributions: {most}" * (most != "1")
    rows = [
        ", ".join(f"{k}: {json.dumps(v)}" for k, v in one.items())
        for one in given["groups"]
    ]
    groups = "\n".join(f"  - {{{row}{persons}}}" for row in rows)
    cohort = f"cohort: {given['cohort']}    # expected clients per round\n"
    cohort, unit = cohort if given["cohort"] else "", given["unit"]
    person = f"person: {given['person']}    # what reports call it\n"
    person = "" if given["person"] == _UNNAMED else person
    model = f"{{name: {json.dumps(given['model'])}, parameters: {given['parameters']}}}"
    return f"""\
# Protected: {_PROTECTED[given["kind"]]}.
# Solve it with: privplan solve spec.yaml -o plan.json
name: {json.dumps(given["name"])}
unit: {unit}    # client | record: whom a budget protects
{person}
# Who needs how much privacy: an epsilon for each {unit} of the group, over all rounds.
groups:
{groups}
delta: {given["delta"]}    # chance that the promise fails, below one in the number of {unit}s
rounds: {given["rounds"]}
{cohort}sampling: poisson    # how a cohort is really drawn; the guarantee depends on it
relation: add_remove    # add_remove | replace_one: which data sets are neighbours
local: {_LOCAL[unit]}
model: {model}    # a network of the simulator, or a label for your own
"""


def interview() -> str:
    """A commented spec from the answers; a wrong answer is refused in a line and asked again."""
    from privplan.spec.spec import Spec

    given: dict[str, Any] = {
        "kind": "11", "unit": "client", "name": "study", "groups": [], "delta": "n^-1.1",
        "rounds": 50, "cohort": 0, "model": "own", "parameters": 10_000, "contributions": 1,
        "person": _UNNAMED,
    }  # fmt: skip

    def choice(question: str, among: str) -> str:
        def one_of(text: str) -> str:
            if text not in tuple(among):
                raise InputError.one(
                    "answer", f"must be one of {', '.join(among)}", text
                )
            return text

        return str(render.ask(question, one_of))

    def ask(field: str, question: str) -> None:
        def check(text: str) -> str:
            Spec.parse(load_yaml(_text({**given, field: text}), "answer"))
            return text

        given[field] = render.ask(question, check, str(given[field]))

    kind = choice(_HOLDS, "12")
    given["kind"] = kind = kind + (choice(_WHOM, "123") if kind == "2" else "1")
    given["unit"], given["cohort"] = ("record", 0) if kind == "23" else ("client", 1)
    render.status(f"Protected: {_PROTECTED[kind]}.")
    names = ["name", "clients", *(["records"] if kind == "23" else []), "epsilon"]
    who = "people" if kind == "22" else "clients"
    shape = " ".join(
        ["NAME", who.upper(), *(["RECORDS"] if kind == "23" else []), "EPSILON"]
    )

    def group(text: str) -> dict[str, Any]:
        words = text.split()
        if not words and given["groups"]:
            return {}
        if len(words) != len(names):
            rule = f"must be {shape}, such as strict 100 {'500 ' * (kind == '23')}2"
            raise InputError.one("group", rule, text)
        numbers = [load_yaml(word, "answer") for word in words[1:]]
        found = dict(zip(names, [words[0], *numbers], strict=True))
        groups = [*given["groups"], found]
        least = given["cohort"] and len(groups)  # a client of each
        Spec.parse(
            load_yaml(_text({**given, "groups": groups, "cohort": least}), "answer")
        )
        return found

    while found := render.ask(
        f"Group {len(given['groups']) + 1}: {shape} (empty: no more)", group
    ):
        given["groups"].append(found)
    if kind != "23":
        clients = sum(one["clients"] for one in given["groups"])
        given["cohort"] = max(len(given["groups"]), clients // 5)
    ask("name", "Name of the plan")
    ask("rounds", "Rounds of training")
    if kind != "23":
        ask("cohort", "Expected clients per round")
    ask("delta", "Delta, the chance that the promise fails")
    ask("model", "Model: a name of the simulator, or a label for your own")
    ask("parameters", "Its number of parameters")
    if kind in ("11", "23"):
        ask("contributions", f"The most {given['unit']}s that one person has")
    if kind != "23":
        ask("person", "One word for whom a budget protects, such as patient")
    return _text(given)


def _begin(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["privplan.interview"] = interview


OF_INIT = [
    click.Option(
        ["--interactive"], is_flag=True, expose_value=False, callback=_begin,
        help="Ask who is protected, and by how much.",
    )
]  # fmt: skip
