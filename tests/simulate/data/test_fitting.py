"""Images of another size: grey and repeated channels, and interpolation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simulate.data.dataset import BLOCK, Dataset, fitted


def images(shape: tuple[int, ...], count: int = 5, **options: object) -> Dataset:
    source = torch.Generator().manual_seed(1)
    x = torch.randint(256, (count, *shape), generator=source).to(torch.uint8)
    y = torch.zeros(count, dtype=torch.int64)
    return Dataset("own", x, y, x, y, ("a",), **options)  # type: ignore[arg-type]


def test_colour_becomes_its_mean() -> None:
    data = images((3, 8, 8), mean=(10.0, 20.0, 60.0), std=(1.0, 2.0, 6.0))
    grey = fitted(data, (1, 8, 8))
    expected = np.round(data.train_x.numpy().astype(float).mean(1, keepdims=True))
    assert np.array_equal(grey.train_x.numpy(), expected)
    assert (grey.mean, grey.std) == (30.0, 3.0)
    assert grey.train_x.dtype == torch.uint8


def test_grey_is_repeated() -> None:
    data = images((1, 8, 8), mean=10.0)
    colour = fitted(data, (3, 8, 8))
    assert all(torch.equal(colour.train_x[:, one], data.train_x[:, 0]) for one in range(3))
    assert colour.mean == 10.0


def test_half_the_size_keeps_the_mean() -> None:
    data = images((1, 16, 16), count=BLOCK + 3)
    small = fitted(data, (1, 8, 8))
    assert small.train_x.shape == (BLOCK + 3, 1, 8, 8)
    means = [one.train_x.double().mean().item() for one in (data, small)]
    assert means[0] == pytest.approx(means[1], abs=0.2)
    flat = fitted(images((1, 4, 4)), (1, 9, 5))
    assert flat.test_x.shape == (5, 1, 9, 5)
