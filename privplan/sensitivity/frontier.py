"""Frontiers: what rounds, cohort and budgets buy, and what wrong constants would cost.

Everything is the noise of the weighted mean update in norm (the square root of d times the
noise of a coordinate), or the objective, of plans that are solved anew for each question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from privplan.errors import PrivplanError
from privplan.planning.allocate import Allocation, Task, allocate
from privplan.planning.assemble import noise_provision
from privplan.planning.error_terms import spread, terms
from privplan.planning.grouping import MOST_GROUPS, groupings
from privplan.planning.optimised import task_of
from privplan.planning.problem import problem_of
from privplan.spec.groups_csv import groups_of, read_budgets
from privplan.spec.spec import Spec

_STEP = 1.1
_KNEE = 0.1
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Answer:
    """One question and its answer.

    Attributes:
        question: what is varied: ``rounds``, ``cohort``, ``epsilon``, ``shadow_price``,
            ``without``, ``knee``, ``wrong_constant``, or ``groups`` (how many are made of
            individual budgets).
        what: the value, group or constant.
        noise: noise of the mean update, in norm; None when there is no plan.
        change: relative change of the noise (of the objective for a wrong constant) against
            the plan of the spec.
        note: the reason why there is no plan, or what the answer means.
    """

    question: str
    what: str
    noise: float | None
    change: float | None
    note: str = ""


def frontier(
    spec: Spec, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Answer]:
    """Every question of a spec, answered.

    Args:
        spec: the planning problem, with ratios that are searched (balanced, noise, bound); a
            file of individual budgets by a path that can be opened.
        progress: told how many questions are answered, of how many.
    """
    base = _noise(spec)
    questions = _questions(spec)
    answers = []
    for done, (question, what, changed, scale) in enumerate(questions):
        progress(done, len(questions))
        answers.append(_answer(question, what, changed, base, scale))
    progress(len(questions), len(questions))
    return [*answers, *_knee(answers), *_wrong(spec), *_groups(spec, base)]


def _questions(spec: Spec) -> list[tuple[str, str, dict[str, Any], float]]:
    """Question, what, changed data, and what the change of noise is divided by."""
    data = spec.model_dump(mode="json")
    asked = []
    for factor in _FACTORS:
        rounds = max(round(spec.rounds * factor), 1)
        asked.append(("rounds", str(rounds), {**data, "rounds": rounds}, 1.0))
    for cohort in _cohorts(spec):
        asked.append(("cohort", f"{cohort:g}", {**data, "cohort": cohort}, 1.0))
    for factor in _FACTORS:
        asked.append(("epsilon", f"x {factor:g}", _budgets(data, factor, None), 1.0))
    for group in spec.groups:
        more = _budgets(data, _STEP, group.name)
        asked.append(("shadow_price", group.name, more, (_STEP - 1) * group.epsilon))
    for group in spec.groups if len(spec.groups) > 1 else ():
        left = [other for other in data["groups"] if other["name"] != group.name]
        people = sum(other["clients"] for other in left)
        cohort = min(spec.expected_cohort, people)
        changed = {**data, "groups": left, "cohort": cohort, "delta": spec.delta_of(group)}
        asked.append(("without", group.name, changed, 1.0))
    return asked


def _cohorts(spec: Spec) -> list[float]:
    """A quarter and half of the cohort, itself, and its doubles up to everybody."""
    if spec.sampling == "full":
        return [float(spec.population)]
    found = [spec.expected_cohort / 4]
    while found[-1] < spec.population:
        found.append(min(2 * found[-1], float(spec.population)))
    whole = [float(round(one)) if spec.sampling == "fixed_size" else one for one in found]
    return [one for one in whole if one >= len(spec.groups)]


def _budgets(data: dict[str, Any], factor: float, only: str | None) -> dict[str, Any]:
    groups = [
        {**group, "epsilon": group["epsilon"] * factor} if only in (None, group["name"]) else group
        for group in data["groups"]
    ]
    return {**data, "groups": groups}


def _answer(question: str, what: str, changed: dict[str, Any], base: float, scale: float) -> Answer:
    try:
        noise = _noise(Spec.parse(changed))
    except PrivplanError as error:
        return Answer(question, what, None, None, " ".join(str(error).split()))
    note = "per unit of epsilon" if question == "shadow_price" else ""
    return Answer(question, what, noise, (noise / base - 1) / scale, note)


def _knee(answers: Sequence[Answer]) -> list[Answer]:
    """The cohort beyond which doubling it lowers the noise by less than a tenth."""
    cohorts = [a for a in answers if a.question == "cohort" and a.noise is not None]
    for small, large in pairwise(cohorts):
        if small.noise and large.noise and large.noise > small.noise * (1 - _KNEE):
            note = "twice this cohort lowers the noise by less than 10%"
            return [Answer("knee", small.what, small.noise, small.change, note)]
    return []


def _groups(spec: Spec, base: float) -> list[Answer]:
    """What grouping individual budgets costs, by number of groups; nothing without them."""
    if spec.groups_from is None:
        return []
    epsilons, deltas = read_budgets(Path(spec.groups_from), spec.delta)
    data = spec.model_dump(mode="json")
    answers = []
    for found in groupings(epsilons, deltas, MOST_GROUPS):
        number = len(found.clients)
        note = f"keeps {found.precision:.2%} of the precision of individual budgets"
        if number > data["cohort"]:
            break
        answer = _answer("groups", str(number), {**data, "groups": groups_of(found)}, base, 1.0)
        answers.append(replace(answer, note=answer.note or note))
    return answers


def _wrong(spec: Spec) -> list[Answer]:
    """What planning with h or s wrong by a factor of 2 costs under the right ones."""
    if spec.planning.ratios != "balanced":
        return []
    right = task_of(spec, problem_of(spec))
    best = _total(right, allocate(right))
    answers = []
    for name in ("leaning", "sampling"):
        for factor in (0.5, 2.0):
            price = getattr(right.prices, name) * factor**2
            prices = replace(right.prices, **{name: price})
            found = allocate(replace(right, prices=prices))
            symbol = "h" if name == "leaning" else "s"
            cost = _total(right, found) / best - 1
            nu = spread(found.weights, found.cohorts, found.noise, right.release)
            norm = nu * spec.clipping_norm * math.sqrt(spec.model.parameters)
            note = "regret of the objective"
            answers.append(Answer("wrong_constant", f"{symbol} x {factor:g}", norm, cost, note))
    return answers


def _total(task: Task, found: Allocation) -> float:
    return terms(found.weights, found.cohorts, found.noise, task.prices, task.release).total


def _noise(spec: Spec) -> float:
    task = task_of(spec, problem_of(spec))
    found = allocate(task)
    nu = spread(found.weights, found.cohorts, found.noise, task.release)
    provision = math.sqrt(noise_provision(spec))
    return nu * provision * spec.clipping_norm * math.sqrt(spec.model.parameters)
