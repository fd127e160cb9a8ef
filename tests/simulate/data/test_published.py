"""The published data sets, where PRIVPLAN_DATA has them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from simulate.data.dataset import personal_test_records
from simulate.data.formats.leaf import CHARACTERS
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from tests.simulate import tiny
from tests.simulate.data.test_leaf import text_of

DATA = Path(os.environ.get("PRIVPLAN_DATA", "."))


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where a file or folder of the data is not there."""
    return pytest.mark.skipif(not (DATA / name).exists(), reason=f"PRIVPLAN_DATA has no {name}")


@pytest.mark.slow
@needs("FashionMNIST")
def test_fashion_mnist_is_the_published_one() -> None:
    data = load("fashion-mnist")
    assert data.train_x.shape == (60000, 1, 28, 28)
    assert torch.bincount(data.train_y).tolist() == [6000] * 10
    assert torch.bincount(data.test_y).tolist() == [1000] * 10
    pixels = data.train_x.float() / 255  # torchvision's published constants
    assert abs(float(pixels.mean()) - 0.2860) < 1e-4
    assert abs(float(pixels.std()) - 0.3530) < 1e-4


@pytest.mark.slow
def test_cifar_10_is_the_published_one(cifar_10_folder: Path) -> None:
    data = load("cifar-10", cifar_10_folder)
    assert torch.bincount(data.train_y).tolist() == [5000] * 10
    sums = {
        "train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    }
    for part, images in (("train", data.train_x), ("test", data.test_x)):
        rows = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
        assert hashlib.sha256(rows.data).hexdigest() == sums[part]
    seen = data.inputs(data.train_x[:10_000])
    assert seen.mean(dim=(0, 2, 3)).abs().max() < 0.02  # the customary constants


@pytest.mark.slow
@needs("Shakespeare/roles.json.gz")
def test_shakespeare_is_whole() -> None:
    data = load("shakespeare")
    people = np.unique(data.train_people)
    assert len(people) == 1154
    # A role of n characters has n - 80 windows; testing leaves 79 of them out, or all.
    assert 3.7e6 < len(data.train_y) < 0.9 * 4318788
    held = text_of(data.train_x[0])
    assert len(held) == 80
    assert text_of(data.train_x[1]) == held[1:] + CHARACTERS[data.train_y[0]]
    groups = tuple(g.model_copy(update={"clients": 357}) for g in tiny.plan().groups)
    spread = partition(scheme("natural"), data.train_y.numpy(), groups, 1, data.train_people)
    client = next(one for one in range(714) if (data.test_people == spread.person(one)).sum() > 9)
    found = personal_test_records(data, spread, client, seed=1)
    assert set(data.test_people[found]) == {spread.person(client)}
