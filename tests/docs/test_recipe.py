"""The examples of docs/recipe.md and of the server in docs/planning.md are valid specs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from privplan.files import load_yaml
from privplan.planning.choices import DECAY, HALF_WORTH, MOST_LOCAL_STEPS, STEP_LENGTH
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import MOST_STEPS, UNIT
from simulate.cli.tune import command
from tests.planning.test_recipe import DATA

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "field"), [("recipe.md", "tuning"), ("recipe.md", "local"), ("planning.md", "server")]
)
def test_examples_are_fields_of_a_spec(page: str, field: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    [block] = [load_yaml(one, "example") for one in blocks if one.startswith(field)]
    plan = solve(Spec.parse({**DATA, **block}), second_opinion=False)
    assert getattr(plan.spec, field) is not None


def test_the_page_states_the_constants_and_options() -> None:
    text = (DOCS / "recipe.md").read_text()
    assert f"{STEP_LENGTH:g} eta / (C sqrt(1 + N^2))" in text
    assert f"{{method: ema, decay: {DECAY:g}}}" in text
    assert (
        f"{UNIT:g} max({MOST_STEPS}, tau) / W, at most {UNIT:g}; eta above is then {UNIT:g}" in text
    )
    assert f"g^2 = tau / (tau + {HALF_WORTH:g}), from 1 to {MOST_LOCAL_STEPS} local steps" in text
    options = {name for parameter in command.params for name in parameter.opts}
    tuning = text[text.index("## Tuning on public") : text.index("## Random changes")]
    assert set(re.findall(r"--[a-z]+", tuning)) <= options
