"""Names that ``planning.ratios`` takes: the registered objectives, and the fixed rules.

A spec depends on an objective only through ``ObjectiveRequirements``; how an objective is
computed stands in ``privplan.planning.objectives``, whose modules register themselves here.
Another distribution adds an objective by an entry point of the group ``privplan.objectives``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from privplan.errors import Fault, InputError
from privplan.registry import Registry
from privplan.spec.grouping import Costs

FixedRatios = Literal["gdpfed_plus", "uniform", "given"]
FIXED_RATIOS: tuple[str, ...] = get_args(FixedRatios)
"""Values of ``planning.ratios`` whose sampling ratios follow a rule instead of an objective."""


class ObjectiveRequirements:
    """What an objective asks of a spec.

    Attributes:
        default_release: the release of a spec that names none.
        required: fields of ``planning`` that must be given.
    """

    default_release: Literal["joint", "per_group"] = "joint"
    required: tuple[str, ...] = ()

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """What a spec with this objective asks for and cannot have."""
        yield from ()

    def grouping_costs(self, spec: Any) -> Costs | None:
        """Costs by which the individual budgets of a spec are grouped; None for precision only."""
        return None


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


def is_registered(value: object) -> bool:
    """Whether a value of ``planning.ratios`` is the exact name of a registered objective."""
    try:
        return isinstance(value, str) and OBJECTIVES.name_of(value) == value
    except InputError as error:
        if not error.faults[0].rule.startswith("must be one of"):
            raise  # an entry point that does not load
        return False


def _known(value: Any) -> Any:
    if value in FIXED_RATIOS or is_registered(value):
        return value
    *names, last = (repr(name) for name in (*objective_names(), *FIXED_RATIOS))
    expected = f"{', '.join(names)} or {last}"
    raise PydanticCustomError("literal_error", "must be one of {expected}", {"expected": expected})


def _enumerate(schema: dict[str, Any]) -> None:
    schema["enum"] = objective_names()


def only_objectives() -> str:
    """The rule of what a spec with fixed ratios cannot ask for."""
    return f"is only for planning.ratios: {', '.join(objective_names())}"


Ratios = Annotated[str, BeforeValidator(_known)]
"""A registered objective or a fixed rule."""
ObjectiveName = Annotated[Ratios, Field(json_schema_extra=_enumerate)]
