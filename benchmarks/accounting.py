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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

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
    """Lower and upper bound of this project's accountant."""
    history = History.repeated(Release(sigma, ratio), rounds)
    accountant = PldAccountant(tolerance=TIGHTNESS)
    bounds = accountant.epsilon(history, delta, Relation.ADD_REMOVE)
    return bounds.lower, bounds.upper


def by_dp_accounting(row: Row, grid: float) -> float:
    """Upper bound of dp-accounting's PLD on one grid."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    sigma, ratio, rounds, delta = row
    release = pld.from_gaussian_mechanism(
        sigma,
        sampling_prob=ratio,
        value_discretization_interval=grid,
        use_connect_dots=True,
    )
    return float(release.self_compose(rounds).get_epsilon_for_delta(delta))


def grid_of_same_tightness(row: Row) -> float:
    """The coarsest grid on which dp-accounting is as near to the truth."""
    lower, upper = by_privplan(*row)
    grid = 1e-2
    while by_dp_accounting(row, grid) > max(upper, lower * (1 + TIGHTNESS)):
        grid /= 2
    return grid


def timed(question: Callable[[], object]) -> float:
    """Seconds that a question takes."""
    start = time.perf_counter()
    question()
    return time.perf_counter() - start


def measure(
    repeats: int = 5, names: Iterable[str] = tuple(ROWS)
) -> list[tuple[str, float, float]]:
    """Rows: question, median seconds of privplan and of dp-accounting."""
    rows = []
    for name in names:
        sigma, ratio, rounds, delta = ROWS[name]
        grid = grid_of_same_tightness((sigma, ratio, rounds, delta))
        ours: list[float] = []
        theirs: list[float] = []
        for run in range(1, repeats + 1):
            row = (sigma, ratio, rounds, delta * (1 + 1e-6 * run))
            ours.append(timed(partial(by_privplan, *row)))
            theirs.append(timed(partial(by_dp_accounting, row, grid)))
        rows.append((name, statistics.median(ours), statistics.median(theirs)))
    return rows


class Question(NamedTuple):
    """A law, a relation, and sigma, q, T, delta."""

    law: str
    relation: str
    sigma: float
    ratio: float
    rounds: int
    delta: float

    @property
    def release(self) -> privplan.Release:
        """One round's."""
        law = privplan.SamplingLaw(self.law)
        return privplan.Release(self.sigma, self.ratio, law)

    @property
    def numbers(self) -> dict[str, Any]:
        """As arguments of ``privplan.account``."""
        return {
            "noise_multiplier": self.sigma,
            "sampling_ratio": self.ratio,
            "rounds": self.rounds,
            "delta": self.delta,
        }

    @property
    def words(self) -> dict[str, Any]:
        """As arguments of ``privplan.account``, beside the numbers."""
        return {"sampling": self.law, "relation": self.relation}


def questions(count: int, seed: int = 1) -> Iterator[Question]:
    """Random questions: exact ones only."""
    rng = random.Random(seed)

    def spread(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    for _ in range(count):
        law = rng.choice(["poisson", "poisson", "full"])
        relation = "add_remove"
        if law == "poisson":
            relation = rng.choice(["add_remove", "replace_one"])
        ratio = 1.0 if law == "full" else spread(1e-3, 0.5)
        sigma = spread(0.7, 6)
        rounds = round(spread(1, 3000))
        yield Question(law, relation, sigma, ratio, rounds, spread(1e-9, 1e-4))


def reference(question: Question) -> tuple[float, float]:
    """Lower and upper bound on epsilon by another implementation."""
    if question.law == "full":
        mu = math.sqrt(question.rounds) / question.sigma
        exact = epsilon_of(mu, question.delta)
        return exact * (1 - 1e-9), exact * (1 + 1e-9)
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation

    neighbours = NeighboringRelation.ADD_OR_REMOVE_ONE
    if question.relation == "replace_one":
        neighbours = NeighboringRelation.REPLACE_ONE

    def bound(*, pessimistic: bool) -> float:
        release = pld.from_gaussian_mechanism(
            question.sigma,
            sampling_prob=question.ratio,
            value_discretization_interval=1e-4,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
            neighboring_relation=neighbours,
        )
        composed = release.self_compose(question.rounds)
        return float(composed.get_epsilon_for_delta(question.delta))

    return bound(pessimistic=False), bound(pessimistic=True)


_KINDS = 30  # of releases that differ, beside the question's


Bounds = tuple[float, float]
"""Lower and upper bound on epsilon at the question's delta."""


def composed(question: Question) -> Bounds:
    """By ``compose().epsilon``, which is asked for another delta than ``account``."""
    composition = privplan.compose(
        [(question.release, question.rounds)], question.relation
    )
    bounds = composition.epsilon(question.delta * (1 + 1e-9))
    return bounds.lower, bounds.upper


def several(question: Question) -> Bounds:
    """By ``compose().epsilon``, of releases that nearly are the question's."""
    kinds = []
    for index in range(_KINDS):
        sigma = question.sigma * (1 + 1e-6 * index)
        kinds.append((replace(question.release, noise_multiplier=sigma), 1))
    remaining = (question.release, max(question.rounds - _KINDS, 0))
    composition = privplan.compose([*kinds, remaining], question.relation)
    bounds = composition.epsilon(question.delta)
    return bounds.lower, bounds.upper


def certified(question: Question) -> Bounds:
    """By ``account``."""
    rows = privplan.account(**question.numbers, **question.words)
    [row] = [row for row in rows if row.guarantee]
    return row.epsilon_lower, row.epsilon_upper


def arrays(question: Question) -> Bounds:
    """By ``account`` with an array."""
    numbers = {**question.numbers, "delta": [question.delta]}
    bounds = privplan.account(**numbers, **question.words)
    return float(bounds.lower[0]), float(bounds.upper[0])


def command(question: Question) -> Bounds:
    """By the command, in a process of its own."""
    options = ["--format=json"]
    for name, number in question.numbers.items():
        options.append(f"--{name.replace('_', '-')}={number!r}")
    options += [f"--{name}={word}" for name, word in question.words.items()]
    account = [sys.executable, "-m", "privplan", "account", *options]
    answer = subprocess.run(account, capture_output=True, check=True)
    [row] = [row for row in json.loads(answer.stdout) if row["guarantee"]]
    return row["epsilon_lower"], row["epsilon_upper"]


ENTRY_POINTS: dict[str, Callable[[Question], Bounds]] = {
    "account": certified,
    "account, arrays": arrays,
    "compose().epsilon": composed,
    "compose().epsilon, 31 kinds": several,
    "command account": command,
}


@dataclass(frozen=True)
class Answer:
    """An answer to a question.

    Attributes:
        entry_point: which one gave it.
        lower: lower bound.
        upper: upper bound.
        seconds: of CPU.
        is_sound: whether the bounds enclose the reference.
    """

    entry_point: str
    lower: float
    upper: float
    seconds: float
    is_sound: bool

    @property
    def gap(self) -> float:
        """Relative distance of the bounds."""
        return 1 - self.lower / self.upper if self.upper > 0 else 0.0


def epsilons(question: Question, low: float, high: float) -> Iterator[Answer]:
    """Epsilon at the question's delta, whose reference is in [low, high]."""
    for name, ask in ENTRY_POINTS.items():
        has_kinds = "kinds" in name
        start = cpu()
        lower, upper = ask(question)
        seconds = cpu() - start
        # The noise of several kinds is not quite the same, and is asked of many rounds.
        tolerance = 1e-9 + (1e-4 if has_kinds else 0.0)
        is_sound = lower <= high * (1 + tolerance) and upper >= low * (1 - tolerance)
        if not has_kinds or question.rounds > _KINDS:
            yield Answer(name, lower, upper, seconds, is_sound)


def deltas(question: Question, low: float, high: float) -> Iterator[Answer]:
    """Delta at both ends of the reference: one suffices, and the other does not."""
    curve = privplan.compose([(question.release, question.rounds)], question.relation)
    for epsilon, suffices in ((high, True), (low, False)):
        if epsilon > 0:
            start = cpu()
            bounds = curve.delta(epsilon)
            seconds = cpu() - start
            is_sound = bounds.upper >= question.delta * (1 - 1e-6)
            if suffices:
                is_sound = bounds.lower <= question.delta * (1 + 1e-6)
            yield Answer(
                "compose().delta", bounds.lower, bounds.upper, seconds, is_sound
            )


def calibrated(question: Question, epsilon: float) -> Answer:
    """The noise of an epsilon, beside that of the question, whose epsilon it is."""
    start = cpu()
    noise = privplan.calibrate(
        epsilon=epsilon,
        delta=question.delta,
        sampling_ratio=question.ratio,
        rounds=question.rounds,
        sampling=question.law,
        relation=question.relation,
    )
    seconds = cpu() - start
    sigma = float(getattr(noise, "value", noise))
    lower, _ = reference(question._replace(sigma=sigma))
    ends = sorted([question.sigma, sigma])
    return Answer("calibrate", ends[0], ends[1], seconds, lower <= epsilon)


def entry_points(count: int) -> None:
    """Print the table of all entry points."""
    answers: dict[str, list[Answer]] = {}
    for question in questions(count):
        low, high = reference(question)
        given_answers = [*epsilons(question, low, high), *deltas(question, low, high)]
        if 1e-3 < high < 50:
            given_answers.append(calibrated(question, high))
        for answer in given_answers:
            answers.setdefault(answer.entry_point, []).append(answer)

    heads = f"{'median gap':>10} {'largest':>9} {'CPU s':>7} {'most':>6}"
    print(f"{'entry point':28} {'asked':>5} {heads} unsound")
    for name, of_entry_point in answers.items():
        gaps = [answer.gap for answer in of_entry_point]
        seconds = [answer.seconds for answer in of_entry_point]
        unsound = sum(not answer.is_sound for answer in of_entry_point)
        print(
            f"{name:28} {len(gaps):5} {statistics.median(gaps):10.1e} "
            f"{max(gaps):9.1e} {statistics.median(seconds):7.3f} {max(seconds):6.2f} "
            f"{unsound:7}"
        )


def cpu() -> float:
    """CPU seconds of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entry-points", type=int, metavar="COUNT", default=0)
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    count = options.entry_points
    if count:
        entry_points(count)
        return
    print(f"{'one epsilon':16} {'ms':>8} {'theirs':>8} {'ratio':>7}")
    rows = measure(1, ("cifar10 loose",)) if options.small else measure()
    for name, ours, theirs in rows:
        print(f"{name:16} {ours * 1e3:8.1f} {theirs * 1e3:8.1f} {theirs / ours:6.1f}x")


if __name__ == "__main__":
    main()
