"""What several runs on the same people spend together: exact composition, per group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from privplan.accounting.accountant import accountant, at_most
from privplan.accounting.certificate import laws
from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    Unit,
    named_law,
)
from privplan.ledger import history_of
from privplan.plan import Plan
from privplan.promise import GUARANTEE
from privplan.record import RECORD
from privplan.verification.run import Run
from privplan.verification.verify import load_run
from simulate.algorithms.registry import ALGORITHMS
from simulate.runs.compare import request_for
from simulate.runs.request import Request, prepare

# What no noise protects; its epsilon is infinite.
_BARE = History([(Release(0.0, 1.0, SamplingLaw.FULL), 1)])


class Spending(NamedTuple):
    """What several equal runs release.

    Attributes:
        plan: that a run executes.
        histories: what one run under the plan releases of each group, by group.
        runs: how many there are.
    """

    plan: Plan
    histories: Mapping[str, History]
    runs: int


class _Neighbours(NamedTuple):
    """Epsilons of the same unit and relation of a group are composed."""

    group: str
    unit: Unit
    relation: str


def planned(
    rows: Mapping[str, Request], seeds: Sequence[int], tried: int
) -> Iterator[Spending]:
    """What the runs of a comparison will spend.

    Args:
        rows: the requests of the comparison, by name of the row.
        seeds: of the runs of each row.
        tried: how many more runs of each row tune it.
    """
    for name, base in rows.items():
        entry = ALGORITHMS.get(base.algorithm)
        if entry.released == "nothing":
            continue
        plan = prepare(request_for(base, name, seeds[0])).algorithm.plan
        if entry.unit == "none" or _is_noise_shared(base, len(rows) + tried):
            histories = {group.name: _BARE for group in plan.groups}
        else:
            histories = {group.name: plan.history(group) for group in plan.groups}
        yield Spending(plan, histories, len(seeds) + tried)


def _is_noise_shared(base: Request, runs_of_a_seed: int) -> bool:
    """Whether runs of a seed draw the same noise, which a difference of two removes."""
    return base.key_file is None and runs_of_a_seed > 1


def recorded(rows: Mapping[str, Request], seeds: Sequence[int]) -> Iterator[Spending]:
    """What the ledgers of the runs of a comparison say that they released."""
    for name, base in rows.items():
        for seed in seeds:
            request = request_for(base, name, seed)
            run = load_run(request.folder)
            yield from _released(run, _is_noise_shared(request, len(rows)))


def of_own_people(folder: Path) -> Iterator[Spending]:
    """What the runs of a comparison's folder released of people in own data."""
    files = sorted(folder.glob(f"*/*/{RECORD}"))
    for path in files:
        run = load_run(path.parent)
        if run.record.is_on_own_data:
            is_shared = run.record.noise == "seeded" and len(files) > 1
            yield from _released(run, is_shared)


def _released(run: Run, is_noise_shared: bool) -> Iterator[Spending]:
    """What a run released by its ledger; nothing where it is silent."""
    releases = run.ledger.records
    if all(release.noise.silent for release in releases):
        return
    names = [group.name for group in run.plan.groups]
    if is_noise_shared:
        histories = dict.fromkeys(names, _BARE)
    else:
        histories = {group: history_of(releases, group) for group in names}
    yield Spending(run.plan, histories, 1)


def together(spendings: Iterable[Spending]) -> Iterator[str]:
    """A line for each group, unit and relation: the epsilon of all releases at once.

    Yields:
        An upper bound by the accountant of guarantees, at the least delta of the plans,
        with what it depends on.
    """
    by_neighbours: dict[_Neighbours, list[Spending]] = {}
    for spending in spendings:
        plan = spending.plan
        for group in spending.histories:
            neighbours = _Neighbours(group, plan.unit, plan.spec.relation)
            by_neighbours.setdefault(neighbours, []).append(spending)
    for neighbours, composed in by_neighbours.items():
        yield _line(neighbours, composed)


def _line(neighbours: _Neighbours, composed: Sequence[Spending]) -> str:
    """What the runs spend together of a group, in words."""
    name, unit, relation = neighbours
    pairs = []
    for spending in composed:
        for release, count in spending.histories[name]:
            pairs.append((release, count * spending.runs))
    history = History(pairs)
    groups = [spending.plan.group(name) for spending in composed]
    delta = min(group.delta for group in groups)
    epsilon = accountant(GUARANTEE).epsilon(history, delta, Relation(relation)).upper
    runs = sum(spending.runs for spending in composed)
    budget = max(group.epsilon for group in groups)
    sampling = named_law(laws(history), unit)
    return (
        f"{name}: {runs} runs on the same people, together epsilon "
        f"{at_most(epsilon, 5)} for each {unit} (budget of one run {budget:g}) at delta "
        f"{delta:.3g}, {sampling} sampling, {relation}, accountant {GUARANTEE}"
    )
