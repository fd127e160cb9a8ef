"""Tables, text lines, CSV and plain data of a budget book."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from privplan.book.entry import BookedRun
from privplan.book.remaining import MOST_REPETITIONS, Remaining
from privplan.book.spending import Spending, full_name
from privplan.io.text import csv_cell

SPENDING_COLUMNS = (
    "group",
    "runs",
    "kept",
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
    "earlier ones showed; kept: runs whose verdict is kept"
)
SCHEMA_VERSION = 1
_RUN = (
    "chain",
    "plan",
    "population",
    "source",
    "algorithm",
    "dataset",
    "seed",
    "status",
    "verdict",
    "cost",
)
_SHARE = ("group", "unit", "relation", "clients", "epsilon", "delta")
_RELEASE = ("noise_multiplier", "sampling_ratio", "sampling", "count")


def _number(value: float | None) -> str:
    return "inf" if value is None else f"{value:.6g}"


def spending_rows(spent: Sequence[Spending]) -> list[list[str]]:
    """One row per group, for ``SPENDING_COLUMNS``."""
    return [
        [
            full_name(one.population, one.group),
            f"{one.runs}",
            f"{one.kept}",
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
        for one in spent
    ]


def cost_line(run: BookedRun) -> str:
    """The verdict on a run that is not kept, and how its releases are booked."""
    costs = {
        "recorded": "as recorded",
        "full participation": "as if every client took part in every round",
        "infinite": "at infinite epsilon",
    }
    return (
        f"the verdict on {run.source} is {run.verdict}: its releases are booked {costs[run.cost]}"
    )


def remaining_lines(remaining: Remaining) -> list[str]:
    """The remaining budget as lines of text."""
    where = full_name(remaining.population, remaining.group)
    times = f"{remaining.repetitions}"
    if remaining.repetitions == MOST_REPETITIONS:
        times = f"at least {times}"
    lines = [
        f"{where}: budget epsilon {remaining.budget:g} at delta {remaining.delta:.4g} over all "
        f"runs ({remaining.sampling} sampling, {remaining.relation}, "
        f"accountant {remaining.accountant}, for each {remaining.unit})",
        f"spent: at least {remaining.spent_lower:.6g}, at most {remaining.spent_upper:.6g}",
        f"spent under the rule for further runs ({remaining.rule}): {remaining.spent:.6g}",
        f"headroom: {remaining.headroom:.6g}",
        f"the last run ({remaining.last_run}) fits {times} more times",
    ]
    shape = (
        f"at sampling ratio {remaining.next_ratio:.6g} ({remaining.next_sampling}), "
        f"{remaining.next_rounds} rounds"
    )
    if remaining.noise_multiplier is None:
        return [*lines, f"a next run {shape}: does not fit, whatever its noise"]
    lines.append(
        f"a next run {shape}: noise multiplier {remaining.noise_multiplier:.6g} or more; it costs "
        f"{remaining.alone:.6g} by itself, {remaining.total:.6g} with the book"
    )
    if remaining.exact_noise_multiplier is not None:
        lines.append(
            f"fixed in advance with all earlier runs (--rule exact), it would need "
            f"{remaining.exact_noise_multiplier:.6g}"
        )
    return lines


def export_data(runs: Sequence[BookedRun]) -> dict[str, Any]:
    """The whole book as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [run.model_dump(mode="json") for run in runs],
    }


def export_csv(runs: Sequence[BookedRun]) -> str:
    """The whole book as tidy CSV: one row per run, group and kind of release."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *_RUN, *_SHARE, *_RELEASE])
    for number, run in enumerate(runs, start=1):
        booked = {"verdict": None, "cost": run.cost, **run.model_dump(mode="json")}
        for share in booked["shares"]:
            for release in share["releases"]:
                values = [booked[key] for key in _RUN] + [share[key] for key in _SHARE]
                cells = [number, *values, *(release[key] for key in _RELEASE)]
                writer.writerow(map(csv_cell, cells))
    return text.getvalue()
