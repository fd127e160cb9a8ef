"""A book as tables of text, CSV and plain data. Nothing here prints."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from privplan.book.entry import BookedRun
from privplan.book.remaining import MOST_REPETITIONS, Remaining
from privplan.book.spending import Spending

SPENDING_COLUMNS = (
    "group",
    "runs",
    "releases",
    "at least",
    "at most",
    "naive sum",
    "rdp",
    "delta",
    "protects",
    "law",
    "relation",
    "accountant",
)
CAPTION = (
    "epsilon of all releases of all runs, composed at once (at least, at most); naive sum: the "
    "runs' own epsilons at delta / runs, added; rdp: an upper bound for runs chosen by what "
    "earlier ones showed"
)
SCHEMA_VERSION = 1
_RUN = ("chain", "plan", "population", "source", "algorithm", "dataset", "seed", "status")
_SHARE = ("group", "unit", "relation", "clients", "epsilon", "delta")
_RELEASE = ("noise_multiplier", "sampling_ratio", "sampling", "count")


def _number(value: float | None) -> str:
    return "inf" if value is None else f"{value:.6g}"


def spending_rows(found: Sequence[Spending]) -> list[list[str]]:
    """One row a group, for ``SPENDING_COLUMNS``."""
    return [
        [
            f"{one.population}/{one.group}" if one.population else one.group,
            f"{one.runs}",
            f"{one.releases}",
            _number(one.epsilon_lower),
            _number(one.epsilon_upper),
            _number(one.epsilon_naive),
            "-" if one.epsilon_rdp is None else _number(one.epsilon_rdp),
            f"{one.delta:.4g}",
            one.unit,
            one.sampling,
            str(one.relation),
            one.accountant,
        ]
        for one in found
    ]


def left_lines(found: Remaining) -> list[str]:
    """What is left, a line each."""
    where = f"{found.population}/{found.group}" if found.population else found.group
    often = f"{found.repetitions}"
    if found.repetitions == MOST_REPETITIONS:
        often = f"at least {often}"
    lines = [
        f"{where}: budget epsilon {found.budget:g} at delta {found.delta:.4g} over all runs "
        f"({found.sampling} sampling, {found.relation}, accountant {found.accountant}, for each "
        f"{found.unit})",
        f"spent: at least {found.spent_lower:.6g}, at most {found.spent_upper:.6g}",
        f"headroom: {found.headroom:.6g}",
        f"the last run ({found.last_run}) fits {often} more times",
    ]
    shape = (
        f"at sampling ratio {found.next_ratio:.6g} ({found.next_sampling}), "
        f"{found.next_rounds} rounds"
    )
    if found.noise_multiplier is None:
        return [*lines, f"a next run {shape}: does not fit, whatever its noise"]
    return [
        *lines,
        f"a next run {shape}: noise multiplier {found.noise_multiplier:.6g} or more; it costs "
        f"{found.alone:.6g} by itself, {found.total:.6g} with the book",
    ]


def export_data(runs: Sequence[BookedRun]) -> dict[str, Any]:
    """The whole book as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [run.model_dump(mode="json") for run in runs],
    }


def export_csv(runs: Sequence[BookedRun]) -> str:
    """The whole book as tidy CSV: a row for each kind of release of a group of a run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *_RUN, *_SHARE, *_RELEASE])
    for number, run in enumerate(runs, start=1):
        booked = run.model_dump(mode="json")
        for share in booked["shares"]:
            for release in share["releases"]:
                values = [booked[key] for key in _RUN] + [share[key] for key in _SHARE]
                writer.writerow([number, *values, *(release[key] for key in _RELEASE)])
    return text.getvalue()
