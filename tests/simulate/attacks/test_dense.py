"""The objective below the first dense layer: zero at the truth, exact pooling at the end; ROG."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.attacks.closed_form import ANNEALED, _pooled, dense_objective, known
from simulate.attacks.hyperfl import body_gradient, rog
from simulate.attacks.inversion import _released, ig
from simulate.attacks.measures import psnr
from simulate.attacks.settings import PlanScene
from simulate.attacks.view import Options, View
from simulate.data.registry import load


def _plan(network: str, parameters: int) -> Plan:
    spec = {
        "name": "attacked", "groups": [{"name": "all", "clients": 40, "epsilon": 4.0}],
        "delta": 0.01, "rounds": 4, "cohort": 40, "sampling": "full", "clipping_norm": 1.0,
        "local": {"steps": 5, "batch_size": 5, "learning_rate": 0.01},
        "model": {"name": network, "parameters": parameters},
    }  # fmt: skip
    return solve(Spec.parse(spec))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return _plan("cnn-digits", 2730)


def _quiet(done: int, total: int) -> None:
    assert 0 < done <= total


def _scene(plan: Plan, name: str = "FedAvg", **changes: object) -> PlanScene:
    return PlanScene(plan, name, load("digits"), images=6, **changes)  # type: ignore[arg-type]


def _views(scene: PlanScene) -> list[View]:
    return [scene[index].view for index in range(len(scene))]


def _inputs(scene: PlanScene, views: list[View]) -> Tensor:
    return torch.stack([view.inputs(scene.truth(index).images) for index, view in enumerate(views)])


def _assert_zero_at_the_truth(views: list[View], inputs: Tensor) -> None:
    objective = dense_objective(views)
    assert objective is not None
    assert float(objective(inputs, 1.0).max()) < 1e-4
    assert float(objective(inputs.roll(1, 0), 1.0).min()) > 1e-2
    wrong = dense_objective([*views[1:], views[0]])
    assert wrong is not None
    assert float(wrong(inputs, 1.0).min()) > 1e-2


def test_the_objective_is_zero_at_the_truth_only(plan: Plan) -> None:
    scene = _scene(plan)
    views = _views(scene)
    _assert_zero_at_the_truth(views, _inputs(scene, views))


def test_the_objective_is_zero_at_the_truth_for_hyperfl() -> None:
    scene = _scene(_plan("mlp-digits", 2410), "HyperFL")
    views = _views(scene)
    bodies = [body_gradient(view) for view in views]
    assert not any(body.vanished for body in bodies)
    _assert_zero_at_the_truth([body.view for body in bodies], _inputs(scene, views))


def test_annealed_pooling_ends_at_the_maximum(plan: Plan) -> None:
    x = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    largest = functional.max_pool2d(x, 2)
    torch.testing.assert_close(_pooled(x, 1e-3), largest, atol=1e-2, rtol=0)
    torch.testing.assert_close(_pooled(x, 1e6), functional.avg_pool2d(x, 2), atol=1e-4, rtol=0)
    assert torch.equal(_pooled(x, 0.0), largest)
    objective = dense_objective(_views(_scene(plan)))
    assert objective is not None
    inputs = torch.randn(6, 1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(objective(inputs, ANNEALED), objective(inputs, 1.0))
    assert not torch.equal(objective(inputs, 0.0), objective(inputs, 1.0))


@pytest.mark.slow
def test_the_closed_form_makes_inversion_exact(plan: Plan) -> None:
    scene = _scene(plan)
    guesses = ig(_views(scene), Options(steps=200), _quiet)
    images = torch.cat([guess.images for guess in guesses if guess.images is not None])
    truth = torch.cat([scene.truth(index).images for index in range(len(scene))])
    assert psnr(images, truth).mean() > 25


def test_sums_and_noise_leave_the_closed_form_unused(plan: Plan) -> None:
    assert all(known(view) is not None for view in _views(_scene(plan)))
    assert all(known(view) is None for view in _views(_scene(plan, clients=2)))
    assert all(known(view) is None for view in _views(_scene(plan, "DP-FedAvg")))


def _saved(module: nn.Module, path: Path) -> str:
    torch.export.save(torch.export.export(module, (torch.zeros(1, 1, 8, 8),)), path)
    return str(path)


def test_the_lower_level_of_the_tailored_attack_is_zero_at_the_truth() -> None:
    """Eq. 10 at the embedding and body gradient of the closed form, and of another release."""
    views = _views(_scene(_plan("mlp-digits", 2410), "HyperFL"))
    bodies = [body_gradient(view) for view in views]
    released = _released(views)
    embeddings = torch.stack([body.embedding for body in bodies])
    slopes = torch.stack([body.gradient for body in bodies])
    hidden, generated = released.body(embeddings)
    expected = torch.stack([body.body for body in bodies])
    torch.testing.assert_close(generated, expected, atol=1e-3, rtol=1e-3)
    assert float(released.distance(embeddings, hidden, slopes).max()) < 1e-4
    assert float(released.distance(embeddings, hidden, slopes.roll(1, 0)).min()) > 0.05


def test_rog_on_the_hypernetwork_is_null(plan: Plan, tmp_path: Path) -> None:
    views = _views(_scene(plan, "HyperFL"))[:2]
    path = _saved(nn.Identity(), tmp_path / "identity.pt2")
    found = rog(views, replace(Options(), rog_network=path), _quiet)
    assert all(guess.images is not None for guess in found)
