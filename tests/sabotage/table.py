"""Results of the faults as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sabotage.bench import Finding

COLUMNS = (
    "fault",
    "how the run is broken",
    "author",
    "check",
    "what the verdict says",
    "detected by",
    "canaries alone",
)


def rows(findings: Sequence[Finding]) -> list[list[str]]:
    """One row per fault, for ``COLUMNS``."""
    return [
        [
            found.fault.name,
            found.fault.what,
            found.fault.author,
            found.fault.check,
            found.reason or found.fault.why,
            found.fault.level if found.as_documented else "NO",
            "" if found.seen is None else ("seen" if found.seen else "not seen"),
        ]
        for found in findings
    ]


def summary(findings: Sequence[Finding]) -> str:
    """How many faults each level of evidence detects, and how many canaries detect."""
    asked = [found for found in findings if found.seen is not None]
    declared = sum(found.caught for found in findings)
    line = f"{declared} of {len(findings)} faults detected from declared evidence"
    for level in ("not shown", "replayed", "attested", "canaries", "none"):
        number = sum(found.fault.level == level for found in findings)
        line += f", {number} {level}" if number else ""
    if asked:
        seen = sum(bool(found.seen) for found in asked)
        line += f"; canaries alone see {seen} of the {len(asked)} that weaken privacy"
    return line


def markdown(findings: Sequence[Finding]) -> str:
    """The same as a table of Markdown."""
    ruled = [list(COLUMNS), ["---"] * len(COLUMNS), *rows(findings)]
    return "\n".join(f"| {' | '.join(row)} |" for row in ruled)
