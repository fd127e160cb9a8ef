"""Writes the tables of docs/evidence/compare-tuned.md from compare-tuned/*.csv.

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
    """A method of a comparison: its lines, by seed and group."""

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
        epsilons = [
            float(line["realised_upper"])
            for line in self.lines
            if line["group"] == group
        ]
        largest = max(epsilons)
        return "inf" if math.isinf(largest) else f"{largest:.4g}"

    @property
    def worst_group(self) -> str:
        """The group with the least own accuracy over the seeds, in percent."""
        accuracies: dict[str, list[float]] = {}
        for line in self.lines:
            of_group = accuracies.setdefault(line["group"], [])
            of_group.append(float(line["group_own"]))
        means = {name: statistics.fmean(values) for name, values in accuracies.items()}
        worst = min(means, key=lambda name: means[name])
        return f"{worst} {100 * means[worst]:.1f}"


def methods(path: Path) -> dict[str, Method]:
    """The methods of a stored file, by name."""
    lines_by_method: dict[str, list[dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            lines_by_method.setdefault(line["algorithm"], []).append(line)
    return {name: Method(tuple(lines)) for name, lines in lines_by_method.items()}


def percent(values: list[float], sign: bool = False) -> str:
    """Mean and standard error in percent."""
    mean = 100 * statistics.fmean(values)
    text = f"{mean:+.1f}" if sign else f"{mean:.1f}"
    if len(values) < 2:
        return text
    return f"{text} ± {100 * statistics.stdev(values) / math.sqrt(len(values)):.1f}"


def table(comparison: Stored) -> Iterator[str]:
    """The part of the page on one comparison."""
    compared = methods(STORED / f"{comparison.name}.csv")
    first = next(iter(compared.values()))
    seeds = list(dict.fromkeys(line["seed"] for line in first.lines))
    seeds_in_words = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
    yield f"### {comparison.title}\n"
    yield (
        f"`privplan compare {comparison.words} --algorithms all,FedAvg --tune --trials "
        f"{comparison.trials} --seeds {len(seeds)}`: {len(compared)} methods, "
        f"{seeds_in_words}, {comparison.cpu:.1f} minutes of CPU ({comparison.wall:.0f} "
        "minutes on a core that other work shared).\n"
    )
    columns = ["method", "own", f"own over {BASELINE}", "worst group"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    yield from _rows(compared)
    yield (
        "\nAll methods, with tuned values and epsilons: "
        f"[rows](compare-tuned/{comparison.name}.csv).\n"
    )


def _rows(compared: dict[str, Method]) -> Iterator[str]:
    """The leaders, the baseline and FedAvg, the best first."""
    baseline = compared[BASELINE].numbers("own")
    accuracies = {name: method.numbers("own") for name, method in compared.items()}
    ranked = sorted(compared, key=lambda name: -statistics.fmean(accuracies[name]))
    # Further methods are rows of the stored file.
    shown = {*ranked[:SHOWN], BASELINE, "FedAvg"}
    for name in ranked:
        if name not in shown:
            continue
        gain = ""
        if name != BASELINE:
            pairs = zip(accuracies[name], baseline, strict=True)
            gain = percent([ours - theirs for ours, theirs in pairs], sign=True)
        worst_group = compared[name].worst_group
        yield f"| {name} | {percent(accuracies[name])} | {gain} | {worst_group} |"


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
    for comparison in COMPARISONS:
        lines += table(comparison)
    return "\n".join([*lines, END])


def replaced(page: str, part: str) -> str:
    """The page with its generated part replaced."""
    before, generated_and_after = page.split(BEGIN)
    return before + part + generated_and_after.split(END)[1]


def main() -> None:
    """Write the page."""
    PAGE.write_text(
        replaced(PAGE.read_text(encoding="utf-8"), written()), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
