"""The findings in a file, and an epsilon only where all in it is literal."""

from __future__ import annotations

from privplan.accounting.accountant import accountant, at_most
from privplan.accounting.release import History, Relation, Release
from privplan.contrib.lint.reading import FRAMEWORKS, Findings, Options
from privplan.contrib.lint.source import load
from privplan.errors import InputError, PrivplanError
from privplan.file_kinds import refuse_other_file

# How a framework is named in its files, where not by its own name.
_NAMES = {
    "flower": ("flower", "flwr"),
    "opacus": ("opacus", "privacyengine", "privacy_engine"),
}


def lint(path: str, framework: str, options: Options) -> Findings:
    """Read a file of a framework, and say what is wrong in it.

    Raises:
        InputError: for a file that shows nothing of the framework.
    """
    name = FRAMEWORKS.name_of(framework)
    source = load(path)
    try:
        findings = FRAMEWORKS.get(name)(source, options)
    except RecursionError:
        raise InputError.one("file", "must be nested less deeply", path) from None
    if findings.mechanism is None and not findings.alarms:
        refuse_other_file(path, "lint", "file")
    if not (findings.shown or findings.alarms):
        if not any(word in source.text.lower() for word in _NAMES.get(name, (name,))):
            rule = f"must be a script or a configuration of {name}, and shows nothing of it"
            raise InputError.one("file", rule, path)
        line = f"the file shows no privacy mechanism of {name}"
        if "privplan" in source.text:
            line = (
                "the file uses privplan, which lint does not read: privplan verify RUN "
                "checks what a guard recorded"
            )
        findings.unknown(line)
    for lines in (
        findings.alarms,
        findings.look_at,
        findings.read,
        findings.undetermined,
        findings.not_understood,
    ):
        lines[:] = sorted({*lines}, key=lambda line: (line.line, str(line)))
    if not (findings.alarms or findings.undetermined or findings.not_understood):
        _account(findings)
    return findings


def _account(findings: Findings) -> None:
    """Add the upper bounds on epsilon of the mechanism."""
    mechanism = findings.mechanism
    if mechanism is None:
        return
    try:
        release = Release(mechanism.noise, mechanism.ratio, mechanism.law)
        history = History.repeated(release, mechanism.rounds)
        for relation in (Relation.ADD_REMOVE, Relation.REPLACE_ONE):
            compute = accountant(findings.accountant).epsilon
            upper = compute(history, mechanism.delta, relation).upper
            findings.epsilon[str(relation)] = at_most(upper, 6)
    except PrivplanError as error:
        findings.epsilon.clear()
        findings.unknown(f"epsilon: {error}")
