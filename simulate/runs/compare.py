"""Several algorithms and seeds under one plan, each run in its own folder, as one sweep."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from privplan.errors import Fault, InputError
from privplan.io.files import write_text
from privplan.io.resume import Progress, Spread, finish, in_jobs, resumable
from privplan.plan import Plan
from privplan.record import RECORD
from privplan.verification.verify import judge, load_run
from simulate.algorithms.registry import ALGORITHMS, executable, not_executable
from simulate.data.partition.registry import scheme
from simulate.parallel.cluster import on_cluster, ray_library
from simulate.runs.comparison import ComparisonRow, counted, curves_csv, results_csv
from simulate.runs.plots import comparison
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute

TABLE = "results.csv"
CURVES = "accuracy.csv"
PLOT = "accuracy.png"
TUNING = "tuning.jsonl"


def select(names: str, base: Request, *, one_unit: bool = False) -> tuple[list[str], list[str]]:
    """Algorithms to compare, and one line per reason why ``all`` omits some.

    Args:
        names: names of the catalogue with commas between, in any order; ``all`` among them
            selects every algorithm that can execute the plan on the partition, and those named.
        base: plan, data and partition of the comparison.
        one_unit: whether ``all`` omits algorithms that cannot spend the plan's budgets: those
            without privacy, and under a plan of clients those that protect records.

    Raises:
        InputError: for a name that is not in the catalogue.
    """
    words = [word.strip() for word in names.split(",") if word.strip()]
    if "all" not in map(str.lower, words):
        return list(dict.fromkeys(ALGORITHMS.name_of(word) for word in words or [""])), []
    omitted = _not_executable(base, one_unit)
    named = {ALGORITHMS.name_of(word) for word in words if word.lower() != "all"}
    omitted = {reason: [name for name in some if name not in named]
               for reason, some in omitted.items()}  # fmt: skip
    without = {name for some in omitted.values() for name in some}
    lines = [
        f"--algorithms all leaves out {', '.join(some)}: {reason}"
        for reason, some in omitted.items()
        if some
    ]
    return [name for name in ALGORITHMS if name not in without], lines


def _not_executable(base: Request, one_unit: bool) -> dict[str, list[str]]:
    """Names of the algorithms that cannot execute the plan on the partition, by reason."""
    omitted = not_executable(base.plan)
    if not scheme(base.partition).disjoint:
        fault = Fault("partition", "must leave each record with one client", base.partition)
        omitted[str(fault)] = _record_level(base.plan, executable(base.plan))
    if one_unit:
        known = {name for some in omitted.values() for name in some}
        rest = [name for name in executable(base.plan) if name not in known]
        units = {name: ALGORITHMS.get(name).unit_under(base.plan) for name in rest}
        unit = base.plan.spec.unit
        reason = "they protect nobody, so no budget is spent equally"
        omitted[reason] = [name for name in rest if units[name] == "none"]
        reason = f"budgets of the plan are of {unit}s, theirs are not"
        omitted[reason] = [name for name in rest if units[name] not in (unit, "none")]
    return {reason: names for reason, names in omitted.items() if names}


def compare(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    jobs: int | None,
    progress: Progress,
    cluster: str | None = None,
    tuned: Mapping[str, Request] | None = None,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> list[ComparisonRow]:
    """Train every algorithm with every seed; finished runs are not trained again.

    Args:
        base: plan, data and device; its folder will contain one folder per run.
        algorithms: names of the catalogue.
        seeds: seeds, each 0 or more.
        jobs: runs at the same time; None for one, or for as many as the cluster has cores.
        progress: called with the number of finished runs and of all runs.
        cluster: address of a Ray cluster; processes of this machine when None.
        tuned: the requests of methods with hyperparameters of their own, by name.
        finished: called with the row of each algorithm as soon as all its runs are finished.

    Returns:
        One row per algorithm, in the order given. Tables and a plot are written to the folder.

    Raises:
        InterruptedSweepError: on Ctrl-C; the same call resumes.
        PrivplanError: the first fault of a request, before any training; or the fault of a run's
            folder, after which finished runs stay.
    """
    if not algorithms or not seeds:
        raise InputError.one("algorithms", "must name at least one, with one seed or more", "none")
    if cluster is not None:
        ray_library()
        base = _absolute(base)
        tuned = {name: _absolute(one) for name, one in (tuned or {}).items()}
    require_own(base.folder)
    bases = {name: (tuned or {}).get(name, base) for name in algorithms}
    for name, seed in _representatives(base.plan, algorithms, seeds):
        prepare(request_for(bases[name], name, seed))
    requests = [request_for(bases[name], name, seed) for name in algorithms for seed in seeds]
    with resumable(base.folder):
        items = {f"{request.algorithm}/{request.seed}": request for request in requests}
        parallel = cluster is not None or (jobs or 1) > 1
        work = run_on_one_core if parallel else run_here
        rows: dict[str, ComparisonRow] = {}

        def add_row(name: str) -> None:
            rows[name] = _row(bases[name], name, seeds)
            finished(rows[name])

        spread = _with_rows(_spread(base, len(items), jobs, cluster), len(seeds), add_row)
        finish(items, work, spread=spread, progress=progress)
        return _written(base, [rows[name] for name in algorithms], seeds)


def _written(base: Request, rows: list[ComparisonRow], seeds: Sequence[int]) -> list[ComparisonRow]:
    """The rows, after tables and a plot of them are written to the folder."""
    write_text(base.folder / TABLE, results_csv(rows))
    write_text(base.folder / CURVES, curves_csv(rows))
    title = f"{base.plan.spec.name}, {base.dataset}, {counted(len(seeds), 'seed')}"
    comparison(base.folder / PLOT, {one.algorithm: one.records for one in rows}, title)
    return rows


def _with_rows(spread: Spread, seeds: int, add_row: Callable[[str], None]) -> Spread:
    """The spread, which also reports each algorithm when its last run is finished."""

    def reporting(work: Callable[[Any], Any], tasks: Sequence[Any], /) -> Iterator[Any]:
        missing = Counter[str]()
        for key, result in spread(work, tasks):
            yield key, result
            name = key.rpartition("/")[0]
            missing[name] += 1
            if missing[name] == seeds:
                add_row(name)

    return reporting


def _spread(base: Request, runs: int, jobs: int | None, cluster: str | None) -> Spread:
    """How runs are executed: in order, over processes of this machine, or over a cluster."""
    if cluster is None:
        return in_jobs(jobs or 1)
    gpus = 1 if base.device == "cuda" else 0
    return partial(on_cluster, jobs=jobs or runs, address=cluster, gpus=gpus)


def require_own(folder: Path) -> None:
    """Raise an error for a folder that contains something other than a comparison.

    Raises:
        InputError: when it is not a folder, is a run's, or contains other files.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    if names == {TUNING}:
        return
    if names and (RECORD in names or names.isdisjoint(ALGORITHMS)):
        rule = "must be a comparison's folder, a new folder or an empty one"
        raise InputError.one("output", rule, str(folder))


def _representatives(
    plan: Plan, algorithms: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, int]]:
    """Pairs of algorithm and seed that have every fault that any pair has.

    The seed decides the partition, which is the same under all algorithms, except that methods
    that protect records plan by the partition.
    """
    yield from ((name, seeds[0]) for name in algorithms)
    for seed in seeds[1:]:
        yield from ((name, seed) for name in _record_level(plan, algorithms) or algorithms[:1])


def _record_level(plan: Plan, algorithms: Sequence[str]) -> list[str]:
    """The algorithms that protect records under the plan."""
    return [name for name in algorithms if ALGORITHMS.get(name).unit_under(plan) == "record"]


def request_for(base: Request, name: str, seed: int) -> Request:
    """The request of one run of a comparison."""
    folder = base.folder / name / f"seed-{seed}"
    return replace(base, algorithm=name, seed=seed, folder=folder)


def _absolute(base: Request) -> Request:
    """The request with absolute paths, which are valid on every machine that shares the storage."""
    data = base.data_dir or os.environ.get("PRIVPLAN_DATA")
    return replace(
        base, folder=base.folder.absolute(), data_dir=Path(data).absolute() if data else None
    )


def run_here(request: Request) -> None:
    """Finish one run in this process, with its threads as they are."""
    execute(request)


def run_on_one_core(request: Request) -> None:
    """Finish one run in a process of its own, with one thread of PyTorch."""
    torch.set_num_threads(1)
    execute(request)


def _row(base: Request, name: str, seeds: Sequence[int]) -> ComparisonRow:
    runs = [load_run(request_for(base, name, seed).folder) for seed in seeds]
    verdicts = tuple(judge(run) for run in runs)
    unit = ALGORITHMS.get(name).unit_under(base.plan)
    return ComparisonRow(name, unit, tuple(run.record for run in runs), verdicts)
