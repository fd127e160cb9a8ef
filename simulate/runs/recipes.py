"""Recipes in a comparison: each method as published, or with the plan's recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from privplan.errors import InputError
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import Recipe, without_recipe
from simulate.algorithms.registry import ALGORITHMS, algorithm
from simulate.runs.request import Request

WITH_RECIPE = " with recipe"
WITHOUT_RECIPE = " without recipe"
"""What follows a method's name where it trains otherwise than by itself."""


def with_recipes(
    base: Request, algorithms: Sequence[str], which: str | None
) -> tuple[dict[str, Request], list[str]]:
    """The requests of a comparison by the names of their rows.

    By themselves methods of this project train with the recipe. Others train without,
    and so does a method that is registered outside this project.

    Args:
        base: the request of the comparison.
        algorithms: names of the methods.
        which: ``published``, without the recipe; ``ours``, with it; ``both``; or None
            for each method's own way.

    Returns:
        The requests, and lines: on each method that cannot have the recipe, which
        ``ours`` and ``both`` leave out, or on each own one that trains without it.

    Raises:
        InputError: where the plan has no recipe.
    """
    if which is None:
        return _by_themselves(base, algorithms)
    if not _decided(base.plan.spec):
        rule = "must be left out: the plan has no recipe"
        raise InputError.one("recipe", rule, which)
    bare = Spec.parse(without_recipe(base.plan.spec.model_dump(mode="json")))
    requests: dict[str, Request] = {}
    left_out = []
    for name in algorithms:
        request = replace(base, algorithm=name)
        has_recipe = ALGORITHMS.get(name).executes(base.plan)
        if which != "ours":
            row_name = name
            published = request
            if has_recipe:
                row_name = name + WITHOUT_RECIPE
                plan = solve(bare, second_opinion=False)
                published = replace(request, plan=plan)
            requests[row_name] = published
        if which != "published":
            if has_recipe:
                requests[name] = request
                continue
            try:
                requests[name + WITH_RECIPE] = _with_recipe(request)
            except InputError as error:
                left_out.append(f"{name} cannot have the recipe: {error}")
    return requests, left_out


def _by_themselves(
    base: Request, algorithms: Sequence[str]
) -> tuple[dict[str, Request], list[str]]:
    """The requests of methods as each trains by itself, and lines on own ones."""
    requests = {name: replace(base, algorithm=name) for name in algorithms}
    lines = []
    for name, request in requests.items():
        values = _values_of_recipe(request)
        if values:
            spec = without_recipe(base.plan.spec.model_dump(mode="json"))
            plan = solve(Spec.parse(spec), second_opinion=False)
            requests[name] = replace(request, plan=plan)
            lines.append(
                f"{ALGORITHMS.get(name).name} trains as written; left out: the plan's recipe "
                f"({', '.join(values)}), which recipe ours gives it"
            )
    return requests, lines


def recipe_of_own(request: Request) -> list[str]:
    """One line that says which recipe a method of the user's gets; none for others."""
    values = _values_of_recipe(request)
    if not values:
        return []
    server = _own_server(request)
    if server is not None:
        values.append(f"its own server {server} in place of the recipe's")
    name = ALGORITHMS.get(request.algorithm).name
    return [f"{name} trains with the plan's recipe: {', '.join(values)}"]


def _own_server(request: Request) -> str | None:
    """The server of a method, which replaces that of a recipe; None without."""
    entry = ALGORITHMS.get(request.algorithm)
    server = entry.composed(request.plan, request.hyperparameters).server
    return None if server.name == "add" else server.name


def _values_of_recipe(request: Request) -> list[str]:
    """What the plan's recipe is for a method of the user's; nothing for others."""
    entry = ALGORITHMS.get(request.algorithm)
    spec = request.plan.spec
    decided = _decided(spec)
    if not (entry.is_own and entry.executes(request.plan) and decided):
        return []
    values = [f"clipping norm {spec.clipping_norm:.4g}"]
    if _own_server(request) is not None:
        return values
    if "server" in decided and spec.server is not None:
        values.append(f"server step {spec.server.learning_rate or 1.0:.4g}")
    if "averaging" in decided and spec.averaging is not None:
        values.append(f"averaging {spec.averaging.method}")
    return values


def _decided(spec: Spec) -> Sequence[str]:
    """Names of the fields that a spec's recipe decides."""
    if spec.recipe is None:
        return ()
    return tuple(spec.recipe.decides)


def protects_records(base: Request) -> bool:
    """Whether the request's algorithm protects records under its plan."""
    return ALGORITHMS.get(base.algorithm).unit_under(base.plan) == "record"


def _with_recipe(request: Request) -> Request:
    """The request of a method that plans for itself, with the recipe for its noise."""
    plan = request.plan
    spec = plan.spec
    entry = ALGORITHMS.get(request.algorithm)
    if protects_records(request) or entry.released == "nothing":
        rule = "must be published for methods of records"
        raise InputError.one("recipe", rule, "ours")
    hyperparameters = request.hyperparameters
    noise = 0.0
    if entry.unit == "none":
        # The recipe's rates are for clipped updates.
        values = {"clipped": 1.0, **hyperparameters.values}
        hyperparameters = replace(hyperparameters, values=values)
    else:
        noise = relative_noise(algorithm(entry.name, plan).plan)
    update: dict[str, object] = {"recipe": Recipe(source="none")}
    if spec.server is not None and "server" in (spec.recipe or Recipe()).decides:
        # The recipe's rate falls with sqrt(1 + noise^2), the length of a noisy update
        # over that of a clear one.
        factor = math.hypot(1.0, relative_noise(plan)) / math.hypot(1.0, noise)
        rate = float(f"{(spec.server.learning_rate or 1.0) * factor:.4g}")
        update["server"] = spec.server.model_copy(update={"learning_rate": rate})
    changed = plan.model_copy(update={"spec": spec.model_copy(update=update)})
    algorithm(entry.name, changed)
    return replace(request, plan=changed, hyperparameters=hyperparameters)
