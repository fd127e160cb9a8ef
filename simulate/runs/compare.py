"""Several algorithms and seeds under one plan, each run in its own folder, as one sweep."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from privplan import processes
from privplan.accounting.release import SHORT
from privplan.errors import Fault, InputError
from privplan.files import write_bytes, write_text
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.processes import Progress, finish, in_jobs, resumable
from privplan.record import ACCURACY, RECORD, RunRecord
from privplan.report.plots import comparison_panels
from privplan.report.style import FORMATS, picture
from privplan.report.tables import headline, no_score, upper
from privplan.spec.planning import FIXED_RATIOS
from privplan.spec.spec import Spec
from privplan.spec.training import Recipe, without_recipe
from privplan.verification.run import Run
from privplan.verification.verdict import GroupVerdict, Verdict
from privplan.verification.verify import judge, load_run
from privplan.visible import csv_cell, in_latex, printable
from simulate.algorithms.registry import (
    ALGORITHMS,
    algorithm,
    executable,
    not_executable,
)
from simulate.data.partition.schemes import scheme
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute

# --- The results of a comparison: rows per algorithm, as CSV and as a table to print. ------------


class Given(NamedTuple):
    """What a method was given besides the budgets, in words."""

    recipe: str
    ratios: str
    weights: str
    release: str


@dataclass(frozen=True)
class ComparisonRow:
    """All runs of one algorithm, in the order of their seeds."""

    algorithm: str  # and whether with the recipe, where it is not as the method's own
    unit: str  # of privacy, of its releases under the plan
    records: tuple[RunRecord, ...]
    verdicts: tuple[Verdict, ...]
    given: Given

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
        return statistics.stdev(self.accuracies) if len(self.records) > 1 else 0.0

    @property
    def spread(self) -> str:
        """The deviation as text; a dash with one seed, which has none."""
        return _score(self, self.deviation) if len(self.records) > 1 else "-"

    @property
    def keeps(self) -> bool:
        """Whether every run kept every budget."""
        return all(verdict.outcome == "kept" for verdict in self.verdicts)

    @property
    def is_within(self) -> bool:
        """Whether every run stayed within every budget in numbers, rehearsals among them."""
        return all(verdict.outcome in _WITHIN for verdict in self.verdicts)

    @property
    def note(self) -> str:
        """What is said beside a method that does not keep the budgets; empty where it does."""
        if all(self.spent(name) is None for name in self.groups):
            return "not private"
        outcomes = Counter(
            one.outcome for one in self.verdicts if one.outcome != "kept"
        )
        return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return [group.group for group in self.verdicts[0].groups]

    def spent(self, group: str) -> float | None:
        """Largest realised upper bound of a group over the seeds; None when infinite."""
        found = [
            item for one in self.verdicts for item in one.groups if item.group == group
        ]
        uppers = [
            math.inf if one.realised_upper is None else one.realised_upper
            for one in found
        ]
        return None if max(uppers) == math.inf else max(uppers)

    def accuracy_of(self, group: str) -> float:
        """Mean score of a group over the seeds; NaN where a run has none."""
        scores = (
            record.accuracy_by_group.get(group, math.nan) for record in self.records
        )
        return statistics.fmean(scores)

    def plain(self) -> Iterator[dict[str, object]]:
        """One record per seed and group, for JSON; an infinite epsilon is None."""
        for record, verdict in zip(self.records, self.verdicts, strict=True):
            for group in verdict.groups:
                line = dict(
                    zip(COLUMNS, _line(self, record, verdict, group), strict=True)
                )
                bounds = {"realised_lower": group.realised_lower}
                yield {**line, **bounds, "realised_upper": group.realised_upper}


COLUMNS = (
    "algorithm", "unit", "seed", "accuracy", "group", "group_accuracy", "budget",
    "realised_lower", "realised_upper", "delta", "sampling", "relation", "accountant", "verdict",
    "plan", *Given._fields,
)  # fmt: skip


def results_csv(rows: Sequence[ComparisonRow]) -> str:
    """Tidy CSV: one line per algorithm, seed and group; an infinite epsilon is ``inf``."""
    return csv_text(
        COLUMNS,
        (
            _line(row, record, verdict, group)
            for row in rows
            for record, verdict in zip(row.records, row.verdicts, strict=True)
            for group in verdict.groups
        ),
    )


def _line(
    row: ComparisonRow, record: RunRecord, verdict: Verdict, group: GroupVerdict
) -> list[object]:
    bounds = [
        "inf" if one is None else one
        for one in (group.realised_lower, group.realised_upper)
    ]
    law = [group.delta, str(group.sampling), str(group.relation), group.accountant]
    score = [record.accuracy, group.group, group.accuracy, group.budget]
    found = [verdict.outcome, verdict.plan_digest[:SHORT]]
    return [
        row.algorithm,
        row.unit,
        record.seed,
        *score,
        *bounds,
        *law,
        *found,
        *row.given,
    ]


def csv_text(columns: Sequence[str], lines: Iterable[list[object]]) -> str:
    """Lines of CSV below the columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(csv_cell, line) for line in lines)
    return text.getvalue()


def printed_table(
    title: str,
    rows: Sequence[ComparisonRow],
    chosen: Mapping[str, Mapping[str, float]] | None = None,
    *,
    scores: bool = True,
) -> tuple[str, list[str], list[list[str]], str]:
    """Title, columns, cells and caption: accuracy and spent epsilon, one row per algorithm.

    Args:
        title: of the table.
        rows: one per algorithm; their epsilons are compared, so give those of one unit.
        chosen: the values that were tuned, by algorithm.
        scores: whether the table has them.
    """
    groups, metric = rows[0].groups, rows[0].metric
    short = "acc." if metric == ACCURACY else metric
    columns = ["algorithm", "unit"]
    if scores:
        columns += ["mean", "sd", *(f"{name} {short}" for name in groups)]
    columns += [*(f"{name} epsilon" for name in groups), "kept", "plan"]
    cells = [_cells(row, scores) for row in rows]
    if chosen is not None:
        columns.append("tuned")
        for line in cells:
            values = list(chosen[line[0]].items())[
                :-3
            ]  # not its runs and validation scores
            line.append(", ".join(f"{name}={value:.3g}" for name, value in values))
    return title, columns, cells, _caption(rows)


# --- Which method leads: only within a unit, and only where the seeds decide. --------------------

WHOM = {
    "client": "protect each client",
    "record": "protect each record",
    "none": "protect nobody",
}
"""What is said of the methods of a unit."""

# A rehearsal protects nobody, yet shows which method a run with secure noise should try.
_WITHIN = ("kept", "rehearsal")
_REHEARSALS = "rehearsals: nothing here protected anybody; their noise is seeded"


def by_unit(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """The rows by whom they protect; epsilons of two units are not compared."""
    units = dict.fromkeys(
        unit for unit in WHOM if any(row.unit == unit for row in rows)
    )
    return {unit: [row for row in rows if row.unit == unit] for unit in units}


def units_apart(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """The rows of each table, by what its title begins with: one table where one unit has budgets.

    Methods that protect nobody stand beside those of the only unit that has budgets.
    """
    units = by_unit(rows)
    if {"client", "record"} <= units.keys():
        return {
            f"methods that {WHOM[unit]}: ": members for unit, members in units.items()
        }
    return {"": list(rows)}


class Leader(NamedTuple):
    """The method with the highest mean of those of its unit that keep every budget."""

    row: ComparisonRow
    rivals: tuple[str, ...]  # methods from which the seeds do not tell it apart
    others: int  # how many further methods of its unit keep every budget

    @property
    def is_best(self) -> bool:
        """Whether the seeds decide that it is better than every other that keeps the budgets."""
        return not self.rivals

    @property
    def sentence(self) -> str:
        """Which method leads, or that the seeds decide none."""
        reached = f"{self.row.algorithm}, {_score(self.row, self.row.mean)}%"
        if not self.is_best:
            return f"these seeds decide no best method: {reached}, and {', '.join(self.rivals)}"
        if not self.others:
            return f"the only one that keeps the budgets: {reached}"
        return f"the most accurate that keeps the budgets: {reached}"


def leader(rows: Sequence[ComparisonRow]) -> Leader | None:
    """Which of the methods of one unit leads; None where no budget is paid or a score is missing.

    A method that sends nothing pays no budget and leads nobody.
    """
    paid = [
        row
        for row in rows
        if row.is_within and any(row.spent(name) for name in row.groups)
    ]
    if (
        rows[0].metric != ACCURACY
        or any(math.isnan(row.mean) for row in rows)
        or not paid
    ):
        return None
    first = max(paid, key=lambda row: row.mean)
    others = [row for row in paid if row is not first]
    rivals = tuple(row.algorithm for row in others if not _apart(first, row))
    return Leader(first, rivals, len(others))


def answer(rows: Sequence[ComparisonRow]) -> list[str]:
    """Which method is the most accurate within the budgets, what is above it, and what is lost."""
    units = by_unit(rows)
    unprotected = units.pop("none", [])
    lines = []
    for unit, members in units.items():
        whose = f"of those that {WHOM[unit]}, " if len(units) > 1 else ""
        lines += [f"{whose}{line}" for line in _answer_of_unit(members, unprotected)]
    return lines + _lost(rows)


def _answer_of_unit(
    rows: Sequence[ComparisonRow], unprotected: Sequence[ComparisonRow]
) -> list[str]:
    """Which method of a unit leads, and those above it, also of those that protect nobody."""
    compared = [*rows, *unprotected]
    leads = leader(rows)
    if leads is None or any(math.isnan(row.mean) for row in compared):
        return []
    lines = [leads.sentence]
    for row in compared:
        if row.mean < leads.row.mean or row is leads.row:
            continue
        reached = f"{row.algorithm} reaches {_score(row, row.mean)}%"
        if row.is_within and not any(row.spent(name) for name in row.groups):
            lines.append(
                f"{reached}, and nothing leaves its clients: no plan pays here"
            )
        elif row.note == "not private":
            lines.append(f"{reached} without noise: its epsilon is infinite")
        elif not row.is_within:
            lines.append(
                f"{reached}, and its budgets are {outcomes(row.verdicts)} kept"
            )
    return lines


def _lost(rows: Sequence[ComparisonRow]) -> list[str]:
    """The first verdict that is not kept of each private method, one line each."""
    lines: dict[str, str] = {}
    for row in rows:
        for verdict in row.verdicts:
            if row.note != "not private" and verdict.outcome not in _WITHIN:
                lines.setdefault(
                    verdict.algorithm, f"{verdict.algorithm}: {headline(verdict)}"
                )
    if any(verdict.outcome == "rehearsal" for row in rows for verdict in row.verdicts):
        return [*lines.values(), _REHEARSALS]
    return list(lines.values())


def kept_line(rows: Sequence[ComparisonRow]) -> str:
    """How many methods kept every budget in every run, counted by whom they protect."""
    counts = []
    for unit, members in by_unit(rows).items():
        if unit == "none":
            counts.append(
                f"{counted(len(members), 'method')} {_verb('none', len(members))}"
            )
            continue
        kept = sum(row.keeps for row in members)
        verb = _verb(unit, len(members))
        counts.append(f"{kept} of {counted(len(members), 'method')} that {verb}")
    return "; ".join(counts)


def _verb(unit: str, count: int) -> str:
    """What methods of a unit do, in the singular for one."""
    return WHOM[unit].replace("protect", "protects", 1) if count == 1 else WHOM[unit]


def _apart(first: ComparisonRow, second: ComparisonRow) -> bool:
    """Whether two means differ by more than two standard errors."""
    error = math.hypot(first.deviation, second.deviation) / math.sqrt(
        len(first.records)
    )
    return len(first.records) > 1 and abs(first.mean - second.mean) > 2 * error


def latex(rows: Sequence[ComparisonRow]) -> str:
    """A tabular of booktabs: mean and deviation, scores and epsilons of the groups."""
    _, columns, cells, caption = printed_table("", rows)
    head, *body = (
        " & ".join(map(in_latex, line)) + r" \\" for line in (columns, *cells)
    )
    lines = [
        r"\begin{tabular}{l" + "r" * (len(columns) - 1) + "}",
        r"\toprule",
        head,
        r"\midrule",
    ]
    return "\n".join(
        [*lines, *body, r"\bottomrule", r"\end{tabular}", f"% {printable(caption)}", ""]
    )


def given_table(
    rows: Sequence[ComparisonRow],
) -> tuple[str, list[str], list[list[str]], str]:
    """Title, columns, cells and caption: what each algorithm was given besides the budgets."""
    caption = (
        "recipe: C is the clipping norm, step the server's factor on the mean update; "
    )
    caption += "ratios: the rule or the objective that decides who takes part how often; release: "
    caption += "one noisy sum of all groups (joint), one per group, or sums without noise (exact)"
    cells = [[row.algorithm, *row.given] for row in rows]
    return (
        "what each algorithm was given",
        ["algorithm", *Given._fields],
        cells,
        caption,
    )


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 seed, 2 seeds."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def finished_line(row: ComparisonRow) -> str:
    """One line on an algorithm whose runs are all finished."""
    epsilons, mean = ", ".join(epsilon_cells(row)), _measured(row, row.mean)
    laws = "; ".join(dict.fromkeys(map(_law, row.verdicts[0].groups)))
    return (
        f"{row.algorithm}: {row.metric} {mean} (sd {row.spread}), "
        f"epsilon {epsilons} ({laws}; unit {row.unit}; "
        f"plan {_plans(row)}), kept {outcomes(row.verdicts)}"
    )


def epsilon_cells(row: ComparisonRow) -> list[str]:
    """What each group spent at most over the seeds, as text."""
    return [upper(row.spent(name)) for name in row.groups]


def _cells(row: ComparisonRow, scores: bool) -> list[str]:
    cells = [row.algorithm, row.unit]
    if scores:
        cells += [_measured(row, row.mean), row.spread]
        cells += [_measured(row, row.accuracy_of(name)) for name in row.groups]
    return [*cells, *epsilon_cells(row), outcomes(row.verdicts), _plans(row)]


def _plans(row: ComparisonRow) -> str:
    """First letters of the digests of the plans that the row's runs executed."""
    return ", ".join(dict.fromkeys(one.plan_digest[:SHORT] for one in row.verdicts))


def _measured(row: ComparisonRow, value: float) -> str:
    """A score as text, or why there is none: the first reason of the row's verdicts."""
    ordered = sorted(row.verdicts, key=lambda verdict: not verdict.not_finite)
    return _score(row, value) or no_score(ordered[0])


def _score(row: ComparisonRow, value: float) -> str:
    """A score as text: accuracies in percent, others as numbers; empty for NaN."""
    if math.isnan(value):
        return ""
    return f"{100 * value:.2f}" if row.metric == ACCURACY else f"{value:.4g}"


def outcomes(verdicts: Sequence[Verdict]) -> str:
    """Number of verdicts that are kept, of those that are unverified, and of rehearsals."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    unverified = f" ({counts['unverified']} unverified)" if counts["unverified"] else ""
    rehearsed = (
        f" ({counted(counts['rehearsal'], 'rehearsal')})" if counts["rehearsal"] else ""
    )
    return f"{counts['kept']}/{len(verdicts)}{unverified}{rehearsed}"


def _law(group: GroupVerdict) -> str:
    """What an epsilon of a group depends on: delta, law, relation and accountant."""
    law = f"{group.sampling} sampling, {group.relation} neighbours, {group.accountant}"
    return f"delta {group.delta:.3g}, {law}"


def _caption(rows: Sequence[ComparisonRow]) -> str:
    """Delta, law, relation and accountant of all epsilons; record-level laws may differ."""
    units: dict[str, set[str]] = {}
    for row in rows:
        for group in row.verdicts[0].groups:
            units.setdefault(_law(group), set()).add(row.unit)
    laws = [f"{law} (unit {', '.join(sorted(names))})" for law, names in units.items()]
    shared = "all algorithms of one seed share cohorts and streams of noise on purpose, so that "
    shared += "their differences are comparable"
    if any(verdict.noise == "secure" for row in rows for verdict in row.verdicts):
        shared = "cohorts and noise of each run are of a key of its own"
    return (
        f"epsilon: largest realised upper bound at {'; '.join(laws)}; unit: whom the budget "
        f"protects, clients or single records; kept: runs with that verdict; {shared}"
    )


# --- Several algorithms and seeds under one plan, each run in its own folder, as one sweep. ------

TABLE = "results.csv"
LATEX = "results.tex"
PLOT = "accuracy.png"
TUNING = "tuning.db"


def select(
    names: str, base: Request, *, one_unit: bool = False
) -> tuple[list[str], list[str]]:
    """Algorithms to compare, and one line per reason why ``all`` omits some."""
    words = [word.strip() for word in names.split(",") if word.strip()]
    if "all" not in map(str.lower, words):
        return list(
            dict.fromkeys(ALGORITHMS.name_of(word) for word in words or [""])
        ), []
    plan, named = (
        base.plan,
        {ALGORITHMS.name_of(one) for one in words if one.lower() != "all"},
    )
    possible, omitted = executable(plan), not_executable(plan)
    if not scheme(base.partition).disjoint:
        fault = Fault(
            "partition", "must leave each record with one client", base.partition
        )
        omitted[str(fault)] = [
            one for one in possible if _by_record(replace(base, algorithm=one))
        ]
    if one_unit:
        known = {name for some in omitted.values() for name in some}
        units = {name: ALGORITHMS.get(name).unit_under(plan) for name in possible}
        rest, unit = [name for name in possible if name not in known], plan.spec.unit
        reason = "they protect nobody, so no budget is spent equally"
        omitted[reason] = [name for name in rest if units[name] == "none"]
        reason = f"budgets of the plan are of {unit}s, theirs are not"
        omitted[reason] = [name for name in rest if units[name] not in (unit, "none")]
    left = {reason: [name for name in some if name not in named]
            for reason, some in omitted.items()}  # fmt: skip
    without = {name for some in left.values() for name in some}
    lines = [
        f"--algorithms all leaves out {', '.join(some)}: {reason}"
        for reason, some in left.items()
        if some
    ]
    return [name for name in ALGORITHMS if name not in without], lines


def compare(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    progress: Progress,
    given: Mapping[str, Request] | None = None,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> list[ComparisonRow]:
    """Train every algorithm with every seed; finished runs are not trained again.

    ``given`` has the requests of names that differ from the base in more than the algorithm.
    """
    if not algorithms or not seeds:
        raise InputError.one(
            "algorithms", "must name at least one, with one seed or more", "none"
        )
    require_own(base.folder)
    bases = {
        name: (given or {}).get(name) or replace(base, algorithm=name)
        for name in algorithms
    }
    # What is prepared has every fault that any run has: the seed decides the partition, which is
    # the same under all algorithms, except that methods that protect records plan by it.
    for name in algorithms:
        prepare(request_for(bases[name], name, seeds[0]))
    for seed in seeds[1:]:
        for name in [one for one in algorithms if _by_record(bases[one])] or algorithms[
            :1
        ]:
            prepare(request_for(bases[name], name, seed))
    items = {
        f"{one}/{k}": request_for(bases[one], one, k)
        for one in algorithms
        for k in seeds
    }
    rows: dict[str, ComparisonRow] = {}
    missing = Counter(key.rpartition("/")[0] for key in items)
    trained, total = list[int](), sum(one.plan.spec.rounds for one in items.values())

    def done_rounds(rounds: int) -> None:
        trained.append(rounds)
        progress(sum(trained), total)

    def spread(work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Runs over the processes; reports each algorithm when its last run is finished."""
        for key, result in in_jobs(jobs, done_rounds)(work, tasks):
            yield key, result
            name = key.rpartition("/")[0]
            missing[name] -= 1
            if not missing[name]:
                rows[name] = _row(name, [items[f"{name}/{k}"].folder for k in seeds])
                finished(rows[name])

    with resumable(base.folder):
        work = run_on_one_core if jobs > 1 else run_here
        finish(items, work, spread=spread)
        found = [rows[name] for name in algorithms]
        write_text(base.folder / TABLE, results_csv(found))
        write_text(base.folder / LATEX, latex(found))
        title = f"{base.plan.spec.name}, {base.dataset}, {counted(len(seeds), 'seed')}"
        for form in FORMATS:
            drawn = picture(comparison_panels(found), form, title=title)
            write_bytes((base.folder / PLOT).with_suffix(f".{form}"), drawn)
        return found


def require_own(folder: Path) -> None:
    """Raise an error for a folder that contains something other than a comparison."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if names and names <= {TUNING, f"{TUNING}-journal"}:
        return
    known = {
        name.removesuffix(RECIPE[True]).removesuffix(RECIPE[False]) for name in names
    }
    if names and (RECORD in names or known.isdisjoint(ALGORITHMS)):
        rule = "must be a comparison's folder, a new folder or an empty one"
        raise InputError.one("output", rule, str(folder))


def _by_record(base: Request) -> bool:
    """Whether the algorithm protects records under the plan."""
    return ALGORITHMS.get(base.algorithm).unit_under(base.plan) == "record"


def request_for(base: Request, name: str, seed: int) -> Request:
    """The request of one run of a comparison, in the folder of its row's name."""
    return replace(
        base, seed=seed, folder=base.folder / name / f"seed-{seed}", own_unit=True
    )


def run_here(request: Request) -> None:
    """Finish one run in this process, with its threads as they are; reports its rounds."""
    before = [0]

    def report(done: int, rounds: int) -> None:
        processes.report(done - before[0])
        before[0] = done

    execute(request, report)
    report(request.plan.spec.rounds, 0)


def run_on_one_core(request: Request) -> None:
    """Finish one run in a process of its own, with one thread of PyTorch."""
    torch.set_num_threads(1)
    run_here(request)


def rows_in(folder: Path) -> list[ComparisonRow]:
    """The methods whose runs a comparison's folder holds, best first; none for another folder."""
    runs: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*/*/{RECORD}")):
        runs.setdefault(path.parts[-3], []).append(path.parent)
    rows = [_row(name, folders) for name, folders in runs.items()]
    return sorted(rows, key=lambda row: (math.isnan(row.mean), -row.mean))


def _row(name: str, folders: Sequence[Path]) -> ComparisonRow:
    runs = [load_run(folder) for folder in folders]
    # As recorded: to execute rounds of every run again is for who verifies or books it.
    verdicts = tuple(judge(run, 0) for run in runs)
    records = tuple(run.record for run in runs)
    unit = ALGORITHMS.get(records[0].algorithm).unit_under(runs[0].plan)
    return ComparisonRow(name, unit, records, verdicts, _given(runs[0]))


# --- Recipes: whether a method trains as published or with the plan's recipe. --------------------

RECIPE = {True: " with recipe", False: " without recipe"}
"""What follows a method's name where it trains otherwise than by itself."""


def with_recipes(
    base: Request, algorithms: Sequence[str], which: str
) -> tuple[dict[str, Request], list[str]]:
    """The requests of a comparison by the names of their rows: published, ours or both.

    Also a line for each method that cannot have the recipe, which ``ours`` and ``both`` leave out.
    By themselves methods of this project train with the recipe and others without.
    """
    found: dict[str, Request] = {}
    recipe, without = base.plan.spec.recipe, []
    if recipe is None or not recipe.decides:
        raise InputError.one(
            "recipe", "must be left out: the plan has no recipe", which
        )
    bare = Spec.parse(without_recipe(base.plan.spec.model_dump(mode="json")))
    for name in algorithms:
        own = ALGORITHMS.get(name).executes(base.plan)
        for ours in {"published": [False], "ours": [True]}.get(which, [False, True]):
            request = replace(base, algorithm=name)
            if own and not ours:
                request = replace(request, plan=solve(bare, second_opinion=False))
            elif ours and not own:
                try:
                    request = _with_recipe(request)
                except InputError as error:
                    without.append(f"{name} cannot have the recipe: {error}")
                    continue
            found[name if ours == own else name + RECIPE[ours]] = request
    return found, without


def _with_recipe(request: Request) -> Request:
    """The request of a method that plans for itself, which gets the recipe for its own noise."""
    plan, entry = request.plan, ALGORITHMS.get(request.algorithm)
    if _by_record(request) or entry.released == "nothing":
        raise InputError.one(
            "recipe", "must be published for methods of records", "ours"
        )
    spec, chosen, noise = plan.spec, request.hyperparameters, 0.0
    if entry.unit == "none":
        chosen = replace(chosen, values={"clipped": 1.0, **chosen.values})
    else:
        noise = relative_noise(algorithm(entry.name, plan).plan)
    update: dict[str, object] = {"recipe": Recipe(source="none")}
    if spec.server is not None and "server" in (spec.recipe or Recipe()).decides:
        longer = math.hypot(1.0, relative_noise(plan)) / math.hypot(1.0, noise)
        rate = float(f"{(spec.server.learning_rate or 1.0) * longer:.4g}")
        update["server"] = spec.server.model_copy(update={"learning_rate": rate})
    changed = plan.model_copy(update={"spec": spec.model_copy(update=update)})
    algorithm(entry.name, changed)
    return replace(request, plan=changed, hyperparameters=chosen)


def _given(run: Run) -> Given:
    """What a run was given, by the plan that it executed and the bounds in its ledger."""
    plan, spec, entry = run.plan, run.plan.spec, ALGORITHMS.get(run.record.algorithm)
    bounds = [
        share.clip_bound for one in run.ledger.records[:1] for share in one.shares
    ]
    clips = entry.unit != "none" or any(bounds)
    rate = 1.0 if spec.server is None else spec.server.learning_rate or 1.0
    model = (
        "last model" if spec.averaging is None else f"{spec.averaging.method} of models"
    )
    clip = f"C {spec.clipping_norm:g}" if clips else "no clipping"
    ratios = plan.objective.name
    ratios = spec.planning.ratios if ratios == FIXED_RATIOS[0] else ratios
    weights, release = spec.weighting, "exact" if entry.unit == "none" else plan.release
    if entry.unit != "none" and not entry.function.__module__.startswith("simulate."):
        made = entry.build(plan)
        weights, release = (
            made.aggregator.name,
            "joint" if made.mechanism.joint else "per_group",
        )
    return Given(f"{clip}, step {rate:.4g}, {model}", ratios, weights, release)
