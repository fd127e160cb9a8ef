"""Power of the tests of noise and of cohorts: the chance to detect a given fault.

The false-alarm rates are those of the checks, shared among their tests as there; the
effects are stated by the caller. The chances are computed with the exact law of the
statistic where it has a closed form, else with its normal approximation, and are
compared with simulations by the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, bdtrc, chdtr, chdtrc, ndtr

from privplan.evidence.noise import BLOCKS, PROJECTIONS, SAMPLE, TAILS
from privplan.verification.checks import cohort_independence, measured_noise
from privplan.verification.checks import noise_p_values as noise_law
from privplan.verification.checks.check import EVIDENCE_FALSE_ALARM
from privplan.verification.checks.cohort_p_values import overlaps_p_value

_DISTRIBUTION = EVIDENCE_FALSE_ALARM / 5
_FOURTH = EVIDENCE_FALSE_ALARM / 4


def scale(factor: float, coordinates: int) -> float:
    """Chance to detect noise of ``factor`` times the recorded deviation."""
    low, high = _chi_square_limits(coordinates, _DISTRIBUTION)
    below = chdtr(coordinates, low / factor**2)
    above = chdtrc(coordinates, high / factor**2)
    return float(below + above)


def _chi_square_limits(count: int, level: float) -> tuple[float, float]:
    """Sums of squares below and above which the two-sided chi-square test fails."""
    width = 12 * math.sqrt(2 * count) + 12
    start = max(1e-9, count - width)
    low = brentq(
        lambda s: math.log(max(chdtr(count, s), 1e-300) / level * 2), start, count
    )
    high = brentq(
        lambda s: math.log(max(chdtrc(count, s), 1e-300) / level * 2),
        count,
        count + 4 * width,
    )
    return float(low), float(high)


def silent_block(coordinates: int, releases: int, deviation: float = 0.0) -> float:
    """Chance to detect one of ``BLOCKS`` with another deviation, in all releases."""
    count = coordinates // BLOCKS * releases
    low, high = _chi_square_limits(count, _FOURTH / 2 / BLOCKS)
    if deviation == 0:
        return 1.0 if low > 0 else 0.0
    square = deviation**2
    return float(chdtr(count, low / square) + chdtrc(count, high / square))


def truncation(limit: float, coordinates: int) -> float:
    """Chance to detect that no coordinate lies beyond a limit, one of ``TAILS``."""
    chance = noise_law.tail_probabilities([limit])
    p = noise_law.counts_p_values(np.array([0]), coordinates, chance)[0]
    return float(p < _DISTRIBUTION / len(TAILS))


def correlation(rho: float, rounds: int, groups: int) -> float:
    """Chance to detect a correlation of a group's noise with the round before."""
    tests = groups * measured_noise.LAGS + groups * (groups - 1) // 2
    normals = rounds * PROJECTIONS
    products = (rounds - 1) * PROJECTIONS
    limit = _smallest(
        lambda s: float(noise_law.lagged_p_values(np.array([s]), normals)[0]),
        _FOURTH / tests,
        float(normals),
    )
    deviation = math.sqrt(products * (1 + 4 * rho**2))
    return float(ndtr((abs(rho) * products - limit) / deviation))


def repeated_part(part: float, coordinates: int, releases: int) -> float:
    """Chance to detect that the end of each noise vector repeats its beginning.

    Of a long vector it is the least over all shifts: half of the correlation of its
    sums is lost where the shift is half a sum, and that of both partners of the sums
    left out.
    """
    count = coordinates
    pairs = part * coordinates
    if coordinates > 2 * SAMPLE:
        width = math.ceil(coordinates / SAMPLE)
        count = SAMPLE + math.ceil(coordinates / width)
        pairs = part / 2 * (1 - 2 * SAMPLE / coordinates) * (count - SAMPLE)
    level = _FOURTH / releases / (count - 1)
    limit = _smallest(
        lambda s: float(noise_law.lagged_p_values(np.array([s]), count)[0]),
        level,
        float(count),
    )
    deviation = math.sqrt(count * (1 + 2 * part))
    chance_of_release = float(ndtr((pairs - limit) / deviation))
    return 1 - (1 - chance_of_release) ** releases


def _smallest(p_value: Callable[[float], float], level: float, largest: float) -> float:
    """The smallest statistic whose p-value is below a level, infinite without any."""
    if p_value(largest) >= level:
        return math.inf
    return float(
        brentq(lambda s: math.log(max(p_value(s), 1e-300) / level), 1e-6, largest)
    )


def sampling_ratio(
    factor: float, clients: int, ratio: float, rounds: int, groups: int
) -> float:
    """Chance to detect ``factor`` times the recorded ratio, without the seed."""
    level = EVIDENCE_FALSE_ALARM / groups / cohort_independence.KINDS
    trials = clients * rounds
    totals = np.arange(trials + 1)
    below = bdtr(totals, trials, ratio)
    above = np.ones(trials + 1)
    above[1:] = bdtrc(totals[:-1], trials, ratio)
    rejected = 2 * np.minimum(below, above) < level
    low = int(np.argmin(rejected))
    high = trials - int(np.argmin(rejected[::-1]))
    executed = min(1.0, factor * ratio)
    inside = bdtr(high, trials, executed)
    if low:
        inside -= bdtr(low - 1, trials, executed)
    return float(1 - inside)


def repeated_clients(
    factor: float, clients: int, ratio: float, rounds: int, groups: int
) -> float:
    """Chance to detect consecutive cohorts of ``factor`` times the usual overlap."""
    size = round(ratio * clients)
    level = (
        EVIDENCE_FALSE_ALARM
        / groups
        / cohort_independence.KINDS
        / cohort_independence.LAGS
    )
    sizes = [(size, size)] * (rounds - 1)
    expected = (rounds - 1) * size**2 / clients
    overlap = factor * expected
    step = 1 if factor > 1 else -1
    limit = round(expected)
    largest = size * (rounds - 1)
    while 0 <= limit <= largest and overlaps_p_value([limit], sizes, clients) >= level:
        limit += step
    if not 0 <= limit <= largest:
        return 0.0
    deviation = math.sqrt(
        (rounds - 1) * size**2 / clients * (1 - ratio) ** 2 * max(factor, 1e-9)
    )
    return float(ndtr(step * (overlap - limit) / deviation))


def power_table() -> list[tuple[str, str, float]]:
    """Tests, faults and their chance of detection in the runs of the documentation.

    Bench: 3 groups of 100 clients, ratio 0.3, 20 rounds, 2,410 coordinates. Image: 3
    groups of 2,000 clients, ratio 0.02, 50 rounds, 18,378 coordinates. Large: the same
    of 10 million.
    """
    runs = (
        ("bench", 2_410, 20, 100, 0.3),
        ("image", 18_378, 50, 2_000, 0.02),
        ("large", 10_000_000, 50, 2_000, 0.02),
    )
    rows: list[tuple[str, str, float]] = []
    for name, coordinates, rounds, clients, ratio in runs:
        releases = 3 * rounds
        total = coordinates * releases
        seen = (SAMPLE if coordinates > 2 * SAMPLE else coordinates) * releases
        faults = (
            ("deviation 0.7% too small", scale(0.993, total)),
            ("deviation 2% too small", scale(0.98, total)),
            ("truncation at 3 deviations", truncation(3.0, seen)),
            ("truncation at 4 deviations", truncation(4.0, seen)),
            (
                "half the deviation in one of 32 blocks",
                silent_block(coordinates, releases, 0.5),
            ),
            (
                "5% less deviation in one of 32 blocks",
                silent_block(coordinates, releases, 0.95),
            ),
            (
                "a quarter of each noise vector repeated",
                repeated_part(0.25, coordinates, releases),
            ),
            ("a twentieth of it repeated", repeated_part(0.05, coordinates, releases)),
            ("correlation 0.1 with the round before", correlation(0.1, rounds, 3)),
            ("correlation 0.3 with the round before", correlation(0.3, rounds, 3)),
            ("ratio 3% too high", sampling_ratio(1.03, clients, ratio, rounds, 3)),
            ("ratio 10% too high", sampling_ratio(1.1, clients, ratio, rounds, 3)),
            ("ratio 30% too high", sampling_ratio(1.3, clients, ratio, rounds, 3)),
            ("never twice in a row", repeated_clients(0.0, clients, ratio, rounds, 3)),
            (
                "twice the usual overlap",
                repeated_clients(2.0, clients, ratio, rounds, 3),
            ),
        )
        rows += [(name, fault, chance) for fault, chance in faults]
    return rows


def power_markdown() -> str:
    """``power_table`` as a table of Markdown, a row per fault and a column per run."""
    rows = power_table()
    chances: dict[str, list[float]] = {}
    for _, fault, chance in rows:
        chances.setdefault(fault, []).append(chance)
    names = list(dict.fromkeys(name for name, _, _ in rows))
    lines = ["| fault | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for fault, chances_of_fault in chances.items():
        cells = " | ".join(f"{chance:.3f}" for chance in chances_of_fault)
        lines.append(f"| {fault} | {cells} |")
    return "\n".join(lines)
