"""Writes what rests on stored results, docs/reproduction/*.json: verdicts, and the runs.

privplan reproduce TABLE -o docs/reproduction    # adds rows and seeds that are not stored
privplan reproduce TABLE -o EMPTY                # trains all again; the file is copied here
python benchmarks/reproduction.py                # writes the pages again
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from privplan.contrib.reproduction.claims import (
    NO_ROWS,
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
BEGIN = "<!-- begin: written by benchmarks/reproduction.py from docs/reproduction/*.json -->"
END = "<!-- end -->"


def stored(table: Table, folder: Path = STORED) -> Result | None:
    """The stored result of a table; None without one."""
    path = folder / f"{table.name}.json"
    return Result.load(path) if path.is_file() else None


def outcomes(table: Table, folder: Path = STORED) -> list[tuple[str, Outcome]]:
    """Each claim of a table with its verdict."""
    texts, result = [claim.text for claim in table.claims], stored(table, folder)
    times = [f"{size} about {of:g} min" for size, of in table.minutes.items()]
    words = ", ".join(times) or table.sizes.get("full", "seconds")
    missing = Outcome(NOT_RUN, f"`privplan reproduce {table.name}`: {words}")
    if result is None:
        return [(one, missing) for one in texts]
    found = [missing if one == NO_ROWS else one for one in verdicts(table.claims, result)]
    return list(zip(texts, found, strict=True))


def summary(folder: Path = STORED) -> str:
    """The verdicts: one table of the papers, then one of each paper."""
    papers = [paper for _, paper in PAPERS.items()]
    lines = [BEGIN, "", f"| paper | claims | {' | '.join(VERDICTS)} | what size differs |"]
    lines.append("|---" * (len(VERDICTS) + 3) + "|")
    for paper in papers:
        found = [one.verdict for table in paper.tables for _, one in outcomes(table, folder)]
        counts = [str(found.count(verdict)) for verdict in VERDICTS]
        apart = sum(bool(one.left_out) and one.has_results for one in paper.tables)
        counts[-1] += f", and of whole tables or figures {apart}"
        name = paper.title.partition(" (")[0]
        lines.append(f"| {name} | {len(found)} | {' | '.join(counts)} | {paper.differs} |")
    for paper in papers:
        lines += [f"\n## {paper.title}\n", *_verdicts(paper, folder)]
    return "\n".join([*lines, "", END])


def runs(folder: Path = STORED) -> str:
    """All cells of the tables of runs."""
    lines = [BEGIN, ""]
    for table in (table for _, paper in PAPERS.items() for table in paper.tables):
        result = stored(table, folder)
        if result is not None and result.seeds:
            lines += _accuracies(table, result)
    return "\n".join([*lines, END])


PAGES = {
    ROOT / "docs" / "evidence" / "reproduction.md": summary,
    ROOT / "docs" / "evidence" / "reproduced-runs.md": runs,
}
"""What is written into which page."""


def _verdicts(paper: Paper, folder: Path) -> Iterator[str]:
    """One line per claim; a table without claims has one line."""
    yield "| table | claim | verdict | evidence |"
    yield "|---|---|---|---|"
    for table in paper.tables:
        result, shown = stored(table, folder), table.title
        if result is not None and result.seeds:
            shown += f" ({result.size} size, {len(result.seeds)} seeds)"
        if table.left_out:
            verdict = NOT_RUN if table.has_results else ""
            yield f"| {shown} | | {verdict} | {table.left_out} |"
        for claim, found in outcomes(table, folder):
            yield f"| {shown} | {claim} | {found.verdict} | {found.evidence} |"
            shown = ""


def _accuracies(table: Table, result: Result) -> Iterator[str]:
    """All cells of a table of runs."""
    yield f"## {table.name}\n"
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
        f"{seconds / 60:.0f} minutes on a core. {measure}; mean and half of its interval.\n"
    )
    yield "| method | setting | learning rate | found | printed | epsilon spent, by group |"
    yield "|---|---|---|---|---|---|"
    for cell in result.cells:
        error = "" if cell.half is None else f" ± {cell.half:.2f}"
        printed = "" if cell.published is None else f"{cell.published:g}"
        rate = result.configuration[cell.column][cell.row]["spec"]["local"]["learning_rate"]
        found = f"{rate:g} | {cell.mean:.2f}{error}"
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
    """Write the pages."""
    for page, part in PAGES.items():
        page.write_text(replaced(page.read_text(encoding="utf-8"), part()), encoding="utf-8")


if __name__ == "__main__":
    main()
