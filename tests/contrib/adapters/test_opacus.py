"""The accountant registered with Opacus: its interface, and Opacus' own settings."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import PRVAccountant, create_accountant  # noqa: E402
from opacus.accountants.utils import get_noise_multiplier  # noqa: E402

from privplan.accounting.accountant import accountant  # noqa: E402
from privplan.accounting.release import History, Relation, Release  # noqa: E402
from privplan.contrib.adapters.opacus import PrivplanAccountant  # noqa: E402
from privplan.errors import InputError  # noqa: E402

OPACUS_SETTINGS = [(1.5, 0.04, 2250), (1.34765625, 0.04, 2250), (1.2915, 0.04, 2000)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("noise", "rate", "steps"), OPACUS_SETTINGS)
def test_bounds_are_within_the_interval_of_prv_on_the_settings_of_its_tests(noise, rate, steps):
    ours, prv = create_accountant("privplan"), PRVAccountant()
    ours.history = prv.history = [(noise, rate, steps)]
    found = ours.bounds(1e-5)
    discrete = prv._get_dprv(eps_error=0.01, delta_error=1e-8)
    lower, _, upper = discrete.compute_epsilon(1e-5, 1e-8, 0.01)
    assert lower <= found.lower <= found.upper <= upper
    assert ours.get_epsilon(1e-5) == found.upper


@pytest.mark.parametrize(("target", "rate", "steps"), [(8, 0.04, 2250), (0.5, 0.01, 300)])
def test_the_noise_multiplier_never_overshoots(target, rate, steps):
    noise = get_noise_multiplier(
        target_epsilon=target, target_delta=1e-5, sample_rate=rate, steps=steps,
        accountant="privplan",
    )  # fmt: skip
    history = History.repeated(Release(noise, rate), steps)
    certified = accountant("pld").epsilon(history, 1e-5, Relation.ADD_REMOVE)
    assert target - 0.02 <= certified.lower <= certified.upper <= target


def test_steps_states_and_changed_histories():
    one = PrivplanAccountant()
    assert one.get_epsilon(1e-5) == 0
    for _ in range(30):
        one.step(noise_multiplier=1.0, sample_rate=0.01)
    first = one.get_epsilon(delta=1e-5, alphas=None)
    for _ in range(5):
        one.step(noise_multiplier=2.0, sample_rate=0.01)
    assert one.history == [(1.0, 0.01, 30), (2.0, 0.01, 5)]
    assert len(one) == 35
    assert first < one.get_epsilon(1e-5)
    other = PrivplanAccountant()
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.history == one.history
    assert other.get_epsilon(1e-5) == pytest.approx(one.get_epsilon(1e-5), rel=2e-4)
    one.history = [(1.0, 0.01, 30)]
    assert one.get_epsilon(1e-5) == pytest.approx(first, rel=2e-4)
    for history in ([(1.0, 2.0, 1)], [(1.0, 0.5)], "x", [("a", 0.1, 1)], [(1.0, 0.1, -1)]):
        with pytest.raises(InputError):
            other.load_state_dict({"mechanism": "privplan", "history": history})
        assert len(other) == 35
    with pytest.raises(ValueError, match="rdp"):
        other.load_state_dict({"mechanism": "rdp", "history": []})
    with pytest.raises(InputError, match="sampling_ratio"):
        one.step(noise_multiplier=1.0, sample_rate=1.5)


@pytest.mark.filterwarnings("ignore")
def test_a_privacy_engine_counts_its_steps_and_keeps_its_budget(tmp_path):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randint(0, 2, (64,)))
    model = torch.nn.Linear(3, 2)
    engine = PrivacyEngine(accountant="privplan")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=16), target_epsilon=3.0,
        target_delta=1e-3, epochs=2, max_grad_norm=1.0,
    )  # fmt: skip
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
