"""Published tables, and the registry of the papers that print them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privplan.contrib.reproduction.claims import ORDER, REPRODUCED, Cell, Judge, Outcome, Result
from privplan.errors import InputError, did_you_mean
from privplan.plan import Plan
from privplan.registry import Registry
from privplan.verification.verify import judge, load_run


@dataclass(frozen=True)
class Method:
    """A row of a table of runs."""

    algorithm: str  # name of a registered algorithm
    # values that differ from the algorithm's defaults
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    # fields of the spec that differ for this method, such as its clipping norm
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A column of a table of runs: what all methods are trained on, or attacked."""

    column: str  # head of the column
    spec: Mapping[str, Any]  # plain data of the spec
    dataset: str  # name of the data set
    methods: Mapping[str, Method]  # methods by head of row
    partition: str = "iid"  # who holds which records
    # further options of the command, by name
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A statement of a paper about one of its tables."""

    text: str  # the statement
    judge: Judge  # its verdict, from a result
    tried: str = ""  # what was tried, and what is known beside the result; shown after the evidence

    def verdict(self, result: Result) -> Outcome:
        """The verdict, with what was tried unless the claim came out."""
        found = self.judge(result)
        if not self.tried or found.verdict in (REPRODUCED, ORDER):
            return found
        return Outcome(found.verdict, f"{found.evidence}; {self.tried}")


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    name: str  # on the command line, such as ``gdpfed-plus-table-2``
    title: str  # in the paper, such as ``Table 2: accuracy``
    claims: tuple[Claim, ...] = ()  # what the paper says of it
    planned: Callable[[], list[Cell]] | None = None  # computes the cells of a table of plans
    # settings of a table of runs, by size
    trained: Mapping[str, Callable[[], list[Setting]]] = field(default_factory=dict)
    # what is measured of each run: a name of ``measures.MEASURES``
    measure: str = "accuracy in percent"
    # printed number and its standard error (or None) by row and column
    printed: Mapping[tuple[str, str], tuple[float, float | None]] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)  # what each size means, in words
    # CPU minutes on one core, by size; measured or, as ``sizes`` then says, estimated
    minutes: Mapping[str, float] = field(default_factory=dict)
    left_out: str = ""  # why nothing computes it; empty for a table that can be reproduced
    has_results: bool = True  # whether it has any; a table of notation or settings has none

    @property
    def kind(self) -> str:
        """``plans``, ``runs`` or ``left out``."""
        return "plans" if self.planned else "runs" if self.trained else "left out"


@dataclass(frozen=True)
class Paper:
    """A paper with all its tables."""

    title: str  # authors and title
    tables: tuple[Table, ...]  # its tables and the figures that are computed, in their order


PAPERS: Registry[Paper] = Registry(
    "paper",
    "privplan.papers",
    "privplan.contrib.reproduction.papers",
    order=lambda paper: paper.title.casefold(),
)


def tables() -> list[Table]:
    """The tables of all papers."""
    return [table for _, paper in PAPERS.items() for table in paper.tables]


def table_of(name: str) -> Table:
    """The table of a name."""
    known = {table.name: table for table in tables()}
    plain = name.strip().lower().replace("_", "-")
    if plain not in known:
        near = did_you_mean(plain, known)
        raise InputError.one("table", f"must be one of privplan reproduce --list{near}", name)
    return known[plain]


# --- What a cell of a table of runs measures: accuracy, time, or what an attacker reconstructs. --

Execute = Callable[[Sequence[str]], Mapping[str, Any]]
"""Executes ``privplan`` with these arguments; returns what it prints as JSON data. Other
processes can import it."""
Measure = Callable[[Execute, Plan, Sequence[str], Path], dict[str, Any]]
"""From the executor, the plan, the words for data, method and seed, and the folder of the result:
``value``, ``spent`` (largest epsilon by group; None is infinite) and ``seconds`` (wall time)."""


def accuracy(execute: Execute, plan: Plan, words: Sequence[str], folder: Path) -> dict[str, Any]:
    """Test accuracy of a run, in percent, and what its ledger spent."""
    record = execute(["simulate", *words, f"--output={folder}"])
    spent = {group.group: group.realised_upper for group in judge(load_run(folder)).groups}
    value = 100 * (record["accuracy"] or 0.0)
    return {"value": value, "spent": spent, "seconds": record["wall_seconds"]}


def round_seconds(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Wall time of a run by its rounds, evaluation included."""
    found = accuracy(execute, plan, words, folder)
    return {**found, "value": found["seconds"] / plan.spec.rounds}


def reconstruction(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Mean PSNR in decibels of what an attack reads from the releases of single clients.

    ``spent`` is the epsilon of the attacked group's releases.
    """
    found = execute(["attack", *words, f"--output={folder}"])
    [row] = found["rows"]
    psnr, _, _ = row["scores"]["psnr"]
    epsilon = float(row["epsilon"])
    spent = dict.fromkeys(row["groups"], epsilon if math.isfinite(epsilon) else None)
    return {"value": psnr, "spent": spent, "seconds": row["seconds"]}


MEASURES: dict[str, Measure] = {
    "accuracy in percent": accuracy,
    "seconds per round": round_seconds,
    "PSNR in dB": reconstruction,
}
"""By the words for the numbers."""
