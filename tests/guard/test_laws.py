"""A deployment whose cohorts break the law is broken, whatever its ledger says."""

import numpy as np
import pytest
from numpy.random import default_rng

from privplan.book.entry import booking_of
from privplan.book.spending import spendings
from privplan.guard import Guard, guard
from privplan.planning.solver import solve
from privplan.record import LEDGER
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from tests.guard.plans import SIZE, train

CLIENTS = 60


def plan_under(law):
    """A plan of one group under a law, 12 rounds."""
    fixed = law == "fixed_size"
    return solve(
        Spec.parse(
            {
                "name": "deployed",
                "groups": [{"name": "all", "clients": CLIENTS, "epsilon": 4.0}],
                "rounds": 12,
                "sampling": law,
                "delta": 1e-4,
                "clipping_norm": 0.5,
                "model": {"name": "cnn-digits", "parameters": SIZE},
                **({"cohort": 15} if fixed else {}),
            }
        )
    )


def exchanged(earlier, later, number):
    """The later cohort with that many clients of the first one in place of its own."""
    return tuple(sorted([*later[number:], *earlier[:number]]))


def thrice_in_a_block(cohorts):
    """Ten clients of round 1 come in rounds 2 and 3 of its block, too."""
    changed = {round_: exchanged(cohorts[1], cohorts[round_], 10) for round_ in (2, 3)}
    return {**cohorts, **changed}


def too_soon(cohorts):
    """One client of round 4 comes again in round 5."""
    return {**cohorts, 5: exchanged(cohorts[4], cohorts[5], 1)}


def another_size(cohorts):
    """One client more in round 7 than the law takes."""
    absent = sorted(set(range(CLIENTS)) - set(cohorts[7]))
    return {**cohorts, 7: tuple(sorted([*cohorts[7], absent[0]]))}


def deployed(folder, plan, change, monkeypatch):
    """A finished run of a guard whose cohorts were changed before it used them."""
    source = default_rng(5).integers(2**32)
    [group] = plan.groups
    law = plan.law_of(group).law
    drawn = {}
    for round_ in range(1, plan.spec.rounds + 1):
        stream = default_rng([source, law.stream_round(round_)])
        positions = law.draw(stream, CLIENTS, group.sampling_ratio, round_)
        drawn[round_] = tuple(np.asarray(positions).tolist())
    changed = change(drawn)
    monkeypatch.setattr(
        guard,
        "draw_registered",
        lambda plan, round_, *_: ({"all": changed[round_]}, {}),
    )
    with Guard(plan, folder) as running:
        train(running)
        assert running.finished
    return judge(load_run(folder))


@pytest.mark.parametrize(
    ("law", "change", "check", "reason"),
    [
        (
            "random_allocation:4",
            thrice_in_a_block,
            "cohorts",
            "of the cohorts of rounds 1 to 4",
        ),
        ("min_separation:3", too_soon, "cohorts", "in the cohorts of rounds 4 and 5"),
        (
            "fixed_size",
            another_size,
            "sampling law",
            "a cohort of 16 where the law takes",
        ),
    ],
)
def test_cohorts_that_the_law_does_not_allow_are_broken(
    tmp_path, monkeypatch, law, change, check, reason
):
    plan = plan_under(law)
    honest = deployed(tmp_path / "honest", plan, dict, monkeypatch)
    assert honest.outcome == "kept"
    assert honest.exit_code == 0
    planted = deployed(tmp_path / "planted", plan, change, monkeypatch)
    assert planted.outcome == "broken"
    [reason_found] = [line.reason for line in planted.failed if line.name == check]
    assert reason in reason_found
    assert '"drawn":' in (tmp_path / "planted" / LEDGER).read_text()


def test_more_reports_than_drawn_clients_are_broken_where_nobody_is_named(
    tmp_path, monkeypatch
):
    """The size that the law is tested with does not stand in for those who reported."""
    plan = plan_under("fixed_size")
    deployed(tmp_path / "run", plan, dict, monkeypatch)
    run = load_run(tmp_path / "run")
    unnamed = []
    for record in run.ledger.records:
        share = record.shares[0].model_copy(
            update={"participants": None, "cohort": CLIENTS}
        )
        unnamed.append(record.model_copy(update={"shares": (share,)}))
    run.ledger.__dict__["records"] = tuple(unnamed)
    [cohorts] = [line for line in judge(run).checks if line.name == "cohorts"]
    assert cohorts.outcome == "failed"
    assert cohorts.reason == "round 1, all: 60 clients reported where 15 were drawn"


def test_failed_rounds_leave_no_lower_bound_of_a_block(tmp_path):
    """A client's choice may have been a round that was never released."""
    folder = tmp_path / "run"
    with Guard(plan_under("random_allocation:4"), folder, evidence="internal") as run:
        for round_ in run.rounds():
            drawn = run.draw(round_)
            if round_ % 4:
                run.fail(round_, "too few reports")
                continue
            for name, client in drawn.members:
                run.add(round_, name, client, np.ones(SIZE))
            run.record(round_, run.release(round_).mean)
        spent = run.epsilon("all")
    [group] = judge(load_run(folder)).groups
    [account], _ = spendings((booking_of(folder, "").run,))
    assert spent.upper > 0
    assert spent.lower == group.realised_lower == account.epsilon_lower == 0
