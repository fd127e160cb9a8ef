"""How far the noise must fall until an attack succeeds.

Per attack the noise multiplier falls from the planned one by half an order of magnitude at a time,
and each level has the epsilon that this multiplier would spend. An attack breaks a level where it
is better than every null row there and at the next level: one level could be chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulate.attacks.evaluate import PARTS, Case, Result, summary, sweep
from simulate.attacks.registry import Options
from simulate.attacks.scenes import PlanScene

LEVELS = tuple(10.0 ** (-step / 2) for step in range(13))
"""Factors on the planned noise multiplier, from 1 to 1e-6."""


@dataclass(frozen=True)
class Sweep:
    """Results of a sweep of the noise.

    Attributes:
        results: attacks, one per level.
        lines: their rows of the report.
        breaks: per attack ``algorithm``, ``attack``, and the first broken and the last unbroken
            level above it, each with noise multiplier and epsilon, or None; and the verdict at
            the planned noise.
    """

    results: list[Result]
    lines: list[dict[str, Any]]
    breaks: list[dict[str, Any]]


def noise_sweep(
    cases: Sequence[Case],
    options: Options,
    seed: int,
    folder: Path | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Sweep:
    """Attack with less and less noise, until an attack succeeds at two levels.

    Args:
        cases: attacks on scenes of plans, with the planned noise.
        options: settings of all attacks.
        seed: seed of the null rows.
        folder: where finished chunks are stored; None to store none.
        progress: called with finished and total parts.
    """
    total = len(cases) * len(LEVELS) * PARTS
    found = Sweep([], [], [])
    for index, case in enumerate(cases):
        own: list[dict[str, Any]] = []
        for level, factor in enumerate(LEVELS):
            start = (index * len(LEVELS) + level) * PARTS

            def part(done: int, of: int, start: int = start) -> None:
                progress(start + PARTS * done // max(1, of), total)

            [result] = sweep([_at(case, factor)], options, folder, part)
            found.results.append(result)
            own.append(summary(result, seed))
            last = own[-1]
            if not last["noise_multiplier"] or not _tried(last) or _first_broken(own) is not None:
                break
        found.lines.extend(own)
        found.breaks.append(_breaks(own))
        progress((index + 1) * len(LEVELS) * PARTS, total)
    return found


def _at(case: Case, factor: float) -> Case:
    scene = case.scene
    if isinstance(scene, PlanScene):
        return replace(case, scene=replace(scene, noise_factor=scene.noise_factor * factor))
    return case


def _tried(line: Mapping[str, Any]) -> bool:
    """Whether the attack returned images or labels."""
    return "scores" in line or "labels" in line


def _first_broken(lines: Sequence[Mapping[str, Any]]) -> int | None:
    """Index of the first of two successive levels at which the attack is better than null."""
    for index in range(len(lines) - 1):
        if lines[index]["better_than_null"] and lines[index + 1]["better_than_null"]:
            return index
    return None


def _breaks(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Where an attack begins to succeed, as plain data."""
    first = lines[0]
    broken = _first_broken(lines)
    if first["noise_multiplier"] == 0 and first["better_than_null"]:
        broken = 0
    below = len(lines) if broken is None else broken
    return {
        "algorithm": first["algorithm"],
        "attack": first["attack"],
        "clients": first["clients"],
        "breaks_at": None if broken is None else _level(lines[broken]),
        "holds_at": _level(lines[below - 1]) if below and _tried(first) else None,
        "verdict": first["verdict"],
    }


def _level(line: Mapping[str, Any]) -> dict[str, Any]:
    names = ("noise_multiplier", "epsilon", "unit", "better_than_null")
    return {name: line[name] for name in names}


def sentence(found: Mapping[str, Any]) -> str:
    """One line that says at which noise an attack begins to succeed."""
    broken, holds = found["breaks_at"], found["holds_at"]
    who = f"{found['algorithm']}, {found['attack']}"
    parts = [] if broken or holds else [str(found["verdict"])]
    if broken is not None:
        by = ", ".join(broken["better_than_null"])
        parts.append(f"better than null from {_words(broken)} down ({by})")
    if holds is not None:
        parts.append(f"not above null at {_words(holds)}")
    return f"{who}: {'; '.join(parts)}"


def _words(level: Mapping[str, Any]) -> str:
    epsilon = level["epsilon"]
    text = epsilon if isinstance(epsilon, str) else f"{epsilon:.3g}"
    return f"sigma {level['noise_multiplier']:.3g} (epsilon {text})"
