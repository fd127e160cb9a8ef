"""Methods that protect records: DP-SGD at the clients, turns, weights and projections."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privplan.errors import InputError
from privplan.ledger import history_of
from privplan.planning.baselines import by_record
from privplan.planning.solver import solve
from privplan.releases import stored_releases
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate import client_aggregators, projections
from simulate.algorithms.record_level import record_level
from simulate.algorithms.registry import ALGORITHMS, algorithm, executable
from simulate.engine.batches import batches
from simulate.engine.cohort import client_updates
from simulate.engine.loop import initial_state, run_round
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.samplers import rotation
from tests.simulate.algorithms.references.records import (
    common_signal,
    context_of,
    released,
    run_of,
)
from tests.simulate.conftest import interrupt
from tests.simulate.replay.runs import comparison, replayed


def with_noise(run, sigma, norm):
    """The same run with other noise, and so many in every batch that it is the whole."""
    plan = run.algorithm.plan
    changes = {"noise_multiplier": sigma, "record_sampling_ratio": 1.0}
    groups = tuple(group.model_copy(update=changes) for group in plan.groups)
    spec = plan.spec.model_copy(update={"clipping_norm": norm})
    other = plan.model_copy(update={"groups": groups, "spec": spec})
    return replace(run, algorithm=record_level(other, run.algorithm.aggregator))


def test_the_noise_of_every_step_is_in_the_update_and_in_the_ledger(short_plan):
    base = run_of("DPFedAvg", short_plan)
    quiet, loud = with_noise(base, 1e-12, 0.5), with_noise(base, 3.0, 0.5)
    still = {
        one.client: one.vector for one in client_updates(quiet, context_of(quiet))[0]
    }
    sent, _ = client_updates(loud, context_of(loud))
    steps = loud.algorithm.plan.groups[0].steps or 0
    ratios = []
    for update in sent:
        assert update.noise_evidence.drawn[0] == steps * loud.model.parameters
        step = loud.local.learning_rate / update.group.records
        variance = steps * (step * 3.0 * 0.5) ** 2
        moved = (update.vector - still[update.client]).square().mean()
        ratios.append(float(moved) / variance)
        evidence = update.noise_evidence
        drawn = evidence.noise_sum_squares[0] / (evidence.drawn[0] * 1.5**2)
        assert drawn == pytest.approx(
            1, abs=6 * math.sqrt(2 / update.noise_evidence.drawn[0])
        )
    assert np.mean(ratios) == pytest.approx(
        1, abs=0.05
    )  # gradients move a little along


def test_no_step_tells_how_many_records_a_client_holds(short_plan):
    """The noise in an update is that of the planned batch, whoever holds one record more."""
    run = with_noise(run_of("DPFedAvg", short_plan), 1e3, 1e-3)
    assert set(run.partition.sizes(np.arange(run.clients))) == {4, 5}
    sent, _ = client_updates(run, context_of(run))
    group = run.algorithm.plan.groups[0]
    std = run.local.learning_rate * 1e3 * 1e-3 / 4 * math.sqrt(group.steps or 0)
    for update in sent[:20]:
        found = float(update.vector.double().square().mean())
        assert found == pytest.approx(std**2, rel=6 * math.sqrt(2 / len(update.vector)))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_a_client_sent_less_its_noise_is_its_clipped_records(momentum, short_plan):
    """By hand: without noise the update is the sums alone, each worth at most C per record."""
    local = short_plan.spec.local.model_copy(
        update={"momentum": momentum, "batch_size": 2}
    )
    spec = short_plan.spec.model_copy(update={"local": local})
    run = run_of("DPFedAvg", solve(spec))
    assert (run.algorithm.plan.groups[0].steps or 0) > 1
    journal = MemoryLedger(run.algorithm.plan.digest)
    run_round(run, initial_state(run), journal)
    for record in journal.records:
        [share] = record.shares
        reach = sum(momentum**step for step in range(record.steps))
        rest, noise = (
            math.sqrt(record.residual.sum_squares),
            math.sqrt(record.noise_sum_squares),
        )
        assert rest <= 1.01 * reach * spec.clipping_norm * share.cohort
        assert rest < 0.1 * reach * noise


@pytest.mark.slow
def test_each_client_s_history_is_the_planned_one(short_plan):
    run = run_of("DPFedAvg", short_plan)
    progress, journal = initial_state(run), MemoryLedger(run.algorithm.plan.digest)
    for _ in range(run.rounds):
        progress = run_round(run, progress, journal)
    for group in run.algorithm.plan.groups:
        assert history_of(journal.records, group.name) == run.algorithm.plan.history(
            group
        )
    shares = (share for record in journal.records for share in record.shares)
    taken = Counter((share.group, share.participants) for share in shares)
    assert max(taken.values()) == run.algorithm.plan.groups[0].participations


def test_poisson_batches_take_each_record_with_its_chance(short_plan):
    run, clients = run_of("DPFedAvg", short_plan), np.arange(200)
    _, y = batches(
        run.data, run.partition, clients, seed=1, round_=1, steps=40, size=10, device=run.device,
        ratio=0.3,
    )  # fmt: skip
    trials = 40 * sum(len(run.partition.records(int(client))) for client in clients)
    assert abs(int((y >= 0).sum()) - 0.3 * trials) < 6 * math.sqrt(trials * 0.21)


def test_a_client_with_fewer_records_than_planned_is_refused(short_plan):
    plan = by_record(
        short_plan, {g.name: 50 for g in short_plan.groups}, weights="population"
    )
    base = run_of("DPFedAvg", short_plan)
    with pytest.raises(
        InputError, match=r"partition: must leave each client of strict 50 records"
    ):
        replace(base, algorithm=record_level(plan, base.algorithm.aggregator))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) for name in ("WeiAvg", "PFA")]
)
def test_methods_of_both_kinds_protect_records_under_such_a_plan(
    name, short_plan, tmp_path
):
    plan = by_record(
        short_plan, {g.name: 4 for g in short_plan.groups}, weights="population"
    )
    assert ALGORITHMS.get(name).unit_under(plan) == "record"
    assert ALGORITHMS.get(name).unit_under(short_plan) == "client"
    execute(Request(plan, name, "digits", tmp_path / "run"))
    run = load_run(tmp_path / "run")
    assert {record.unit for record in run.ledger.records} == {"record"}
    assert judge(run, 0).kept
    one_of_each = {
        share.group: share.factor for r in run.ledger.records for share in r.shares
    }
    assert one_of_each["loose"] / one_of_each["strict"] == pytest.approx(12 / 2)


def test_a_plan_of_records_is_refused_by_methods_for_clients(short_plan):
    plan = by_record(
        short_plan, {g.name: 4 for g in short_plan.groups}, weights="population"
    )
    rule = r"plan\.unit: must be client for GDPFed; record-level plans"
    with pytest.raises(InputError, match=rule):
        algorithm("GDPFed", plan)
    assert executable(short_plan) == list(ALGORITHMS)
    assert set(executable(plan)) == {
        "CENTAUR", "PPSGD", "WeiAvg", "PFA", "DPFedAvg", "minimum-epsilon", "Robust-HDP",
        "Robust-HDP-norms", "Robust-HDP-oracle",
    }  # fmt: skip


@given(
    clients=st.integers(1, 60), cohort=st.floats(0.05, 1.0), rounds=st.integers(1, 80)
)
def test_clients_take_turns(clients, cohort, rounds):
    draw, ratio = rotation().draw, cohort
    unused = np.random.default_rng(0)
    parts = [draw(unused, clients, ratio, number) for number in range(1, rounds + 1)]
    assert all(len(np.unique(part)) == len(part) for part in parts)
    counts = np.bincount(np.concatenate(parts), minlength=clients)
    assert counts.max() <= math.ceil(rounds * ratio + 1e-6)
    assert counts.max() - counts.min() <= 1
    assert abs(sum(map(len, parts)) - rounds * ratio * clients) <= 1


@pytest.mark.parametrize("name", ["CENTAUR", "PPSGD"])
def test_personal_methods_keep_the_budgets_of_records(name, tmp_path):
    """What stays at a client is noisy, what leaves it is accounted for step by step."""
    spec = {
        "name": "records", "unit": "record", "delta": 1e-3, "rounds": 3, "cohort": 5,
        "groups": [
            {"name": "strict", "clients": 4, "epsilon": 2.0, "records": 40, "batch_size": 10},
            {"name": "loose", "clients": 6, "epsilon": 8.0, "records": 40},
        ],
        "clipping_norm": 1.0, "model": {"name": "mlp-digits", "parameters": 2410},
        "local": {"epochs": 2, "batch_size": 20, "learning_rate": 0.2, "momentum": 0.5},
        "planning": {"accountant": "rdp", "weights": "epsilon"},
    }  # fmt: skip
    plan = solve(Spec.parse(spec), second_opinion=False)
    execute(Request(plan, name, "digits", tmp_path / "run", seed=2))
    run = load_run(tmp_path / "run")
    verdict = judge(run, 0)
    assert verdict.kept, verdict.checks
    body = 2080 if name == "CENTAUR" else 2410
    for line in run.ledger.records:
        assert (line.unit, line.dimension) == ("record", line.steps * body)
        assert line.residual is not None
    for group, found in zip(run.plan.groups, verdict.groups, strict=True):
        assert found.realised_upper <= group.epsilon
        assert found.realised_upper == pytest.approx(found.planned, rel=1e-6)


def test_the_record_has_the_weights_that_the_server_found(short_plan, tmp_path):
    """By hand from the stored releases; after an interruption, and in the replay's own sums."""
    plan = by_record(
        short_plan, {g.name: 4 for g in short_plan.groups}, weights="population"
    )
    request = Request(plan, "Robust-HDP-norms", "digits", tmp_path)
    interrupt(request, 2)
    execute(request)
    run, found = load_run(tmp_path), Counter()
    for round_, sent in stored_releases(tmp_path, run.plan, run.ledger).releases():
        own = [1 / np.square(one, dtype=np.float64).sum() for one in sent]
        names = [
            one.shares[0].group for one in run.ledger.records if one.round == round_
        ]
        for name, one in zip(names, own, strict=True):
            found[name] += one / sum(own) / run.plan.spec.rounds
    assert run.record.weights == pytest.approx(found, rel=1e-5)
    assert judge(run, 0).kept
    report = replayed(tmp_path, 1)
    assert report.outcome == "passed", report.reason
    assert comparison(report, "weights") == (len(found), 0)


def test_a_client_whose_update_was_not_finite_does_not_count():
    draw = np.random.default_rng(3)
    sent = [released(list(draw.normal(size=50) * std), 1.0) for std in (1.0, 2.0, 3.0)]
    silent = released([0.0] * 50, 1.0)
    rule = client_aggregators.client_mean("by estimated noise", client_aggregators.by_noise(50))
    expected, _ = rule.combine(sent, torch.zeros(50), {})
    found, _ = rule.combine([*sent[:1], silent, *sent[1:]], torch.zeros(50), {})
    assert expected.isfinite().all()
    assert float((found - expected).norm()) < 0.5 * float(expected.norm())
    nobody, _ = rule.combine([silent], torch.zeros(50), {})
    torch.testing.assert_close(nobody, torch.zeros(50))


def test_pfa_projects_private_clients_onto_public_ones():
    sent = [released([2.0, 0.0, 0.0], 3.0), released([1.0, 4.0, 5.0], 1.0)]
    step, _ = projections.projected_clients(1).combine(sent, torch.zeros(3), {})
    expected = (3.0 * np.array([2.0, 0, 0]) + 1.0 * np.array([1.0, 0, 0])) / 4.0
    np.testing.assert_allclose(step.numpy(), expected, rtol=1e-6)
    plain, _ = client_aggregators.client_mean("mean", client_aggregators.as_planned).combine(
        sent, torch.zeros(3), {}
    )
    np.testing.assert_allclose(plain.numpy(), [7 / 4, 1.0, 5 / 4], rtol=1e-6)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8))
def test_public_budgets_are_the_upper_of_two_clusters(epsilons):
    """No other interval split has a smaller sum of squares, by brute force with NumPy."""
    least, values = projections.public_from(epsilons), np.array(epsilons)

    def cost(edge):
        parts = [values[values < edge], values[values >= edge]]
        return float(
            sum(((part - part.mean()) ** 2).sum() for part in parts if len(part))
        )

    assert cost(least) <= min(map(cost, epsilons)) * (1 + 1e-9) + 1e-12
    assert (least == min(epsilons)) is (len(set(epsilons)) == 1)


def test_pfa_with_budgets_that_all_differ_has_several_public_clients():
    """Budgets 1, 1.2, 3 and 3.3: the two upper ones are public, and are not projected."""
    sent = [
        released([1.0, 2.0, 5.0], 1.0), released([2.0, 1.0, 7.0], 1.2),
        released([4.0, 0.0, 0.0], 3.0), released([0.0, 2.0, 0.0], 3.3),
    ]  # fmt: skip
    step, _ = projections.projected_clients(2).combine(sent, torch.zeros(3), {})
    expected = np.array([1 * 1 + 1.2 * 2 + 3 * 4, 1 * 2 + 1.2 * 1 + 3.3 * 2, 0.0]) / 8.5
    np.testing.assert_allclose(step.numpy(), expected, atol=1e-5)


def excess(weights, variances):
    """Noise variance of the weighted mean over the least possible one, less 1."""
    found, oracle = weights.numpy() / float(weights.sum()), 1 / variances
    oracle = oracle / oracle.sum()
    return float((found**2 * variances).sum() / (oracle**2 * variances).sum() - 1)


def test_robust_pca_earns_its_cost_where_the_common_signal_is_strong():
    """Raw norms give the cleanest clients too little: their norm is mostly the common signal."""
    updates, variances = common_signal(60, 1.0)
    raw = excess(client_aggregators.by_norm(updates, []), variances)
    found = excess(client_aggregators.by_noise(2000)(updates, []), variances)
    assert raw > 0.3
    assert found < 0.1 * raw


def test_blocks_of_clients_are_on_one_scale():
    """More clients than one decomposition has: weights stay those of one matrix within 5%."""
    updates, variances = common_signal(240, 0.5)
    assert excess(1 / client_aggregators.noise_estimates(updates, 1000), variances) < 0.05
