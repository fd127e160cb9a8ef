"""Examples of fields of a spec in docs/: a plan follows from each."""

import re
from pathlib import Path

import pytest

from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from tests.planning.test_recipe import DATA

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "field"),
    [("recipe.md", "local"), ("planning.md", "server"), ("pretraining.md", "model")],
)
def test_examples_are_fields_of_a_spec(page, field):
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    [block] = [load_yaml(text, "example") for text in blocks if text.startswith(field)]
    plan = solve(Spec.parse({**DATA, **block}))
    assert getattr(plan.spec, field) is not None
