"""The results of a comparison: a row for each method, also as CSV."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from privplan.accounting.release import SHORT
from privplan.guidance import Guided
from privplan.record import ACCURACY, RECORD, RunRecord
from privplan.spec.planning import FIXED_RATIOS
from privplan.verification.run import Run
from privplan.verification.verdict import Verdict
from privplan.verification.verify import judge, load_run
from privplan.visible import csv_cell
from simulate.algorithms.registry import ALGORITHMS, AlgorithmEntry

# A rehearsal protects nobody, yet shows which method a run with secure noise should
# try.
_WITHIN_THE_BUDGETS = ("kept", "rehearsal")


class Setup(NamedTuple):
    """What a method was given besides the budgets, in words."""

    recipe: str
    ratios: str
    weights: str
    release: str


@dataclass(frozen=True)
class ComparisonRow(Guided):
    """All runs of one method, in the order of their seeds.

    Attributes:
        algorithm: its name, and whether with the recipe, where it is not by itself.
        unit: of privacy, of its releases under the plan.
        records: of its runs.
        verdicts: on its runs, as recorded.
        setup: what it was given besides the budgets.
    """

    algorithm: str
    unit: str
    records: tuple[RunRecord, ...]
    verdicts: tuple[Verdict, ...]
    setup: Setup

    @property
    def accuracies(self) -> list[float]:
        """Final score of each run, NaN where it is not finite."""
        scores = (record.accuracy for record in self.records)
        return [math.nan if score is None else score for score in scores]

    @property
    def metric(self) -> str:
        """Name of the metric of the scores."""
        return self.records[0].metric

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float:
        """Sample standard deviation over the seeds; 0 with one seed."""
        if len(self.records) > 1:
            return statistics.stdev(self.accuracies)
        return 0.0

    @property
    def spread(self) -> str:
        """The deviation as text; a dash with one seed, which has none."""
        if len(self.records) > 1:
            return self.score_text(self.deviation)
        return "-"

    @property
    def keeps(self) -> bool:
        """Whether every run kept every budget."""
        return all(verdict.outcome == "kept" for verdict in self.verdicts)

    @property
    def is_within(self) -> bool:
        """Whether every run stayed within every budget in numbers, also rehearsals."""
        return all(map(is_within_the_budgets, self.verdicts))

    @property
    def pays(self) -> bool:
        """Whether it spends a finite epsilon above 0 of some group."""
        return any(self.spent(name) for name in self.groups)

    @property
    def note(self) -> str:
        """What is said of a method that breaks budgets; empty where it keeps them."""
        if all(self.spent(name) is None for name in self.groups):
            return "not private"
        outcomes = Counter(verdict.outcome for verdict in self.verdicts)
        del outcomes["kept"]
        return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return [group.group for group in self.verdicts[0].groups]

    def spent(self, group: str) -> float | None:
        """Largest realised upper bound of a group over all seeds; None if infinite."""
        largest = 0.0
        for verdict in self.verdicts:
            for item in verdict.groups:
                if item.group == group:
                    upper = item.realised_upper
                    largest = max(largest, math.inf if upper is None else upper)
        if largest == math.inf:
            return None
        return largest

    def accuracy_of(self, group: str) -> float:
        """Mean score of a group over the seeds; NaN where a run has none."""
        scores = (
            record.accuracy_by_group.get(group, math.nan) for record in self.records
        )
        return statistics.fmean(scores)

    def score_text(self, score: float) -> str:
        """A score as text: accuracies in percent, others as numbers; empty for NaN."""
        if math.isnan(score):
            return ""
        if self.metric == ACCURACY:
            return f"{100 * score:.2f}"
        return f"{score:.4g}"

    def plain(self) -> Iterator[dict[str, object]]:
        """One record per seed and group; an infinite epsilon is None."""
        for record, verdict in zip(self.records, self.verdicts, strict=True):
            for group in verdict.groups:
                yield {
                    "algorithm": self.algorithm,
                    "unit": self.unit,
                    "seed": record.seed,
                    "accuracy": record.accuracy,
                    "group": group.group,
                    "group_accuracy": group.accuracy,
                    "budget": group.budget,
                    "realised_lower": group.realised_lower,
                    "realised_upper": group.realised_upper,
                    "delta": group.delta,
                    "sampling": str(group.sampling),
                    "relation": str(group.relation),
                    "accountant": group.accountant,
                    "verdict": verdict.outcome,
                    "plan": verdict.plan_digest[:SHORT],
                    **self.setup._asdict(),
                }


def is_within_the_budgets(verdict: Verdict) -> bool:
    """Whether a run stayed within its budgets in numbers, if only in a rehearsal."""
    return verdict.outcome in _WITHIN_THE_BUDGETS


def results_csv(rows: Sequence[ComparisonRow]) -> str:
    """Tidy CSV: a line per algorithm, seed and group; infinite epsilon is ``inf``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(next(rows[0].plain()))
    for row in rows:
        for line in row.plain():
            for bound in ("realised_lower", "realised_upper"):
                if line[bound] is None:
                    line[bound] = "inf"
            writer.writerow(map(csv_cell, line.values()))
    return text.getvalue()


def rows_in(folder: Path) -> list[ComparisonRow]:
    """The methods whose runs a comparison's folder holds, best first; else none."""
    runs: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*/*/{RECORD}")):
        runs.setdefault(path.parts[-3], []).append(path.parent)
    rows = [row_of(name, folders) for name, folders in runs.items()]
    return sorted(rows, key=lambda row: (math.isnan(row.mean), -row.mean))


def row_of(name: str, folders: Sequence[Path]) -> ComparisonRow:
    """The row of a method, from the folders of its finished runs."""
    runs = [load_run(folder) for folder in folders]
    # As recorded: to execute rounds of every run again is for who verifies or books it.
    verdicts = tuple(judge(run, 0) for run in runs)
    records = tuple(run.record for run in runs)
    entry = _entry_of(runs[0])
    unit = "none"
    if entry is not None:
        unit = entry.unit_under(runs[0].plan)
    elif all(map(is_within_the_budgets, verdicts)):
        # A method of somebody's program: what its ledger says kept the plan's budgets.
        unit = runs[0].plan.unit
    return ComparisonRow(name, unit, records, verdicts, _setup_of(runs[0]))


def _entry_of(run: Run) -> AlgorithmEntry | None:
    """The algorithm of a run; None for a method of somebody's program."""
    name = run.record.algorithm
    if name not in ALGORITHMS:
        return None
    return ALGORITHMS.get(name)


def _setup_of(run: Run) -> Setup:
    """What a run was given, by its plan and the bounds in its ledger."""
    plan = run.plan
    spec = plan.spec
    entry = _entry_of(run)
    is_private = entry is None or entry.unit != "none"

    has_bounds = False
    if run.ledger.records:
        first_release = run.ledger.records[0]
        has_bounds = any(share.clip_bound for share in first_release.shares)
    clipping = "no clipping"
    if is_private or has_bounds:
        clipping = f"C {spec.clipping_norm:g}"
    if spec.server is None:
        step = 1.0
    else:
        step = spec.server.learning_rate or 1.0
    model = "last model"
    if spec.averaging is not None:
        model = f"{spec.averaging.method} of models"

    ratios = plan.objective.name
    if ratios == FIXED_RATIOS[0]:
        ratios = spec.planning.ratios

    weights = spec.weighting
    release = plan.release if is_private else "exact"
    # An algorithm of another package decides both by itself.
    if entry is None:
        weights = "its own"
    elif is_private and not entry.function.__module__.startswith("simulate."):
        built = entry.build(plan)
        weights = built.aggregator.name
        release = "joint" if built.mechanism.joint else "per_group"
    return Setup(f"{clipping}, step {step:.4g}, {model}", ratios, weights, release)
