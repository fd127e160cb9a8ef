"""The engine on a device that is not there: as on a CPU, with a GPU's refusals."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from privplan.secure_stream import NoiseKey
from privplan.spec.spec import Spec
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.components import LocalResult
from simulate.engine.loop import initial_state, run_round
from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import PADDING, local_sgd
from simulate.models import basis, modular
from simulate.models.objective import Objective
from simulate.models.registry import model
from simulate.runs import checkpoint
from simulate.runs.checkpoint import load
from simulate.runs.ledger_writer import MemoryLedger
from tests.simulate import small
from tests.simulate.algorithms.references import records
from tests.simulate.device import pretend

ROUNDS = 2
# The quick suite runs these: sums by group and of all, personal vectors, and records.
QUICK = ("GDPFed+", "PPSGD", "planned", "DPFedAvg")
OF_CLIENTS = (
    "CENTAUR",
    "DP-FedPGN",
    "DP2-FedSAM",
    "Fed-SMP",
    "FedAvg",
    "GDPFed+",
    "HyperFL-LPM",
    "Local-only",
    "PFA",
    "PPSGD",
    "pFedHN",
    "planned",
    "Time-adaptive HDPFL",
)
OF_RECORDS = ("DPFedAvg", "CENTAUR", "PPSGD", "Robust-HDP")
SLOW = pytest.mark.slow


def algorithms():
    """Name and unit of each algorithm, as parameters of a test."""
    for name in OF_CLIENTS:
        yield pytest.param(name, "client", marks=() if name in QUICK else SLOW)
    for name in OF_RECORDS:
        yield pytest.param(name, "record", marks=() if name == "DPFedAvg" else SLOW)


def world_of(name, unit="client"):
    if unit == "record":
        built = algorithm(name, records.solved(), records=records.HOLDINGS)
    else:
        built = ALGORITHMS.get(name).build(small.plan(), Hyperparameters("paper"))
    return replace(small.setting(built), workers=1)


def on_device(world, rounds=ROUNDS, folder=None):
    """The ledger, the counts and the model of a run on the device."""
    with pretend.in_use() as use:
        state, ledger = _played(replace(world, device=pretend.device()), rounds, folder)
        return ledger.records, use.waits.copy(), use.sent.copy(), state.theta.cpu()


def _played(world, rounds, folder=None):
    state = initial_state(world)
    ledger = MemoryLedger("")
    for _ in range(rounds):
        state = run_round(world, state, ledger)
        # As a run that is interrupted after each round.
        if folder is not None:
            checkpoint.save(folder, state, ROUNDS + 1)
            state = checkpoint.load(folder, world.device)
    return state, ledger


def same(value, expected):
    """Whether two values of ledgers are equal, numbers up to rounding."""
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            same(value[k], expected[k]) for k in value
        )
    if isinstance(expected, (list, tuple)):
        pairs = zip(value, expected, strict=True)
        return len(value) == len(expected) and all(same(*pair) for pair in pairs)
    if isinstance(expected, float):
        return value == pytest.approx(expected, rel=1e-4, abs=1e-6)
    return value == expected


@pytest.mark.parametrize(
    ("name", "unit"),
    list(algorithms()),
)
def test_a_run_on_the_device_is_that_on_a_cpu(name, unit):
    compare(world_of(name, unit))


def compare(world, folder=None):
    """Compare a run on the device with one on a CPU.

    Where a folder is given, the run on the device is resumed after each round.
    """
    state, ledger = _played(world, ROUNDS)
    booked, _, _, theta = on_device(world, folder=folder)
    assert_close(theta, state.theta, rtol=1e-4, atol=1e-5)
    assert len(booked) == len(ledger.records) > 0
    for line, expected in zip(booked, ledger.records, strict=True):
        assert same(line.model_dump(), expected.model_dump())


def _noisy(world):
    """The world with noise that is above rounding."""
    plan = world.algorithm.plan
    groups = tuple(
        group.model_copy(update={"noise_multiplier": 1e-4}) for group in plan.groups
    )
    return plan.model_copy(update={"groups": groups})


@pytest.mark.parametrize(
    "use",
    [
        {"canaries": 5},
        {"key": NoiseKey(bytes(32))},
        {"key": NoiseKey(bytes(32)), "discrete": True},
    ],
    ids=["canaries", "secure noise", "noise on a grid"],
)
def test_what_a_run_may_use_is_the_same_on_the_device(use):
    built = ALGORITHMS.get("planned").build(
        _noisy(world_of("planned")), Hyperparameters("paper")
    )
    compare(replace(small.setting(built), workers=1, **use))


@pytest.mark.parametrize("name", ["PPSGD", "DP-FedPGN", "cyclic"])
def test_a_run_is_resumed_on_the_device(name, tmp_path):
    """With personal vectors, a state of the server, and sums of earlier rounds."""
    if name == "cyclic":
        plan = small.plan()
        spec = {
            **plan.spec.model_dump(mode="json"),
            "sampling": "cyclic_poisson:3",
            "cohort": 3,
        }
        plan = plan.model_copy(update={"spec": Spec.parse(spec)})
        built = ALGORITHMS.get("planned").build(plan, Hyperparameters("paper"))
        world = replace(small.setting(built), workers=1)
    else:
        world = world_of(name)
    compare(world, tmp_path)


def test_a_state_that_is_lost_at_resume_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(
        checkpoint,
        "load",
        lambda *arguments: replace(load(*arguments), server={}, personal={}),
    )
    with pytest.raises((AssertionError, KeyError)):
        compare(world_of("PPSGD"), tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "cnn-2",
        "adapters:cnn-2",
        "mlp-digits",
        pytest.param("resnet-10:3x8x8:3", marks=SLOW),
        pytest.param("lstm", marks=SLOW),
    ],
)
def test_models_train_on_the_device_and_the_host_never_waits(name):
    network, inputs = _batch(name)
    expected = local_sgd(network, *inputs, learning_rate=0.1, workers=1)
    with pretend.in_use() as use:
        updates = local_sgd(
            network,
            *(tensor.to(pretend.device()) for tensor in inputs),
            learning_rate=0.1,
        )
        assert not use.waits
        assert_close(updates.cpu(), expected, rtol=1e-3, atol=1e-5)


def test_an_own_loss_waits_once_for_a_chunk(monkeypatch):
    network, inputs = _batch("cnn-2")
    objective = Objective(functional.cross_entropy)
    monkeypatch.setattr(type(network), "objective", objective)
    inputs[2][0, 1, 1] = PADDING
    expected = local_sgd(network, *inputs, learning_rate=0.1, workers=1)
    with pretend.in_use() as use:
        updates = local_sgd(
            network,
            *(tensor.to(pretend.device()) for tensor in inputs),
            learning_rate=0.1,
        )
        assert use.waits.total() == 1
        assert_close(updates.cpu(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["cnn-2", pytest.param("resnet-10:3x8x8:3", marks=SLOW)]
)
def test_clients_of_a_large_model_train_one_after_another(name, monkeypatch):
    network, (theta, x, y) = _batch(name)
    expected = local_sgd(network, theta, x, y, learning_rate=0.1, workers=1)
    monkeypatch.setitem(basis.IN_SEQUENCE_FROM, pretend.device().type, 0)
    monkeypatch.delattr(type(network), "logits_each")
    with pretend.in_use() as use:
        moved = (value.to(pretend.device()) for value in (theta, x, y))
        updates = local_sgd(network, *moved, learning_rate=0.1)
        assert use.waits.total() == 0
        assert_close(updates.cpu(), expected, rtol=1e-3, atol=1e-5)


def _batch(name, steps=(2,)):
    network = model(name)
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(2, *steps, 2, *network.input_shape, generator=draw)
    if name == "lstm":
        x = (x * network.classes).long()
    y = torch.randint(0, network.classes, (2, *steps, 2), generator=draw)
    return network, (network.initial(draw), x, y)


def clipped_on_device(name):
    """The clipped sums of a model that was never used before."""
    network, (theta, x, y) = _batch(name, steps=())
    inputs = theta.repeat(2, 1), x, y
    with pretend.in_use():
        moved = (tensor.to(pretend.device()) for tensor in inputs)
        sums = clipped_sums(network, *moved, clipping_norm=0.1).total.cpu()
    return sums, clipped_sums(network, *inputs, clipping_norm=0.1, workers=1).total


def test_records_are_clipped_on_the_device_in_a_module_that_is_built_there():
    sums, expected = clipped_on_device("adapters:cnn-2")
    assert_close(sums, expected, rtol=1e-3, atol=1e-5)


def test_a_lazy_build_within_vmap_is_refused(monkeypatch):
    monkeypatch.setattr(modular, "_outside_transforms", lambda build: build())
    with pytest.raises(RuntimeError, match="random"):
        clipped_on_device("adapters:cnn-2")


@pytest.mark.parametrize(
    ("name", "unit", "per_round"),
    [
        pytest.param("FedAvg", "client", 1, marks=SLOW),
        ("planned", "client", 3),
        pytest.param("GDPFed+", "client", 3, marks=SLOW),
        pytest.param("PFA", "client", 3, marks=SLOW),
        ("PPSGD", "client", 4),
        pytest.param("CENTAUR", "client", 5, marks=SLOW),
        ("DPFedAvg", "record", 2 + 2 * 3),
        pytest.param("CENTAUR", "record", 3 + 2 * 3, marks=SLOW),
        pytest.param("Robust-HDP", "record", 2 + 2 * 3, marks=SLOW),
    ],
)
def test_no_wait_of_the_host_depends_on_the_number_of_clients(name, unit, per_round):
    _, waits, sent, _ = on_device(world_of(name, unit))
    # The decomposition waits once per step.
    if name == "Robust-HDP":
        line, steps = waits.most_common(1)[0]
        assert "pursuit" in line
        assert waits.pop(line) == steps < ROUNDS * 30
    assert waits.total() == ROUNDS * per_round, waits
    if unit == "client":
        # The data are sent once, then indices of a chunk.
        assert sent.total() <= 3 + ROUNDS * 5, sent


@pytest.mark.parametrize(
    ("name", "unit"), [("PPSGD", "client"), ("DPFedAvg", "record")]
)
def test_clients_that_do_not_fit_are_trained_by_halves(name, unit):
    world = world_of(name, unit)
    largest = []
    plain = world.algorithm.local

    def train(batch):
        if len(batch.clients) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        largest.append(len(batch.clients))
        return plain.train(batch)

    local = replace(plain, train=train)
    state, ledger = _played(
        replace(world, algorithm=replace(world.algorithm, local=local)), ROUNDS
    )
    expected_state, expected = _played(world, ROUNDS)
    assert largest
    assert_close(state.theta, expected_state.theta, rtol=1e-4, atol=1e-5)
    assert len(ledger.records) == len(expected.records)
    for line, expected_line in zip(ledger.records, expected.records, strict=True):
        assert same(line.model_dump(), expected_line.model_dump())


def _with_fault(fault):
    """A run of FedAvg whose local rule does something else with the updates, too."""
    world = world_of("FedAvg")
    plain = world.algorithm.local

    def train(batch):
        return LocalResult(fault(plain.train(batch).updates))

    return replace(
        world, algorithm=replace(world.algorithm, local=replace(plain, train=train))
    )


def test_a_wait_per_client_is_counted():

    def zeros_left_out(updates):
        # The truth of each update is a wait of its own.
        zero = torch.zeros_like(updates[0])
        return torch.stack([update if update.any() else zero for update in updates])

    world = _with_fault(zeros_left_out)
    ledger, waits, _, _ = on_device(world)
    clients = 0
    for line in ledger:
        clients += sum(share.cohort for share in line.shares)
    assert waits.total() == ROUNDS + clients
    assert sum(n for line, n in waits.items() if "test_device" in line) == clients


FAULTS = {
    "numpy": (lambda updates: torch.from_numpy(updates.numpy()), "numpy"),
    "an index of the CPU": (
        lambda updates: updates.index_select(1, torch.arange(updates.shape[1])),
        "found two",
    ),
    "a mask of the CPU": (
        lambda updates: updates[torch.arange(len(updates)) >= 0],
        "found two",
    ),
    "an operand of the CPU": (
        lambda updates: updates + torch.zeros(updates.shape),
        "found two",
    ),
    "a generator of the CPU": (
        lambda updates: torch.rand(
            updates.shape, generator=torch.Generator(), device=updates.device
        ),
        "generator",
    ),
    "a generator in place": (
        lambda updates: updates.normal_(generator=torch.Generator()),
        "generator",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_a_gpu_refuses_is_refused(name):
    fault, message = FAULTS[name]
    world = _with_fault(fault)
    _played(world, 1)  # on a CPU nothing is wrong
    with pytest.raises((RuntimeError, TypeError), match=message):
        on_device(world, 1)
