"""Runs that drew their noise from equal states of the generator, such as runs of one seed.

Subtracting two releases with equal noise cancels it, so such runs must not be composed as if they
were independent. The runs of one seed in a comparison share their noise on purpose; all other
repetitions are reported.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from privplan.errors import InputError
from privplan.io.files import read_lines
from privplan.io.text import load_json
from privplan.record import LEDGER, RECORD, RunRecord


@dataclass(frozen=True)
class _DrawnNoise:
    """States of the generator before each draw of a run's noise.

    Attributes:
        folder: the run folder.
        record: the run's record.
        states: hashes of the states; one may be repeated.
        compared: whether the run is one of the comparison.
    """

    folder: Path
    record: RunRecord
    states: Counter[str]
    compared: bool

    def shares_on_purpose(self, other: _DrawnNoise) -> bool:
        """Whether two algorithms of one comparison have one seed and one data set."""
        keys = [
            (run.record.seed, run.record.dataset, run.record.configuration.get("data"))
            for run in (self, other)
        ]
        other_algorithm = self.record.algorithm != other.record.algorithm
        return self.compared and other.compared and keys[0] == keys[1] and other_algorithm


def run_folders(folder: Path) -> list[Path]:
    """Run folders in a folder: itself, or those of a comparison.

    Raises:
        InputError: when there is none.
    """
    found = [path.parent for level in ("", "*/", "*/*/") for path in folder.glob(level + RECORD)]
    if not found:
        raise InputError.one("against", "must be a run folder or a comparison's", str(folder))
    return sorted(found)


def repeated_noise(runs: Sequence[Path], others: Sequence[Path] = ()) -> Iterator[str]:
    """One line per run with repeated noise, and per pair of runs with equal noise.

    Args:
        runs: folders of the comparison's runs.
        others: folders of runs beside the comparison.

    Raises:
        InputError: when a folder holds no run.
    """
    drawn = [_drawn(folder, compared=True) for folder in runs]
    known = {run.folder.resolve() for run in drawn}
    drawn += [_drawn(one, compared=False) for one in others if one.resolve() not in known]
    owners: dict[str, list[int]] = defaultdict(list)
    for number, run in enumerate(drawn):
        repeated = sum(run.states.values()) - len(run.states)
        if repeated and run.compared:
            yield f"repeated noise: {run.folder} draws {repeated} times from an earlier state"
        for state in run.states:
            owners[state].append(number)
    equal = Counter(pair for numbers in owners.values() for pair in combinations(numbers, 2))
    for (first, second), count in sorted(equal.items()):
        one, other = drawn[first], drawn[second]
        if one.compared and not one.shares_on_purpose(other):
            yield (
                f"repeated noise: {one.folder} and {other.folder} have {count} equal noise "
                "states (the same seed?), so subtracting their releases cancels the noise"
            )


def _drawn(folder: Path, *, compared: bool) -> _DrawnNoise:
    states: Counter[str] = Counter()
    for number, line in enumerate(read_lines(folder / LEDGER, "ledger"), start=1):
        try:
            states[str(load_json(line)["release"]["noise_state"])] += 1
        except (ValueError, KeyError, TypeError):
            rule = "must be as the run wrote it"
            raise InputError.one("ledger", rule, f"line {number} of {folder / LEDGER}") from None
    del states[""]
    return _DrawnNoise(folder, RunRecord.load(folder), states, compared)
