"""The example of docs/pretraining.md is a valid model of a spec, and its options exist."""

from __future__ import annotations

import re
from pathlib import Path

from privplan.files import load_yaml
from privplan.planning.choices import recipe_lines
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.test_recipe import DATA

TEXT = (Path(__file__).parents[2] / "docs/pretraining.md").read_text()


def test_the_example_is_a_model_of_a_spec() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    plan = solve(Spec.parse({**DATA, **load_yaml(block, "example")}), second_opinion=False)
    assert plan.spec.model.initial is not None
    assert any("trained on cifar-10" in line for line in recipe_lines(plan))
