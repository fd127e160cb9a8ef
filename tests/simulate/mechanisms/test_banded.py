"""Noise correlated over rounds: the server's sums, runs, and what verification sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz

from privplan import judge, load_run
from privplan.errors import InputError
from privplan.evidence import EVIDENCE
from privplan.laws.builtin import Poisson
from privplan.laws.cyclic import CyclicPoisson, coefficients
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import LEDGER
from privplan.spec.spec import Spec
from simulate.aggregators import mean, unmixed
from simulate.components import GroupSum, Released
from simulate.mechanisms import gaussian_joint, gaussian_per_group, mixed_sums
from simulate.runs.request import Request
from simulate.runs.run import InterruptedRunError, execute
from tests.simulate import tiny

BANDS, ROUNDS, SIZE = 3, 8, 40


def group_sums(totals: torch.Tensor) -> list[GroupSum]:
    """Sums of both groups of the tiny plan, [2, SIZE]."""
    return [
        GroupSum(
            group=group, total=total, sampling="full", ratio=1.0, participants=(0, 1), bound=5.0,
            largest_norm=4.0, clipped=1, excluded=0,
        )
        for group, total in zip(tiny.plan().groups, totals, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("joint", [True, False])
def test_the_server_has_the_sums_and_the_solved_noise(joint):
    """Each step is that of the sums, plus C^{-1} of independent draws."""
    mixture = coefficients(BANDS, 0.5)
    inner = gaussian_joint() if joint else gaussian_per_group()
    mechanism, aggregator = mixed_sums(inner, mixture, 2), unmixed(mean(), mixture)
    weights = {group.name: 0.25 for group in tiny.plan().groups}
    generator, theta = np.random.default_rng(3), torch.zeros(SIZE)
    totals = torch.from_numpy(generator.standard_normal((ROUNDS, 2, SIZE)))
    state, server = mechanism.start(theta), aggregator.start(theta)
    steps, drawn = [], []
    for round_ in range(ROUNDS):
        mixed, state = mechanism.mix(group_sums(totals[round_]), state)
        seeds = [np.random.default_rng([round_, index]) for index in range(2)]
        releases, state = mechanism.release_round(
            round_ + 1, mixed, weights, seeds.__getitem__, state
        )
        again = [np.random.default_rng([round_, index]) for index in range(len(releases))]
        noise = [
            one.standard_normal(SIZE) * release.record.noise_std
            for one, release in zip(again, releases, strict=True)
        ]
        drawn.append(0.25 * np.sum(noise, axis=0))
        step, server = aggregator.combine(releases, theta, server)
        steps.append(step.numpy())
    column = np.zeros(ROUNDS)
    column[:BANDS] = mixture
    solved = np.linalg.inv(toeplitz(column, np.zeros(ROUNDS))) @ np.array(drawn)
    expected = 0.25 * totals.sum(1).numpy() + solved
    assert np.array(steps) == pytest.approx(expected, abs=2e-4)
    assert isinstance(releases[0], Released)


def digits(**changes: Any) -> Plan:
    groups = [{"name": name, "clients": 45, "epsilon": e} for name, e in [("a", 2.0), ("b", 6.0)]]
    plain = {
        "name": "turns", "groups": groups, "rounds": 9, "cohort": 20,
        "sampling": "cyclic_poisson:3", "model": {"name": "mlp-digits", "parameters": 2410},
    }  # fmt: skip
    return solve(Spec.parse({**plain, **changes}))


@pytest.fixture(scope="module")
def plan():
    return digits()


@pytest.fixture(scope="module")
def request_(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("turns") / "run"
    request = Request(plan, "planned", "digits", folder, seed=4)
    execute(request)
    return request


def results(folder: Path) -> dict[str, str]:
    return {check.name: check.outcome for check in judge(load_run(folder)).checks}


def test_a_run_is_verified_from_its_ledger(request_):
    verdict = judge(load_run(request_.folder))
    assert not [check for check in verdict.checks if check.outcome == "failed"]
    for group in verdict.groups:
        assert group.budget * 0.98 < group.realised_lower <= group.realised_upper <= group.budget


def test_an_interrupted_run_resumes_to_the_same_model(request_, tmp_path):
    def report(done, rounds):
        if done == 5:
            raise KeyboardInterrupt

    again = replace(request_, folder=tmp_path / "run")
    with pytest.raises((InterruptedRunError, KeyboardInterrupt)):
        execute(again, report=report)
    part = judge(load_run(again.folder))
    for group in part.groups:  # two rounds of a client's turn, one of them with its whole cycle
        assert group.realised_lower < group.realised_upper < group.budget
    assert part.worst.realised_lower < part.worst.realised_upper < part.worst.budget
    execute(again)
    for name in (LEDGER, EVIDENCE):  # the evidence has a hash of each round's model
        left, right = ((one.folder / name).read_bytes() for one in (request_, again))
        assert left == right


def test_clients_out_of_turn_are_found(plan, tmp_path, monkeypatch):
    """Draws from everybody with the ratio of a turn, as Poisson sampling would make them."""
    request = Request(plan, "planned", "digits", tmp_path / "run", seed=4)
    monkeypatch.setattr(CyclicPoisson, "draw", Poisson.draw)
    execute(request)
    monkeypatch.undo()
    failed = {name for name, result in results(request.folder).items() if result == "failed"}
    assert {"cohorts", "cohorts regenerated", "sampling law"} <= failed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "DP-FedAvg"}, "plan.sampling: must be a law under which every round draws"),
        ({"canaries": 5}, "plan.spec.sampling: must be a law under which every round draws"),
        ({"noise": "secure-discrete"}, "noise: must not be secure-discrete under cyclic_poisson:3"),
    ],
)
def test_what_does_not_go_with_turns(changes, message, request_, tmp_path):
    with pytest.raises(InputError) as caught:
        execute(replace(request_, folder=tmp_path / "run", **changes))
    assert message in str(caught.value)
