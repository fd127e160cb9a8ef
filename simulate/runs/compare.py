"""Several algorithms and seeds under one plan, each run in a folder, as one sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from privplan import processes
from privplan.errors import Fault, InputError
from privplan.files import write_bytes, write_text
from privplan.processes import in_jobs
from privplan.record import RECORD
from privplan.report.plots import comparison_panels
from privplan.report.style import FORMATS, picture
from privplan.sweeps import Progress, finish, resumable
from simulate.algorithms.registry import ALGORITHMS, executable, not_executable
from simulate.data.partition.schemes import scheme
from simulate.parallel import device_of_job
from simulate.runs.recipes import WITH_RECIPE, WITHOUT_RECIPE, protects_records
from simulate.runs.request import Request, prepare
from simulate.runs.rows import ComparisonRow, results_csv, row_of
from simulate.runs.run import execute
from simulate.runs.tables import counted, latex

TABLE = "results.csv"
LATEX = "results.tex"
PLOT = "accuracy.png"
TUNING = "tuning.db"


def select(
    names: str, base: Request, *, one_unit: bool = False
) -> tuple[list[str], list[str]]:
    """Algorithms to compare, and one line per reason why ``all`` omits some.

    Args:
        names: of algorithms with commas between, ``all`` among them.
        base: the request of the comparison.
        one_unit: whether ``all`` means those alone that have the unit of the plan.
    """
    words = [word.strip() for word in names.split(",") if word.strip()]
    programs = [word for word in words if ":" in word or word.endswith(".py")]
    if programs:
        rule = (
            "must be registered names; a method of your program is compared from Python, "
            "simulate.compare(plan, [function]), or named by an entry point"
        )
        raise InputError.one("algorithms", rule, ", ".join(programs))
    if "all" not in map(str.lower, words):
        chosen = list(map(ALGORITHMS.name_of, words or [""]))
        if len(set(chosen)) < len(chosen):
            raise InputError.one("algorithms", "must differ from each other", chosen)
        return chosen, [*_twins(chosen, words)]
    # An algorithm that is named besides ``all`` is tried whatever speaks against it.
    named = {ALGORITHMS.name_of(word) for word in words if word.lower() != "all"}
    left_out: set[str] = set()
    lines = []
    for reason, algorithms in _unfit(base, one_unit).items():
        unnamed = [name for name in algorithms if name not in named]
        left_out.update(unnamed)
        if unnamed:
            lines.append(f"--algorithms all leaves out {', '.join(unnamed)}: {reason}")
    return [name for name in ALGORITHMS if name not in left_out], lines


def _twins(names: Iterable[str], words: Sequence[str]) -> Iterator[str]:
    """One line per method that only hyphens tell apart, and was not named exactly."""
    for name in names:
        for namesake in ALGORITHMS:
            is_alike = namesake.replace("-", "") == name.replace("-", "")
            if is_alike and name not in (namesake, *words):
                unit = ALGORITHMS.get(name).unit
                yield f"{name} protects each {unit}; {namesake} is another method"


def _unfit(base: Request, one_unit: bool) -> dict[str, list[str]]:
    """Algorithms that ``all`` leaves out, by reason."""
    plan = base.plan
    possible = executable(plan)
    unfit = not_executable(plan)
    if not scheme(base.partition).disjoint:
        rule = "must leave each record with one client"
        fault = Fault("partition", rule, base.partition)
        unfit[str(fault)] = [
            name for name in possible if protects_records(replace(base, algorithm=name))
        ]
    if not one_unit:
        return unfit
    refused = set().union(*unfit.values())
    plan_unit = plan.spec.unit
    unprotected: list[str] = []
    of_other_units: list[str] = []
    for name in possible:
        unit = ALGORITHMS.get(name).unit_under(plan)
        if name in refused or unit == plan_unit:
            continue
        if unit == "none":
            unprotected.append(name)
        else:
            of_other_units.append(name)
    unfit["they protect nobody, so no budget is spent equally"] = unprotected
    unfit[f"budgets of the plan are of {plan_unit}s, theirs are not"] = of_other_units
    return unfit


def compare(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    progress: Progress,
    requests: Mapping[str, Request] | None = None,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> list[ComparisonRow]:
    """Train every algorithm with every seed; finished runs are not trained again.

    Args:
        base: the request of the comparison, whose folder holds its runs.
        algorithms: names of the rows, which are those of algorithms unless ``requests``
            has them.
        seeds: of the runs of each row.
        jobs: processes.
        progress: told of trained rounds.
        requests: of rows that differ from the base in more than the algorithm, by name.
        finished: told of each row when its last run is finished.

    Returns:
        The rows, in the order of their names; the folder has them as CSV, LaTeX and
        plot.

    Raises:
        InputError: before any training, for whatever fault a run has.
    """
    if not algorithms or not seeds:
        raise InputError.one(
            "algorithms", "must name at least one, with one seed or more", "none"
        )
    # Equal runs would count as several, and their scores would not seem to vary.
    if len(set(seeds)) < len(seeds):
        raise InputError.one("seeds", "must differ from each other", list(seeds))
    require_comparison_folder(base.folder)
    bases = {name: replace(base, algorithm=name) for name in algorithms}
    if requests is not None:
        bases |= {name: requests[name] for name in algorithms if name in requests}
    _check(bases, seeds)
    items = {}
    for name in algorithms:
        for seed in seeds:
            items[f"{name}/{seed}"] = request_for(bases[name], name, seed)
    if jobs > 1:
        for job, (key, request) in enumerate(items.items()):
            items[key] = replace(request, device=device_of_job(base.device, job))
    rows: dict[str, ComparisonRow] = {}
    runs_left = Counter(key.rpartition("/")[0] for key in items)
    rounds_done = 0
    all_rounds = sum(request.plan.spec.rounds for request in items.values())

    def count_rounds(rounds: int) -> None:
        nonlocal rounds_done
        rounds_done += rounds
        progress(rounds_done, all_rounds)

    def spread(work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Run over the processes; tell of each row when its last run is finished."""
        if processes.has_cluster():
            count_rounds(0)
        for key, result in in_jobs(jobs, count_rounds)(work, tasks):
            yield key, result
            # There a run says nothing of its rounds before the last.
            if processes.has_cluster():
                count_rounds(items[key].plan.spec.rounds)
            name = key.rpartition("/")[0]
            runs_left[name] -= 1
            if not runs_left[name]:
                folders = [items[f"{name}/{seed}"].folder for seed in seeds]
                rows[name] = row_of(name, folders)
                finished(rows[name])

    with resumable(base.folder):
        finish(items, run_on_one_core if jobs > 1 else run_here, spread=spread)
        ordered = [rows[name] for name in algorithms]
        title = f"{base.plan.spec.name}, {base.dataset}, {counted(len(seeds), 'seed')}"
        _write(base.folder, ordered, title)
        return ordered


def _write(folder: Path, rows: Sequence[ComparisonRow], title: str) -> None:
    """Write the tables and the plot of a comparison."""
    write_text(folder / TABLE, results_csv(rows))
    write_text(folder / LATEX, latex(rows))
    for suffix in FORMATS:
        drawn = picture(comparison_panels(rows), suffix, title=title)
        write_bytes((folder / PLOT).with_suffix(f".{suffix}"), drawn)


def _check(bases: Mapping[str, Request], seeds: Sequence[int]) -> None:
    """Prepare as few runs as have every fault that any run has.

    The seed decides the partition, which is the same under all algorithms, except that
    methods that protect records plan by it.
    """
    for name, base in bases.items():
        prepare(request_for(base, name, seeds[0]))
    by_partition = [name for name, base in bases.items() if protects_records(base)]
    names = by_partition or list(bases)[:1]
    for seed in seeds[1:]:
        for name in names:
            prepare(request_for(bases[name], name, seed))


def require_comparison_folder(folder: Path) -> None:
    """Raise for a folder that contains something other than a comparison."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    # A comparison that was interrupted while it tuned has nothing else.
    if names and names <= {TUNING, f"{TUNING}-journal"}:
        return
    algorithms = {
        name.removesuffix(WITH_RECIPE).removesuffix(WITHOUT_RECIPE) for name in names
    }
    if names and (RECORD in names or algorithms.isdisjoint(ALGORITHMS)):
        rule = "must be a comparison's folder, a new folder or an empty one"
        raise InputError.one("output", rule, str(folder))


def request_for(base: Request, name: str, seed: int) -> Request:
    """The request of one run of a comparison, in the folder of its row's name."""
    folder = base.folder / name / f"seed-{seed}"
    return replace(base, seed=seed, folder=folder, own_unit=True)


def run_here(request: Request) -> None:
    """Finish a run in this process, with its threads as they are; report its rounds."""
    reported = 0

    def report(done: int, rounds: int) -> None:
        nonlocal reported
        processes.report(done - reported)
        reported = done

    execute(request, report)
    # A run that was finished before reports its rounds all the same.
    report(request.plan.spec.rounds, 0)


def run_on_one_core(request: Request) -> None:
    """Finish one run in a process of its own, with one thread of PyTorch."""
    torch.set_num_threads(1)
    run_here(request)
