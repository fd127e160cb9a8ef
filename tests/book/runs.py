"""Run folders for a book, made without a simulation."""

from functools import cache

from privplan.accounting.release import SamplingLaw
from privplan.book.entry import booking
from privplan.record import PLAN, RunRecord
from privplan.verification.verify import load_run
from tests.verification import honest_run

PER_ROUND = len(honest_run.GROUPS)


@cache
def two_groups(relation="add_remove", person=None):
    """The honest run's plan, under a relation, and a word for whom it protects."""
    return honest_run.plan(honest_run.spec(relation=relation, person=person))


def run(folder, seed=1, rounds=None, relation="add_remove", records=None, person=None):
    """A run folder: the first rounds of the run of that seed, or these releases."""
    the_plan = two_groups(relation, person)
    if records is None:
        records = honest_run.releases(the_plan, seed)
        if rounds is not None:
            records = records[: PER_ROUND * rounds]
    honest_run.write_run(folder, records)
    the_plan.save(folder / PLAN)
    chain = honest_run.write_ledger(folder, the_plan, records)
    honest_run.write_evidence(folder, the_plan)
    change = {"plan_digest": the_plan.digest, "seed": seed, "chain": chain}
    if rounds is not None:
        change |= {
            "status": "running",
            "rounds_done": rounds,
            "chain": "",
            "metrics": (),
        }
        change |= {"accuracy": None, "accuracy_by_class": {}, "accuracy_by_group": {}}
    RunRecord.load(folder).model_copy(update=change).save(folder)
    return folder


def as_recorded(folder, population=""):
    """The run of a folder as booked at its recorded cost, whatever its verdict is."""
    return booking(load_run(folder), folder, population, "kept", "recorded").run


def full(folder, sigma, seed=1):
    """A run in which everybody takes part in every round, at one noise multiplier."""
    records = []
    for release in honest_run.releases(two_groups(), seed):
        share = release.shares[0]
        bound = share.clip_bound or 0.0
        changed = share.model_copy(
            update={"sampling": SamplingLaw.FULL, "sampling_ratio": 1.0}
        )
        records.append(
            release.model_copy(
                update={"noise_std": sigma * bound, "shares": (changed,)}
            )
        )
    return run(folder, seed, records=records)
