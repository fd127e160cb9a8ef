"""Local minimisation under bounds and one sum constraint, and the projection onto them.

``descend`` is for smooth objectives, ``descend_worst`` for a smooth part plus a squared maximum.
docs/decisions/optimiser.md has the reason for an own SQP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_STEPS = 200
_LEAST_GAIN = 1e-12
_MANY = 8
"""From so many values on arrays are faster than lists."""


def project(values: Floats, lower: Floats, upper: Floats, total: float) -> Floats:
    """Projects values onto [lower, upper] and the sum ``total``, in Euclidean norm.

    Args:
        values: any numbers, shape (groups,).
        lower: least values, shape (groups,), summing to at most ``total``.
        upper: largest values, shape (groups,), summing to at least ``total``.
        total: the sum to reach.
    """
    if len(values) < _MANY:
        few = _projected(values.tolist(), lower.tolist(), upper.tolist(), total)
        return np.array(few, dtype=np.float64)
    low, high = float(np.min(lower - values)), float(np.max(upper - values))
    least, most = _clipped(values + low, lower, upper), _clipped(values + high, lower, upper)
    for _ in range(200):
        shift, before = (low + high) / 2, (low, high)
        middle = _clipped(values + shift, lower, upper)
        if middle.sum() < total:
            low, least = shift, middle
        else:
            high, most = shift, middle
        if before == (low, high) or (least == most).all():
            break
    return most


def _projected(
    values: list[float], lower: list[float], upper: list[float], total: float
) -> list[float]:
    """``project`` of a few values: the same bits without NumPy's overhead for short arrays."""
    bounds = list(zip(values, lower, upper, strict=True))

    def clipped(shift: float) -> list[float]:
        moved = []
        for value, least, most in bounds:
            value += shift
            value = least if value < least else value
            moved.append(most if value > most else value)
        return moved

    low = min(least - value for value, least, _ in bounds)
    high = max(most - value for value, _, most in bounds)
    below, above = clipped(low), clipped(high)
    for _ in range(200):
        shift, before = (low + high) / 2, (low, high)
        middle, mass = clipped(shift), 0.0
        for value in middle:  # as NumPy adds fewer than eight numbers; sum() compensates rounding
            mass += value
        if mass < total:
            low, below = shift, middle
        else:
            high, above = shift, middle
        if before == (low, high) or below == above:
            break
    return above


def _clipped(values: Floats, lower: Floats, upper: Floats) -> Floats:
    """``np.clip``, without the overhead that dominates it for a few values."""
    return np.asarray(np.minimum(np.maximum(values, lower), upper))


def descend(
    objective: Callable[[Floats], float],
    start: Floats,
    lower: Floats,
    upper: Floats,
    total: float,
    with_gradient: Callable[[Floats], tuple[float, Floats]] | None = None,
) -> Floats:
    """Returns a local minimiser over values in [lower, upper] that sum to ``total``.

    Sequential quadratic programming on shares of the total, with a BFGS approximation of the
    Hessian and a line search; all iterates satisfy the constraints up to rounding.

    Args:
        objective: what to minimise, of order 1 near the start, with a continuous gradient.
        start: initial values, shape (groups,).
        lower: least values, shape (groups,).
        upper: largest values, shape (groups,).
        total: sum of the values.
        with_gradient: the objective and its gradient; central differences when None.
    """
    evaluated = start  # the gradient where the objective was last evaluated

    def value(at: Floats) -> float:
        nonlocal evaluated
        if with_gradient is None:
            return objective(total * at)
        found, evaluated = with_gradient(total * at)
        return found

    def gradient(at: Floats) -> Floats:
        """At the point of the last value."""
        return _gradient(value, at) if with_gradient is None else total * evaluated

    shares = project(start, lower, upper, total) / total
    current, slope = value(shares), gradient(shares)
    curvature = np.eye(len(shares))
    for _ in range(_MOST_STEPS):
        room = lower / total - shares, upper / total - shares
        try:
            step = quadratic_step(curvature, slope, *room)
        except np.linalg.LinAlgError:  # next to a kink the approximation bends without bound
            curvature = np.eye(len(shares))
            step = quadratic_step(curvature, slope, *room)
        predicted = float(slope @ step)
        if predicted > -_LEAST_GAIN:
            break
        moved, found = _line_search(value, shares, step, current, predicted)
        if found >= current:
            if np.array_equal(curvature, np.eye(len(shares))):
                break
            curvature = np.eye(len(shares))
            continue
        new = gradient(moved)
        curvature = _bfgs_update(curvature, moved - shares, new - slope)
        shares, current, slope = moved, found, new
    return project(total * shares, lower, upper, total)


def _gradient(value: Callable[[Floats], float], at: Floats) -> Floats:
    """Gradient by central differences, relative step 1e-6."""
    found = np.empty_like(at)
    for index, share in enumerate(at):
        reach = 1e-6 * share
        above, below = at.copy(), at.copy()
        above[index] += reach
        below[index] -= reach
        found[index] = (value(above) - value(below)) / (2 * reach)
    return found


def _line_search(
    value: Callable[[Floats], float], at: Floats, step: Floats, current: float, predicted: float
) -> tuple[Floats, float]:
    """Backtracking line search with the Armijo condition; returns ``at`` when no step meets it."""
    length = 1.0
    while length > 1e-10:
        moved = at + length * step
        found = value(moved)
        if found <= current + 1e-4 * length * predicted:
            return moved, found
        length /= 2
    return at, current


def _bfgs_update(curvature: Floats, step: Floats, change: Floats) -> Floats:
    """Damped BFGS update, which stays positive definite (Powell, 1978)."""
    bent = curvature @ step
    along = float(step @ bent)
    gain = float(step @ change)
    if along <= 0:
        return curvature
    if gain < 0.2 * along:
        mix = 0.8 * along / (along - gain)
        change = mix * change + (1 - mix) * bent
        gain = float(step @ change)
    return np.asarray(curvature - np.outer(bent, bent) / along + np.outer(change, change) / gain)


def quadratic_step(curvature: Floats, slope: Floats, lower: Floats, upper: Floats) -> Floats:
    """Minimises slope @ p + p @ curvature @ p / 2 over p with sum p = 0 inside bounds.

    Active-set method: solves for the free entries, adds the first bound that a step would
    cross, and drops a bound whose multiplier has the wrong sign.

    Args:
        curvature: positive definite, shape (groups, groups).
        slope: shape (groups,).
        lower: at most 0, shape (groups,).
        upper: at least 0, shape (groups,).
    """
    size = len(slope)
    step, active = np.zeros(size), np.zeros(size, dtype=int)
    for _ in range(20 * size):
        free = np.flatnonzero(active == 0)
        pull = slope + curvature @ step
        move, level = _free_move(curvature, pull, free)
        if np.max(np.abs(move), initial=0.0) <= 1e-14:
            wrong = active * (pull + level)
            worst = int(np.argmax(wrong))
            if active[worst] == 0 or wrong[worst] <= 1e-12:
                break
            active[worst] = 0
            continue
        room = np.where(move > 0, upper - step, lower - step)
        reach = np.divide(room, move, out=np.full(size, np.inf), where=move != 0)
        first = int(np.argmin(reach))
        step = step + min(1.0, max(reach[first], 0.0)) * move
        if reach[first] < 1:
            active[first] = 1 if move[first] > 0 else -1
            step[first] = upper[first] if move[first] > 0 else lower[first]
    return step


def _free_move(curvature: Floats, pull: Floats, free: NDArray[np.intp]) -> tuple[Floats, float]:
    """Step of the free entries that sums to 0, and the multiplier of that constraint."""
    move, count = np.zeros(len(pull)), len(free)
    if count == 0:
        return move, float("nan")
    system = np.ones((count + 1, count + 1))
    system[:count, :count] = curvature[np.ix_(free, free)]
    system[count, count] = 0.0
    solved = np.linalg.solve(system, np.append(-pull[free], 0.0))
    move[free] = solved[:count]
    return move, float(solved[count])


def descend_worst(
    smooth: Callable[[Floats], float],
    parts: Callable[[Floats], Floats],
    start: Floats,
    lower: Floats,
    upper: Floats,
    total: float,
) -> Floats:
    """Returns a local minimiser of ``smooth(x) + max(parts(x))^2``, with SciPy's SLSQP.

    The maximum becomes a variable that bounds every part, so the problem is smooth.

    Args:
        smooth: the smooth part, of order 1 near the start.
        parts: terms of the maximum, shape (groups,), positive.
        start: initial values, shape (groups,).
        lower: least values, shape (groups,).
        upper: largest values, shape (groups,).
        total: sum of the values.
    """
    begin = project(start, lower, upper, total)
    found = _slsqp(
        lambda x: smooth(total * x[:-1]) + x[-1] ** 2,
        np.append(begin / total, parts(begin).max()),
        [*zip(lower / total, upper / total, strict=True), (0.0, np.inf)],
        [
            {"type": "eq", "fun": lambda x: x[:-1].sum() - 1},
            {"type": "ineq", "fun": lambda x: x[-1] - parts(total * x[:-1])},
        ],
    )
    return project(total * found[:-1], lower, upper, total)


def _slsqp(
    objective: Callable[[Floats], float],
    start: Floats,
    bounds: list[tuple[float, float]],
    constraints: list[dict[str, Any]],
) -> Floats:
    from scipy import optimize

    minimize: Any = optimize.minimize
    found = minimize(
        objective,
        start,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    )
    values = np.asarray(found.x, dtype=float)
    return values if np.all(np.isfinite(values)) else start
