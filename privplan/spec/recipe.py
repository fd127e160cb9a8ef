"""The training recipe of a spec: which of its fields the planner decides, and how they were chosen.

A spec that leaves the clipping norm and the server open asks for the default recipe, which is
decided without any data. The clipping norm follows from local training alone, so it is filled in
when the spec is read; ``privplan.planning.recipe`` decides the rest when the plan is solved. A
solved spec names the decided fields in ``recipe.decides``, so that solving it again gives the
same plan, and baselines can leave the recipe out.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from privplan.spec.objectives import FIXED_RATIOS
from privplan.values import Checked, Count, Fraction, Natural, NonNegative, Value, is_empty, is_none

DECIDED = ("clipping_norm", "server", "averaging")
"""Fields of a spec that the default recipe decides where they are left out."""
CLIPPING_STEPS = 1.0
"""Clipping norm of the default recipe over the local learning rate eta.

A client whose gradients have norm 1 is as far after one local step. Over all its steps nearly every
update is longer and thus clipped, so the released mean hardly depends on the updates' lengths,
which nobody knows without data.
"""
_MEASURED = ("clipping", "heterogeneity", "update_norm", "update_norms", "constants")
"""Fields of ``planning`` in units of an update; whoever gives one knows the updates' scale."""
_LEARNING_RATE = 0.1


class TuningEvidence(Value):
    """Runs that a tuned recipe rests on.

    Attributes:
        dataset: name of the proxy data.
        partition: partition of its records over clients.
        runs: simulated runs.
        seed: seed of the first run.
        accuracy: mean accuracy of the recipe over its seeds, in [0, 1].
        seeds: number of seeds of this mean.
        default_accuracy: the same of the recipe before.
        rounds: rounds of the plan that was tuned for.
        noise: norm of the noise of its mean update over the clipping norm.
    """

    dataset: str
    partition: str
    runs: Count
    seed: Natural
    accuracy: Fraction
    seeds: Count
    default_accuracy: Fraction
    rounds: Count
    noise: NonNegative


class Recipe(Checked):
    """Who decides clipping norm, server and averaging, and on what evidence."""

    source: Literal["default", "none", "tuned"] = Field(
        "default",
        description="default: decided without data; none: all fields as given; tuned: chosen by "
        "privplan tune.",
    )
    decides: tuple[str, ...] = Field((), description="Fields of the spec that the recipe decides.")
    replaced: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=is_empty,
        description="Values of these fields before; baselines train with them.",
    )
    evidence: TuningEvidence | None = Field(
        None, exclude_if=is_none, description="Runs that a tuned recipe rests on."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, data: Any) -> Any:
        """``recipe: none`` stands for its source."""
        return {"source": data} if isinstance(data, str) else data


def with_recipe(data: dict[str, Any]) -> dict[str, Any]:
    """A spec's plain data with the recipe that they ask for, and its clipping norm.

    The default recipe is asked for by name, or by leaving out DECIDED and the fields of
    ``planning`` in units of an update, in a spec of clients whose ratios minimise an objective.

    Args:
        data: plain data of a spec; anything invalid is left to its validation.
    """
    recipe, planning = data.get("recipe"), data.get("planning") or {}
    if not isinstance(planning, dict) or not isinstance(recipe, str | dict | None):
        return data
    if recipe is None:
        ratios = planning.get("ratios", "balanced")
        given = [data.get(field) for field in DECIDED] + [planning.get(name) for name in _MEASURED]
        by_rule = ratios in FIXED_RATIOS or data.get("unit", "client") != "client"
        if by_rule or any(value not in (None, (), []) for value in given):
            return data
        recipe = "default"
    if recipe == "default":
        free = planning.get("free") or ()
        decides = [field for field in DECIDED if data.get(field) is None and field not in free]
        recipe = {"source": "default", "decides": decides}
    if not isinstance(recipe, dict) or recipe.get("source", "default") != "default":
        return {**data, "recipe": recipe}
    data = {**data, "recipe": recipe}
    if "clipping_norm" in (recipe.get("decides") or ()):
        local = data.get("local")
        rate = local.get("learning_rate") if isinstance(local, dict) else None
        rate = _LEARNING_RATE if rate is None else rate
        if isinstance(rate, int | float) and rate > 0:
            data["clipping_norm"] = CLIPPING_STEPS * rate
    return data


def without_recipe(data: dict[str, Any]) -> dict[str, Any]:
    """A spec's plain data before its recipe: without the fields that it decided."""
    recipe = data.get("recipe")
    if recipe is None:
        return data
    kept = {key: value for key, value in data.items() if key not in recipe["decides"]}
    return {**kept, **recipe.get("replaced", {}), "recipe": "none"}
