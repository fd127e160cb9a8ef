"""What ``privplan.proof`` proves of guarantees: asked, stored in plans, and shown."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from privplan.accounting.release import History, Relation
from privplan.errors import InputError
from privplan.plan import Plan, Proven

if TYPE_CHECKING:
    from privplan.proof import Finding

PROVEN = "proven"


def proof_program() -> Any:
    """The module ``privplan.proof``.

    Raises:
        InputError: where python-flint is not installed.
    """
    try:
        return import_module("privplan.proof")
    except ModuleNotFoundError as error:
        if error.name != "flint":
            raise
        rule = "needs the library python-flint: pip install 'privplan[proof]'"
        raise InputError.one("prove", rule, "not installed") from None


def finding_on(
    history: History, relation: Relation, epsilon: float | None, delta: float
) -> Finding:
    """Whether an upper bound on a history's epsilon is proven; None is infinite."""
    program = proof_program()
    if epsilon is None:
        return _not_proven("epsilon is infinite")
    rounds = []
    for release, count in history:
        law = str(release.sampling)
        ratio = release.sampling_ratio
        numbers = (release.noise_multiplier, ratio, law, count, release.family)
        rounds.append(program.Rounds(*numbers))
    finding: Finding = program.prove(rounds, str(relation), epsilon, delta)
    return finding


def _not_proven(reason: str) -> Finding:
    finding: Finding = proof_program().Finding(f"not {PROVEN}: {reason}", 0, 0.0)
    return finding


def finding_on_run(
    guarantee: str,
    history: History,
    relation: Relation,
    epsilon: float | None,
    delta: float,
) -> Finding:
    """As ``finding_on``, where a guarantee may be of more than this history."""
    if guarantee not in proof_program().OF_ONE_RUN:
        return _not_proven(f"{guarantee} counts more than the releases of this run")
    return finding_on(history, relation, epsilon, delta)


def with_proofs(plan: Plan) -> tuple[Plan, dict[str, Finding]]:
    """A plan that stores what is proven of its certificate; findings by group."""
    program = proof_program()
    stored: list[Proven] = []
    findings: dict[str, Finding] = {}
    for row, finding in program.proofs(plan.model_dump(mode="json")):
        findings[row["group"]] = finding
        infinite = row["epsilon_upper"] == "inf"
        stored.append(
            Proven(
                group=row["group"],
                outcome=finding.outcome,
                epsilon=None if infinite else row["epsilon_upper"],
                delta=row["delta"],
                points=finding.points,
                version=program.VERSION,
            )
        )
    return plan.model_copy(update={"proven": tuple(stored)}), findings


def cell(finding: Finding) -> str:
    """A finding in a column of a table."""
    if finding.outcome != PROVEN:
        return "no"
    return f"yes ({finding.seconds:.2g} s, {finding.points} points)"


def plain(findings: Mapping[str, Finding]) -> list[dict[str, Any]]:
    """Findings by group as plain data."""
    version = proof_program().VERSION
    rows = []
    for group, finding in findings.items():
        row = {"group": group, "outcome": finding.outcome, "points": finding.points}
        rows.append({**row, "seconds": finding.seconds, "version": version})
    return rows


def lines(findings: Mapping[str, Finding]) -> list[str]:
    """What was not proven and why, a line each."""
    return [
        f"{group}: {finding.outcome}"
        for group, finding in findings.items()
        if finding.outcome != PROVEN
    ]
