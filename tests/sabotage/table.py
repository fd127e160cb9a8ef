"""Results of the faults as rows of text."""

import csv
from collections.abc import Sequence
from pathlib import Path

from tests.sabotage.bench import Finding
from tests.sabotage.fault import EXTERNAL

COLUMNS = (
    "fault", "how the run is broken", "author", "check", "what the verdict says", "detected by",
    "seeds", "what the replay says", "canaries",
)  # fmt: skip
Findings = Sequence[Sequence[Finding]]  # findings of each fault, one per seed


def rows(findings):
    """One row per fault, for ``COLUMNS``; the words are those of the first seed."""
    return [_row(of_seeds) for of_seeds in findings]


def _row(of_seeds):
    found, right = of_seeds[0], sum(one.as_documented for one in of_seeds)
    fault = found.fault
    return [
        fault.name, fault.what, fault.author, fault.check, found.reason or fault.why,
        fault.level if right == len(of_seeds) else "NO", f"{right} of {len(of_seeds)}",
        found.difference, "" if found.seen is None else ("seen" if found.seen else "not seen"),
    ]  # fmt: skip


def summary(findings):
    """How many faults each level of evidence detects with all seeds, and canaries."""
    firsts = [of_seeds[0] for of_seeds in findings]
    line = _detected("faults", findings)
    external = [one for one in findings if one[0].fault.author == EXTERNAL]
    if external:
        line += f"; {_detected('external ones', external)}"
    asked = [found for found in firsts if found.seen is not None]
    if asked:
        seen = sum(bool(found.seen) for found in asked)
        line += f"; canaries see {seen} of the {len(asked)} that weaken privacy"
    return line


def _detected(what, findings):
    """Number of faults that declared evidence and replay detect with every seed."""
    declared = [all(one.caught for one in of_seeds) for of_seeds in findings]
    replayed = [
        all(one.replayed == "failed" for one in of_seeds) for of_seeds in findings
    ]
    line = f"{sum(declared)} of {len(findings)} {what} detected from declared evidence"
    if any(one.replayed for of_seeds in findings for one in of_seeds):
        either = sum(
            one or other for one, other in zip(declared, replayed, strict=True)
        )
        line += f", {either} with replay"
    return line


HONEST = ("algorithm", "sampling", "seed", "verdict", "failed or not shown")


def honest_row(seed, verdict):
    """The verdict on a run that nobody broke, for ``HONEST``."""
    law = str(verdict.groups[0].sampling)
    problems = ", ".join(check.name for check in (*verdict.failed, *verdict.not_shown))
    return [verdict.algorithm, law, str(seed), verdict.outcome, problems]


def markdown(columns, cells):
    """A table of Markdown."""
    ruled = [list(columns), ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in ruled)


def write_csv(path, columns, cells):
    """A table as a CSV file."""
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(cells)
