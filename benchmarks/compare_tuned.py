"""Writes the tables of docs/evidence/compare-tuned.md from compare-tuned/*.csv beside it.

They are the ``tuned.csv`` of comparisons as the page says, which versions before 0.2.0
wrote:

    python benchmarks/compare_tuned.py
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "docs" / "evidence" / "compare-tuned"
PAGE = ROOT / "docs" / "evidence" / "compare-tuned.md"
BEGIN = (
    "<!-- begin: written by benchmarks/compare_tuned.py from compare-tuned/*.csv -->"
)
END = "<!-- end -->"
BASELINE = "DP-FedAvg"
# Methods of a table, beside the baseline and FedAvg: the leaders.
SHOWN = 6


@dataclass(frozen=True)
class Stored:
    """A comparison whose ``tuned.csv`` is stored.

    Attributes:
        name: of the file.
        title: what was compared.
        words: plan, data and partition of the command.
        trials: runs per method to tune it.
        cpu: CPU minutes of one core, all runs.
        wall: minutes on a core that other work shared.
    """

    name: str
    title: str
    words: str
    trials: int
    cpu: float
    wall: float


@dataclass(frozen=True)
class Method:
    """A method of a comparison: its lines, one per seed and group, in the order of the file."""

    lines: tuple[dict[str, str], ...]

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return list(dict.fromkeys(line["group"] for line in self.lines))

    def numbers(self, column: str) -> list[float]:
        """A number per seed."""
        first = self.groups[0]
        return [float(line[column]) for line in self.lines if line["group"] == first]

    def spent(self, group: str) -> str:
        """The largest realised epsilon of a group."""
        most = max(
            float(line["realised_upper"])
            for line in self.lines
            if line["group"] == group
        )
        return "inf" if math.isinf(most) else f"{most:.4g}"

    @property
    def worst_group(self) -> str:
        """The group with the least own accuracy, averaged over the seeds, in percent."""
        means = {
            group: statistics.fmean(
                float(line["group_own"])
                for line in self.lines
                if line["group"] == group
            )
            for group in self.groups
        }
        worst = min(means, key=lambda one: means[one])
        return f"{worst} {100 * means[worst]:.1f}"


def methods(path: Path) -> dict[str, Method]:
    """The methods of a stored file, by name."""
    found: dict[str, list[dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            found.setdefault(line["algorithm"], []).append(line)
    return {name: Method(tuple(lines)) for name, lines in found.items()}


def percent(values: list[float], sign: bool = False) -> str:
    """Mean and standard error in percent."""
    mean = 100 * statistics.fmean(values)
    text = f"{mean:+.1f}" if sign else f"{mean:.1f}"
    if len(values) < 2:
        return text
    return f"{text} ± {100 * statistics.stdev(values) / math.sqrt(len(values)):.1f}"


def table(one: Stored) -> Iterator[str]:
    """The part of the page on one comparison."""
    known = methods(STORED / f"{one.name}.csv")
    first = next(iter(known.values()))
    seeds = list(dict.fromkeys(line["seed"] for line in first.lines))
    yield f"### {one.title}\n"
    plural = "s" * (len(seeds) > 1)
    yield (
        f"`privplan compare {one.words} --algorithms all,FedAvg --tune --trials {one.trials} "
        f"--seeds {len(seeds)}`: {len(known)} methods, seed{plural} {', '.join(seeds)}, "
        f"{one.cpu:.1f} minutes of CPU ({one.wall:.0f} minutes on a core that other work shared).\n"
    )
    columns = ["method", "own", f"own over {BASELINE}", "worst group"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    base = known[BASELINE].numbers("own")
    ranked = sorted(
        known, key=lambda name: -statistics.fmean(known[name].numbers("own"))
    )
    # The others are rows of the stored file.
    shown = {*ranked[:SHOWN], BASELINE, "FedAvg"}
    for name in ranked:
        if name not in shown:
            continue
        method = known[name]
        own = method.numbers("own")
        gains = [accuracy - other for accuracy, other in zip(own, base, strict=True)]
        gain = "" if name == BASELINE else percent(gains, sign=True)
        yield f"| {' | '.join([name, percent(own), gain, method.worst_group])} |"
    yield f"\nAll methods, with tuned values and epsilons: [rows](compare-tuned/{one.name}.csv).\n"


COMPARISONS = (
    Stored("digits-iid", "Digits, IID", "digits.json", 3, 2.2, 8),
    Stored(
        "digits-pathological-2",
        "Digits, two classes per client",
        "digits.json --partition pathological:2",
        3,
        2.3,
        10,
    ),
    Stored(
        "fashion-mnist-iid",
        "Fashion-MNIST, IID",
        "fashion-mnist.json --dataset fashion-mnist:3000",
        2,
        4.3,
        16,
    ),
    Stored(
        "fashion-mnist-pathological-2",
        "Fashion-MNIST, two classes per client",
        "fashion-mnist.json --dataset fashion-mnist:3000 --partition pathological:2",
        2,
        2.6,
        6,
    ),
)


def written() -> str:
    """The generated part of the page, between its marks."""
    lines = [BEGIN, ""]
    for one in COMPARISONS:
        lines += table(one)
    return "\n".join([*lines, END])


def replaced(page: str, part: str) -> str:
    """The page with its generated part replaced."""
    before, rest = page.split(BEGIN)
    return before + part + rest.split(END)[1]


def main() -> None:
    """Write the page."""
    PAGE.write_text(
        replaced(PAGE.read_text(encoding="utf-8"), written()), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
