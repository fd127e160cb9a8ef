"""The local search against a general solver, and what makes planning quick."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from privplan.planning.published import descend, differences


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 10**6))
def test_descent_reaches_what_scipy_reaches(size: int, seed: int) -> None:
    source = np.random.default_rng(seed)
    costs, total = source.uniform(0.1, 5, size), 10.0
    lower, upper = np.full(size, 0.05), source.uniform(4, 10, size)
    upper[0] = total

    def objective(values: np.ndarray) -> float:
        return float(np.sum(costs / values) + 0.01 * np.sum(values**2))

    start = np.full(size, total / size)
    found = descend(lambda x: (objective(x), 0.02 * x - costs / x**2), start, lower, upper, total)
    assert objective(descend(differences(objective), start, lower, upper, total)) == pytest.approx(
        objective(found), rel=1e-8
    )
    theirs = optimize.minimize(
        objective,
        start,
        bounds=list(zip(lower, upper, strict=True)),
        constraints=[{"type": "eq", "fun": lambda x: x.sum() - total}],
        method="SLSQP",
        options={"ftol": 1e-13},
    )
    assert found.sum() == pytest.approx(total)
    assert np.all((found >= lower - 1e-12) & (found <= upper + 1e-9))
    assert objective(found) <= theirs.fun * (1 + 1e-7)
