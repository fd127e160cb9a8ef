"""Time of one epsilon by privacy loss distributions, and what each entry point answers.

privplan answers with a lower and an upper bound; dp-accounting with an upper bound
alone, on the coarsest grid (halved from 1e-2) that comes as near to the truth as ours.
Medians of several runs, interleaved in one process; every run differs in delta so that
no cache helps.

    python benchmarks/accounting.py
    python benchmarks/accounting.py --entry-points 20

With ``--entry-points`` as many random questions are asked of every public entry point
at its default settings: gap of upper and lower bound, CPU seconds, and whether the
bounds enclose those of dp-accounting (from both sides) or, at full participation, the
closed form of Balle and Wang (2018). The gap of a calibration is how far its noise is
from that whose epsilon is the budget.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import privplan
from privplan.accounting.gdp import epsilon_of
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


def by_privplan(
    sigma: float, ratio: float, rounds: int, delta: float
) -> tuple[float, float]:
    """Lower and upper bound of the own accountant."""
    history = History.repeated(Release(sigma, ratio), rounds)
    found = PldAccountant(tolerance=TIGHTNESS).epsilon(
        history, delta, Relation.ADD_REMOVE
    )
    return found.lower, found.upper


def by_dp_accounting(asked: Row, grid: float) -> float:
    """Upper bound of dp-accounting's PLD on one grid."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    sigma, ratio, rounds, delta = asked
    one = pld.from_gaussian_mechanism(
        sigma,
        sampling_prob=ratio,
        value_discretization_interval=grid,
        use_connect_dots=True,
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


def questions(count: int, seed: int = 1) -> Iterator[tuple[str, str, Row]]:
    """Random laws, relations, and sigma, q, T, delta: exact ones only."""
    rng = random.Random(seed)

    def spread(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    for _ in range(count):
        law, relation = rng.choice(["poisson", "poisson", "full"]), "add_remove"
        if law == "poisson":
            relation = rng.choice(["add_remove", "replace_one"])
        ratio = 1.0 if law == "full" else spread(1e-3, 0.5)
        asked = spread(0.7, 6), ratio, round(spread(1, 3000)), spread(1e-9, 1e-4)
        yield law, relation, asked


def reference(law: str, relation: str, asked: Row) -> tuple[float, float]:
    """Lower and upper bound on epsilon by another implementation."""
    sigma, ratio, rounds, delta = asked
    if law == "full":
        exact = epsilon_of(math.sqrt(rounds) / sigma, delta)
        return exact * (1 - 1e-9), exact * (1 + 1e-9)
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation as Neighbours

    swap = relation == "replace_one"
    found = []
    for pessimistic in (False, True):
        one = pld.from_gaussian_mechanism(
            sigma,
            sampling_prob=ratio,
            value_discretization_interval=1e-4,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
            neighboring_relation=Neighbours.REPLACE_ONE
            if swap
            else Neighbours.ADD_OR_REMOVE_ONE,
        )
        found.append(float(one.self_compose(rounds).get_epsilon_for_delta(delta)))
    return found[0], found[1]


def _spent(
    law: str, relation: str, asked: Row
) -> dict[str, Callable[[], tuple[float, float]]]:
    """Bounds on epsilon at delta, by entry point."""
    sigma, ratio, rounds, delta = asked
    numbers = {
        "noise_multiplier": sigma,
        "sampling_ratio": ratio,
        "rounds": rounds,
        "delta": delta,
    }
    where = {"sampling": law, "relation": relation}
    release = privplan.Release(sigma, ratio, privplan.SamplingLaw(law))

    def composed() -> tuple[float, float]:
        found = privplan.compose([(release, rounds)], relation).epsilon(
            delta * (1 + 1e-9)
        )
        return found.lower, found.upper

    def several() -> tuple[float, float]:
        kinds = [
            (privplan.Release(sigma * (1 + 1e-6 * i), ratio, law), 1) for i in range(30)
        ]
        found = privplan.compose(
            [*kinds, (release, max(rounds - 30, 0))], relation
        ).epsilon(delta)
        return found.lower, found.upper

    def certified() -> tuple[float, float]:
        [row] = [one for one in privplan.account(**numbers, **where) if one.guarantee]
        return row.epsilon_lower, row.epsilon_upper

    def arrays() -> tuple[float, float]:
        found = privplan.account(**{**numbers, "delta": [delta]}, **where)
        return float(found.lower[0]), float(found.upper[0])

    def command() -> tuple[float, float]:
        options = [
            f"--{name.replace('_', '-')}={one!r}" for name, one in numbers.items()
        ]
        options += [f"--{name}={one}" for name, one in where.items()] + [
            "--format=json"
        ]
        command = [sys.executable, "-m", "privplan", "account", *options]
        found = json.loads(
            subprocess.run(command, capture_output=True, check=True).stdout
        )
        [row] = [one for one in found if one["guarantee"]]
        return row["epsilon_lower"], row["epsilon_upper"]

    return {
        "account": certified, "account, arrays": arrays, "compose().epsilon": composed,
        "compose().epsilon, 31 kinds": several, "command account": command,
    }  # fmt: skip


def entry_points(count: int) -> None:
    """The table of all entry points."""
    rows: dict[str, list[tuple[float, float, bool]]] = {}

    def add(name: str, lower: float, upper: float, seconds: float, sound: bool) -> None:
        gap = 1 - lower / upper if upper > 0 else 0.0
        rows.setdefault(name, []).append((gap, seconds, sound))

    for law, relation, asked in questions(count):
        low, high = reference(law, relation, asked)
        sigma, ratio, rounds, delta = asked
        for name, ask in _spent(law, relation, asked).items():
            start = cpu()
            lower, upper = ask()
            near = 1e-4 if "kinds" in name else 0.0  # whose noise is not quite the same
            sound = lower <= high * (1 + 1e-9 + near) and upper >= low * (
                1 - 1e-9 - near
            )
            if "kinds" not in name or rounds > 30:
                add(name, lower, upper, cpu() - start, sound)
        release = privplan.Release(sigma, ratio, privplan.SamplingLaw(law))
        curve = privplan.compose([(release, rounds)], relation)
        for at, limit in ((high, 1), (low, -1)):  # what is enough, and what is not
            if at > 0:
                start = cpu()
                spent = curve.delta(at)
                enough = (
                    spent.lower <= delta * (1 + 1e-6),
                    spent.upper >= delta * (1 - 1e-6),
                )
                sound = enough[limit < 0]
                add("compose().delta", spent.lower, spent.upper, cpu() - start, sound)
        if 1e-3 < high < 50:
            start = cpu()
            noise = privplan.calibrate(
                epsilon=high, delta=delta, sampling_ratio=ratio, rounds=rounds, sampling=law,
                relation=relation,
            )  # fmt: skip
            value = float(getattr(noise, "value", noise))
            again = reference(law, relation, (value, ratio, rounds, delta))
            add(
                "calibrate",
                min(sigma, value),
                max(sigma, value),
                cpu() - start,
                again[0] <= high,
            )
    heads = f"{'median gap':>10} {'largest':>9} {'CPU s':>7} {'most':>6}"
    print(f"{'entry point':28} {'asked':>5} {heads} unsound")
    for name, found in rows.items():
        gaps, seconds, sound = zip(*found, strict=True)
        print(
            f"{name:28} {len(found):5} {statistics.median(gaps):10.1e} {max(gaps):9.1e} "
            f"{statistics.median(seconds):7.3f} {max(seconds):6.2f} {len(sound) - sum(sound):7}"
        )


def cpu() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entry-points", type=int, metavar="COUNT", default=0)
    count = parser.parse_args().entry_points
    if count:
        entry_points(count)
        return
    print(f"{'one epsilon':16} {'ms':>8} {'theirs':>8} {'ratio':>7}")
    for name, ours, theirs in measure():
        print(f"{name:16} {ours * 1e3:8.1f} {theirs * 1e3:8.1f} {theirs / ours:6.1f}x")


if __name__ == "__main__":
    main()
