"""Methods that protect records: DP-SGD at clients, turns, weights and projections."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose
from torch.testing import assert_close

from privplan.errors import InputError
from privplan.ledger import history_of
from privplan.planning.baselines import by_record
from privplan.planning.solver import solve
from privplan.releases import stored_releases
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.algorithms.record_level import record_level
from simulate.algorithms.registry import ALGORITHMS, algorithm, executable
from simulate.client_aggregators import (
    as_planned,
    by_noise,
    by_norm,
    client_mean,
    noise_estimates,
)
from simulate.engine.batches import batches
from simulate.engine.cohort import client_updates
from simulate.engine.loop import initial_state, run_round
from simulate.projections import projected_clients, public_from
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
    """The same run with other noise, and with whole batches."""
    plan = run.algorithm.plan
    changes = {"noise_multiplier": sigma, "record_sampling_ratio": 1.0}
    groups = tuple(group.model_copy(update=changes) for group in plan.groups)
    spec = plan.spec.model_copy(update={"clipping_norm": norm})
    changed = plan.model_copy(update={"groups": groups, "spec": spec})
    return replace(run, algorithm=record_level(changed, run.algorithm.aggregator))


def record_plan(plan, records=4):
    """The plan of DPFedAvg for clients with so many records each."""
    of_groups = {group.name: records for group in plan.groups}
    return by_record(plan, of_groups, weights="population")


def test_the_noise_of_every_step_is_in_the_update_and_in_the_ledger(short_plan):
    base = run_of("DPFedAvg", short_plan)
    quiet = with_noise(base, 1e-12, 0.5)
    without_noise, _ = client_updates(quiet, context_of(quiet))
    still = {update.client: update.vector for update in without_noise}
    loud = with_noise(base, 3.0, 0.5)
    sent, _ = client_updates(loud, context_of(loud))
    steps = loud.algorithm.plan.groups[0].steps or 0
    ratios = []
    for update in sent:
        evidence = update.noise_evidence
        assert evidence.drawn[0] == steps * loud.model.parameters
        step = loud.local.learning_rate / update.group.records
        variance = steps * (step * 3.0 * 0.5) ** 2
        square = (update.vector - still[update.client]).square().mean()
        ratios.append(float(square) / variance)
        drawn = evidence.noise_sum_squares[0] / (evidence.drawn[0] * 1.5**2)
        assert drawn == pytest.approx(1, abs=6 * math.sqrt(2 / evidence.drawn[0]))
    # Gradients move a little along.
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)


def test_no_step_tells_how_many_records_a_client_holds(short_plan):
    """The noise in an update is that of the planned batch, whoever has one more."""
    run = with_noise(run_of("DPFedAvg", short_plan), 1e3, 1e-3)
    assert set(run.partition.sizes(np.arange(run.clients))) == {4, 5}
    sent, _ = client_updates(run, context_of(run))
    group = run.algorithm.plan.groups[0]
    std = run.local.learning_rate * 1e3 * 1e-3 / 4 * math.sqrt(group.steps or 0)
    for update in sent[:20]:
        variance = float(update.vector.double().square().mean())
        tolerance = 6 * math.sqrt(2 / len(update.vector))
        assert variance == pytest.approx(std**2, rel=tolerance)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_a_client_sent_less_its_noise_is_its_clipped_records(momentum, short_plan):
    """By hand: without noise the update is sums alone, of at most C for a record."""
    changes = {"momentum": momentum, "batch_size": 2}
    local = short_plan.spec.local.model_copy(update=changes)
    spec = short_plan.spec.model_copy(update={"local": local})
    run = run_of("DPFedAvg", solve(spec))
    assert (run.algorithm.plan.groups[0].steps or 0) > 1
    journal = MemoryLedger(run.algorithm.plan.digest)
    run_round(run, initial_state(run), journal)
    for record in journal.records:
        [share] = record.shares
        reach = sum(momentum**step for step in range(record.steps))
        residual = math.sqrt(record.residual.sum_squares)
        assert residual <= 1.01 * reach * spec.clipping_norm * share.cohort
        assert residual < 0.1 * reach * math.sqrt(record.noise_sum_squares)


@pytest.mark.slow
def test_each_client_s_history_is_the_planned_one(short_plan):
    run = run_of("DPFedAvg", short_plan)
    plan = run.algorithm.plan
    progress = initial_state(run)
    journal = MemoryLedger(plan.digest)
    for _ in range(run.rounds):
        progress = run_round(run, progress, journal)
    for group in plan.groups:
        assert history_of(journal.records, group.name) == plan.history(group)
    releases = Counter()
    for record in journal.records:
        releases.update((share.group, share.participants) for share in record.shares)
    assert max(releases.values()) == plan.groups[0].participations


def test_poisson_batches_take_each_record_with_its_chance(short_plan):
    run = run_of("DPFedAvg", short_plan)
    clients = np.arange(200)
    _, y = batches(
        run.data,
        run.partition,
        clients,
        seed=1,
        round_=1,
        steps=40,
        size=10,
        device=run.device,
        ratio=0.3,
    )
    trials = 40 * sum(len(run.partition.records(int(client))) for client in clients)
    assert abs(int((y >= 0).sum()) - 0.3 * trials) < 6 * math.sqrt(trials * 0.21)


def test_a_client_with_fewer_records_than_planned_is_refused(short_plan):
    plan = record_plan(short_plan, records=50)
    base = run_of("DPFedAvg", short_plan)
    rule = r"partition: must leave each client of strict 50 records"
    with pytest.raises(InputError, match=rule):
        replace(base, algorithm=record_level(plan, base.algorithm.aggregator))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) for name in ("WeiAvg", "PFA")]
)
def test_methods_of_both_kinds_protect_records_under_such_a_plan(
    name, short_plan, tmp_path
):
    plan = record_plan(short_plan)
    assert ALGORITHMS.get(name).unit_under(plan) == "record"
    assert ALGORITHMS.get(name).unit_under(short_plan) == "client"
    execute(Request(plan, name, "digits", tmp_path / "run"))
    run = load_run(tmp_path / "run")
    assert {record.unit for record in run.ledger.records} == {"record"}
    assert judge(run, 0).kept
    factors = {}
    for record in run.ledger.records:
        factors |= {share.group: share.factor for share in record.shares}
    assert factors["loose"] / factors["strict"] == pytest.approx(12 / 2)


def test_a_plan_of_records_is_refused_by_methods_for_clients(short_plan):
    plan = record_plan(short_plan)
    rule = r"plan\.unit: must be client for GDPFed; record-level plans"
    with pytest.raises(InputError, match=rule):
        algorithm("GDPFed", plan)
    assert executable(short_plan) == list(ALGORITHMS)
    protecting_records = """
    CENTAUR PPSGD WeiAvg PFA DPFedAvg minimum-epsilon
    Robust-HDP Robust-HDP-norms Robust-HDP-oracle
    """
    assert set(executable(plan)) == set(protecting_records.split())


@given(
    clients=st.integers(1, 60), ratio=st.floats(0.05, 1.0), rounds=st.integers(1, 80)
)
def test_clients_take_turns(clients, ratio, rounds):
    draw = rotation().draw
    unused = default_rng(0)
    cohorts = [draw(unused, clients, ratio, number) for number in range(1, rounds + 1)]
    assert all(len(np.unique(cohort)) == len(cohort) for cohort in cohorts)
    counts = np.bincount(np.concatenate(cohorts), minlength=clients)
    assert counts.max() <= math.ceil(rounds * ratio + 1e-6)
    assert counts.max() - counts.min() <= 1
    assert abs(sum(map(len, cohorts)) - rounds * ratio * clients) <= 1


@pytest.mark.parametrize("name", ["CENTAUR", "PPSGD"])
def test_personal_methods_keep_the_budgets_of_records(name, tmp_path):
    """What stays at a client is noisy, what leaves it is accounted for step by step."""
    spec = {
        "name": "records",
        "unit": "record",
        "delta": 1e-3,
        "rounds": 3,
        "cohort": 5,
        "groups": [
            {
                "name": "strict",
                "clients": 4,
                "epsilon": 2.0,
                "records": 40,
                "batch_size": 10,
            },
            {"name": "loose", "clients": 6, "epsilon": 8.0, "records": 40},
        ],
        "clipping_norm": 1.0,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "local": {"epochs": 2, "batch_size": 20, "learning_rate": 0.2, "momentum": 0.5},
        "planning": {"accountant": "rdp", "weights": "epsilon"},
    }
    plan = solve(Spec.parse(spec))
    execute(Request(plan, name, "digits", tmp_path / "run", seed=2))
    run = load_run(tmp_path / "run")
    verdict = judge(run, 0)
    assert verdict.kept, verdict.checks
    body = 2080 if name == "CENTAUR" else 2410
    for line in run.ledger.records:
        assert line.unit == "record"
        assert line.dimension == line.steps * body
        assert line.residual is not None
    for group, spent in zip(run.plan.groups, verdict.groups, strict=True):
        assert spent.realised_upper <= group.epsilon
        assert spent.realised_upper == pytest.approx(spent.planned, rel=1e-6)


@pytest.mark.slow
def test_the_record_has_the_weights_that_the_server_found(short_plan, tmp_path):
    """By hand from the stored releases, after an interruption, and in a replay."""
    plan = record_plan(short_plan)
    request = Request(plan, "Robust-HDP-norms", "digits", tmp_path)
    interrupt(request, 2)
    execute(request)
    run = load_run(tmp_path)
    shares = Counter()
    for round_, sent in stored_releases(tmp_path, run.plan, run.ledger).releases():
        weights = [1 / np.square(vector, dtype=np.float64).sum() for vector in sent]
        lines = [line for line in run.ledger.records if line.round == round_]
        for line, weight in zip(lines, weights, strict=True):
            share = weight / sum(weights)
            shares[line.shares[0].group] += share / run.plan.spec.rounds
    assert run.record.weights == pytest.approx(shares, rel=1e-5)
    assert judge(run, 0).kept
    report = replayed(tmp_path, 1)
    assert report.outcome == "passed", report.reason
    assert comparison(report, "weights") == (len(shares), 0)


def test_a_client_whose_update_was_not_finite_does_not_count():
    draw = default_rng(3)
    sent = [released(list(draw.normal(size=50) * std), 1.0) for std in (1.0, 2.0, 3.0)]
    silent = released([0.0] * 50, 1.0)
    rule = client_mean("by estimated noise", by_noise(50))
    expected, _ = rule.combine(sent, torch.zeros(50), {})
    with_silent = [*sent[:1], silent, *sent[1:]]
    step, _ = rule.combine(with_silent, torch.zeros(50), {})
    assert expected.isfinite().all()
    assert float((step - expected).norm()) < 0.5 * float(expected.norm())
    nobody, _ = rule.combine([silent], torch.zeros(50), {})
    assert_close(nobody, torch.zeros(50))


def test_pfa_projects_private_clients_onto_public_ones():
    sent = [released([2.0, 0.0, 0.0], 3.0), released([1.0, 4.0, 5.0], 1.0)]
    step, _ = projected_clients(1).combine(sent, torch.zeros(3), {})
    expected = (3.0 * np.array([2.0, 0, 0]) + 1.0 * np.array([1.0, 0, 0])) / 4.0
    assert_allclose(step.numpy(), expected, rtol=1e-6)
    plain, _ = client_mean("mean", as_planned).combine(sent, torch.zeros(3), {})
    assert_allclose(plain.numpy(), [7 / 4, 1.0, 5 / 4], rtol=1e-6)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8))
def test_public_budgets_are_the_upper_of_two_clusters(epsilons):
    """No other split into intervals has a smaller sum of squares, by brute force."""
    values = np.array(epsilons)
    edge = public_from(epsilons)

    def cost(edge):
        clusters = [values[values < edge], values[values >= edge]]
        return float(
            sum(cluster.var() * len(cluster) for cluster in clusters if len(cluster))
        )

    assert cost(edge) <= min(map(cost, epsilons)) * (1 + 1e-9) + 1e-12
    assert (edge == min(epsilons)) is (len(set(epsilons)) == 1)


def test_pfa_with_budgets_that_all_differ_has_several_public_clients():
    """Of 1, 1.2, 3 and 3.3 the two upper ones are public, and are not projected."""
    sent = [
        released([1.0, 2.0, 5.0], 1.0),
        released([2.0, 1.0, 7.0], 1.2),
        released([4.0, 0.0, 0.0], 3.0),
        released([0.0, 2.0, 0.0], 3.3),
    ]
    step, _ = projected_clients(2).combine(sent, torch.zeros(3), {})
    expected = np.array([1 * 1 + 1.2 * 2 + 3 * 4, 1 * 2 + 1.2 * 1 + 3.3 * 2, 0.0]) / 8.5
    assert_allclose(step.numpy(), expected, atol=1e-5)


def excess(weights, variances):
    """Noise variance of the weighted mean over the least possible one, less 1."""
    shares = weights.numpy() / float(weights.sum())
    oracle = 1 / variances / (1 / variances).sum()
    return float((shares**2 * variances).sum() / (oracle**2 * variances).sum() - 1)


def test_robust_pca_earns_its_cost_where_the_common_signal_is_strong():
    """Raw norms give the cleanest clients too little: their norm is mostly signal."""
    updates, variances = common_signal(60, 1.0)
    raw = excess(by_norm(updates, []), variances)
    assert raw > 0.3
    assert excess(by_noise(2000)(updates, []), variances) < 0.1 * raw


def test_blocks_of_clients_are_on_one_scale():
    """With more clients than a decomposition, weights are those of one within 5%."""
    updates, variances = common_signal(240, 0.5)
    weights = 1 / noise_estimates(updates, 1000)
    assert excess(weights, variances) < 0.05
