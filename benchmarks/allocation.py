"""Random allocation beside PLD_accounting (its authors' package) and opake, each as installed.

python benchmarks/allocation.py [--seconds 300] [--accuracy 0.05]

One question a row, add or remove a client: bounds, seconds, and how many times longer
than ours. PLD_accounting narrows its bounds until they are within ``accuracy`` of the
upper one; opake has an upper bound only. Another package's question ends after so many
seconds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable

Question = tuple[
    float, int, int, float
]  # noise multiplier, rounds of a block, blocks, delta

QUESTIONS: tuple[Question, ...] = (
    (1.504, 50, 1, 6.98e-5), (1.166, 50, 1, 6.98e-5), (1.0, 50, 10, 1e-5), (0.8, 100, 20, 1e-6),
    (0.5, 1000, 5, 1e-7),
)  # fmt: skip


def ours(noise: float, block: int, blocks: int, delta: float) -> tuple[float, float]:
    """Both bounds of the accountant ``pld``."""
    from privplan.accounting.accountant import accountant
    from privplan.accounting.release import History, Release

    history = History.repeated(
        Release(noise, 1.0, f"random_allocation:{block}"), blocks
    )
    found = accountant("pld").epsilon(history, delta, "add_remove")
    return found.lower, found.upper


def authors(
    noise: float, block: int, blocks: int, delta: float, most: float
) -> tuple[float, float]:
    """Both bounds of PLD_accounting, at most so far apart."""
    from PLD_accounting import gaussian_allocation_epsilon_range  # type: ignore[import-not-found]

    upper, lower = gaussian_allocation_epsilon_range(
        delta=delta,
        sigma=noise,
        num_steps=block,
        num_epochs=blocks,
        epsilon_accuracy=most,
    )
    return lower, upper


def opake(noise: float, block: int, blocks: int, delta: float) -> tuple[float, float]:
    """The upper bound of opake."""
    from opake.dpsgd import accounting  # type: ignore[import-not-found]

    one = accounting.gaussian(noise)
    horizon = accounting.k_out_of_t(one, k=1, t=block, allocation="block")
    return 0.0, (horizon * blocks).epsilon_at(delta)


def timed(
    function: Callable[..., tuple[float, float]], noise: float, *asked: float
) -> tuple[float, str]:
    """Seconds of an answer without imports, and the answer as text.

    The median of nine answers, or of as many as one second has, at least one; each to a
    question of its own, with 1e-9 more noise.
    """
    function(2.0, 5, 1, 1e-3, *asked[3:])
    seconds: list[float] = []
    while not seconds or (sum(seconds) < 1 and len(seconds) < 9):
        start = time.perf_counter()
        lower, upper = function(noise * (1 + 1e-9 * len(seconds)), *asked)
        seconds.append(time.perf_counter() - start)
    taken = statistics.median(seconds)
    return taken, f"[{lower:.5f}, {upper:.5f}] in {taken:.3g} s"


def main() -> None:
    """Print a row for each question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--accuracy", type=float, default=0.05)
    asked = parser.parse_args()
    print(
        "| noise, block, blocks, delta | privplan | PLD_accounting | opake |\n|---|---|---|---|"
    )
    for question in QUESTIONS:
        own, text = timed(ours, *question)
        cells = [", ".join(f"{one:g}" for one in question), text]
        apart = asked.accuracy * ours(*question)[1]
        for function, more in ((authors, (apart,)), (opake, ())):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                answer = pool.apply_async(timed, (function, *question, *more))
                try:
                    taken, text = answer.get(asked.seconds)
                    cells.append(f"{text}, {taken / own:,.0f} times")
                except multiprocessing.TimeoutError:
                    cells.append(f"none in {asked.seconds:g} s")
                except Exception as error:  # as the package raises it
                    cells.append(
                        f"{type(error).__name__}: {error}".replace("\n", " ")[:80]
                    )
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
