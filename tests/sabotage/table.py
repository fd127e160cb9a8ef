"""Results of the faults as rows of text."""

import csv
from collections.abc import Sequence
from pathlib import Path

from tests.sabotage.bench import Finding
from tests.sabotage.fault import EXTERNAL

COLUMNS = (
    "fault",
    "how the run is broken",
    "author",
    "check",
    "what the verdict says",
    "detected by",
    "seeds",
    "what the replay says",
    "canaries",
)
Findings = Sequence[Sequence[Finding]]  # findings of each fault, one per seed


def rows(findings):
    """One row per fault, for ``COLUMNS``; the words are those of the first seed."""
    return [_row(of_seeds) for of_seeds in findings]


def is_as_documented(of_seeds):
    """Whether the fault is detected with every seed by the level that it names."""
    return all(finding.as_documented for finding in of_seeds)


def _row(of_seeds):
    finding = of_seeds[0]
    fault = finding.fault
    canaries = ""
    if finding.seen is not None:
        canaries = "seen" if finding.seen else "not seen"
    num_detected = sum(finding.as_documented for finding in of_seeds)
    return [
        fault.name,
        fault.what,
        fault.author,
        fault.check,
        finding.reason or fault.why,
        fault.level if is_as_documented(of_seeds) else "NO",
        f"{num_detected} of {len(of_seeds)}",
        finding.difference,
        canaries,
    ]


def summary(findings):
    """How many faults each level of evidence detects with all seeds, and canaries."""
    line = _detected("faults", findings)
    external = [
        of_seeds for of_seeds in findings if of_seeds[0].fault.author == EXTERNAL
    ]
    if external:
        line += f"; {_detected('external ones', external)}"

    # Canaries were searched for with the first seed, in some of the faults.
    seen = [of_seeds[0].seen for of_seeds in findings]
    searched = [is_seen for is_seen in seen if is_seen is not None]
    if searched:
        line += f"; canaries see {sum(map(bool, searched))} of the {len(searched)}"
        line += " that weaken privacy"
    return line


def _detected(what, findings):
    """Number of faults that declared evidence and replay detect with every seed."""
    num_declared = 0
    num_either = 0
    is_replayed = False
    for of_seeds in findings:
        declared = all(finding.caught for finding in of_seeds)
        replayed = all(finding.replayed == "failed" for finding in of_seeds)
        num_declared += declared
        num_either += declared or replayed
        is_replayed = is_replayed or any(finding.replayed for finding in of_seeds)

    line = f"{num_declared} of {len(findings)} {what} detected from declared evidence"
    if is_replayed:
        line += f", {num_either} with replay"
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
