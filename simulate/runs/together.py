"""What several runs on the same people spend together: exact composition, per group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from privplan.accounting.accountant import accountant, at_most
from privplan.accounting.certificate import laws
from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    named_law,
)
from privplan.ledger import history_of
from privplan.plan import Plan
from privplan.verification.promise import GUARANTEE
from privplan.verification.verify import load_run
from simulate.algorithms.registry import ALGORITHMS
from simulate.runs.compare import request_for
from simulate.runs.request import Request, prepare

Spent = tuple[Plan, Mapping[str, History], int]
"""A plan, what one run under it releases of each group, and the number of such runs."""
_BARE = History([(Release(0.0, 1.0, SamplingLaw.FULL), 1)])


def planned(
    rows: Mapping[str, Request], seeds: Sequence[int], tried: int
) -> Iterator[Spent]:
    """What the runs of a comparison will spend; ``tried`` more of each method tune it."""
    for name, base in rows.items():
        entry = ALGORITHMS.get(base.algorithm)
        if entry.released == "nothing":
            continue
        plan = prepare(request_for(base, name, seeds[0])).algorithm.plan
        bare = entry.unit == "none" or _shared(base, len(rows) + tried)
        releases = {
            one.name: _BARE if bare else plan.history(one) for one in plan.groups
        }
        yield plan, releases, len(seeds) + tried


def _shared(base: Request, runs_of_a_seed: int) -> bool:
    """Whether runs of one seed draw the same noise, which a difference of two releases removes."""
    return base.key_file is None and runs_of_a_seed > 1


def recorded(rows: Mapping[str, Request], seeds: Sequence[int]) -> Iterator[Spent]:
    """What the ledgers of the runs of a comparison say that they released."""
    for request in (
        request_for(one, name, seed) for name, one in rows.items() for seed in seeds
    ):
        shared, run = _shared(request, len(rows)), load_run(request.folder)
        if any(not release.noise.silent for release in run.ledger.records):
            names = [group.name for group in run.plan.groups]
            of = {
                one: _BARE if shared else history_of(run.ledger.records, one)
                for one in names
            }
            yield run.plan, of, 1


def together(spent: Iterable[Spent]) -> Iterator[str]:
    """One line for each group and unit: the epsilon of all these releases at once."""
    parts = [(plan, plan.unit, plan.spec.relation, of, n) for plan, of, n in spent]
    for name, unit, relation in dict.fromkeys(
        (g, u, r) for _, u, r, of, _ in parts for g in of
    ):
        same = [
            (p, of, n)
            for p, u, r, of, n in parts
            if (u, r) == (unit, relation) and name in of
        ]
        pairs = (
            (one, count * times) for _, of, times in same for one, count in of[name]
        )
        whole, groups = History(pairs), [plan.group(name) for plan, _, _ in same]
        delta = min(group.delta for group in groups)
        found = accountant(GUARANTEE).epsilon(whole, delta, Relation(relation)).upper
        count, budget = (
            sum(times for _, _, times in same),
            max(one.epsilon for one in groups),
        )
        law = f"{named_law(laws(whole), unit)} sampling, {relation}, accountant {GUARANTEE}"
        yield (
            f"{name}: {count} runs on the same people, together epsilon {at_most(found, 5)} for "
            f"each {unit} (budget of one run {budget:g}) at delta {delta:.3g}, {law}"
        )
