"""What became of the faults, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sabotage.bench import Finding

COLUMNS = (
    "fault",
    "how the run is broken",
    "check",
    "what the verdict says",
    "caught",
    "canaries alone",
)


def rows(findings: Sequence[Finding]) -> list[list[str]]:
    """One row a fault, for ``COLUMNS``."""
    return [
        [
            found.fault.name,
            found.fault.what,
            found.fault.check,
            found.reason,
            "yes" if found.caught else "NO",
            "" if found.seen is None else ("seen" if found.seen else "not seen"),
        ]
        for found in findings
    ]


def summary(findings: Sequence[Finding]) -> str:
    """How many faults were caught, and how many canaries alone saw."""
    asked = [found for found in findings if found.seen is not None]
    line = f"{sum(one.caught for one in findings)} of {len(findings)} faults caught"
    if asked:
        seen = sum(bool(found.seen) for found in asked)
        line += f"; canaries alone see {seen} of the {len(asked)} that weaken privacy"
    return line


def markdown(findings: Sequence[Finding]) -> str:
    """The same as a table of Markdown."""
    ruled = [list(COLUMNS), ["---"] * len(COLUMNS), *rows(findings)]
    return "\n".join(f"| {' | '.join(row)} |" for row in ruled)
