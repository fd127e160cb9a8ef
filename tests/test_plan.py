"""The plan as a value: text and back, and edits by hand found out."""

import json

import pytest

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.values import parse
from tests.planning.problems import make_spec


@pytest.fixture(scope="module")
def plan():
    return solve(make_spec(planning={"sparsification": [0.5, 1.0]}))


def test_a_plan_survives_its_file(plan, tmp_path):
    path = tmp_path / "plan.json"
    plan.save(path)
    again = Plan.load(path)
    assert again == plan
    assert again.digest == plan.digest


@pytest.mark.parametrize(
    "selection", [slice(0, 0), slice(1, None), slice(None, None, -1)]
)
def test_a_plan_has_the_groups_of_its_spec(plan, selection):
    data = json.loads(plan.to_json())
    data.pop("digest")
    assert parse(Plan, data).groups == plan.groups
    data["groups"] = data["groups"][selection]
    with pytest.raises(InputError, match="groups: must be those of the spec"):
        parse(Plan, data)
