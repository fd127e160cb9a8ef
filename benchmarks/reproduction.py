"""Writes what rests on stored results in docs/reproduction: verdicts, and the runs.

The pages have one line per table of a paper; every claim, cell and setting is a row of
the CSV files in docs/evidence/data.

privplan reproduce TABLE -o docs/reproduction    # adds rows and seeds
privplan reproduce TABLE -o EMPTY                # trains again; the file is copied here
python benchmarks/reproduction.py                # writes the pages and the rows again
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator
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
EVIDENCE = ROOT / "docs" / "evidence"
BEGIN = "<!-- begin: written by benchmarks/reproduction.py from docs/reproduction/*.json -->"
END = "<!-- end -->"


def stored(table: Table, folder: Path = STORED) -> Result | None:
    """The stored result of a table; None without one."""
    path = folder / f"{table.name}.json"
    return Result.load(path) if path.is_file() else None


def outcomes(table: Table, folder: Path = STORED) -> list[tuple[str, Outcome]]:
    """Each claim of a table with its verdict."""
    texts = [claim.text for claim in table.claims]
    times = [f"{size} about {minutes:g} min" for size, minutes in table.minutes.items()]
    duration = ", ".join(times) or table.sizes.get("full", "seconds")
    not_run = Outcome(NOT_RUN, f"`privplan reproduce {table.name}`: {duration}")
    result = stored(table, folder)
    if result is None:
        return [(text, not_run) for text in texts]
    results = verdicts(table.claims, result)
    with_missing = [not_run if outcome == NO_ROWS else outcome for outcome in results]
    return list(zip(texts, with_missing, strict=True))


def papers() -> list[Paper]:
    """The papers, in the order of their registry."""
    return [paper for _, paper in PAPERS.items()]


def tables_of_runs(folder: Path) -> Iterator[tuple[Table, Result]]:
    """The tables whose cells were trained, with their stored results."""
    for paper in papers():
        for table in paper.tables:
            result = stored(table, folder)
            if result is not None and result.seeds:
                yield table, result


# The pages.


def summary(folder: Path = STORED) -> str:
    """The verdicts: one table of the papers, then one of the tables of each paper."""
    lines = [BEGIN, "", f"| paper | claims | {' | '.join(VERDICTS)} |"]
    lines.append("|---" * (len(VERDICTS) + 2) + "|")
    for paper in papers():
        counts: Counter[str] = Counter()
        for table in paper.tables:
            counts.update(outcome.verdict for _, outcome in outcomes(table, folder))
        cells = [
            _short_title(paper),
            counts.total(),
            *(counts[verdict] for verdict in VERDICTS),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for paper in papers():
        lines += [f"\n## {paper.title}\n", "| table | verdicts |", "|---|---|"]
        for table in paper.tables:
            counts = Counter(outcome.verdict for _, outcome in outcomes(table, folder))
            words = [
                f"{counts[verdict]} {verdict}"
                for verdict in VERDICTS
                if counts[verdict]
            ]
            if words:
                lines.append(f"| {table.title} | {', '.join(words)} |")
    return "\n".join([*lines, "", END])


def _short_title(paper: Paper) -> str:
    return paper.title.partition(" (")[0]


def runs(folder: Path = STORED) -> str:
    """One line per table of runs."""
    lines = [BEGIN, "", "| table | size | seeds | cells | minutes on a core |"]
    lines.append("|---|---|--:|--:|--:|")
    for table, result in tables_of_runs(folder):
        minutes = sum(sum(cell.seconds) for cell in result.cells) / 60
        cells = [
            table.name,
            result.size,
            len(result.seeds),
            len(result.cells),
            f"{minutes:.0f}",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", END])


# The rows beside the pages.


def differences(folder: Path = STORED) -> str:
    """How our sizes differ from each paper's, as CSV."""
    rows = [(_short_title(paper), paper.differs) for paper in papers()]
    return as_csv(("paper", "what size differs"), rows)


def claims(folder: Path = STORED) -> str:
    """Every claim with its verdict and evidence, and each table without one, as CSV."""
    rows: list[tuple[object, ...]] = []
    for paper in papers():
        for table in paper.tables:
            result = stored(table, folder)
            size = result.size if result is not None and result.seeds else ""
            seeds = len(result.seeds) if result is not None and result.seeds else ""
            where = (_short_title(paper), table.title, size, seeds)
            if table.left_out:
                verdict = NOT_RUN if table.has_results else ""
                rows.append((*where, "", verdict, table.left_out))
            for claim, outcome in outcomes(table, folder):
                rows.append((*where, claim, outcome.verdict, outcome.evidence))
    columns = ("paper", "table", "size", "seeds", "claim", "verdict", "evidence")
    return as_csv(columns, rows)


def settings(folder: Path = STORED) -> str:
    """How each table of runs was made, as CSV."""
    rows: list[tuple[object, ...]] = []
    for table, result in tables_of_runs(folder):
        size = table.sizes.get(result.size, "the paper's setting")
        seeds = " ".join(map(str, result.seeds))
        versions = [
            result.versions.get(package, "") for package in ("privplan", "torch")
        ]
        minutes = sum(sum(cell.seconds) for cell in result.cells) / 60
        measure = table.measure[0].upper() + table.measure[1:]
        start = (table.name, result.size, size, seeds, *versions)
        rows.append((*start, result.machine, f"{minutes:.0f}", measure))
    columns = (
        "table",
        "size",
        "setting",
        "seeds",
        "privplan",
        "torch",
        "machine",
        "minutes on a core",
        "measure",
    )
    return as_csv(columns, rows)


def cells(folder: Path = STORED) -> str:
    """Every cell of the tables of runs, as CSV.

    The interval of 95% is the mean plus or minus its half (Student's t over the seeds).
    """
    rows: list[tuple[object, ...]] = []
    for table, result in tables_of_runs(folder):
        for cell in result.cells:
            spec = result.configuration[cell.column][cell.row]["spec"]
            half = "" if cell.half is None else f"{cell.half:.2f}"
            published = "" if cell.published is None else f"{cell.published:g}"
            rate = f"{spec['local']['learning_rate']:g}"
            measured = (f"{cell.mean:.2f}", half, published)
            rows.append(
                (table.name, cell.row, cell.column, rate, *measured, _spent(cell))
            )
    columns = (
        "table",
        "method",
        "setting",
        "learning rate",
        "mean",
        "half of the interval",
        "printed",
        "epsilon spent by group",
    )
    return as_csv(columns, rows)


def _spent(cell: Cell) -> str:
    """Epsilon of each group, or the range over more than eight."""
    values = [math.inf if value is None else value for value in cell.spent.values()]
    words = ["infinite" if value == math.inf else f"{value:.3g}" for value in values]
    if len(values) <= 8:
        return ", ".join(words)
    low = values.index(min(values))
    high = values.index(max(values))
    return f"{words[low]} to {words[high]} in {len(values)} groups"


def as_csv(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


PAGES = {
    EVIDENCE / "reproduction.md": summary,
    EVIDENCE / "reproduced-runs.md": runs,
}
"""What is written into which page, between its marks."""

ROWS = {
    EVIDENCE / "data" / "reproduced-claims.csv": claims,
    EVIDENCE / "data" / "reproduced-sizes.csv": differences,
    EVIDENCE / "data" / "reproduced-settings.csv": settings,
    EVIDENCE / "data" / "reproduced-cells.csv": cells,
}
"""What is written into which file."""


def replaced(page: str, part: str) -> str:
    """The page with its generated part replaced."""
    before, marked = page.split(BEGIN)
    return before + part + marked.split(END)[1]


def main() -> None:
    """Write the pages and the rows."""
    for page, part in PAGES.items():
        page.write_text(
            replaced(page.read_text(encoding="utf-8"), part()), encoding="utf-8"
        )
    for path, text in ROWS.items():
        path.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
