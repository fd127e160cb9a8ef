"""Time to calibrate noise to 1e-4 relative: privplan against dp-accounting.

Both answer the same question with privacy loss distributions of the same tightness and
both never overspend. Medians of several runs, interleaved in one process, caches
cleared.

    python benchmarks/calibration.py
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

from privplan.accounting.calibrate import noise_multiplier

Question = tuple[float, float, float, int]
"""Epsilon, delta, q and T."""
# clients^-1.1 budgets of GDPFed+ (Tables 1 and 5) and two long runs: epsilon, delta, q,
# T.
QUESTIONS = {
    "fmnist strict": (0.5, 6000**-1.1, 0.02, 50),
    "svhn strict": (0.5, 6000**-1.1, 0.05, 100),
    "cifar10 medium": (6.0, 600**-1.1, 0.10, 100),
    "dp-sgd": (1.0, 1e-6, 0.005, 1_000),
}
SMALL = {"two rounds": (2.0, 1e-3, 0.5, 2)}
RELATIVE = 1e-4


def by_dp_accounting(epsilon: float, delta: float, ratio: float, rounds: int) -> float:
    """dp-accounting's calibrator over its PLD; its grid follows a round's loss."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    guess = noise_multiplier(
        epsilon, delta, sampling_ratio=ratio, rounds=rounds, accountant="rdp", rtol=1e-2
    )
    grid = 0.05 * ratio * math.sqrt(math.expm1(min(guess**-2, 30.0)))
    return float(
        dp_accounting.calibrate_dp_mechanism(
            lambda: PLDAccountant(value_discretization_interval=min(grid, 1e-3)),
            lambda sigma: dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(
                    ratio, dp_accounting.GaussianDpEvent(sigma)
                ),
                rounds,
            ),
            epsilon,
            delta,
            bracket_interval=dp_accounting.LowerEndpointAndGuess(0.1, guess),
            tol=RELATIVE * guess,
        )
    )


def by_privplan(epsilon: float, delta: float, ratio: float, rounds: int) -> float:
    """The own PLD with the own calibrator, the default of the project."""
    return noise_multiplier(
        epsilon,
        delta,
        sampling_ratio=ratio,
        rounds=rounds,
        accountant="pld",
        rtol=RELATIVE,
    )


def timed(question: Callable[[], float]) -> tuple[float, float]:
    """Answer and seconds."""
    start = time.perf_counter()
    answer = question()
    return answer, time.perf_counter() - start


def measure(
    repeats: int = 3, questions: Mapping[str, Question] = QUESTIONS
) -> list[tuple[str, float, float, float, float]]:
    """Rows: question, sigma by privplan and dp-accounting, median seconds of each."""
    rows = []
    for name, (epsilon, delta, ratio, rounds) in questions.items():
        our_seconds = []
        their_seconds = []
        for run in range(repeats):
            # A budget that differs in the seventh digit defeats every cache.
            question = (epsilon * (1 + 1e-7 * run), delta, ratio, rounds)
            our_sigma, seconds = timed(partial(by_privplan, *question))
            our_seconds.append(seconds)
            their_sigma, seconds = timed(partial(by_dp_accounting, *question))
            their_seconds.append(seconds)
        ours = statistics.median(our_seconds)
        theirs = statistics.median(their_seconds)
        rows.append((name, our_sigma, their_sigma, ours, theirs))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    if not options.small:
        # Imports and caches are not timed.
        by_privplan(0.7, 1e-5, 0.02, 50)
        by_dp_accounting(0.7, 1e-5, 0.02, 50)
    print(
        f"{'to 1e-4':16} {'sigma':>10} {'theirs':>10} {'ms':>8} {'theirs':>8} "
        f"{'ratio':>7}"
    )
    ratios = []
    rows = measure(1, SMALL) if options.small else measure()
    for name, ours, theirs, fast, slow in rows:
        ratios.append(slow / fast)
        print(
            f"{name:16} {ours:10.6f} {theirs:10.6f} {fast * 1e3:8.1f} {slow * 1e3:8.1f} "
            f"{slow / fast:6.1f}x"
        )
    print(f"median ratio {statistics.median(ratios):.1f}x, smallest {min(ratios):.1f}x")


if __name__ == "__main__":
    main()
