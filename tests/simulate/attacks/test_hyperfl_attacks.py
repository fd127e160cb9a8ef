"""HyperFL's attacks: ROG with its decoder, the tailored one, IG on all unknowns."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from privplan.errors import InputError
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.attacks import decoder as decoders
from simulate.attacks import measures
from simulate.attacks.decoder import DecoderData, decoder, shrunk
from simulate.attacks.descent import Descent
from simulate.attacks.hypernetwork_objective import (
    Factors,
    factored,
    first_embeddings,
    updates_of,
)
from simulate.attacks.settings import PlanRound
from simulate.attacks.view import ATTACKS, Options, white
from simulate.data.registry import load

IMAGES = 3


def _plan(network, parameters):
    return solve(
        Spec.parse(
            {
                "name": "attacked",
                "groups": [{"name": "all", "clients": 40, "epsilon": 4.0}],
                "delta": 0.01,
                "rounds": 4,
                "cohort": 40,
                "sampling": "full",
                "relation": "add_remove",
                "clipping_norm": 1.0,
                "local": {"steps": 5, "batch_size": 5, "learning_rate": 0.01},
                "model": {"name": network, "parameters": parameters},
            }
        )
    )


@pytest.fixture(scope="module")
def dense():
    """A plan whose network has a dense layer in its body."""
    return _plan("mlp-digits", 2410)


@pytest.fixture(scope="module")
def convolutional():
    """A plan whose network has a convolution."""
    return _plan("cnn-digits", 2730)


def _round(plan, method):
    return PlanRound(plan, method, load("digits"), images=IMAGES)


def _views(attacked):
    return [attacked[index].view for index in range(len(attacked))]


def _public():
    data = load("digits")
    return DecoderData(data.name, data.digest, data.test_x.float() / white(data))


@pytest.fixture(scope="module")
def trained():
    """A decoder of the digits' test records."""
    return decoder(_public(), 0, None)


def _gain(plan, method, attack, steps, decode=None):
    """Mean PSNR of an attack over that of its best null row, in dB."""
    attacked = _round(plan, method)
    views = _views(attacked)
    options = Options(steps, 0, decode=decode)
    guesses = ATTACKS.get(attack).reconstruct(views, options, lambda done, total: None)
    images = [guess.images for guess in guesses]
    originals = [attacked.truth(index).images for index in range(len(attacked))]
    among = measures.candidates(attacked.data, attacked.rows.ravel(), 0)
    nulls = measures.null_scores(images, originals, among, 0)
    best = max(null.psnr.mean() for null in nulls.values())
    return measures.scores(images, originals, among).psnr.mean() - best


@pytest.mark.slow
def test_the_tailored_attack_reads_fedavg_and_not_noise(convolutional):
    assert _gain(convolutional, "FedAvg", "tailored", 150) > 10
    assert _gain(convolutional, "DP-FedAvg", "tailored", 20) < 0


@pytest.mark.slow
def test_rog_is_above_its_null_rows_and_not_under_noise(convolutional, trained):
    assert _gain(convolutional, "FedAvg", "rog", 150, trained) > 3
    assert _gain(convolutional, "DP-FedAvg", "rog", 20, trained) < 0


@pytest.mark.slow
def test_the_papers_inversion_reads_fedavg_and_not_noise(dense):
    assert _gain(dense, "FedAvg", "ig-paper", 150) > 10
    assert _gain(dense, "DP-FedAvg", "ig-paper", 20) < 0


def test_the_tailored_attack_recovers_what_the_update_tells(dense):
    """Eq. 10 ends near the released gradient; its image is then the client's."""
    attacked = _round(dense, "HyperFL")
    views = _views(attacked)
    guesses = ATTACKS.get("tailored").reconstruct(
        views, Options(300), lambda done, total: None
    )
    distances = [guess.numbers["embedding_objective"] for guess in guesses]
    assert max(distances) < 0.1  # it starts at 1


def test_the_distance_of_hypernetworks_is_that_of_their_whole_gradients(dense):
    """Against the outer products, which the attack never forms."""
    views = _views(_round(dense, "HyperFL"))[:2]
    updates = updates_of(views)
    embeddings = first_embeddings(views, 5)
    slopes = torch.randn(2, views[0].hypernetwork.generated_size)
    hidden = updates.hidden(embeddings)
    bodies = updates.bodies(hidden)
    generated = views[0].hypernetwork.generated(
        views[0].parameters[None], embeddings[None]
    )
    assert_close(bodies, generated[0])
    distances = updates.distance(embeddings, hidden, slopes)
    for index, view in enumerate(views):
        inner = (updates.heads.T @ slopes[index]) * (hidden[index] > 0)
        of_layer = torch.outer(inner, embeddings[index]).flatten()
        of_heads = torch.outer(slopes[index], hidden[index]).flatten()
        full_gradient = torch.cat([of_layer, inner, of_heads, slopes[index]])
        cosine = torch.nn.functional.cosine_similarity(
            full_gradient, view.gradient, dim=0
        )
        assert_close(distances[index], 1 - cosine, atol=1e-4, rtol=1e-4)


def _release_with_rank(rank, rounding):
    """A matrix of a rank, in float32, to which noise of a norm is added."""
    source = torch.Generator().manual_seed(4)
    left = torch.randn(500, rank, generator=source, dtype=torch.float64)
    right = torch.randn(rank, 12, generator=source, dtype=torch.float64)
    noise = torch.randn(500, 12, generator=source, dtype=torch.float64)
    return (left @ right + noise * (rounding / noise.norm())).float()


@pytest.mark.parametrize("rank", [1, 3, 12])
def test_what_rounding_explains_is_left_out_and_nothing_else(rank):
    rounding = 1e-3
    matrix = _release_with_rank(rank, 0.9 * rounding)
    left, right = factored(matrix, rounding)
    assert right.shape == (rank, 12)
    assert (matrix - left @ right).norm() <= rounding
    # With less rounding than there is noise, nothing may be left out.
    whole_left, whole_right = factored(matrix, 1e-6)
    assert whole_right.shape == (12, 12)
    assert_close(whole_left @ whole_right, matrix, atol=1e-5, rtol=1e-5)


def test_matrices_of_different_rank_are_multiplied_together():
    matrices = [_release_with_rank(rank, 0.0) for rank in (1, 4, 12)]
    factors = Factors.of([factored(matrix, 1e-5) for matrix in matrices])
    assert factors.right.shape == (3, 12, 12)
    vectors = torch.randn(3, 12, generator=torch.Generator().manual_seed(5))
    expected = torch.stack(matrices) @ vectors[:, :, None]
    assert_close(factors.products(vectors), expected[:, :, 0], atol=1e-4, rtol=1e-4)


def test_the_update_of_one_record_has_rank_one(dense):
    """Its body's gradient times its hidden layer; noise gives it full rank."""
    views = _views(_round(dense, "HyperFL"))
    updates = updates_of(views)
    assert updates.to_heads.right.shape[1] == 1
    assert updates.to_layer.right.shape[1] == 1
    noisy = []
    for view in views:
        source = torch.Generator().manual_seed(6)
        noise = 1e-3 * torch.randn(len(view.update), generator=source)
        noisy.append(replace(view, update=view.update + noise))
    hidden = views[0].hypernetwork.hidden
    assert updates_of(noisy).to_heads.right.shape[1] == hidden


@pytest.mark.parametrize("attack", ["ig", "ig-paper", "rog", "tailored"])
@pytest.mark.parametrize("method", ["FedAvg", "HyperFL"])
def test_releases_are_attacked_together_as_if_each_were_alone(
    attack, method, convolutional, trained
):
    views = _views(_round(convolutional, method))
    reconstruct = ATTACKS.get(attack).reconstruct

    def attacked(some_views, seed):
        options = Options(6, seed, decode=trained)
        return reconstruct(some_views, options, lambda done, total: None)

    for index, guess in enumerate(attacked(views, 2)):
        [alone] = attacked([views[index]], 2 + index)
        if guess.images is None:
            assert guess == alone
        else:
            assert_close(guess.images, alone.images, atol=1e-4, rtol=1e-4)
            assert guess.numbers == pytest.approx(alone.numbers, abs=1e-4)


def test_the_rates_fall_as_published():
    descent = Descent(rate=0.1, milestones=(3 / 8, 5 / 8, 7 / 8))
    rates = [descent.rate_at(step / 8) for step in range(8)]
    assert rates == pytest.approx([0.1] * 3 + [0.01] * 2 + [1e-3] * 2 + [1e-4])


@pytest.mark.slow
def test_the_decoder_adds_detail(trained):
    data = load("digits")
    images = data.train_x[:200].float() / white(data)
    small = shrunk(images)
    plain = torch.nn.functional.interpolate(small, images.shape[-2:], mode="bicubic")
    decoded = measures.psnr(trained(small).clamp(0, 1), images).mean()
    assert decoded > measures.psnr(plain.clamp(0, 1), images).mean() + 2


def test_a_decoder_is_stored_with_its_seed_and_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(decoders, "STEPS", 2)
    stored = decoder(_public(), 3, tmp_path)
    assert stored.identity["seed"] == 3
    assert stored.identity["digest"] == load("digits").digest
    monkeypatch.setattr(decoders, "_train", None)  # it is read, not trained again
    assert decoder(_public(), 3, tmp_path).identity == stored.identity
    with pytest.raises(InputError, match="no decoder of other decoder-data or seed"):
        decoder(_public(), 4, tmp_path)
    (tmp_path / decoders.DECODER).write_bytes(b"none")
    with pytest.raises(InputError, match="as it was written"):
        decoder(_public(), 3, tmp_path)


def test_a_decoder_of_attacked_records_is_refused(dense):
    attacked = _round(dense, "FedAvg").truth(0).images
    public = _public()
    public.require_apart_from(attacked)
    planted = DecoderData("digits", public.digest, torch.cat([public.images, attacked]))
    with pytest.raises(
        InputError, match="none of the attacked records, found '1 of them"
    ):
        planted.require_apart_from(attacked)
    with pytest.raises(InputError, match="images of the attacked shape"):
        public.require_apart_from(torch.zeros(1, 1, 28, 28))


def test_rog_without_a_decoder_says_what_it_needs(dense):
    with pytest.raises(InputError, match="decoder-data: must name public data"):
        _gain(dense, "FedAvg", "rog", 1)
