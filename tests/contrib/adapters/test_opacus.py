"""Opacus: the accountant registered with it, and DP-SGD under a plan."""

import copy
import json
import threading
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import PRVAccountant, create_accountant  # noqa: E402
from opacus.accountants.utils import get_noise_multiplier  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from privplan.accounting.accountant import accountant  # noqa: E402
from privplan.accounting.release import History, Relation, Release  # noqa: E402
from privplan.contrib.adapters import opacus as opacus_adapter  # noqa: E402
from privplan.contrib.adapters.opacus import (  # noqa: E402
    GuardedEngine,
    PrivplanAccountant,
    guarded,
)
from privplan.errors import InputError  # noqa: E402
from privplan.guard import BudgetExceededError, Guard  # noqa: E402
from privplan.ledger import read_ledger  # noqa: E402
from privplan.secure_stream import NoiseKey  # noqa: E402
from tests.guard.plans import plan_of, two_groups  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
OPACUS_SETTINGS = [(1.5, 0.04, 2250), (1.34765625, 0.04, 2250), (1.2915, 0.04, 2000)]


@pytest.mark.parametrize(("noise", "rate", "steps"), OPACUS_SETTINGS)
def test_bounds_are_within_the_interval_of_prv_on_the_settings_of_its_tests(
    noise, rate, steps
):
    ours = create_accountant("privplan")
    prv = PRVAccountant()
    ours.history = prv.history = [(noise, rate, steps)]
    bounds = ours.bounds(1e-5)

    # The interval of PRV, with errors of epsilon 0.01 and delta 1e-8.
    discrete = prv._get_dprv(eps_error=0.01, delta_error=1e-8)
    lower, _, upper = discrete.compute_epsilon(1e-5, 1e-8, 0.01)
    assert lower <= bounds.lower <= bounds.upper <= upper
    assert ours.get_epsilon(1e-5) == bounds.upper


@pytest.mark.parametrize(
    ("target", "rate", "steps"), [(8, 0.04, 2250), (0.5, 0.01, 300)]
)
def test_the_noise_multiplier_never_overshoots(target, rate, steps):
    noise = get_noise_multiplier(
        target_epsilon=target,
        target_delta=1e-5,
        sample_rate=rate,
        steps=steps,
        accountant="privplan",
    )
    history = History.repeated(Release(noise, rate), steps)
    certified = accountant("pld").epsilon(history, 1e-5, Relation.ADD_REMOVE)
    assert target - 0.02 <= certified.lower <= certified.upper <= target


def test_steps_states_and_changed_histories():
    ours = PrivplanAccountant()
    assert ours.get_epsilon(1e-5) == 0
    for _ in range(30):
        ours.step(noise_multiplier=1.0, sample_rate=0.01)
    first = ours.get_epsilon(delta=1e-5, alphas=None)
    for _ in range(5):
        ours.step(noise_multiplier=2.0, sample_rate=0.01)
    assert ours.history == [(1.0, 0.01, 30), (2.0, 0.01, 5)]
    assert len(ours) == 35
    assert first < ours.get_epsilon(1e-5)

    # A state goes through JSON and comes back.
    restored = PrivplanAccountant()
    restored.load_state_dict(json.loads(json.dumps(ours.state_dict())))
    assert restored.history == ours.history
    assert restored.get_epsilon(1e-5) == pytest.approx(ours.get_epsilon(1e-5), rel=2e-4)

    # Opacus assigns to the history, and what was spent follows.
    ours.history = [(1.0, 0.01, 30)]
    assert ours.get_epsilon(1e-5) == pytest.approx(first, rel=2e-4)

    # What is no history is refused, and nothing changes.
    for history in (
        [(1.0, 2.0, 1)],
        [(1.0, 0.5)],
        "x",
        [("a", 0.1, 1)],
        [(1.0, 0.1, -1)],
    ):
        with pytest.raises(InputError):
            restored.load_state_dict({"mechanism": "privplan", "history": history})
        assert len(restored) == 35
    with pytest.raises(ValueError, match="rdp"):
        restored.load_state_dict({"mechanism": "rdp", "history": []})
    with pytest.raises(InputError, match="sampling_ratio"):
        ours.step(noise_multiplier=1.0, sample_rate=1.5)


def test_a_privacy_engine_counts_its_steps_and_keeps_its_budget(tmp_path):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(
        torch.randn(64, 3), torch.randint(0, 2, (64,))
    )
    model = torch.nn.Linear(3, 2)
    engine = PrivacyEngine(accountant="privplan")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=16),
        target_epsilon=3.0,
        target_delta=1e-3,
        epochs=2,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    assert len(engine.accountant) == 8
    spent = engine.get_epsilon(1e-3)
    assert 2.9 <= spent <= 3.0
    engine.save_checkpoint(path=tmp_path / "checkpoint.pt", module=model)
    again = PrivacyEngine(accountant="privplan")
    again.load_checkpoint(path=tmp_path / "checkpoint.pt", module=model)
    assert again.get_epsilon(1e-3) == pytest.approx(spent, rel=2e-4)


SIZE = 200


def plan(epsilon=9.0, rounds=20, ratio=0.1):
    """DP-SGD on 200 records."""
    return plan_of({"records": (SIZE, epsilon, ratio, 1.1)}, rounds)


def data(size=SIZE):
    """Two classes of points."""
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(size) % 2
    return TensorDataset(
        torch.randn(size, 4, generator=source) + labels[:, None], labels
    )


def begun(guard, size=SIZE):
    """A linear model, its optimiser and batches under a guard."""
    module = torch.nn.Linear(4, 2)
    return guarded(
        guard, module, torch.optim.SGD(module.parameters(), lr=0.5), data(size)
    )


def train(guard, max_steps=None):
    """Train, and return the sizes of the batches."""
    torch.manual_seed(0)
    private, stepper, batches = begun(guard)
    sizes = []
    for done, (inputs, labels) in enumerate(batches):
        if done == max_steps:
            break
        stepper.zero_grad()
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.step()
        sizes.append(len(labels))
    return sizes


def test_each_step_is_booked_with_the_noise_of_opacus(tmp_path):
    the_plan = plan()
    with Guard(the_plan, tmp_path) as guard:
        sizes = train(guard, max_steps=7)
        assert guard.round == 8
        sizes += train(guard)
        assert guard.finished
        verdict = guard.verdict()
    assert len(sizes) == 20
    assert len(set(sizes)) > 1
    assert 250 < sum(sizes) < 550  # 400 expected, standard deviation 19
    records = read_ledger(tmp_path, the_plan.digest).records
    assert {record.noise_std for record in records} == {1.1 * 0.5}
    assert {record.dimension for record in records} == {10}
    assert verdict.groups[0].realised_upper == verdict.groups[0].planned
    assert verdict.outcome == "kept"
    assert [record.shares[0].cohort for record in records] == sizes
    assert all(record.shares[0].largest_norm <= 0.5 for record in records)


def flat(tensors):
    """Tensors as one vector."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def test_the_noise_is_of_no_generator_of_pytorch(tmp_path, monkeypatch):
    """A seed of 32 bits could be tried: it is drawn from a cryptographic stream."""
    key = NoiseKey(bytes(32))
    monkeypatch.setattr(opacus_adapter, "secure_stream", lambda: key.stream(7))

    def refused(*arguments, **options):
        raise AssertionError("Opacus drew noise of its own")

    monkeypatch.setattr(torch, "normal", refused)
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = begun(guard)
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        before = flat(private.parameters()).clone()
        sums = []
        stepper.attach_step_hook(
            lambda stepper: sums.append(
                flat(parameter.summed_grad for parameter in stepper.params)
            )
        )
        stepper.step()
    moved = (before - flat(private.parameters())) / 0.5  # the learning rate
    [summed] = sums
    noise = moved * stepper.expected_batch_size - summed
    expected = key.stream(7).standard_normal(10) * 1.1 * 0.5
    assert noise.numpy() == pytest.approx(expected, abs=1e-4)


def assert_step_is_refused(private, stepper, batches, rule):
    """A step on the first batch is refused by a rule, and leaves the weights."""
    inputs, labels = next(iter(batches))
    torch.nn.functional.cross_entropy(private(inputs), labels).backward()
    before = flat(private.parameters()).clone()
    with pytest.raises(InputError, match=rule):
        stepper.step()
    assert torch.equal(flat(private.parameters()), before)


def test_a_step_hook_may_not_replace_the_noisy_gradient(tmp_path):
    def put_clear_sum(optimizer):
        for parameter in optimizer.params:
            parameter.grad = parameter.summed_grad.clone()

    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = begun(guard)
        stepper.attach_step_hook(put_clear_sum)
        assert_step_is_refused(
            private, stepper, batches, "grad: must be the noisy gradient that"
        )


@pytest.mark.parametrize("when", ["pre", "post"])
def test_no_hook_moves_weights_in_a_step(when, tmp_path):
    """It runs after the noisy gradient was compared, inside the step that is kept."""

    def add_clear_sum(optimizer, *arguments):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.data -= parameter.summed_grad

    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = begun(guard)
        getattr(stepper.original_optimizer, f"register_step_{when}_hook")(add_clear_sum)
        assert_step_is_refused(
            private, stepper, batches, "optimizer: must have no hooks on its st"
        )
        assert guard.round == 1


def test_training_ends_before_the_budget_is_exceeded(tmp_path):
    with Guard(plan(epsilon=1.8), tmp_path) as guard:
        assert 0 < len(train(guard)) < 20
        assert guard.epsilon("records").upper <= 1.8
        assert not guard.may_release()


def test_empty_batches_are_steps_too(tmp_path):
    with Guard(plan(ratio=0.005), tmp_path) as guard:
        sizes = train(guard)
        assert guard.finished
    assert 0 in sizes


def test_what_does_not_fit_opacus_is_refused(tmp_path):
    with (
        Guard(two_groups(2), tmp_path / "two") as guard,
        pytest.raises(
            InputError, match=r"plan\.groups: must be one; Opacus has one noise"
        ),
    ):
        begun(guard)
    with Guard(plan(), tmp_path / "one") as guard:
        with pytest.raises(
            InputError, match="must have 200 items, as the plan, found 199"
        ):
            begun(guard, 199)
        private, stepper, batches = begun(guard)
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()

        # The same noise at a larger clipping norm.
        stepper.noise_multiplier = 0.11
        stepper.max_grad_norm = 5.0
        with pytest.raises(
            InputError, match=r"max_grad_norm: must be 0\.5, as in the plan, fo"
        ):
            stepper.step()

        # As a scheduler of the noise would do.
        stepper.noise_multiplier = 0.5
        stepper.max_grad_norm = 0.5
        with pytest.raises(
            InputError, match=r"noise_multiplier: must be 1\.1, as in the plan"
        ):
            stepper.step()

        # The first part of a batch that is too large for memory is checked as well.
        stepper.noise_multiplier = 1.1
        stepper.max_grad_norm = 5.0
        stepper.signal_skip_step()
        with pytest.raises(InputError, match="max_grad_norm"):
            stepper.step()
        assert guard.round == 1


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.BatchNorm1d(4, affine=False),
        torch.nn.BatchNorm1d(4, affine=False, track_running_stats=False),
        torch.nn.InstanceNorm1d(4, track_running_stats=True),
    ],
)
def test_layers_in_which_records_meet_are_refused(tmp_path, layer):
    module = torch.nn.Sequential(layer, torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with (
        Guard(plan(), tmp_path) as guard,
        pytest.raises(InputError, match=r"from that record only|must take inputs like"),
    ):
        guarded(guard, module, optimizer, data())


def test_a_parameter_that_is_frozen_before_the_step_gets_no_gradient(tmp_path):
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = begun(guard)
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        before = flat(private.parameters()).clone()
        stepper.params[0].requires_grad_(False)
        with pytest.raises(InputError, match="or of a frozen parameter"):
            stepper.step()
        assert torch.equal(flat(private.parameters()), before)


class _Centred(torch.nn.Module):
    """Keeps the mean of what it saw, without noise."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean = x.detach().mean(0)
        return x


def first_step(module, folder):
    """One guarded step of a module with four inputs and two outputs."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with Guard(plan(), folder) as guard:
        private, stepper, batches = guarded(guard, module, optimizer, data())
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        try:
            stepper.step()
        except InputError:
            assert guard.round == 1
            raise


class _Remembering(torch.nn.Linear):
    """Keeps what it saw in an attribute, which nobody compares."""

    seen = None

    def forward(self, x):
        self.seen = x.detach()
        return super().forward(x)


class _Telling(torch.nn.Linear):
    """Has what it saw in its state."""

    def get_extra_state(self):
        return torch.zeros(4)


class _Mixing(torch.nn.Linear):
    """Subtracts the mean of a batch in training."""

    def forward(self, x):
        outputs = super().forward(x)
        return outputs - outputs.mean(0) * self.training


class _MixingCodes(torch.nn.Embedding):
    """The same, of codes."""

    def forward(self, x):
        embedded = super().forward(x).mean(1)
        return embedded - embedded.mean(0)


def _mixing_before_zeros():
    """A module that mixes records before a last layer that starts at zero."""
    last = torch.nn.Linear(2, 2)
    torch.nn.init.zeros_(last.weight)
    return torch.nn.Sequential(_Mixing(4, 2), last)


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        (_Remembering(4, 2), "that training changes; .* in __init__, found '0.seen'"),
        (_Telling(4, 2), "must have no extra state.* found '_Telling at 0'"),
        (_Mixing(4, 2), "must compute a record's outputs from that record only"),
        (_mixing_before_zeros(), "must compute a record's outputs from that record"),
    ],
)
def test_a_module_that_keeps_or_mixes_records_is_refused(module, rule, tmp_path):
    with pytest.raises(InputError, match=rule):
        first_step(torch.nn.Sequential(module), tmp_path)


@pytest.mark.parametrize(
    "register",
    [
        torch.nn.modules.module.register_module_forward_hook,
        register_optimizer_step_post_hook,
    ],
)
def test_hooks_of_the_whole_process_are_refused(register, tmp_path):
    """They see records, and move weights, outside the module and its optimiser."""
    handle = register(lambda *arguments: None)
    try:
        with pytest.raises(InputError, match="torch: must have no hooks for all modul"):
            first_step(torch.nn.Linear(4, 2), tmp_path)
    finally:
        handle.remove()


class _Locked(torch.nn.Linear):
    """Has an attribute that nobody can copy."""

    def __init__(self):
        super().__init__(4, 2)
        self.lock = threading.Lock()


class _Noisy(torch.nn.Linear):
    """Draws noise of its own, which no seed of PyTorch repeats."""

    def forward(self, x):
        return super().forward(x) + torch.from_numpy(np.random.randn(2)).float()


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        (torch.nn.LSTM(4, 2), "must have layers that Opacus takes .* nn.LSTM because"),
        (torch.nn.Linear(4, 2).eval(), "must be in training mode; call module.train"),
        (_Locked(), "must be copyable, since a copy is tried on made-up records"),
        (_Noisy(4, 2), "found 'outputs that depend .*, or on random numbers not of t"),
    ],
)
def test_what_opacus_cannot_train_is_refused_in_one_line(module, rule, tmp_path):
    with pytest.raises(InputError, match=rule) as refused:
        first_step(module, tmp_path)
    assert "\n" not in str(refused.value)


def test_a_module_that_is_private_already_is_refused(tmp_path):
    """As where a cell of a notebook runs again."""
    module = torch.nn.Linear(4, 2)
    first_step(module, tmp_path / "first")
    with pytest.raises(InputError, match="that is not private already, found 'Trying"):
        first_step(module, tmp_path / "second")


class _Items(torch.utils.data.Dataset):
    """As many equal items as the plan has records."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return SIZE

    def __getitem__(self, position):
        return self.make(position)


class _Record(NamedTuple):
    """An item with names, of which no empty batch can be made."""

    x: torch.Tensor
    y: int


class _Stream(torch.utils.data.IterableDataset):
    """Has neither length nor positions."""

    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("dataset", "rule"),
    [
        (_Stream(), "dataset: must have a length, and items by position"),
        (_Items(lambda position: "text"), "dataset: must have items of tensors and n"),
        (_Items(lambda position: object()), "must have items that default_collate st"),
        (_Items(lambda position: _Record(torch.ones(4), 1)), "in lists or dicts"),
    ],
)
def test_items_that_no_batch_holds_are_refused(dataset, rule, tmp_path):
    module = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with Guard(plan(), tmp_path) as guard, pytest.raises(InputError, match=rule):
        guarded(guard, module, optimizer, dataset)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradients_are_of_single_records_for_either_reduction(tmp_path, reduction):
    """However many are drawn: a row that grew with them would move all others."""
    rows = []
    for ratio in (0.1, 0.9):
        folder = tmp_path / f"{reduction}-{ratio}"
        module = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.ones_(module.weight)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        records = TensorDataset(torch.full((SIZE, 4), 0.1))
        with Guard(plan(ratio=ratio), folder) as guard:
            private, _, batches = guarded(
                guard, module, optimizer, records, loss_reduction=reduction
            )
            [inputs] = next(iter(batches))
            loss = getattr(private(inputs), reduction)()
            loss.backward()
            rows.append(module.weight.grad_sample[0])
    assert_allclose(rows[0], np.full((1, 4), 0.1), rtol=1e-5)
    assert_allclose(rows[1], rows[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "inputs_of"),
    [
        (lambda position: torch.ones(4), lambda batch: batch),
        (lambda position: {"x": (torch.ones(4), 1)}, lambda batch: batch["x"][0]),
    ],
)
def test_empty_batches_have_the_structure_of_items(make, inputs_of, tmp_path):
    """Also the first one of a process."""
    module = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with Guard(plan(ratio=0.005), tmp_path) as guard:
        private, stepper, batches = guarded(guard, module, optimizer, _Items(make))
        assert inputs_of(batches.collate_fn([])).shape == (0, 4)
        for batch in batches:
            inputs = inputs_of(batch)
            stepper.zero_grad()
            private(inputs).square().sum().backward()
            stepper.step()
        assert guard.finished


def test_a_module_of_codes_that_mixes_records_is_refused(tmp_path):
    module = _MixingCodes(2, 2)
    codes = TensorDataset(torch.ones(SIZE, 4, dtype=torch.long), torch.zeros(SIZE))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with (
        Guard(plan(), tmp_path) as guard,
        pytest.raises(InputError, match="from that record only"),
    ):
        guarded(guard, module, optimizer, codes)


def test_a_module_of_one_part_of_items_that_mixes_records_is_refused(tmp_path):
    module = _Mixing(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    items = _Items(lambda position: {"x": torch.ones(4), "y": 1})
    with (
        Guard(plan(), tmp_path) as guard,
        pytest.raises(InputError, match="from that record only"),
    ):
        guarded(guard, module, optimizer, items)


def test_a_step_has_a_gradient_of_each_record_that_was_drawn(tmp_path):
    """Of fewer, nobody knows whose they are: rows can be other things than records."""
    module = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = guarded(guard, module, optimizer, data())
        inputs, labels = next(iter(batches))
        loss = torch.nn.functional.cross_entropy(private(inputs[1:]), labels[1:])
        loss.backward()
        rule = f"must have one gradient of each of the {len(inputs)} records "
        with pytest.raises(InputError, match=rule):
            stepper.step()
        assert guard.round == 1


def test_a_cell_of_a_notebook_runs_again(tmp_path, caplog):
    """The earlier engine of the folder ends, and its rounds stay booked."""
    path = tmp_path / "plan.json"
    plan().save(path)

    def train():
        engine = GuardedEngine(path, tmp_path / "run")
        module = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        loader = torch.utils.data.DataLoader(data(), batch_size=20)
        private, stepper, batches = engine.make_private(
            module=module, optimizer=optimizer, data_loader=loader
        )
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.step()
        return engine.guard.round

    assert [train(), train()] == [2, 3]
    [record] = caplog.records
    assert "step 2: load the weights of step 1 into the module" in record.getMessage()


class _TwoOutputs(torch.nn.Module):
    """Gives its outputs beside what it computed them from."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x), x


def test_a_module_of_several_outputs_trains(tmp_path):
    module = _TwoOutputs()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = guarded(guard, module, optimizer, data())
        inputs, _ = next(iter(batches))
        private(inputs)[0].square().sum().backward()
        stepper.step()
        assert guard.round == 2


def test_what_only_draws_or_has_constants_trains(tmp_path):
    """Dropout, however often it is tried, and constants, also of NaN."""
    module = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(4, 2))
    module.register_buffer("missing", torch.tensor([torch.nan, 1.0]))
    module.shift = torch.ones(1)
    with Guard(plan(), tmp_path / "tried") as guard:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        drawn = torch.get_rng_state()
        guarded(guard, copy.deepcopy(module), optimizer, data())
        assert torch.equal(torch.get_rng_state(), drawn)
    first_step(module, tmp_path / "run")


def test_a_buffer_that_follows_records_ends_training(tmp_path):
    module = torch.nn.Sequential(_Centred(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = guarded(guard, module, optimizer, data())
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        with pytest.raises(InputError, match="no buffers or other tensors that train"):
            stepper.step()
        assert guard.round == 1


def test_a_second_optimiser_of_the_module_ends_training(tmp_path):
    """Its steps have no noise."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    body = torch.optim.SGD(module[0].parameters(), lr=0.5)
    head = torch.optim.SGD(module[1].parameters(), lr=0.5)
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = guarded(guard, module, body, data())
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.step()
        head.step()
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        with pytest.raises(InputError, match="one private optimiser only; load its"):
            stepper.step()
        assert guard.round == 2


def test_an_optimiser_without_trainable_weights_watches_the_others(tmp_path):
    """Its step takes over no weights that another one moved."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    module[0].requires_grad_(False)
    body = torch.optim.SGD(module[0].parameters(), lr=0.5)
    with Guard(plan(), tmp_path) as guard:
        _, stepper, _ = guarded(guard, module, body, data())
        stepper.step()
        module[1].bias.data += 1.0
        with pytest.raises(InputError, match="one private optimiser only"):
            stepper.step()


def one_step(private, stepper, batch):
    """A step on a batch."""
    inputs, labels = batch
    stepper.zero_grad()
    torch.nn.functional.cross_entropy(private(inputs), labels).backward()
    stepper.step()


def test_a_step_on_a_batch_that_was_not_drawn_is_refused(tmp_path):
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = begun(guard)
        batch = next(iter(batches))
        one_step(private, stepper, batch)
        with pytest.raises(InputError, match="round: must be drawn by the guard befor"):
            one_step(private, stepper, batch)
        assert guard.round == 2


def test_a_module_that_is_stored_has_no_gradient_without_noise(tmp_path):
    """Opacus keeps gradients by record, and their sum, in its parameters."""
    with Guard(plan(), tmp_path / "run") as guard:
        private, stepper, batches = begun(guard)
        one_step(private, stepper, next(iter(batches)))
    torch.save(private, tmp_path / "model.pt")
    stored = torch.load(tmp_path / "model.pt", weights_only=False)
    for parameter in stored.parameters():
        assert parameter.grad_sample is None
        assert parameter.summed_grad is None


def test_a_layer_that_is_frozen_half_way_ends_training(tmp_path):
    """Earlier noise was on its weights, too, and the ledger would name two sums."""
    with Guard(plan(), tmp_path) as guard:
        private, stepper, batches = begun(guard)
        left = iter(batches)
        one_step(private, stepper, next(left))
        frozen = stepper.params[0]
        frozen.grad = None
        frozen.requires_grad_(False)
        batch = next(left)
        with pytest.raises(InputError, match="dimension: must be the 10 coordinates"):
            one_step(private, stepper, batch)
        assert guard.round == 2
        # What was refused is in no later sum.
        assert frozen.summed_grad is None
        frozen.requires_grad_(True)
        one_step(private, stepper, batch)
        assert guard.round == 3


def test_half_precision_is_refused(tmp_path):
    module = torch.nn.Linear(4, 2).to(torch.bfloat16)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with (
        Guard(plan(), tmp_path) as guard,
        pytest.raises(InputError, match=r"must have parameters of torch\.float32"),
    ):
        guarded(guard, module, optimizer, data())


def test_gradients_that_are_not_finite_add_nothing(tmp_path):
    with Guard(plan(rounds=2), tmp_path) as guard:
        private, stepper, batches = begun(guard)
        inputs, labels = next(iter(batches))
        inputs[0] = torch.nan
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.step()
        assert all(values.isfinite().all() for values in private.parameters())
        share = read_ledger(tmp_path, plan(rounds=2).digest).records[0].shares[0]
    assert share.excluded == 1
    assert share.cohort == len(inputs)


def test_the_guarded_engine_has_the_plan_in_epochs(tmp_path, caplog):
    plan().save(tmp_path / "plan.json")
    engine = GuardedEngine(tmp_path / "plan.json", tmp_path / "run")
    settings = {"noise_multiplier": 1.1, "max_grad_norm": 0.5}
    module = torch.nn.Linear(4, 2)
    stepper = torch.optim.SGD(module.parameters(), lr=0.1)
    loader = DataLoader(data(), 20)
    for name, wrong in (
        ("noise_multiplier", 1.0),
        ("noise_multiplier", "1.1"),
        ("max_grad_norm", 0.6),
        ("max_grad_norm", [0.5]),
        ("clipping", "adaptive"),
        ("data_loader", DataLoader(data(), 20, collate_fn=lambda items: items)),
    ):
        with pytest.raises(InputError, match=name.replace("data_loader", "collate_fn")):
            engine.make_private(
                module=module,
                optimizer=stepper,
                **{"data_loader": loader, **settings, name: wrong},
            )

    target = {"target_epsilon": 9.0, "target_delta": 1e-4, "epochs": 2}
    for name, wrong in (("target_epsilon", 8.0), ("target_delta", 1e-6), ("epochs", 3)):
        with pytest.raises(InputError, match=name):
            engine.make_private_with_epsilon(module=module, **{**target, name: wrong})
    assert engine.get_epsilon(1e-4) == 0.0
    private, stepper, batches = engine.make_private_with_epsilon(
        module=module,
        optimizer=stepper,
        data_loader=DataLoader(data(), 20, num_workers=1),
        max_grad_norm=0.5,
        poisson_sampling=True,
        noise_generator=None,
        **target,
    )
    assert "the plan draws the batches: no sampler, no workers" in caplog.text
    for _ in range(2):  # epochs of ten steps
        for inputs, labels in batches:
            stepper.zero_grad()
            torch.nn.functional.cross_entropy(private(inputs), labels).backward()
            stepper.step()

    spent = accountant("pld").epsilon(
        History.repeated(Release(1.1, 0.1), 20), 1e-4, "add_remove"
    )
    assert engine.guard.round == 21
    assert spent.lower <= engine.get_epsilon(1e-4) <= spent.upper * 1.001

    with pytest.raises(
        BudgetExceededError, match="must be one of the 20 planned rounds, found 21"
    ):
        next(iter(batches))
    with pytest.raises(
        AttributeError, match="what other accountants and checkpoints hold"
    ):
        engine.load_checkpoint(path="last.pt", module=private)
