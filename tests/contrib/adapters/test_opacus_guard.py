"""DP-SGD of Opacus under a plan: its batches, its noise, its ledger."""

from __future__ import annotations

from pathlib import Path

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


def test_each_step_is_booked_with_the_noise_of_opacus(tmp_path: Path) -> None:
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
    assert not verdict.failed


def test_training_ends_before_the_budget_is_exceeded(tmp_path: Path) -> None:
    with Guard(plan(epsilon=1.8), tmp_path) as guard:
        sizes = train(guard)
        assert 0 < len(sizes) < 20
        assert guard.epsilon("records").upper <= 1.8
        assert not guard.may_release()


def test_empty_batches_are_steps_too(tmp_path: Path) -> None:
    with Guard(plan(ratio=0.005), tmp_path) as guard:
        sizes = train(guard)
        assert guard.finished
    assert 0 in sizes


def test_what_does_not_fit_opacus_is_refused(tmp_path: Path) -> None:
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
        stepper.noise_multiplier = 0.5  # a scheduler that lowers the noise
        inputs, labels = next(iter(batches))
        torch.nn.functional.cross_entropy(private(inputs), labels).backward()
        with pytest.raises(InputError, match=r"noise_std: must be 0\.55 or more, found 0\.25"):
            stepper.step()
