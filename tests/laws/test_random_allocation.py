"""Random allocation: who is drawn, what specs may not ask, and tests of evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.book.entry import booking_of
from privplan.book.spending import spendings
from privplan.errors import UnsupportedError
from privplan.ledger import history_of, read_ledger, worst_client
from privplan.planning.baselines import unprotected
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.streams import Purpose, stream
from privplan.verification.verify import judge, load_run
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute

LAW = SamplingLaw("random_allocation:4").law
CLIENTS = 203


def cohorts(blocks: int, seed: int) -> dict[int, tuple[int, ...]]:
    """Cohorts by round, each from the stream of the first round of its block."""
    return {
        t: tuple(
            LAW.draw(
                stream(seed, Purpose.SAMPLING, LAW.stream_round(t), 0), CLIENTS, 1.0, t
            ).tolist()
        )
        for t in range(1, 4 * blocks + 1)
    }


def spec(**changes: Any) -> Spec:
    """A small spec of two groups under the law."""
    data = {
        "name": "allocation",
        "groups": [
            {"name": "strict", "clients": 70, "epsilon": 2.0},
            {"name": "loose", "clients": 73, "epsilon": 8.0},
        ],
        "delta": "n^-1.1",
        "rounds": 8,
        "sampling": "random_allocation:4",
        "relation": "add_remove",
        "local": {"steps": 2, "batch_size": 5, "learning_rate": 0.1},
        "model": {"name": "mlp-digits", "parameters": 2410},
    }
    return Spec.parse({**data, **changes})


def test_each_client_is_drawn_once_in_a_block() -> None:
    drawn = cohorts(50, 1)
    for first_round in range(1, 201, 4):
        block = np.concatenate([drawn[t] for t in range(first_round, first_round + 4)])
        assert sorted(block.tolist()) == list(range(CLIENTS))
    is_drawn = np.array(
        [np.isin(np.arange(CLIENTS), cohort) for cohort in drawn.values()]
    )
    position = is_drawn.reshape(50, 4, CLIENTS).argmax(axis=1)
    # Each block is drawn anew.
    assert abs((position[1:] == position[:-1]).mean() - 0.25) < 0.02
    assert (
        np.abs(np.bincount(position.ravel(), minlength=4) / position.size - 0.25).max()
        < 0.02
    )


def test_rounds_of_a_client() -> None:
    for rounds, max_rounds in ((1, 1), (4, 1), (5, 2), (12, 3)):
        assert (
            LAW.rounds_of_client(rounds)
            == LAW.most_of_client(range(1, rounds + 1))
            == max_rounds
        )
    assert LAW.most_of_client([1, 2, 2, 5]) == 3
    assert LAW.participations({1.0: 8}).tolist() == [0, 0, 1]
    assert LAW.participations({1.0: 7}).tolist() == [0, 0.25, 0.75]


def test_attendance() -> None:
    honest = cohorts(3, 2)
    assert not list(LAW.attendance_faults(honest, CLIENTS))
    assert not list(
        LAW.attendance_faults({t: honest[t] for t in range(1, 11)}, CLIENTS)
    )
    missing = {**honest, 6: honest[6][1:]}
    assert f"client {honest[6][0]} is in 0 of" in next(
        LAW.attendance_faults(missing, CLIENTS)
    )
    twice = {**honest, 7: (*honest[7], honest[6][0])}
    assert f"client {honest[6][0]} is in 2 of" in next(
        LAW.attendance_faults(twice, CLIENTS)
    )
    unfinished = {9: (5, 6), 10: (5, 7)}
    assert "client 5 is in 2 of" in next(LAW.attendance_faults(unfinished, CLIENTS))


def test_sizes() -> None:
    level = 0.05
    alarms = 0
    for seed in range(60):
        sizes = [len(cohort) for cohort in cohorts(10, seed).values()]
        alarms += any(LAW.cohort_faults(sizes, CLIENTS, 1.0, level))
    assert alarms <= 60 * level
    assert "a cohort of 203" in next(
        LAW.cohort_faults([203, 0, 0, 0], CLIENTS, 1.0, 1e-6)
    )
    equal = [51, 51, 51, 50] * 40
    assert "vary unlike" in next(LAW.cohort_faults(equal, CLIENTS, 1.0, 1e-6))


def test_replace_one_is_bounded_from_both_sides_and_rdp_refused() -> None:
    history = History.repeated(Release(10.0, 1.0, "random_allocation:4"), 2)
    bounds = accountant("pld").epsilon(history, 1e-5, "replace_one")
    once = accountant("pld").epsilon(history, 1e-5, "add_remove")
    assert 0 < bounds.lower < bounds.upper
    assert once.upper < bounds.upper
    with pytest.raises(UnsupportedError, match="no moment bound"):
        accountant("rdp").epsilon(history, 1e-5, "add_remove")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("random_allocation:4", 3),
        ("min_separation:5", 3),
        ("banded_separation:3", 4),
        ("cyclic_allocation:3:2", 2),
        ("balls_in_bins:12", 1),
    ],
)
def test_a_run_is_planned_trained_verified_and_replayed(
    name: str, times: int, tmp_path: Path
) -> None:
    plan = solve(spec(sampling=name, rounds=12))
    folder = tmp_path / "run"
    assert [group.sampling_ratio for group in plan.groups] == [1.0, 1.0]
    has_blocks = name != "min_separation:5"
    share = SamplingLaw(name).law.drawable(1)
    expected = [group.expected_cohort for group in plan.groups]
    assert expected == pytest.approx([70 * share, 73 * share])
    execute(Request(plan, "planned", "digits", folder, seed=3))
    records = read_ledger(folder, plan.digest).records
    for group in plan.groups:
        assert history_of(records, group.name) == plan.history(group)
        assert plan.history(group).rounds == times
        assert worst_client(records, group.name, group.clients)[1].rounds == times
        # The last block is not complete; separation has no blocks.
        _, stopped = worst_client(
            records[:-1], group.name, group.clients, complete=True
        )
        assert stopped.rounds == times - has_blocks
    report = Replay(folder).run(None, 0, lambda done, total: None)
    assert report.outcome == "passed", report.reason
    running = booking_of(folder, "").run.model_copy(update={"status": "running"})
    assert (not spendings((running,))[0][0].epsilon_lower) == has_blocks
    checks = {check.name: check.outcome for check in judge(load_run(folder), 0).checks}
    for check in (
        "cohorts",
        "cohorts regenerated",
        "participation",
        "sampling law",
        "budget",
    ):
        assert checks[check] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("law", ["random_allocation:7", "min_separation:7"])
def test_groups_that_blocks_do_not_divide(law: str) -> None:
    """100/7 + 200/7 clients a round are not the float 300/7."""
    sizes = {"strict": (100, 2.0), "loose": (200, 8.0)}
    groups = [
        {"name": name, "clients": n, "epsilon": e} for name, (n, e) in sizes.items()
    ]
    plan = solve(spec(sampling=law, rounds=21, groups=groups))
    assert unprotected(plan.spec).spec.expected_cohort == pytest.approx(300 / 7)
    assert [group.sampling_ratio for group in plan.groups] == [1.0, 1.0]
    assert plan.spec.expected_cohort == pytest.approx(300 / 7)
