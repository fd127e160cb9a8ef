"""Logs: the epsilon that they print grows in one run."""

from __future__ import annotations

import re

from privplan.contrib.lint.reading import Findings
from privplan.contrib.lint.source import Source

_PRINTED = re.compile(
    r"(?:\bepsilon|\beps|ε)['\"]?\s*[=:]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE
)


def read_log(source: Source, findings: Findings) -> None:
    """Add an alarm where the printed epsilon starts anew; a log shows no law."""
    findings.unknown("a log shows neither the sampling law nor what ran")
    before = 0.0
    for place, line in enumerate(source.text.splitlines(), 1):
        # where a line also has the cost of one call, the sum follows it
        for printed in _PRINTED.findall(line)[-1:]:
            findings.shown = True
            now = float(printed)
            # a sum of costs grows in every line; another epsilon may repeat for lack of
            # digits
            if now < before or (now == before and "cumulative" in line):
                message = f"epsilon was {before:g} before, and is {now:g} here"
                cost = "the accountant started anew; on the same data, the costs add up"
                findings.alarm("fresh-accountant", message, cost, place)
            before = now
