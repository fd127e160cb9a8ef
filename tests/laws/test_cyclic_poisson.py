"""Cyclic Poisson sampling: who is drawn, how often, and the tests of its evidence."""

from __future__ import annotations

import numpy as np
import pytest

from privplan.accounting.certificate import calibrated_composition, composition
from privplan.accounting.release import SamplingLaw
from privplan.ledger import history_of
from privplan.record import GroupShare, ReleaseRecord

LAW = SamplingLaw("cyclic_poisson:4").law
CLIENTS = 203


def cohorts(rounds: int, ratio: float, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [LAW.draw(generator, CLIENTS, ratio, t) for t in range(1, rounds + 1)]


def test_only_the_clients_of_a_turn_are_drawn() -> None:
    drawn = cohorts(400, 0.3, 1)
    for index, cohort in enumerate(drawn):
        assert set(cohort % 4) <= {index % 4}
        assert len(set(cohort)) == len(cohort)
    times = np.bincount(np.concatenate(drawn), minlength=CLIENTS)
    assert abs(times.mean() - 30) < 5 * np.sqrt(100 * 0.3 * 0.7 / CLIENTS)
    assert times.var() == pytest.approx(100 * 0.3 * 0.7, rel=0.5)


@pytest.mark.parametrize(("rounds", "most"), [(1, 1), (4, 1), (5, 2), (12, 3)])
def test_rounds_of_a_client(rounds: int, most: int) -> None:
    done = range(1, rounds + 1)
    own = [sum(client in LAW.places(t, CLIENTS) for t in done) for client in range(CLIENTS)]
    assert LAW.rounds_of_client(rounds) == LAW.most_of_client(done) == max(own) == most
    assert LAW.rounds_for(most) == 4 * most >= rounds


@pytest.mark.parametrize("rounds", [1, 6, 8])
def test_participations_are_those_of_simulated_rounds(rounds: int) -> None:
    law = LAW.participations({0.3: rounds})
    assert law.sum() == pytest.approx(1)
    counts = np.zeros(len(law))
    for seed in range(200):
        found = np.concatenate(cohorts(rounds, 0.3, seed))
        counts += np.bincount(np.bincount(found, minlength=CLIENTS), minlength=len(law))
    assert counts / counts.sum() == pytest.approx(law, abs=0.01)


def test_honest_cohorts_pass_and_others_do_not() -> None:
    honest = [len(cohort) for cohort in cohorts(80, 0.3, 3)]
    assert not list(LAW.cohort_faults(honest, CLIENTS, 0.3, 1e-6))
    one_turn = [40 if t % 4 == 1 else count for t, count in enumerate(honest)]
    assert "rounds 2, 6" in next(LAW.cohort_faults(one_turn, CLIENTS, 0.3, 1e-6))
    everybody = [round(0.3 * CLIENTS)] * 80  # the ratio of a turn, from all clients
    assert list(LAW.cohort_faults(everybody, CLIENTS, 0.3, 1e-6))
    equal = [15] * 80
    assert "vary unlike" in list(LAW.cohort_faults(equal, CLIENTS, 0.3, 1e-6))[-1]


def test_false_alarms() -> None:
    level = 0.05
    alarms = sum(
        any(LAW.cohort_faults([len(one) for one in cohorts(40, 0.3, seed)], CLIENTS, 0.3, level))
        for seed in range(300)
    )
    assert alarms <= 300 * level


def test_a_ledger_counts_the_rounds_of_a_turn() -> None:
    def line(round_: int) -> ReleaseRecord:
        share = GroupShare(
            group="all", clients=8, sampling="cyclic_poisson:4", sampling_ratio=0.5, cohort=1,
            participants=(round_ % 8,), clip_bound=1.0, largest_norm=1.0, clipped=0, excluded=0,
            weight=1.0,
        )  # fmt: skip
        return ReleaseRecord(
            round=round_, family="gaussian", noise_std=2.0, dimension=3, noise_sum_squares=12.0,
            shares=(share,),
        )  # fmt: skip

    lines = [line(round_) for round_ in range(1, 11)]
    for done in range(1, 11):
        history = history_of(lines[:done], "all")
        assert history.rounds == -(-done // 4)
        assert {release.sampling for release, _ in history} == {"cyclic_poisson:4"}
    twice = history_of([*lines[:4], lines[1]], "all")  # a round that was released twice
    assert twice.rounds == 2


def test_questions_without_a_spec_count_the_rounds_of_a_client() -> None:
    given = {"delta": 1e-5, "relation": "add_remove", "clients": 1000}
    assert composition(1.4, 0.1, 52, sampling="cyclic_poisson:5", **given).history.rounds == 11
    given |= {"noise_multiplier": 1.4, "sampling_ratio": 0.1, "rounds": 50}
    given |= {"accountant": "pld", "sampling": "cyclic_poisson:5"}
    rounds, found = calibrated_composition("rounds", 1.0, **{**given, "rounds": None})
    one = {**given, "sampling": "poisson", "rounds": None}
    assert rounds == 5 * calibrated_composition("rounds", 1.0, **one)[0]
    assert found.history.rounds == rounds / 5
    cohort, _ = calibrated_composition("cohort", 1.0, **{**given, "sampling_ratio": None})
    part = {**given, "sampling": "poisson", "sampling_ratio": None, "rounds": 10, "clients": 200}
    assert cohort == calibrated_composition("cohort", 1.0, **part)[0]
