"""Measures of reconstructions against closed forms and scikit-image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simulate.attacks.measures import (
    CANDIDATES,
    Candidates,
    Scores,
    better,
    candidates,
    matched,
    mean_interval,
    null_scores,
    psnr,
    scores,
    ssim,
)
from simulate.data.registry import load


def test_psnr_of_a_constant_error() -> None:
    original = torch.full((2, 1, 8, 8), 0.5)
    assert psnr(original + 0.1, original) == pytest.approx([20.0, 20.0], abs=1e-5)
    assert psnr(original, original).tolist() == [100.0, 100.0]


def test_ssim_of_equal_and_of_opposite_images() -> None:
    pytest.importorskip("skimage", reason="scikit-image is missing: SSIM is not available")
    source = torch.Generator().manual_seed(0)
    image = torch.rand(1, 3, 16, 16, generator=source)
    assert ssim(image, image) == pytest.approx([1.0])
    found = ssim(1 - image, image)
    assert found is not None
    assert found[0] < -0.5


def test_ssim_is_not_available_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    image = torch.zeros(1, 1, 8, 8)
    assert ssim(image, image) is None


def test_re_identification_is_by_the_nearest_of_a_thousand() -> None:
    data = load("digits")
    among = candidates(data, np.array([0, 1]), 0)
    assert len(among.images) == CANDIDATES - 1
    originals = data.train_x[:2].float() / 16
    assert among.identified(originals, originals).tolist() == [True, True]
    assert among.identified(originals[[1, 0]], originals).tolist() == [False, False]
    assert not among.identified(among.images[:2], originals).any()
    ties = Candidates(originals[:1])
    assert not ties.identified(originals[:1], originals[:1]).any()


def test_the_order_of_images_in_a_release_does_not_matter() -> None:
    originals = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(matched(originals[order], originals), originals[order])
    assert torch.equal(matched(originals[[3]], originals), originals[[3]])


def test_the_interval_of_a_mean_is_students() -> None:
    mean, low, high = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert (mean, high - mean) == pytest.approx((2.0, 4.302652729749462 / np.sqrt(3)))
    assert low == pytest.approx(2 - (high - 2))


def test_a_single_image_has_no_interval_and_is_not_better() -> None:
    assert mean_interval(np.array([3.0])) == [3.0, None, None]
    one, null = (Scores(np.array([value]), None, None, np.array([False])) for value in (9.0, 1.0))
    assert better(one, {"null": null}) == []


def test_chance_grows_with_the_records_of_a_release() -> None:
    """A blind guess is near some record of a large sum, so its hit is no leak."""
    among = Candidates(torch.rand(999, 1, 2, 2, generator=torch.Generator().manual_seed(2)))
    originals = [torch.rand(333, 1, 2, 2, generator=torch.Generator().manual_seed(3))]
    assert among.chance(originals) == pytest.approx(0.25)
    assert among.chance([originals[0][:1]]) == pytest.approx(0.001)
    guess = scores([originals[0][:1]], originals, among)
    assert guess.summary()["chance"] == pytest.approx(0.25)
    assert guess.identified.all()
    assert "identified" not in better(guess, {})


def test_candidates_are_filled_from_the_test_set() -> None:
    data = load("digits")
    among = candidates(data, np.arange(len(data.train_y)), 0)
    assert len(among.images) == len(data.test_y)
    assert torch.equal(among.images, data.test_x.float() / 16)
    part = candidates(data, np.arange(len(data.train_y) - 900), 0)
    assert len(part.images) == CANDIDATES - 1


def test_the_noise_row_takes_every_seed() -> None:
    among = candidates(load("digits"), np.array([0]), 0)
    pair = [among.images[:1], among.images[1:2]]
    assert set(null_scores(pair, pair, among, 2**64 - 1)) > {"noise"}
