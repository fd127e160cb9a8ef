"""Free rounds, epochs, batches and clipping norm of plans of records, by their own bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privplan.errors import InputError
from privplan.planning.noise import calibrated
from privplan.planning.problem import problem_of
from privplan.planning.records import decide_record_choices, run_error
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

CONSTANTS = {"smoothness": 5.0, "noise_curvature": 0.5, "initial_gap": 2.0}


def _data(**planning: Any) -> dict[str, Any]:
    return {
        "name": "records",
        "unit": "record",
        "groups": [
            {"name": "a", "clients": 5, "epsilon": 1.0, "records": 200, "batch_size": 20},
            {"name": "b", "clients": 5, "epsilon": 4.0, "records": 600, "batch_size": 30},
        ],
        "rounds": 20,
        "model": {"name": "m", "parameters": 1000},
        "planning": {"constants": CONSTANTS, "update_norms": [0.5, 1.0, 2.0, 3.0], **planning},
    }


def test_the_error_of_one_client_by_hand() -> None:
    data = _data(update_norms=[])
    data["groups"] = [{**data["groups"][0], "clients": 1}]
    spec = Spec.parse(data)
    problem = problem_of(Spec.parse({**data, "rounds": 200}))  # ten steps in each of 20 rounds
    z = float(calibrated(problem, np.array([0.1]), "rdp")[0])
    gamma = 0.1 * 10
    noise = 10 * 0.1**2 * 1000 * (z / 20) ** 2
    batches = 10 * 0.1**2 / 20
    expected = 2 * 2.0 / (gamma * 20) + (0.5 * noise + 5.0 * batches) / gamma
    assert run_error(spec) == pytest.approx(expected, rel=1e-3)


def test_no_neighbour_of_the_choices_is_better() -> None:
    free = ["rounds", "epochs", "batch_size", "clipping_norm"]
    spec, notes = decide_record_choices(Spec.parse(_data(free=free)))
    assert [note.split(" is ")[0] for note in notes] == [f"planning.free: {name}" for name in free]
    best = run_error(spec)
    assert best < run_error(Spec.parse(_data()))
    data = spec.model_dump(mode="json")
    for factor in (0.8, 1.25):
        rounds = {**data, "rounds": round(spec.rounds * factor)}
        clip = {**data, "clipping_norm": spec.clipping_norm * factor}
        for changed in (rounds, clip):
            assert run_error(Spec.parse(changed)) >= best * (1 - 2e-3)


def test_a_decided_plan_keeps_its_budgets_and_says_what_it_chose() -> None:
    plan = solve(Spec.parse(_data(free=["batch_size"])))
    assert plan.warnings[0].startswith("planning.free: batch_size is ")
    for row in plan.certificate:
        if row.guarantee:
            assert row.epsilon_upper <= plan.group(row.group).epsilon


@pytest.mark.parametrize(
    ("planning", "line"),
    [
        ({"free": ["cohort"]}, "planning.free: must be among rounds, epochs, batch_size"),
        ({"free": ["rounds"], "constants": None}, "planning.constants: is required when choices"),
        ({"free": ["clipping_norm"], "update_norms": []}, "planning.update_norms: is required"),
    ],
)
def test_choices_that_cannot_be_free(planning: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        Spec.parse(_data(**planning))
