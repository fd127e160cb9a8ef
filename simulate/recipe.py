"""Recipes: how what precedes an algorithm's releases is executed again by a replay.

A recipe says in a few words what clients and mechanism do; ``simulate.replay`` has a
second, simple implementation of each word. It is registered beside the algorithm. What
follows the releases needs no recipe: it is computed from them
(``simulate.postprocessing``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from privplan.plan import Plan


@dataclass(frozen=True)
class Recipe:
    """What precedes the releases of an algorithm."""

    # ``joint``: one sum of all groups; ``per_group``: a sum of each; ``per_client``:
    # each client releases what its DP-SGD made
    release: Literal["joint", "per_group", "per_client"]
    # rule of the factor in each ledger line, a name of ``privplan.planning.error``
    weight: str = "mean"
    noisy: bool = True  # whether noise is added, so that updates are clipped
    scaled: bool = False  # whether updates are multiplied by the group's scale
    # local training: SGD; with SAM's ascent; along the last step (DP-FedPGN); with
    # BLUR's penalty; of the head, then of the body; of shared parameters plus the
    # client's offset
    local: Literal["sgd", "sam", "pgn", "blur", "head", "offset"] = "sgd"
    masked: bool = False  # whether a public mask selects the coordinates of a release
    fine_tuned: bool = False  # whether clients change the final model for themselves

    @property
    def personal(self) -> bool:
        """Whether clients keep parameters, which no run stores."""
        return self.local in ("head", "offset")


@dataclass(frozen=True)
class NotExecuted:
    """Why no replay executes an algorithm again: its runs are kept as recorded."""

    reason: str


RecipeOf = Callable[[Plan, str], Recipe | NotExecuted]
"""(executed plan, chosen aggregation) to the recipe."""

EXACT = NotExecuted("its releases are exact")
UNKNOWN = NotExecuted("it does not say how a verifier executes it")


def always(recipe: Recipe | NotExecuted) -> RecipeOf:
    """The same recipe for every plan."""
    return lambda plan, aggregation: recipe


NO_RECIPE = always(UNKNOWN)


def of_client_updates(plan: Plan, aggregation: str) -> Recipe:
    """Each client releases the update that its DP-SGD made."""
    return Recipe("per_client", "by records")


def of_group_sums(plan: Plan, aggregation: str) -> Recipe:
    """A noisy sum per group, with the weights as printed or normalised."""
    return Recipe("per_group", "literal" if aggregation == "paper" else "normalised")
