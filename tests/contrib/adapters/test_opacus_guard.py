"""DP-SGD of Opacus under a plan: its batches, its noise, its ledger."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch.utils.data import TensorDataset  # noqa: E402

from privplan.contrib.adapters.opacus import guarded  # noqa: E402
from privplan.errors import InputError  # noqa: E402
from privplan.guard import Guard  # noqa: E402
from privplan.ledger import read_ledger  # noqa: E402
from privplan.plan import Plan  # noqa: E402
from tests.guard.plans import plan_of, two_groups  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
SIZE = 200


def plan(epsilon: float = 9.0, rounds: int = 20, ratio: float = 0.1) -> Plan:
    """DP-SGD on 200 records."""
    return plan_of({"records": (SIZE, epsilon, ratio, 1.1)}, rounds)


def data(size: int = SIZE) -> TensorDataset:
    """Two classes of points."""
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(size) % 2
    return TensorDataset(torch.randn(size, 4, generator=source) + labels[:, None], labels)


def train(guard: Guard, most: int | None = None) -> list[int]:
    """Train, and return the sizes of the batches."""
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    private, stepper, batches = guarded(guard, module, optimizer, data())
    sizes = []
    for done, (inputs, labels) in enumerate(batches):
        if done == most:
            break
        stepper.zero_grad()
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.step()
        sizes.append(len(labels))
    return sizes


def test_each_step_is_booked_with_the_noise_of_opacus(tmp_path):
    the_plan = plan()
    with Guard(the_plan, tmp_path) as guard:
        sizes = train(guard, most=7)
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


def test_training_ends_before_the_budget_is_exceeded(tmp_path):
    with Guard(plan(epsilon=1.8), tmp_path) as guard:
        sizes = train(guard)
        assert 0 < len(sizes) < 20
        assert guard.epsilon("records").upper <= 1.8
        assert not guard.may_release()


def test_empty_batches_are_steps_too(tmp_path):
    with Guard(plan(ratio=0.005), tmp_path) as guard:
        sizes = train(guard)
        assert guard.finished
    assert 0 in sizes


def test_what_does_not_fit_opacus_is_refused(tmp_path):
    module = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with (
        Guard(two_groups(2), tmp_path / "two") as guard,
        pytest.raises(InputError, match=r"plan\.groups: must be one; Opacus has one noise"),
    ):
        guarded(guard, module, optimizer, data())
    with Guard(plan(), tmp_path / "one") as guard:
        with pytest.raises(InputError, match="must have 200 items, as the plan, found 199"):
            guarded(guard, module, optimizer, data(199))
        private, stepper, batches = guarded(guard, module, optimizer, data())
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.noise_multiplier, stepper.max_grad_norm = 0.11, 5.0  # the same product
        with pytest.raises(InputError, match=r"max_grad_norm: must be 0\.5, as in the plan, fo"):
            stepper.step()
        stepper.noise_multiplier, stepper.max_grad_norm = 0.5, 0.5  # a scheduler
        with pytest.raises(InputError, match=r"noise_multiplier: must be 1\.1 or more, as in"):
            stepper.step()


def test_a_clipping_norm_that_changes_within_a_step_is_refused(tmp_path):
    with Guard(plan(), tmp_path) as guard:
        module = torch.nn.Linear(4, 2)
        private, stepper, batches = guarded(
            guard, module, torch.optim.SGD(module.parameters(), lr=0.5), data()
        )
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.max_grad_norm = 5.0
        stepper.signal_skip_step()  # the first part of a batch that is too large
        with pytest.raises(InputError, match="max_grad_norm"):
            stepper.step()
        assert guard.round == 1


def test_gradients_that_are_not_finite_add_nothing(tmp_path):
    with Guard(plan(rounds=2), tmp_path) as guard:
        module = torch.nn.Linear(4, 2)
        private, stepper, batches = guarded(
            guard, module, torch.optim.SGD(module.parameters(), lr=0.5), data()
        )
        inputs, labels = next(iter(batches))
        inputs[0] = torch.nan
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        stepper.step()
        assert all(one.isfinite().all() for one in module.parameters())
        share = read_ledger(tmp_path, plan(rounds=2).digest).records[0].shares[0]
    assert (share.excluded, share.cohort) == (1, len(inputs))
