"""Names that ``planning.ratios`` takes: the registered objectives, and the fixed rules.

A spec depends on an objective only through ``ObjectiveRequirements``; how an objective is
computed stands in ``privplan.planning.objectives``, whose modules register themselves here.
Another distribution adds an objective by an entry point of the group ``privplan.objectives``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from privplan.errors import InputError
from privplan.registry import Registry

FIXED_RATIOS = ("gdpfed_plus", "uniform", "given")
"""Values of ``planning.ratios`` whose sampling ratios follow a rule instead of an objective."""


class ObjectiveRequirements:
    """What an objective asks of a spec.

    Attributes:
        default_release: the release of a spec that names none.
        required: fields of ``planning`` that must be given.
    """

    default_release: Literal["joint", "per_group"] = "joint"
    required: tuple[str, ...] = ()


def _checked(component: object) -> ObjectiveRequirements:
    """An objective of another distribution: an instance, or a class without arguments."""
    made = component() if isinstance(component, type) else component
    if not isinstance(made, ObjectiveRequirements):
        raise TypeError("must be a privplan.planning.objectives.Objective")
    return made


OBJECTIVES: Registry[ObjectiveRequirements] = Registry(
    "planning.ratios", "privplan.objectives", "privplan.planning.objectives", _checked
)


def is_objective(ratios: str) -> bool:
    """Whether a value of ``planning.ratios`` names an objective to minimise, not a fixed rule."""
    return ratios not in FIXED_RATIOS


def objective_names() -> list[str]:
    """Names of all objectives, sorted."""
    return sorted(OBJECTIVES)


def _known(value: Any) -> Any:
    try:
        if value in FIXED_RATIOS or (isinstance(value, str) and OBJECTIVES.name_of(value) == value):
            return value
    except InputError as error:  # of an unknown name: the message below lists the fixed rules too
        if not error.faults[0].rule.startswith("must be one of"):
            raise
    *names, last = (repr(name) for name in (*objective_names(), *FIXED_RATIOS))
    expected = f"{', '.join(names)} or {last}"
    raise PydanticCustomError("literal_error", "must be one of {expected}", {"expected": expected})


def _enumerate(schema: dict[str, Any]) -> None:
    schema["enum"] = [*objective_names(), *FIXED_RATIOS]


Ratios = Annotated[str, BeforeValidator(_known), Field(json_schema_extra=_enumerate)]
"""A registered objective or a fixed rule."""
