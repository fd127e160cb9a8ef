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
        breaks: the run's setting with the fault in it.
        tampers: what is done to the run folder afterwards.
        patches: (module, attribute, replacement) while the run lasts, for faults outside the
            slots of an algorithm.
        algorithm: the method that is broken.
    """

    name: str
    what: str
    check: str
    words: str
    weakens: bool = True
    breaks: Break = lambda setting: setting
    tampers: Tamper = lambda folder: None
    patches: tuple[tuple[Any, str, Any], ...] = ()
    algorithm: str = "planned"


def with_slots(setting: Experiment, **slots: Any) -> Experiment:
    """The setting with other parts in its algorithm."""
    return replace(setting, algorithm=replace(setting.algorithm, **slots))
