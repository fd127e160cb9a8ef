"""What a cell of a table of runs measures: accuracy, time, or what an attacker reconstructs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from privplan.plan import Plan
from privplan.verification.verify import judge, load_run

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
