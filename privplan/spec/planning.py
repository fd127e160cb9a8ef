"""What a spec asks of the planner: the objective, what is free, and what is known.

A spec depends on an objective only through ``ObjectiveRequirements``; how one is
computed stands in ``privplan.planning.objectives``, whose modules register themselves
here. Another distribution adds an objective by an entry point of the group
``privplan.objectives``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from privplan.errors import Fault, InputError
from privplan.laws.law import Participation
from privplan.registry import Registry
from privplan.spec.groups import CalibratingAccountant, KeptFractions
from privplan.spec.training import CLIPPING_STEPS, DECIDED, LOCAL_RATE, UNIT, local_rate
from privplan.values import (
    LARGEST,
    Count,
    NonNegative,
    Positive,
    Probability,
    Value,
    omitted,
)

FixedRatios = Literal["gdpfed_plus", "uniform", "given"]
FIXED_RATIOS: tuple[str, ...] = get_args(FixedRatios)
"""Values of ``planning.ratios`` whose ratios follow a rule instead of an objective."""
RATIOS_BEFORE_NOISE = ("given", "uniform")
"""Fixed rules that ask for no budget: the noise of a group may be fixed before it."""


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


def _checked(component: object) -> ObjectiveRequirements:
    """An objective of another distribution: an instance, or a class to make it of."""
    if isinstance(component, type):
        component = component()
    if not isinstance(component, ObjectiveRequirements):
        raise TypeError("must be a privplan.planning.objectives.Objective")
    return component


OBJECTIVES: Registry[ObjectiveRequirements] = Registry(
    "planning.ratios", "privplan.objectives", "privplan.planning.objectives", _checked
)


def is_objective(ratios: str) -> bool:
    """Whether a value of ``planning.ratios`` is an objective, not a fixed rule."""
    return ratios not in FIXED_RATIOS


def objective_names() -> list[str]:
    """Names of all objectives, sorted."""
    return sorted(OBJECTIVES)


def _registered(value: Any) -> Any:
    """A fixed rule, or the exact name of a registered objective."""
    try:
        is_rule = isinstance(value, str) and value in FIXED_RATIOS
        if is_rule or (isinstance(value, str) and OBJECTIVES.name_of(value) == value):
            return value
    except InputError as error:
        # Another fault is that of an entry point that does not load.
        if not error.faults[0].rule.startswith("must be one of"):
            raise
    *names, last_name = (repr(name) for name in (*objective_names(), *FIXED_RATIOS))
    expected = f"{', '.join(names)} or {last_name}"
    raise PydanticCustomError(
        "literal_error", "must be one of {expected}", {"expected": expected}
    )


def _enumerate(schema: dict[str, Any]) -> None:
    schema["enum"] = [*objective_names(), *FIXED_RATIOS]


Ratios = Annotated[
    str, BeforeValidator(_registered), Field(json_schema_extra=_enumerate)
]
"""A registered objective or a fixed rule."""


# Default of ``planning.least_share``: docs/evidence/fairness.md.
LEAST_SHARE = 0.85
# Default of ``planning.slack``: half a percent of noise, which no run tells from none.
SLACK = 0.01

Weights = Literal[
    "optimal", "population", "participation", "uniform", "inverse_variance", "epsilon"
]
Free = Literal[
    "ratios", "weights", "rounds", "cohort", "clipping_norm", "groups", "sampling"
]


class Constants(Value):
    """Constants of the convergence bounds, stated or estimated on public data."""

    smoothness: Positive = Field(description="L of the local objectives.")
    noise_curvature: Positive | None = omitted(
        "Mean curvature tr(H) / d of the objective, which isotropic noise meets; the "
        "smoothness when left out."
    )
    sampling_curvature: Positive | None = omitted(
        "Mean curvature along the differences of clients' updates; the smoothness when left out."
    )
    initial_gap: Positive = Field(
        description="f(theta^0) - f*, the loss that can be gained."
    )
    local_variance: NonNegative = Field(
        0.0, description="zeta^2, variance of a coordinate of a local gradient."
    )
    dissimilarity: NonNegative = Field(
        0.0, description="kappa^2, how much local gradients differ between clients."
    )


class QuantileClipping(Value):
    """A clipping norm that follows a private quantile of the update norms."""

    quantile: Annotated[Positive, Field(lt=1)] = Field(
        0.5, description="Share of the updates that are not clipped."
    )
    share: Probability = Field(
        0.02, description="Part of the precision 1 / sigma^2 that counting them takes."
    )
    learning_rate: Positive = Field(
        0.2, description="Step of the logarithm of the clipping norm, per round."
    )


class Planning(Value):
    """How the plan is found; ``privplan.spec.base`` says which fields go together."""

    accountant: CalibratingAccountant = Field(
        "pld", description="Accountant that the noise multipliers are calibrated with."
    )
    calibration: Literal["exact", "published"] = Field(
        "exact",
        description="exact: the least noise to 1e-4; published: by bisection until epsilon is "
        "within 0.01 of the budget (accountant rdp, poisson, add_remove, ratios by a rule).",
    )
    ratios: Ratios = Field(
        "balanced",
        description="Objective that the sampling ratios minimise, or a fixed rule.",
    )
    release: Literal["joint", "per_group"] | None = Field(
        None,
        description="One noisy sum of all groups, or one per group; joint when left out for "
        "balanced and noise, else per_group.",
    )
    weights: Weights | None = Field(
        None,
        description="Weights of the groups: the best for the objective, N / n, r^2 / sum r^2, "
        "equal, r^2 / sigma^2 normalised, or by epsilon (unit: record).",
    )
    sparsification: KeptFractions = Field(
        "none",
        description="Kept fraction of each group, in the order of the groups, or a rule.",
    )
    heterogeneity: Annotated[NonNegative, Field(le=LARGEST)] | None = Field(
        None,
        description="h: how much the mean updates of groups may differ, in norm; a sixth of the "
        "clipping norm when left out, a third with one release per group. With update_norm or "
        "update_norms it is of updates before the recipe clips them. Never from private data.",
    )
    least_share: Annotated[NonNegative, Field(le=1)] | None = omitted(
        "How much the clients of each group count at least, as a part of their number: "
        "1 for weights by number, 0 where groups are known to be alike. When left out, "
        "0.85 for every group that can be heard."
    )
    slack: Annotated[NonNegative, Field(le=1)] | None = omitted(
        "By how much the objective may exceed the least one, relatively, so that budgets "
        "are left; 0.01 when left out, 0 for none. With one noisy sum of all groups."
    )
    update_norm: Positive | None = Field(
        None,
        description="Root mean square of the norm of a client's update; the clipping norm when "
        "left out.",
    )
    update_norms: tuple[Positive, ...] = Field(
        (), description="Norms of client updates in a pilot on public or proxy data."
    )
    dropout_tolerance: Annotated[NonNegative, Field(lt=1)] = Field(
        0.0,
        description="Fraction of a cohort that may stay silent without weakening the guarantee.",
    )
    clipping: QuantileClipping | None = omitted(
        "Let the clipping norm follow a private quantile from clipping_norm on, paid "
        "out of the budgets, in the plan and in every method that clips clients' updates; without "
        "the default recipe."
    )
    constants: Constants | None = Field(
        None, description="Constants of the bounds; bound and free rounds need them."
    )
    free: tuple[Free, ...] = Field(
        ("ratios", "weights"), description="What the planner may choose."
    )
    participation: Participation | None = omitted(
        "What clients can do, with sampling in free: a server draws them in any round, they "
        "choose their rounds themselves, or they come when they can; as under sampling when "
        "left out."
    )
    max_rounds: Count | None = Field(
        None,
        description="Most rounds when they are free; ten times the rounds when left out.",
    )
    max_uploads: Positive | None = Field(
        None, description="Most client uploads over the whole run, rounds times cohort."
    )


def with_recipe(data: dict[str, Any]) -> dict[str, Any]:
    """The data with the recipe that they ask for, and its clipping norm.

    The default recipe is asked for by name, or by leaving out DECIDED and
    ``planning.clipping``, in a spec of clients whose ratios minimise an objective. The
    data are plain and not validated yet, so any of them may be of another kind.
    """
    recipe = data.get("recipe")
    if recipe is None and _leaves_recipe_open(data):
        recipe = "default"
    if recipe is None:
        return data
    if isinstance(recipe, str):
        recipe = {"source": recipe}
    data = {**data, "recipe": recipe}
    if not isinstance(recipe, dict) or recipe.get("source", "default") != "default":
        return data

    if "decides" not in recipe:
        decides = _decided_fields(data)
        data["recipe"] = {"source": "default", **recipe, "decides": decides}
    decided = data["recipe"]["decides"]
    if not isinstance(decided, list | tuple):
        return data
    # The clipping norm is a multiple of the local learning rate that was stated; the
    # recipe's own one is another.
    local = _mapping(data.get("local"))
    if local.get("learning_rate") is None:
        rate = UNIT
    else:
        rate = local["learning_rate"]
    if LOCAL_RATE in decided:
        rate = UNIT
        decided_rate = local_rate(local.get("steps"), local.get("momentum"))
        data["local"] = {**local, "learning_rate": decided_rate}
    is_rate = isinstance(rate, int | float) and 0 < rate <= LARGEST
    if is_rate and "clipping_norm" in decided:
        data["clipping_norm"] = CLIPPING_STEPS * rate
    return data


def _mapping(value: Any) -> dict[str, Any]:
    """A mapping of plain data; empty for what is none."""
    if isinstance(value, dict):
        return value
    return {}


def _leaves_recipe_open(data: dict[str, Any]) -> bool:
    """Whether plain data of a spec ask for the default recipe by naming none."""
    planning = data.get("planning") or {}
    if not isinstance(planning, dict):
        return False
    ratios = planning.get("ratios", "balanced")
    if ratios in FIXED_RATIOS or data.get("unit", "client") != "client":
        return False
    stated = [*(data.get(field) for field in DECIDED), planning.get("clipping")]
    return all(value in (None, (), []) for value in stated)


def _decided_fields(data: dict[str, Any]) -> list[str]:
    """Fields that the default recipe decides: those that plain data leave out."""
    free = _mapping(data.get("planning") or {}).get("free")
    free = free if isinstance(free, list | tuple) else ()
    decides = [
        field for field in DECIDED if data.get(field) is None and field not in free
    ]
    local = _mapping(data.get("local"))
    has_momentum = local.get("momentum") not in (None, 0)
    if local.get("learning_rate") is None and has_momentum:
        decides.append(LOCAL_RATE)
    return decides
