"""The largest heterogeneity that a spec takes plans without overflow; a larger one is refused."""

import warnings

import pytest

from privplan.errors import InputError
from privplan.planning.choices import optimised
from privplan.planning.problem import problem_of
from privplan.values import LARGEST
from tests.planning.problems import make_spec


def test_the_largest_heterogeneity_is_planned_without_overflow() -> None:
    spec = make_spec(planning={"ratios": "balanced", "heterogeneity": LARGEST})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = optimised(spec, problem_of(spec))
    assert found.weights.tolist() == pytest.approx([0.4, 0.6])


def test_a_larger_one_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^planning.heterogeneity: must be 1e\+40 or less, found"):
        make_spec(planning={"ratios": "balanced", "heterogeneity": 1e100})
