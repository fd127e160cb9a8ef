"""A planted fault: what it breaks, and which check of a verdict must name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulate.engine.experiment import Experiment

Break = Callable[[Experiment], Experiment]
Tamper = Callable[[Path], None]


@dataclass(frozen=True)
class Fault:
    """One way to break a run.

    Attributes:
        name: a few words; unique.
        what: how the run is broken, in a sentence.
        check: name of the check that must fail.
        words: part of the reason that it must give.
        weakens: whether clients are protected less than the plan promises; a fault of the
            books alone does not.
        breaks: from the experiment to the experiment with the fault.
        tampers: what is done to the run folder afterwards.
        patches: (module, attribute, replacement) while the run lasts, for faults outside the
            components of an algorithm.
        algorithm: the method that is broken.
    """

    name: str
    what: str
    check: str
    words: str
    weakens: bool = True
    breaks: Break = lambda experiment: experiment
    tampers: Tamper = lambda folder: None
    patches: tuple[tuple[Any, str, Any], ...] = ()
    algorithm: str = "planned"


def with_components(experiment: Experiment, **components: Any) -> Experiment:
    """The experiment with other components in its algorithm."""
    return replace(experiment, algorithm=replace(experiment.algorithm, **components))
