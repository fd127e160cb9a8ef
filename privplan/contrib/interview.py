"""The questions of ``privplan init --interactive``: who is protected, how much."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import render
from privplan.errors import InputError
from privplan.yaml_text import load_yaml

if TYPE_CHECKING:
    from privplan.spec.spec import Spec

_EPSILON = (
    "Epsilon is a group's privacy budget: a guess whether somebody took part is right at "
    "most 73 times of 100 at epsilon 1, 88 at 2 and 98 at 4; a smaller one protects more."
)
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
"""What reports call a protected person where nobody names them."""
_PEOPLE = "22"
_RECORDS = "23"
_LOCAL = {
    "client": "{steps: 5, batch_size: 5, learning_rate: 0.1}    # mini-batch SGD on a client",
    "record": "{epochs: 1, batch_size: 32, learning_rate: 0.05} # DP-SGD on a client",
}


def _text(answers: dict[str, Any]) -> str:
    """The commented spec of the answers."""
    unit = answers["unit"]
    persons = ""
    contributions = str(answers["contributions"])
    if contributions != "1":
        persons = f", contributions: {contributions}"
    rows: list[str] = []
    for group in answers["groups"]:
        fields = ", ".join(
            f"{key}: {json.dumps(value)}" for key, value in group.items()
        )
        rows.append(f"  - {{{fields}{persons}}}")
    groups = "\n".join(rows)

    cohort = ""
    if answers["cohort"]:
        cohort = f"cohort: {answers['cohort']}    # expected clients per round\n"
    person = ""
    if answers["person"] != _UNNAMED:
        person = f"person: {answers['person']}    # what reports call it\n"
    name = json.dumps(answers["model"])
    model = f"{{name: {name}, parameters: {answers['parameters']}}}"
    return f"""\
# Protected: {_PROTECTED[answers["kind"]]}.
# Solve it with: privplan solve spec.yaml -o plan.json
name: {json.dumps(answers["name"])}
unit: {unit}    # client | record: whom a budget protects
{person}
# Who needs how much privacy: an epsilon for each {unit} of the group, over all rounds.
groups:
{groups}
delta: {answers["delta"]}    # chance that the promise fails, below one in the number of {unit}s
rounds: {answers["rounds"]}
{cohort}sampling: poisson    # how a cohort is really drawn; the guarantee depends on it
relation: add_remove    # add_remove | replace_one: which data sets are neighbours
local: {_LOCAL[unit]}
model: {model}    # a network of the simulator, or a label for your own (--model MODULE:CLASS)
"""


class _Interview:
    """The questions of one interview, and the answers so far.

    A wrong answer is refused in a line and asked again: it is one with which the spec
    of all answers so far is wrong.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "kind": "11",
            "unit": "client",
            "name": "study",
            "groups": [],
            "delta": "n^-1.1",
            "rounds": 50,
            "cohort": 0,
            "model": "own",
            "parameters": 10_000,
            "contributions": 1,
            "person": _UNNAMED,
        }

    def _check(self, **changes: Any) -> Spec:
        """The spec of the answers so far; raises InputError where they make none."""
        from privplan.spec.spec import Spec

        return Spec.parse(load_yaml(_text({**self.answers, **changes}), "answer"))

    def ask(self, field: str, question: str) -> None:
        """Asks for a field of the spec."""

        def checked(text: str) -> str:
            spec = self._check(**{field: text})
            # Such as a delta that promises nothing.
            if field == "delta":
                for warning in spec.warnings():
                    render.warn(warning)
            return text

        self.answers[field] = render.ask(question, checked, str(self.answers[field]))

    def ask_kind(self) -> str:
        """Asks whom a budget protects: a key of ``_PROTECTED``."""
        holds = _choice(_HOLDS, "12")
        whom = "1"
        if holds == "2":
            whom = _choice(_WHOM, "123")
        kind = holds + whom
        protects_records = kind == _RECORDS
        self.answers["kind"] = kind
        self.answers["unit"] = "record" if protects_records else "client"
        self.answers["cohort"] = 0 if protects_records else 1
        return kind

    def ask_groups(self) -> None:
        """Asks for groups until an empty answer; the first cannot be empty."""
        groups = self.answers["groups"]
        while True:
            group = self._ask_group()
            if not group:
                return
            groups.append(group)

    def _ask_group(self) -> dict[str, Any]:
        """Asks for a group; empty where there is no more."""
        kind = self.answers["kind"]
        groups = self.answers["groups"]
        names = ["name", "clients", "epsilon"]
        people = "PEOPLE" if kind == _PEOPLE else "CLIENTS"
        shape = f"NAME {people} EPSILON"
        example = "strict 100 2"
        if kind == _RECORDS:
            names = ["name", "clients", "records", "epsilon"]
            shape = f"NAME {people} RECORDS EPSILON"
            example = "strict 100 500 2"

        def group_of(text: str) -> dict[str, Any]:
            words = text.split()
            if not words and groups:
                return {}
            if len(words) != len(names):
                rule = f"must be {shape}, such as {example}"
                raise InputError.one("group", rule, text)
            numbers = [load_yaml(word, "answer") for word in words[1:]]
            group = dict(zip(names, [words[0], *numbers], strict=True))

            # A client of each group, until the cohort is asked for.
            groups_so_far = [*groups, group]
            cohort = self.answers["cohort"] and len(groups_so_far)
            self._check(groups=groups_so_far, cohort=cohort)
            return group

        question = f"Group {len(groups) + 1}: {shape}"
        if groups:
            question += " (empty: no more)"
        answer: dict[str, Any] = render.ask(question, group_of)
        return answer


def _choice(question: str, digits: str) -> str:
    """Asks for one of some digits."""

    def digit_of(text: str) -> str:
        if text not in tuple(digits):
            rule = f"must be one of {', '.join(digits)}"
            raise InputError.one("answer", rule, text)
        return text

    return str(render.ask(question, digit_of))


def interview() -> str:
    """A commented spec from the answers."""
    questions = _Interview()
    answers = questions.answers
    kind = questions.ask_kind()
    render.status(f"Protected: {_PROTECTED[kind]}.")
    render.status(_EPSILON)
    questions.ask_groups()
    protects_records = kind == _RECORDS
    if not protects_records:
        # A fifth of the clients, and one of each group, unless the answer is another.
        groups = answers["groups"]
        clients = sum(group["clients"] for group in groups)
        answers["cohort"] = max(len(groups), clients // 5)
    questions.ask("name", "Name of the plan")
    questions.ask("rounds", "Rounds of training")
    if not protects_records:
        questions.ask("cohort", "Expected clients per round")
    questions.ask("delta", "Delta, the chance that the promise fails")
    questions.ask(
        "model",
        "Model: a name of the simulator (mlp-digits with 2410 parameters goes with "
        "--dataset digits), or a label for your own (--model MODULE:CLASS)",
    )
    questions.ask("parameters", "Its number of parameters")
    if kind in ("11", _RECORDS):
        unit = answers["unit"]
        questions.ask("contributions", f"The most {unit}s that one person has")
    if not protects_records:
        word = "One word for whom a budget protects, such as patient"
        questions.ask("person", word)
    return _text(answers)


def _begin(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["privplan.interview"] = interview


OF_INIT = [
    click.Option(
        ["--interactive"],
        is_flag=True,
        expose_value=False,
        callback=_begin,
        help="Ask who is protected, and by how much.",
    )
]
