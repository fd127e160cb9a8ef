"""A planted fault: what it breaks, and which check of a verdict must name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from simulate.engine.experiment import Experiment

Break = Callable[[Experiment], Experiment]
Tamper = Callable[[Path], None]
Level = Literal["declared", "not shown", "replayed", "attested", "canaries", "none"]
"""Lowest level of evidence that detects a fault with every seed. ``not shown``: its check lacks
evidence."""
OURS = "ours"
EXTERNAL = "external"
"""Authors of faults: of the checks, or reviewers who described faults without knowing them."""


@dataclass(frozen=True)
class Fault:
    """One way to break a run.

    Attributes:
        name: a few words; unique.
        what: how the run is broken, in a sentence.
        check: name of the check that must fail; empty if none of the declared evidence can show
            the fault.
        words: part of the reason that it must give.
        weakens: whether clients are protected less than the plan promises; a fault of the
            books alone does not.
        breaks: from the experiment to the experiment with the fault.
        tampers: what is done to the run folder afterwards.
        patches: (module, attribute, replacement) while the run lasts, for faults outside the
            components of an algorithm.
        algorithm: the method that is broken.
        author: who described the fault.
        level: lowest level of evidence that detects it.
        why: why the declared evidence does not show it; empty if it does.
    """

    name: str
    what: str
    check: str = ""
    words: str = ""
    weakens: bool = True
    breaks: Break = lambda experiment: experiment
    tampers: Tamper = lambda folder: None
    patches: tuple[tuple[Any, str, Any], ...] = ()
    algorithm: str = "planned"
    author: str = OURS
    level: Level = "declared"
    why: str = ""


def with_components(experiment: Experiment, **components: Any) -> Experiment:
    """The experiment with other components in its algorithm."""
    return replace(experiment, algorithm=replace(experiment.algorithm, **components))
