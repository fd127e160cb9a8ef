"""A plain PyTorch loop under a plan, interrupted and resumed."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from privplan.contrib.adapters.torch_loop import TorchLoop, arrays_of  # noqa: E402
from privplan.errors import InputError  # noqa: E402
from privplan.guard import Guard  # noqa: E402
from privplan.guard.storage import Storage  # noqa: E402
from tests.guard.plans import two_groups  # noqa: E402

POINTS = torch.randn(100, 6, generator=torch.Generator().manual_seed(3))


def network():
    """A linear layer and a normalisation, whose buffers are averaged as well."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3))


def train(guard, optimizer, max_rounds=None):
    """Train for at most that many rounds; stops in the middle of the round after."""
    module = network()
    server = (
        torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.5)
        if optimizer
        else None
    )
    loop = TorchLoop(guard, module, server)
    for done, cohort in enumerate(loop.rounds()):
        if done == max_rounds:
            break
        for group, client in cohort.members:
            client_module = copy.deepcopy(module)
            local = torch.optim.SGD(client_module.parameters(), lr=0.1)
            client_module(POINTS[client : client + 8]).square().mean().backward()
            local.step()
            loop.add(group, client, client_module)
    return module


def check_equal(module, arrays):
    """The module's arrays are these, bit for bit."""
    for name, array in arrays_of(module).items():
        assert np.array_equal(arrays[name], array)


@pytest.mark.parametrize("optimizer", [False, True])
def test_a_loop_keeps_its_plan_and_resumes(tmp_path, optimizer):
    plan = two_groups(8)
    with Guard(plan, tmp_path, evidence="internal", keep=None) as guard:
        stopped = train(guard, optimizer, max_rounds=3)
        assert guard.round == 4
    with Guard(plan, tmp_path, evidence="internal", keep=None) as guard:
        check_equal(TorchLoop(guard, network()).module, arrays_of(stopped))
        trained = train(guard, optimizer).state_dict()
        assert guard.finished
        assert guard.verdict().outcome == "kept"

    # By hand from the stored releases: SGD at rate 1 whose momentum, if any, is 0.5.
    stored = Storage(tmp_path, plan.digest, None)
    weight = "0.weight"
    expected_weight = sum(group.scale * group.expected_cohort for group in plan.groups)
    model = network().state_dict()[weight].numpy()
    speed = 0.0
    for round_ in range(1, 9):
        _, [vector] = stored.release(round_)
        step = (vector / expected_weight)[:18].reshape(3, 6).astype(np.float32)
        speed = 0.5 * speed + step if optimizer else step
        model = model + speed
        assert np.allclose(stored.model(round_)[weight], model, atol=1e-5)
    assert np.allclose(trained[weight].numpy(), model, atol=1e-5)


def test_an_interrupted_round_makes_its_step_with_the_same_release(tmp_path):
    plan = two_groups(2)
    guard = Guard(plan, tmp_path)
    loop = TorchLoop(guard, network())
    cohort = next(loop.rounds())
    released = guard.release(cohort.round, {"strict": np.ones(33)})
    guard.close()  # before the model was stored
    with Guard(plan, tmp_path) as guard:
        loop = TorchLoop(guard, network())
        assert [cohort.round for cohort in loop.rounds()] == [2]
        first = network().state_dict()["0.weight"].numpy() + released.mean[:18].reshape(
            3, 6
        )
        second = guard.released(2).mean[:18].reshape(3, 6)
        assert np.allclose(
            loop.module.state_dict()["0.weight"], first + second, atol=1e-5
        )


def test_a_round_that_failed_makes_no_step(tmp_path):
    with Guard(two_groups(2), tmp_path) as guard:
        loop = TorchLoop(
            guard, network(), available=lambda round_: {"strict": range(3)}
        )
        before = arrays_of(loop.module)
        for cohort in loop.rounds():
            assert set(cohort.clients["loose"]) == set()
            guard.fail(cohort.round, "too few clients")
        check_equal(loop.module, before)


def trained_in_place(module, value):
    """A client's own values in the global model itself."""
    for tensor in module.state_dict().values():
        tensor.fill_(value)
    return module


@pytest.mark.parametrize("optimizer", [False, True])
def test_a_step_starts_from_what_was_released(tmp_path, optimizer):
    """Nobody sent anything, so that the step is the noise of the mean."""
    with Guard(two_groups(1), tmp_path) as guard:
        module = network()
        before = copy.deepcopy(arrays_of(module))
        server = None
        if optimizer:
            server = torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.9)
        for _ in TorchLoop(guard, module, server).rounds():
            trained_in_place(module, 1000)
            if server is not None:
                # Its momentum is of what no noise protects.
                for parameter in module.parameters():
                    parameter.grad = torch.full_like(parameter, 1000)
                server.step()
        for name, array in arrays_of(module).items():
            assert np.abs(array - before[name]).max() < 10
        check_equal(module, guard.model)


def test_a_client_that_trains_the_global_model_is_refused(tmp_path):
    with Guard(two_groups(1), tmp_path) as guard:
        module = network()
        loop = TorchLoop(guard, module)
        cohort = next(loop.rounds())
        group, client = cohort.members[0]
        with pytest.raises(InputError, match=r"^module: must stay as released"):
            loop.add(group, client, trained_in_place(module, 1000))


def test_a_run_goes_on_with_its_own_module(tmp_path):
    """Else it would go on from random weights, and lose the rounds that were paid."""
    with Guard(two_groups(4), tmp_path) as guard:
        train(guard, optimizer=False, max_rounds=2)
    for module in (torch.nn.ModuleDict({"net": network()}), torch.nn.Linear(6, 3)):
        with (
            Guard(two_groups(4), tmp_path) as guard,
            pytest.raises(InputError, match="module: must have the arrays of the st"),
        ):
            TorchLoop(guard, module)


class _Telling(torch.nn.Linear):
    """Has a state that is no tensor."""

    def get_extra_state(self):
        return {"text": 1}


@pytest.mark.parametrize(
    "module", [torch.nn.Linear(6, 3).to(torch.bfloat16), _Telling(6, 3)]
)
def test_a_state_that_is_no_array_is_refused(module, tmp_path):
    with (
        Guard(two_groups(1), tmp_path) as guard,
        pytest.raises(InputError, match="module: must have a state of tensors in a pr"),
    ):
        TorchLoop(guard, module)


def test_an_optimiser_that_needs_a_closure_is_refused(tmp_path):
    module = network()
    with (
        Guard(two_groups(1), tmp_path) as guard,
        pytest.raises(InputError, match="optimizer: must step without a closure"),
    ):
        TorchLoop(guard, module, torch.optim.LBFGS(module.parameters()))
