"""Reconstruction: closed forms against the truth, IG, its objective, nulls, HyperFL."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.attacks import guarantees, measures
from simulate.attacks.bodies import body_gradient
from simulate.attacks.closed import closed
from simulate.attacks.dense import first_dense
from simulate.attacks.feature_objective import dense_objective, rank_one_fit
from simulate.attacks.gradient_objective import named_parameters
from simulate.attacks.ig import ig
from simulate.attacks.settings import PlanRound
from simulate.attacks.view import Options
from simulate.data.registry import load
from simulate.engine.loop import initial_state
from simulate.models.network import split_head

IMAGES = 6


def _plan(network="mlp-digits", parameters=2410, rate=0.01):
    spec = Spec.parse(
        {
            "name": "attacked",
            "groups": [{"name": "all", "clients": 40, "epsilon": 4.0}],
            "delta": 0.01,
            "rounds": 4,
            "cohort": 40,
            "sampling": "full",
            "relation": "add_remove",
            "clipping_norm": 1.0,
            "local": {"steps": 5, "batch_size": 5, "learning_rate": rate},
            "model": {"name": network, "parameters": parameters},
        }
    )
    return solve(spec)


@pytest.fixture(scope="module")
def plan():
    return _plan()


@pytest.fixture(scope="module")
def cnn():
    return _plan("cnn-digits", 2730)


def _scene(plan, name, **changes):
    return PlanRound(plan, name, load("digits"), images=IMAGES, **changes)  # type: ignore[arg-type]


def _views(scene):
    return [scene[index].view for index in range(len(scene))]


def _quiet(done, total):
    assert 0 < done <= total


def test_the_view_is_the_update_of_the_clients_gradient(plan):
    observed = _scene(plan, "FedAvg")[0]
    view = observed.view
    module = view.model.module()
    values = named_parameters(view.model.shapes, view.parameters)
    x = view.inputs(observed.truth.images)
    free = {name: value.clone().requires_grad_() for name, value in values.items()}
    logits = torch.func.functional_call(module, free, (x,))
    loss = torch.nn.functional.cross_entropy(logits, observed.truth.labels)
    expected = torch.cat(
        [tensor.flatten() for tensor in torch.autograd.grad(loss, free.values())]
    )
    assert float((view.gradient - expected).norm() / expected.norm()) < 1e-4
    images = observed.truth.images
    assert_close(view.outputs(view.inputs(images)), images)


def test_labels_and_the_input_of_a_dense_layer(plan):
    scene = _scene(plan, "FedAvg")
    guesses = closed(_views(scene), Options(), _quiet)
    for index, guess in enumerate(guesses):
        truth = scene.truth(index)
        assert guess.labels.tolist() == truth.labels.tolist()
        assert_close(guess.images, truth.images, atol=1e-3, rtol=0)


def _against_nulls(scene, images):
    originals = [scene.truth(index).images for index in range(len(scene))]
    among = measures.candidates(scene.data, scene.rows.ravel(), 0)
    nulls = measures.null_scores(images, originals, among, 0)
    assert set(nulls) == {"mean image", "noise", measures.ANOTHER_IMAGE}
    return measures.better(measures.scores(images, originals, among), nulls)


@pytest.mark.slow
def test_inversion_is_better_than_null_and_null_on_another_update(cnn):
    scene = _scene(cnn, "FedAvg")
    guesses = ig(_views(scene), Options(steps=150), _quiet)
    images = [guess.images for guess in guesses if guess.images is not None]
    assert "identified" in _against_nulls(scene, images)
    assert _against_nulls(scene, [*images[1:], images[0]]) == []


def test_inversion_under_dp_fedavg_is_not_above_null(plan):
    scene = _scene(plan, "DP-FedAvg")
    assert scene[0].view.noise_std > 1
    for attack in (closed, ig):
        guesses = attack(_views(scene), Options(steps=30), _quiet)
        images = [guess.images for guess in guesses if guess.images is not None]
        assert _against_nulls(scene, images) == []


def test_the_reported_noise_multiplier_is_the_one_of_the_release(plan):
    for factor in (1.0, 0.1):
        scene = _scene(plan, "DP-FedAvg", noise_factor=factor)
        clip = plan.spec.clipping_norm
        row = guarantees.guarantee("DP-FedAvg", scene.executed, scene.target, factor)
        assert row["noise_multiplier"] * clip == pytest.approx(scene[0].view.noise_std)
        near = pytest.approx(factor * plan.groups[0].noise_multiplier, rel=0.2)
        assert row["noise_multiplier"] == near


def test_hyperfl_releases_body_embedding_and_gradient(plan):
    """The closed form on HyperFL in about a second: body, dense input, embedding."""
    scene = _scene(plan, "HyperFL")
    world = scene.experiment
    model = world.model
    personal = world.personal_start
    start = initial_state(world).theta
    use = world.algorithm.split.use
    [true_theta] = use(model, start, personal[None], np.arange(1))
    body, _ = split_head(model, true_theta)
    for index in range(len(scene)):
        observed = scene[index]
        revealed = body_gradient(observed.view)
        assert revealed.residual < 1e-3
        assert_close(revealed.body, body, atol=1e-4, rtol=1e-3)
        assert_close(revealed.embedding, personal[:64], atol=1e-3, rtol=1e-3)
        dense = first_dense(revealed.view, revealed.view.gradient)
        x = observed.view.inputs(observed.truth.images).flatten()
        assert_close(dense[1].inputs, x, atol=1e-2, rtol=1e-2)


def test_a_secure_sum_of_clients_hides_the_images_of_hyperfl(plan):
    guesses = closed(_views(_scene(plan, "HyperFL", clients=3)), Options(), _quiet)
    assert min(guess.numbers["dense_residual"] for guess in guesses) > 0.1


@pytest.mark.parametrize("name", ["FedAvg", "HyperFL"])
def test_the_objective_is_zero_at_the_truth_only(name, cnn, plan):
    scene = _scene(cnn if name == "FedAvg" else plan, name)
    views = _views(scene)
    inputs = torch.stack(
        [v.inputs(scene.truth(index).images) for index, v in enumerate(views)]
    )
    if name == "HyperFL":
        views = [body_gradient(view).view for view in views]
    objective = dense_objective(views)
    wrong = dense_objective([*views[1:], views[0]])
    assert float(objective(inputs, 1.0).max()) < 1e-4
    assert float(objective(inputs.roll(1, 0), 1.0).min()) > 1e-2
    assert float(wrong(inputs, 1.0).min()) > 1e-2


@pytest.mark.slow
def test_the_closed_form_makes_inversion_exact(cnn):
    scene = _scene(cnn, "FedAvg")
    guesses = ig(_views(scene), Options(steps=200), _quiet)
    images = torch.cat([guess.images for guess in guesses if guess.images is not None])
    truth = torch.cat([scene.truth(index).images for index in range(len(scene))])
    assert measures.psnr(images, truth).mean() > 25


def test_sums_and_noise_leave_the_closed_form_unused(cnn):
    assert all(rank_one_fit(view) is not None for view in _views(_scene(cnn, "FedAvg")))
    assert all(
        rank_one_fit(view) is None for view in _views(_scene(cnn, "FedAvg", clients=2))
    )
    assert all(rank_one_fit(view) is None for view in _views(_scene(cnn, "DP-FedAvg")))
