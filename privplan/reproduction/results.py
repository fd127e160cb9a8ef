"""Results of a published table: its cells, how they came about, and their file."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from privplan.io.environment import machine_kind, versions
from privplan.io.files import read_text, write_text
from privplan.io.text import load_json
from privplan.values import Natural, NonNegative, Real, Value, parse

Size = Literal["full", "reduced"]


class Cell(Value):
    """One number of a table.

    Attributes:
        row: head of its row, such as a method.
        column: head of its column, such as a data set.
        published: the printed number; None where the paper has none, as in a figure.
        published_error: standard error of the printed number; None where it cannot be known.
        values: ours, one per seed; a single one where no seed is involved.
        spent: largest epsilon of the runs' ledgers (upper bound), by group.
        seconds: wall time of each run.
    """

    row: str
    column: str
    published: Real | None = None
    published_error: NonNegative | None = None
    values: tuple[Real, ...] = Field(min_length=1)
    spent: dict[str, float | None] = Field(default_factory=dict)
    seconds: tuple[NonNegative, ...] = ()

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(self.values)

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None with one value."""
        many = len(self.values)
        return statistics.stdev(self.values) / math.sqrt(many) if many > 1 else None


class Result(Value):
    """All that was found for one table.

    Attributes:
        table: the table's name.
        size: ``full``, or the reduced size that the table declares.
        seeds: seeds of the runs; empty for tables of plans.
        configuration: everything that the cells depend on, besides seeds.
        versions: versions of the software.
        machine: kind of machine.
        cells: the cells.
    """

    table: str
    size: Size
    seeds: tuple[Natural, ...] = ()
    configuration: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=versions)
    machine: str = Field(default_factory=machine_kind)
    cells: tuple[Cell, ...]

    def at(self, row: str, column: str) -> Cell | None:
        """The cell of a row and a column; None where there is none."""
        return next((one for one in self.cells if (one.row, one.column) == (row, column)), None)

    @property
    def rows(self) -> list[str]:
        """Heads of rows, in their order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """Heads of columns, in their order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def save(self, folder: Path) -> Path:
        """Write the result to the folder, under the table's name; returns the file."""
        path = folder / f"{self.table}.json"
        write_text(path, json.dumps(self.model_dump(mode="json"), indent=1) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Result:
        """The result in a file.

        Raises:
            InputError: when it is no result.
        """
        return parse(cls, load_json(read_text(path, "result")))
