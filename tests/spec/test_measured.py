"""Measured constants in the text of a spec: what it says, and what of it stays."""

import pytest

from privplan.errors import InputError
from privplan.spec.measured import Measured, Number, entries, provisional, written
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml

HEAD = """# Mine.
name: small  # a name
groups:
  - {name: a, clients: 100, epsilon: 1}   # strict
rounds: 10
cohort: 10
model: {name: mlp-digits, parameters: 2410}
"""


def number(value, reach=0.1):
    return Number(value=value, low=value - reach, high=value + reach)


MEASURED = Measured(
    source="2 rounds",
    update_norm=number(0.5),
    update_norms=(0.25, 0.75),
    heterogeneity=number(0.1),
    smoothness=number(12.0),
    noise_curvature=number(-0.01),
    sampling_curvature=number(3.0),
    initial_gap=number(2.3),
    local_variance=number(-1e-3),
    dissimilarity=number(4.0),
)

PLANNINGS = {
    "none": "",
    "empty": "planning: {}\n# after\nlocal: {steps: 3}\n",
    "null": "planning:\n",
    "block": "planning:\n    # why\n    release: joint   # one sum\n    free: [ratios, weights]\n",
    "replaced": "planning:\n  heterogeneity: 0.3  # old\n  release: joint\n  constants:\n"
    "    smoothness: 1\n    initial_gap: 1\nlocal:\n  steps: 3   # few\n",
    "norms": "planning:\n  update_norms:\n    - 1.0\n    - 2.0\n  release: joint\n",
    "braces": "planning: {release: joint, heterogeneity: 0.2}\n",
    "clip": "planning:\n  free: [ratios, weights, clipping_norm]\n",
}


@pytest.mark.parametrize("planning", PLANNINGS.values(), ids=PLANNINGS)
def test_the_text_says_what_it_said_and_the_constants(planning):
    text = written(HEAD + planning, MEASURED)
    before = load_yaml(HEAD + planning, "spec")
    after = load_yaml(text, "spec")
    old = before.get("planning") or {}
    assert after == {**before, "planning": {**old, **entries(MEASURED)}}
    assert Spec.parse(after).planning.update_norm == 0.5
    for comment in (
        "# Mine.",
        "# a name",
        "# strict",
        "# after",
        "# why",
        "# one sum",
        "# few",
    ):
        assert (comment in text) == (comment in HEAD + planning)
    assert written(text, MEASURED).split() == text.split()


def test_text_that_cannot_be_edited_is_refused():
    with pytest.raises(InputError, match="spec: must be YAML"):
        written(
            HEAD + "planning: &p {release: joint}\nlocal: {<<: *p, steps: 3}\nx: [",
            MEASURED,
        )


def test_insurance_stands_at_the_upper_end_and_squares_are_not_negative():
    measured = entries(MEASURED)
    assert measured["heterogeneity"] == 0.2
    assert (
        measured["constants"]["noise_curvature"] == 0.09
    )  # estimate below 0: upper end
    assert measured["constants"]["local_variance"] == 0.0


def test_a_spec_may_lack_what_the_pilot_finds_and_nothing_else():
    text = HEAD + PLANNINGS["clip"]
    with pytest.raises(InputError, match="update_norms"):
        Spec.parse(load_yaml(text, "spec"))
    assert provisional(text).planning.update_norms == (1.0,)
    with pytest.raises(InputError, match=r"planning\.releases"):
        provisional(HEAD + "planning: {releases: joint}\n")
