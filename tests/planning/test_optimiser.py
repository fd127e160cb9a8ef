"""The local search against a general solver, and what makes planning quick."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from privplan.planning.noise import group_noise
from privplan.planning.search import descend, quadratic_step
from privplan.spec.presets import preset
from tests.planning.problems import make_problem

numbers = st.floats(-3, 3).filter(lambda x: x == 0 or abs(x) > 1e-3)


def quadratic(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(seed)
    root = source.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size), source.normal(size=size)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(0, 10**6), st.booleans())
def test_quadratic_step_meets_the_conditions_of_the_optimum(
    size: int, seed: int, at_a_bound: bool
) -> None:
    curvature, slope = quadratic(size, seed)
    source = np.random.default_rng(seed + 1)
    lower, upper = -source.uniform(0.01, 1, size), source.uniform(0.01, 1, size)
    if at_a_bound:
        lower[0], upper[1] = 0.0, 0.0
    step = quadratic_step(curvature, slope, lower, upper)
    assert step.sum() == pytest.approx(0, abs=1e-12)
    assert np.all((step >= lower - 1e-12) & (step <= upper + 1e-12))
    pull = slope + curvature @ step
    inside = (step > lower + 1e-9) & (step < upper - 1e-9)
    rising, falling = pull[step < upper - 1e-9], pull[step > lower + 1e-9]
    # nothing can be gained by moving from any entry that may fall to any that may rise
    if len(rising) and len(falling):
        assert falling.max() - rising.min() <= 1e-8
    if inside.sum() > 1:
        assert np.ptp(pull[inside]) <= 1e-8


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
    found = descend(objective, start, lower, upper, total)
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
    assert objective(found) <= theirs.fun * (1 + 1e-8)


def test_where_to_look_first_does_not_change_the_answer() -> None:
    problem = make_problem()
    for accountant in ("rdp", "pld"):
        plain = group_noise(problem, 1, 0.1, accountant)
        for factor in (0.5, 0.99, 1.001, 2.0):
            hinted = group_noise(problem, 1, 0.1, accountant, near=plain * factor)
            assert hinted == pytest.approx(plain, rel=1e-4)


def test_planning_loads_no_general_solver(tmp_path: Path) -> None:
    """Loading scipy.optimize takes about as long as planning three groups."""
    spec = tmp_path / "spec.yaml"
    text = preset("gdpfed-fmnist")
    spec.write_text(text[: text.index("planning:")])
    code = (
        "import sys; from privplan.cli import main\n"
        "try: main(['solve', sys.argv[1], '--format', 'json'])\n"
        "except SystemExit: pass\n"
        "heavy = ('scipy.optimize', 'scipy.stats', 'sympy', 'matplotlib', 'rich', 'torch')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr.strip() == "[]"
