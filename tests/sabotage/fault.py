"""A planted fault: what it breaks, and which check of a verdict must name it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from simulate.components import GroupSum, Noise, Released
from simulate.engine.experiment import Experiment

Break = Callable[[Experiment], Experiment]
Tamper = Callable[[Path], None]
Level = Literal["declared", "not shown", "replayed", "attested", "canaries", "none"]
"""Lowest level of evidence that detects a fault with every seed.

``not shown``: its check lacks evidence.
"""
OURS = "ours"
EXTERNAL = "external"
"""Authors of faults: of the checks, or reviewers who described faults without knowing them."""


@dataclass(frozen=True)
class Fault:
    """One way to break a run."""

    name: str  # a few words; unique
    what: str  # how the run is broken, in a sentence
    # name of the check that must fail; empty if no declared evidence can show the fault
    check: str = ""
    words: str = ""  # part of the reason that it must give
    # whether clients are protected less than the plan promises, which a fault of the
    # books alone does not change
    weakens: bool = True
    # from the experiment to the experiment with the fault
    breaks: Break = lambda experiment: experiment
    tampers: Tamper = lambda folder: None  # what is done to the run folder afterwards
    # (module, attribute, replacement) while the run lasts, for faults outside the
    # components of an algorithm
    patches: tuple[tuple[Any, str, Any], ...] = ()
    algorithm: str = "planned"  # the method that is broken
    sampling: str = "poisson"  # law of the plan
    author: str = OURS  # who described the fault
    level: Level = "declared"  # lowest level of evidence that detects it
    why: str = ""  # why the declared evidence does not show it; empty if it does


Release = Callable[[Any, int, Sequence[GroupSum], Any, Noise], tuple[Released, ...]]
"""Of the honest mechanism and what it is given: the round, sums, weights, and generators."""


def released(release):
    """Change what the mechanism releases."""

    def breaks(experiment):
        honest = experiment.algorithm.mechanism
        wrong = replace(honest, release=partial(release, honest))
        return with_components(experiment, mechanism=wrong)

    return breaks


def each_released(change):
    """Change every release on its own, given the sum that it holds."""

    def release(honest, round_, sums, *context):
        pairs = zip(honest.release(round_, sums, *context), sums, strict=True)
        return tuple(
            change(honest_release, group_sum) for honest_release, group_sum in pairs
        )

    return released(release)


def with_components(experiment, **components):
    """The experiment with other components in its algorithm."""
    return replace(experiment, algorithm=replace(experiment.algorithm, **components))
