"""Rounds by hand, clients trained in one batch, evaluation, and a million clients."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from privplan.errors import InputError
from privplan.planning.solver import solve
from privplan.streams import Purpose, stream
from simulate import tasks
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.components import LocalResult, LocalRule
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine import chunks, loop
from simulate.engine.batches import ABSENT, batches, fill_schedule
from simulate.engine.chunks import one_ahead
from simulate.engine.evaluation import AccuracyMeasures, by_group, measure
from simulate.engine.loop import initial_state, run_round, train
from simulate.local.sgd import PADDING
from simulate.models.registry import model
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from simulate.transforms import keep_largest, shortened
from tests.sabotage.fault import with_components
from tests.simulate import small, tiny
from tests.simulate.conftest import digits_spec
from tests.simulate.tiny import noise, one_round

# Pixels 1, 2 | 1, 4 give updates of norm 5, 10 | 5, 20; clipped to 5 each is (3, 4).
STRICT = LOOSE = np.array([6.0, 8.0])


def build(name, aggregation="paper", **plan):
    """An algorithm of the catalogue under a tiny plan, with this world's local rule."""
    algorithm = ALGORITHMS.get(name).build(
        tiny.plan(**plan), Hyperparameters(aggregation)
    )
    return replace(algorithm, local=tiny.LOCAL)


def test_gdpfed_to_the_letter():
    algorithm = build("GDPFed")
    step, records, _ = one_round(tiny.setting(algorithm))
    strict = STRICT + noise(algorithm.plan, 0, 2.0 * 5)
    loose = LOOSE + noise(algorithm.plan, 1, 0.5 * 5)
    assert_allclose(step, 0.25 / 4 * strict + 0.75 / 4 * loose, rtol=1e-5)
    assert [record.noise_std for record in records] == [10.0, 2.5]
    shares = []
    for record in records:
        shares += record.shares
    assert [share.clipped for share in shares] == [1, 1]
    assert [share.clip_bound for share in shares] == [5.0, 5.0]
    assert [share.factor for share in shares] == [0.0625, 0.1875]
    largest = [share.largest_norm for share in shares]
    assert_allclose(largest, 5.0, rtol=1e-6)
    assert max(largest) <= 5.0


def test_planned_joint_release_scales_the_groups():
    scales = (0.25, 1.0)  # s_m = s / sigma_m with s = 0.5
    algorithm = build("planned", release="joint", scales=scales)
    step, records, _ = one_round(tiny.setting(algorithm))
    released = 0.25 * STRICT + LOOSE + noise(algorithm.plan, 0, 0.5 * 5)
    assert_allclose(step, released / (0.25 * 2 + 1.0 * 2), rtol=1e-5)
    [record] = records
    multipliers = [
        record.release_for(share).noise_multiplier for share in record.shares
    ]
    assert multipliers == list(tiny.SIGMAS)
    for share, scale in zip(record.shares, scales, strict=True):
        assert share.clip_bound == scale * 5
        assert share.largest_norm <= share.clip_bound


def test_fedavg_is_the_mean_over_the_expected_cohort_and_is_booked_as_unprotected():
    step, records, _ = one_round(tiny.setting(build("FedAvg")))
    expected = np.array([3.0, 4.0]) * (1 + 2 + 1 + 4) / 4
    assert_allclose(step, expected, rtol=1e-6)
    [record] = records
    assert record.family == "none"
    assert record.release_for(record.shares[0]).noise_multiplier == 0
    assert [share.clip_bound for share in record.shares] == [None, None]


def test_the_learning_rate_decays_per_round():
    setting = tiny.setting(build("FedAvg"))
    end = train(setting, MemoryLedger(""))
    movement = (end.theta - initial_state(setting).theta).numpy()
    expected = np.array([6.0, 8.0]) * (1 + 0.5 + 0.25)
    assert_allclose(movement, expected, rtol=1e-5)


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8, 1.0])
def test_top_k_against_a_full_sort(fraction):
    vector = torch.from_numpy(default_rng(0).normal(size=101)).float()
    order = np.argsort(-np.abs(vector.numpy()))[: round(fraction * 101)]
    expected = np.zeros(101, dtype=np.float32)
    expected[order] = vector.numpy()[order]
    assert_array_equal(keep_largest(vector, fraction).numpy(), expected)


def test_clipping_never_exceeds_its_bound():
    draw = default_rng(0)
    scales = 10.0 ** draw.uniform(-3, 3, size=(200, 1))
    updates = torch.from_numpy(draw.normal(size=(200, 4000)) * scales).float()
    norms = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64)
    clipped, is_clipped = shortened(updates, 5.0)
    after = torch.linalg.vector_norm(clipped, dim=1, dtype=torch.float64)
    assert (after <= 5.0).all()
    assert_allclose(after[is_clipped].numpy(), 5.0, rtol=5e-7)
    assert torch.equal(is_clipped, norms > 5.0)
    assert torch.equal(clipped[~is_clipped], updates[~is_clipped])


def test_releases_that_are_not_finite_are_refused():
    run = small.setting(algorithm("planned", small.plan()))
    mechanism = run.algorithm.mechanism

    def broken(round_, sums, weights, noise):
        first_release, *further = mechanism.release(round_, sums, weights, noise)
        return (
            replace(first_release, vector=first_release.vector * torch.nan),
            *further,
        )

    faulty = with_components(run, mechanism=replace(mechanism, release=broken))
    start = initial_state(faulty)
    ledger = MemoryLedger(run.algorithm.plan.digest)
    rule = r"^mechanism: must release finite numbers, as round 1"
    with pytest.raises(InputError, match=rule):
        run_round(faulty, start, ledger)


WIDE = tuple(group.model_copy(update={"clients": 200}) for group in tiny.plan().groups)


def test_mini_batches_pass_over_the_records():
    records = np.array([5, 6, 7, 8, 9])
    chosen = np.full((5, 2), ABSENT)
    fill_schedule(chosen, records, stream(0, Purpose.CLIENT, 1, 0))
    assert (chosen == ABSENT).sum() == 1
    assert chosen[2, 1] == ABSENT
    assert sorted(chosen[:3].flatten()) == [ABSENT, 5, 6, 7, 8, 9]
    assert len(set(chosen[3:].flatten())) == 4


def test_batches_do_not_depend_on_who_else_is_trained():
    data = load("digits")
    records = partition(scheme("iid"), data.train_y.numpy(), WIDE, seed=1)
    shared = {
        "seed": 1,
        "round_": 2,
        "steps": 3,
        "size": 4,
        "device": torch.device("cpu"),
    }
    x, y = batches(data, records, np.array([7, 3, 12]), **shared)
    alone_x, alone_y = batches(data, records, np.array([3]), **shared)
    assert torch.equal(x[1:2], alone_x)
    assert torch.equal(y[1:2], alone_y)
    assert x.shape == (3, 3, 4, 1, 8, 8)
    assert (y == PADDING).any()  # three or four records per client
    later, _ = batches(data, records, np.array([3]), **{**shared, "round_": 3})
    assert not torch.equal(alone_x, later)


def test_batches_of_clients_with_a_single_record_and_of_lazy_ones():
    """Each client's rows are its own schedule, whoever else has one record."""
    data = load("digits")
    clients = np.arange(1200)
    for name in ("iid", "iid:5"):
        many = tuple(group.model_copy(update={"clients": 600}) for group in WIDE)
        records = partition(scheme(name), data.train_y.numpy(), many, seed=1)
        _, y = batches(
            data,
            records,
            clients,
            seed=1,
            round_=2,
            steps=3,
            size=4,
            device=torch.device("cpu"),
        )
        for client in (0, 7, 1199):
            source = stream(1, Purpose.CLIENT, 2, client)
            rows = np.full((3, 4), ABSENT)
            fill_schedule(rows, records.records(client), source)
            expected = np.where(rows == ABSENT, PADDING, data.train_y.numpy()[rows])
            assert_array_equal(y[client], expected)


def test_the_next_batch_is_begun_when_one_is_used_and_kept_by_nobody():
    begun: list[int] = []
    results: list[int] = []

    def function(item):
        begun.append(item)
        if item == 2:
            raise torch.OutOfMemoryError
        return [item]

    with ThreadPoolExecutor(1) as thread:
        for item, result in one_ahead(thread, function, iter([1, 2, 3])):
            wait([thread.submit(int)])
            assert begun == list(range(1, min(item + 1, 3) + 1))
            if item == 2:
                with pytest.raises(torch.OutOfMemoryError):
                    result()
                continue
            results += result()
            with pytest.raises(IndexError):
                result()
    assert results == [1, 3]


def test_batches_that_a_thread_assembles_change_no_bit(monkeypatch):
    setting = experiment_of("GDPFed+")
    by_group = replace(setting.algorithm.local, across_groups=False)
    theta, chain, sizes = three_rounds(setting, by_group)
    monkeypatch.setattr(chunks, "AHEAD_ON", "cpu")
    threads: set[str] = set()
    assemble = chunks.client_batch

    def noticed(*arguments, **options):
        threads.add(threading.current_thread().name)
        return assemble(*arguments, **options)

    monkeypatch.setattr(chunks, "client_batch", noticed)
    theta_ahead, chain_ahead, sizes_ahead = three_rounds(setting, by_group)
    assert threads == {"batches_0"}
    assert torch.equal(theta, theta_ahead)
    assert chain == chain_ahead
    assert sizes == sizes_ahead


ACROSS = [
    "FedAvg",
    "planned",
    "DP-FedSAM",
    "DP-FedPGN",
    "DP-FedAvg-BLUR",
    "PPSGD",
    "CENTAUR",
]


def experiment_of(name):
    return prepare(
        Request(solve(digits_spec(rounds=3)), name, "digits", Path("unused"), seed=3)
    )


def watched(local, batches):
    """The rule, which also notes how many clients each batch has."""

    def train(batch):
        batches.append(len(batch.clients))
        return local.train(batch)

    return replace(local, train=train)


def three_rounds(setting, local):
    """Model and chain of the ledger after three rounds, and sizes of the batches."""
    batches: list[int] = []
    algorithm = replace(setting.algorithm, local=watched(local, batches))
    setting = replace(setting, algorithm=algorithm)
    ledger = MemoryLedger(algorithm.plan.digest)
    progress = initial_state(setting)
    for _ in range(3):
        progress = run_round(setting, progress, ledger)
    return progress.theta, progress.chain, batches


@pytest.mark.parametrize("name", ACROSS)
def test_the_groups_of_a_batch_change_no_bit(name):
    setting = experiment_of(name)
    local = setting.algorithm.local
    assert local.across_groups
    theta, chain, batches = three_rounds(setting, local)
    by_group = replace(local, across_groups=False)
    theta_by_group, chain_by_group, batches_by_group = three_rounds(setting, by_group)
    assert torch.equal(theta, theta_by_group)
    assert chain == chain_by_group
    assert len(batches) == 3
    assert len(batches_by_group) == 9
    assert sum(batches) == sum(batches_by_group)


def test_a_rule_that_reads_the_group_gets_one_group_at_a_time():
    setting = experiment_of("DP-FedAvg")
    groups: list[str] = []

    def train(batch):
        groups.append(batch.group.name)
        return LocalResult(torch.zeros(len(batch.clients), setting.dimension))

    three_rounds(setting, LocalRule("reads the group", train))
    assert groups == [group.name for group in setting.algorithm.plan.groups] * 3


MEASURES = AccuracyMeasures(
    correct=np.array([8, 5, 0]), total=np.array([10, 10, 0]), loss=1.0
)


def test_accuracy_overall_by_class_and_of_a_group_on_the_labels_that_it_holds():
    assert MEASURES.accuracy == 13 / 20
    assert_array_equal(MEASURES.by_class, [0.8, 0.5, np.nan])
    shares = {
        "first": np.array([1.0, 0.0, 0.0]),
        "mixed": np.array([0.25, 0.75, 0.0]),
        "absent": np.array([0.0, 0.0, 1.0]),
    }
    expected = {"first": 0.8, "mixed": 0.25 * 0.8 + 0.75 * 0.5, "absent": 0.0}
    assert by_group(MEASURES, shares) == pytest.approx(expected)


def test_measuring_against_plain_predictions_on_any_number_of_threads():
    data = load("digits")
    network = model("mlp-digits")
    theta = network.initial(torch.Generator().manual_seed(0))
    measures = measure(network, theta, data)
    predicted = network.logits(theta, data.inputs(data.test_x)).argmax(1)
    for label in range(10):
        of_class = data.test_y == label
        assert measures.correct[label] == int((predicted[of_class] == label).sum())
        assert measures.total[label] == int(of_class.sum())
    again = measure(network, theta, data, workers=2)
    assert_array_equal(measures.correct, again.correct)
    assert measures.loss == again.loss


def due_in(setting, seed):
    """The test records of each evaluation of a run, by round."""
    records = len(setting.data.test_y)
    return tasks.evaluations(setting.algorithm.plan, setting.partition, records, seed)


def test_all_test_records_are_evaluated_in_the_end_only(
    short_plan, tmp_path, monkeypatch
):
    def request(name):
        return Request(short_plan, "FedAvg", "digits", tmp_path / name, seed=4)

    plain = execute(request("plain")).record
    monkeypatch.setattr(tasks, "EVALUATED_RECORDS", 100)
    sampled = execute(request("part")).record
    setting = prepare(request("part"))
    assert sampled.accuracy == plain.accuracy == plain.metrics[-1].accuracy
    assert sampled.accuracy_by_class == plain.accuracy_by_class
    due = due_in(setting, setting.seed)
    assert_array_equal(due[1], due_in(setting, setting.seed)[1])
    assert len(due[1]) == len(np.unique(due[1])) == 100
    assert not np.array_equal(due[1], due_in(setting, 5)[1])
    theta = loop.train(setting, MemoryLedger(setting.algorithm.plan.digest)).theta
    measures = measure(setting.model, theta, setting.data)
    assert sampled.metrics[-1].accuracy == measures.accuracy
    state = replace(loop.initial_state(setting), round=1)
    earlier = loop.evaluate_if_due(setting, state, due)
    rows = torch.from_numpy(due[1])
    expected = measure(setting.model, state.theta, setting.data, 1, rows)
    assert earlier.metrics[-1].accuracy == expected.accuracy


CLIENTS = 10**6
BYTES_A_CLIENT = 48
"""Most bytes per client: its number in a group, and the same while groups are drawn."""
CODE = """
import runpy, sys
found = runpy.run_path(sys.argv[1])["measure"](int(sys.argv[2]))
print(found.before, found.peak)
"""


@pytest.mark.slow
def test_a_round_of_a_million_clients_fits():
    root = Path(__file__).parents[3]
    script = str(root / "benchmarks" / "population.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", CODE, script, str(CLIENTS)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    before, peak = map(float, done.stdout.split())
    assert (peak - before) * 2**20 < BYTES_A_CLIENT * CLIENTS
    assert peak < 4096
