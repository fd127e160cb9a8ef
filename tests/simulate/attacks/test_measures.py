"""Measures of reconstructions against closed forms and scikit-image."""

import numpy as np
import pytest
import torch

from simulate.attacks.measures import (
    CANDIDATES,
    Candidates,
    candidates,
    matched,
    mean_interval,
    ssim,
)
from simulate.data.registry import load


def test_ssim_of_equal_and_of_opposite_images():
    pytest.importorskip("skimage", reason="scikit-image is missing: SSIM is not available")
    source = torch.Generator().manual_seed(0)
    image = torch.rand(1, 3, 16, 16, generator=source)
    assert ssim(image, image) == pytest.approx([1.0])
    found = ssim(1 - image, image)
    assert found[0] < -0.5


def test_re_identification_is_by_the_nearest_of_a_thousand():
    data = load("digits")
    among = candidates(data, np.array([0, 1]), 0)
    assert len(among.images) == CANDIDATES - 1
    originals = data.train_x[:2].float() / 16
    assert among.identified(originals, originals).tolist() == [True, True]
    assert among.identified(originals[[1, 0]], originals).tolist() == [False, False]
    assert not among.identified(among.images[:2], originals).any()
    ties = Candidates(originals[:1])
    assert not ties.identified(originals[:1], originals[:1]).any()


def test_the_order_of_images_in_a_release_does_not_matter():
    originals = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(matched(originals[order], originals), originals[order])
    assert torch.equal(matched(originals[[3]], originals), originals[[3]])


def test_the_interval_of_a_mean_is_students():
    mean, low, high = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert (mean, high - mean) == pytest.approx((2.0, 4.302652729749462 / np.sqrt(3)))
    assert low == pytest.approx(2 - (high - 2))
