"""Time of one epsilon by privacy loss distributions: privplan against dp-accounting.

privplan answers with a lower and an upper bound; dp-accounting with an upper bound alone, on the
coarsest grid (halved from 1e-2) that comes as near to the truth as ours. Medians of several
runs, interleaved in one process; every run differs in delta so that no cache helps.

    python benchmarks/accounting.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from privplan.accounting.pld.accountant import PldAccountant
from privplan.accounting.release import History, Relation, Release

# sigma, q, T, delta
ROWS = {
    "fmnist strict": (2.262**0.5, 0.02, 50, 6000**-1.1),
    "cifar10 loose": (0.829, 0.1677, 100, 600**-1.1),
    "sigma 0.8": (0.8, 0.1, 300, 1 / 500),
    "dp-sgd": (1.0, 0.001, 10_000, 1e-6),
}
TIGHTNESS = 1e-3
Row = tuple[float, float, int, float]


def by_privplan(sigma: float, ratio: float, rounds: int, delta: float) -> tuple[float, float]:
    """Lower and upper bound of the own accountant."""
    history = History.repeated(Release(sigma, ratio), rounds)
    found = PldAccountant(tolerance=TIGHTNESS).epsilon(history, delta, Relation.ADD_REMOVE)
    return found.lower, found.upper


def by_dp_accounting(asked: Row, grid: float) -> float:
    """Upper bound of dp-accounting's PLD on one grid."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    sigma, ratio, rounds, delta = asked
    one = pld.from_gaussian_mechanism(
        sigma, sampling_prob=ratio, value_discretization_interval=grid, use_connect_dots=True
    )
    return float(one.self_compose(rounds).get_epsilon_for_delta(delta))


def grid_of_same_tightness(asked: Row) -> float:
    """The coarsest grid on which dp-accounting is within the same distance of the truth."""
    lower, upper = by_privplan(*asked)
    grid = 1e-2
    while by_dp_accounting(asked, grid) > max(upper, lower * (1 + TIGHTNESS)):
        grid /= 2
    return grid


def timed(question: Callable[[], object]) -> float:
    """Seconds that a question takes."""
    start = time.perf_counter()
    question()
    return time.perf_counter() - start


def measure(repeats: int = 5) -> list[tuple[str, float, float]]:
    """Rows: question, median seconds of privplan and of dp-accounting."""
    rows = []
    for name, (sigma, ratio, rounds, delta) in ROWS.items():
        grid = grid_of_same_tightness((sigma, ratio, rounds, delta))
        ours, theirs = [], []
        for run in range(1, repeats + 1):
            asked = (sigma, ratio, rounds, delta * (1 + 1e-6 * run))
            ours.append(timed(lambda: by_privplan(*asked)))  # noqa: B023
            theirs.append(timed(lambda: by_dp_accounting(asked, grid)))  # noqa: B023
        rows.append((name, statistics.median(ours), statistics.median(theirs)))
    return rows


def main() -> None:
    """Print the table."""
    print(f"{'one epsilon':16} {'ms':>8} {'theirs':>8} {'ratio':>7}")
    for name, ours, theirs in measure():
        print(f"{name:16} {ours * 1e3:8.1f} {theirs * 1e3:8.1f} {theirs / ours:6.1f}x")


if __name__ == "__main__":
    main()
