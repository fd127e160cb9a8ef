"""Writes the part of docs/reproduction.md that rests on stored results, docs/reproduction/*.json.

privplan reproduce TABLE -o docs/reproduction    # stores one table again
python benchmarks/reproduction.py                # writes the page again
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from privplan.contrib.reproduction.claims import (
    NOT_RUN,
    VERDICTS,
    Cell,
    Outcome,
    Result,
    verdicts,
)
from privplan.contrib.reproduction.tables import PAPERS, Paper, Table

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "docs" / "reproduction"
PAGE = ROOT / "docs" / "reproduction.md"
BEGIN = "<!-- begin: written by benchmarks/reproduction.py from docs/reproduction/*.json -->"
END = "<!-- end -->"


def stored(table: Table, folder: Path = STORED) -> Result | None:
    """The stored result of a table; None without one."""
    path = folder / f"{table.name}.json"
    return Result.load(path) if path.is_file() else None


def outcomes(table: Table, folder: Path = STORED) -> list[tuple[str, Outcome]]:
    """Each claim of a table with its verdict."""
    texts, result = [claim.text for claim in table.claims], stored(table, folder)
    if result is not None:
        return list(zip(texts, verdicts(table.claims, result), strict=True))
    times = [f"{size} about {of:g} min" for size, of in table.minutes.items()]
    words = ", ".join(times) or table.sizes.get("full", "seconds")
    return [(one, Outcome(NOT_RUN, f"`privplan reproduce {table.name}`: {words}")) for one in texts]


def written(folder: Path = STORED) -> str:
    """The generated part of the page, between its marks."""
    papers = [paper for _, paper in PAPERS.items()]
    counts = dict.fromkeys(VERDICTS, 0)
    for paper in papers:
        for table in paper.tables:
            for _, found in outcomes(table, folder):
                counts[found.verdict] += 1
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    lines = [BEGIN, f"\n## Verdicts\n\n{sum(counts.values())} claims: {summary}.\n"]
    for paper in papers:
        lines += [f"### {paper.title}\n", *_verdicts(paper, folder), ""]
    lines.append("## Runs\n")
    for paper in papers:
        for table in paper.tables:
            result = stored(table, folder)
            if result is not None and result.seeds:
                lines += _accuracies(table, result)
    return "\n".join([*lines, END])


def _verdicts(paper: Paper, folder: Path) -> Iterator[str]:
    """One line per claim; a table without claims has one line."""
    yield "| table | claim | verdict | evidence |"
    yield "|---|---|---|---|"
    for table in paper.tables:
        result = stored(table, folder)
        size = ""
        if result is not None and result.seeds:
            many = len(result.seeds)
            size = f" ({result.size} size, {many} seed{'s' if many > 1 else ''})"
        if table.left_out:
            verdict = NOT_RUN if table.has_results else ""
            yield f"| {table.title} | | {verdict} | {table.left_out} |"
        for claim, found in outcomes(table, folder):
            yield f"| {table.title}{size} | {claim} | {found.verdict} | {found.evidence} |"


def _accuracies(table: Table, result: Result) -> Iterator[str]:
    """All cells of a table of runs."""
    yield f"### {table.name}\n"
    size = table.sizes.get(result.size, "the paper's setting")
    seeds = ", ".join(map(str, result.seeds))
    versions = ", ".join(
        f"{name} {result.versions[name]}"
        for name in ("privplan", "torch")
        if name in result.versions
    )
    measure = table.measure[0].upper() + table.measure[1:]
    seconds = sum(sum(cell.seconds) for cell in result.cells)
    yield (
        f"{result.size.capitalize()} size: {size}. Seeds {seeds}; {versions}; {result.machine}; "
        f"{seconds / 60:.0f} minutes on a busy core. {measure}; mean and standard error.\n"
    )
    yield "| method | setting | found | printed | epsilon spent, by group |"
    yield "|---|---|---|---|---|"
    for cell in result.cells:
        error = "" if cell.error is None else f" ± {cell.error:.2f}"
        printed = "" if cell.published is None else f"{cell.published:g}"
        found = f"{cell.mean:.2f}{error}"
        yield f"| {cell.row} | {cell.column} | {found} | {printed} | {_spent(cell)} |"
    yield ""


def _spent(cell: Cell) -> str:
    """Epsilon of each group, or the range of more than eight."""
    values = [math.inf if value is None else value for value in cell.spent.values()]
    words = ["infinite" if value == math.inf else f"{value:.3g}" for value in values]
    if len(values) <= 8:
        return ", ".join(words)
    low, high = values.index(min(values)), values.index(max(values))
    return f"{words[low]} to {words[high]} in {len(values)} groups"


def replaced(page: str, part: str) -> str:
    """The page with its generated part replaced."""
    before, rest = page.split(BEGIN)
    return before + part + rest.split(END)[1]


def main() -> None:
    """Write the page."""
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), written()), encoding="utf-8")


if __name__ == "__main__":
    main()
