"""Several algorithms and seeds under one plan, each run in its own folder."""

from __future__ import annotations

import csv
import io
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from privplan.errors import Fault, InputError
from privplan.io.files import write_text
from privplan.io.processes import in_processes
from privplan.plan import Plan
from privplan.record import RECORD, RunRecord
from privplan.verification.verify import GroupVerdict, Verdict, judge, load_run
from simulate.algorithms.registry import ALGORITHMS, fitting, row, unfit
from simulate.data.partition.registry import scheme
from simulate.parallel.cluster import on_cluster, ray_library
from simulate.runs.plots import comparison
from simulate.runs.run import InterruptedRunError, Request, execute, prepare

TABLE = "results.csv"
CURVES = "accuracy.csv"
PLOT = "accuracy.png"


@dataclass(frozen=True)
class ComparisonRow:
    """All runs of one algorithm.

    Attributes:
        algorithm: name in the catalogue.
        unit: whom its releases protect under the plan.
        records: one a seed, in the order of the seeds.
        verdicts: what each run spent.
    """

    algorithm: str
    unit: str
    records: tuple[RunRecord, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def accuracies(self) -> list[float]:
        """Final test accuracy of each run."""
        return [record.accuracy or 0.0 for record in self.records]

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float:
        """Sample standard deviation over the seeds; 0 with one seed."""
        return statistics.stdev(self.accuracies) if len(self.records) > 1 else 0.0

    def spent(self, group: str) -> float | None:
        """Largest realised upper bound of a group over the seeds; None when infinite."""
        found = [item.realised_upper for item in self._of(group)]
        return None if None in found else max(value for value in found if value is not None)

    def accuracy_of(self, group: str) -> float:
        """Mean accuracy of a group over the seeds."""
        return statistics.fmean(record.accuracy_by_group[group] for record in self.records)

    def _of(self, group: str) -> Iterator[GroupVerdict]:
        return (item for one in self.verdicts for item in one.groups if item.group == group)


def chosen(names: str, base: Request) -> list[str]:
    """Names of the catalogue from ``A,B,...`` or ``all``, each once, in the order given.

    Args:
        names: as written; ``all`` are those that can execute the plan on the partition.
        base: what is compared.

    Raises:
        InputError: for a name that is not in the catalogue.
    """
    if _everything(names):
        without = {name for some in _unfit(base).values() for name in some}
        return [name for name in ALGORITHMS if name not in without]
    return list(dict.fromkeys(row(name).name for name in names.split(",")))


def left_out(names: str, base: Request) -> list[str]:
    """A line for each reason why ``all`` leaves algorithms out; none for names as written."""
    if not _everything(names):
        return []
    return [
        f"--algorithms all leaves out {', '.join(some)}: {why}"
        for why, some in _unfit(base).items()
    ]


def _unfit(base: Request) -> dict[str, list[str]]:
    """Names of the algorithms that cannot execute the plan on the partition, by the reason."""
    found = unfit(base.plan)
    if scheme(base.partition).draws:
        fault = Fault("partition", "must leave each record with one client", base.partition)
        found[str(fault)] = _by_records(base.plan, fitting(base.plan))
    return {why: names for why, names in found.items() if names}


def _everything(names: str) -> bool:
    return names.strip().lower() == "all"


def compare(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    jobs: int | None,
    report: Callable[[int, int], None],
    cluster: str | None = None,
) -> list[ComparisonRow]:
    """Train every algorithm with every seed; finished runs are taken as they are.

    Args:
        base: plan, data and device; its folder holds one folder a run.
        algorithms: names of the catalogue.
        seeds: seeds, each 0 or more.
        jobs: runs at a time; None for one, or for as many as the cluster has cores for.
        report: called with the runs done and the runs in all.
        cluster: address of a Ray cluster; this machine's processes when None.

    Returns:
        One entry an algorithm, in the order given; a table and a plot are written beside.

    Raises:
        InterruptedRunError: on Ctrl-C; the same call resumes.
        PrivplanError: the first fault of a request, before anything is trained; or of a run's
            folder, and then runs that are done stay.
    """
    if not algorithms or not seeds:
        raise InputError.one("algorithms", "must name at least one, with one seed or more", "none")
    if cluster is not None:
        ray_library()
        base = _anywhere(base)
    require_own(base.folder)
    for name, seed in _telling(base.plan, algorithms, seeds):
        prepare(_request(base, name, seed))
    requests = [_request(base, name, seed) for name in algorithms for seed in seeds]
    try:
        for done, _ in enumerate(_executed(requests, jobs, cluster), start=1):
            report(done, len(requests))
    except KeyboardInterrupt:
        line = f"interrupted: what is done is kept in {base.folder}; the same command resumes"
        raise InterruptedRunError(line) from None
    entries = [_entry(base, name, seeds) for name in algorithms]
    write_text(base.folder / TABLE, table(entries))
    write_text(base.folder / CURVES, curves(entries))
    title = f"{base.plan.spec.name}, {base.dataset}, {len(seeds)} seeds"
    comparison(base.folder / PLOT, {one.algorithm: one.records for one in entries}, title)
    return entries


def require_own(folder: Path) -> None:
    """Refuse a folder that holds something else than a comparison.

    Raises:
        InputError: when it is no folder, a run's, or one of other files.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if names and (RECORD in names or names.isdisjoint(ALGORITHMS)):
        rule = "must be a comparison's folder, a new folder or an empty one"
        raise InputError.one("output", rule, str(folder))


def _telling(
    plan: Plan, algorithms: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, int]]:
    """Algorithms and seeds that show every fault between them.

    A seed decides who holds which records. That is the same under all algorithms, but methods
    that protect records plan by it, each for itself.
    """
    yield from ((name, seeds[0]) for name in algorithms)
    for seed in seeds[1:]:
        yield from ((name, seed) for name in _by_records(plan, algorithms) or algorithms[:1])


def _by_records(plan: Plan, algorithms: Sequence[str]) -> list[str]:
    """Those that protect records under the plan."""
    return [name for name in algorithms if row(name).protects(plan) == "record"]


def _request(base: Request, name: str, seed: int) -> Request:
    folder = base.folder / name / f"seed-{seed}"
    return replace(base, algorithm=name, seed=seed, folder=folder)


def _anywhere(base: Request) -> Request:
    """The same, with folders that mean the same on every machine that sees the storage."""
    data = base.data_dir or os.environ.get("PRIVPLAN_DATA")
    return replace(
        base, folder=base.folder.absolute(), data_dir=Path(data).absolute() if data else None
    )


def _executed(requests: Sequence[Request], jobs: int | None, cluster: str | None) -> Iterator[None]:
    """Run the requests, a few at a time; yields once for each that is done."""
    if cluster is None and (jobs or 1) == 1:
        for request in requests:
            execute(request)
            yield
        return
    if cluster is None:
        found = in_processes(alone, requests, jobs or 1)
    else:
        gpus = 1 if requests[0].device == "cuda" else 0
        found = on_cluster(alone, requests, jobs or len(requests), address=cluster, gpus=gpus)
    for faults in found:
        if faults:
            raise InputError(faults)
        yield


def alone(request: Request) -> tuple[Fault, ...]:
    """One run in a process of its own, on one core; returns what is wrong with the request."""
    torch.set_num_threads(1)
    try:
        execute(request)
    except InputError as error:
        return error.faults
    return ()


def _entry(base: Request, name: str, seeds: Sequence[int]) -> ComparisonRow:
    runs = [load_run(_request(base, name, seed).folder) for seed in seeds]
    verdicts = tuple(judge(run) for run in runs)
    return ComparisonRow(
        name, row(name).protects(base.plan), tuple(run.record for run in runs), verdicts
    )


COLUMNS = (
    "algorithm",
    "unit",
    "seed",
    "accuracy",
    "group",
    "group_accuracy",
    "budget",
    "realised_lower",
    "realised_upper",
    "delta",
    "sampling",
    "relation",
    "accountant",
    "kept",
)


def table(entries: Sequence[ComparisonRow]) -> str:
    """Tidy CSV: one line an algorithm, seed and group; an infinite epsilon is ``inf``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in entries:
        for record, verdict in zip(entry.records, entry.verdicts, strict=True):
            for group in verdict.groups:
                writer.writerow(_line(entry, record, verdict, group))
    return text.getvalue()


def curves(entries: Sequence[ComparisonRow]) -> str:
    """Tidy CSV: one line an algorithm, seed and measured round; no loss where it is not finite."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("algorithm", "seed", "round", "accuracy", "loss"))
    for entry in entries:
        for record in entry.records:
            for point in record.metrics:
                measured = (point.round, point.accuracy, point.loss)
                writer.writerow((entry.algorithm, record.seed, *measured))
    return text.getvalue()


def _line(
    entry: ComparisonRow, record: RunRecord, verdict: Verdict, group: GroupVerdict
) -> list[object]:
    bounds = [
        "inf" if bound is None else bound for bound in (group.realised_lower, group.realised_upper)
    ]
    law = [group.delta, str(group.sampling), str(group.relation), group.accountant]
    score = [record.accuracy, group.group, group.accuracy, group.budget]
    return [entry.algorithm, entry.unit, record.seed, *score, *bounds, *law, verdict.kept]
