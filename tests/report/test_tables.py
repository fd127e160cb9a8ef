"""Bounds on epsilon are printed rounded outwards."""

import math

from hypothesis import given
from hypothesis import strategies as st

from privplan.accounting.accountant import at_most, outwards
from privplan.report.numbers import lower, upper

EPSILONS = st.floats(1e-9, 1e5)


@given(EPSILONS)
def test_a_printed_bound_is_one_and_close(value):
    slack = 1e-12 * value  # of the division, not of what is printed
    for text in (upper(value), at_most(value), at_most(value, 6)):
        assert (
            value - slack
            <= float(text)
            <= value + max(1e-4 * min(1, value), 1e-5 * value) * 2
        )
    for text in (lower(value), f"{outwards(value, False, 6):.6g}"):
        assert (
            value - max(1e-4 * min(1, value), 1e-5 * value) * 2
            <= float(text)
            <= value + slack
        )


def test_zero_and_infinity_stay():
    assert upper(0.0) == lower(0.0) == "0.0000"
    assert upper(None) == at_most(math.inf, 6) == "inf"
    assert at_most(math.inf) == "no bound"
