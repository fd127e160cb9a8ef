"""Random allocation: PLD_accounting (its authors' package) and opake, as installed.

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

Question = tuple[float, int, int, float]
"""Noise multiplier, rounds of a block, blocks, delta."""

QUESTIONS: tuple[Question, ...] = (
    (1.504, 50, 1, 6.98e-5),
    (1.166, 50, 1, 6.98e-5),
    (1.0, 50, 10, 1e-5),
    (0.8, 100, 20, 1e-6),
    (0.5, 1000, 5, 1e-7),
)


def ours(noise: float, block: int, blocks: int, delta: float) -> tuple[float, float]:
    """Both bounds of the accountant ``pld``."""
    from privplan.accounting.accountant import accountant
    from privplan.accounting.release import History, Release

    history = History.repeated(
        Release(noise, 1.0, f"random_allocation:{block}"), blocks
    )
    bounds = accountant("pld").epsilon(history, delta, "add_remove")
    return bounds.lower, bounds.upper


def authors(
    noise: float, block: int, blocks: int, delta: float, gap: float
) -> tuple[float, float]:
    """Both bounds of PLD_accounting, at most so far apart."""
    from PLD_accounting import gaussian_allocation_epsilon_range  # type: ignore[import-not-found]

    upper, lower = gaussian_allocation_epsilon_range(
        delta=delta,
        sigma=noise,
        num_steps=block,
        num_epochs=blocks,
        epsilon_accuracy=gap,
    )
    return lower, upper


def opake(noise: float, block: int, blocks: int, delta: float) -> tuple[float, float]:
    """The upper bound of opake."""
    from opake.dpsgd import accounting  # type: ignore[import-not-found]

    gaussian = accounting.gaussian(noise)
    horizon = accounting.k_out_of_t(gaussian, k=1, t=block, allocation="block")
    return 0.0, (horizon * blocks).epsilon_at(delta)


def timed(
    function: Callable[..., tuple[float, float]], noise: float, *arguments: float
) -> tuple[float, str]:
    """Seconds of an answer without imports, and the answer as text.

    The median of nine answers, or of as many as one second has, at least one; each to a
    question of its own, with 1e-9 more noise.
    """
    # A small question first; what follows delta is an option of the function.
    function(2.0, 5, 1, 1e-3, *arguments[3:])
    seconds: list[float] = []
    while not seconds or (sum(seconds) < 1 and len(seconds) < 9):
        start = time.perf_counter()
        lower, upper = function(noise * (1 + 1e-9 * len(seconds)), *arguments)
        seconds.append(time.perf_counter() - start)
    middle = statistics.median(seconds)
    return middle, f"[{lower:.5f}, {upper:.5f}] in {middle:.3g} s"


def main() -> None:
    """Print a row for each question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--accuracy", type=float, default=0.05)
    options = parser.parse_args()
    print("| noise, block, blocks, delta | privplan | PLD_accounting | opake |")
    print("|---|---|---|---|")
    for question in QUESTIONS:
        our_seconds, text = timed(ours, *question)
        _, upper = ours(*question)
        gap = options.accuracy * upper
        cells = [
            ", ".join(f"{number:g}" for number in question),
            text,
            cell(our_seconds, options.seconds, authors, *question, gap),
            cell(our_seconds, options.seconds, opake, *question),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def cell(
    our_seconds: float,
    limit_seconds: float,
    function: Callable[..., tuple[float, float]],
    *arguments: float,
) -> str:
    """The answer of another package in a process of its own, beside our seconds."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        answer = pool.apply_async(timed, (function, *arguments))
        try:
            seconds, text = answer.get(limit_seconds)
        except multiprocessing.TimeoutError:
            return f"none in {limit_seconds:g} s"
        except Exception as error:
            # As the package raises it.
            return f"{type(error).__name__}: {error}".replace("\n", " ")[:80]
    return f"{text}, {seconds / our_seconds:,.0f} times"


if __name__ == "__main__":
    main()
