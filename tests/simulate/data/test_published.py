"""The published data sets, where PRIVPLAN_DATA has them."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
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


@needs("MNIST")
def test_mnist_is_the_published_one() -> None:
    data = load("mnist")
    assert data.train_x.shape == (60000, 1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # its known sizes
    assert torch.bincount(data.train_y).tolist() == counts
    pixels = data.train_x.float() / 255
    assert abs(float(pixels.mean()) - 0.1307) < 1e-4
    assert abs(float(pixels.std()) - 0.3081) < 1e-4


@needs("MNIST/raw/qmnist-train-labels-idx2-int.gz")
def test_mnist_s_writers_are_clients() -> None:
    data = load("mnist")
    writers, sizes = np.unique(data.train_people, return_counts=True)
    assert len(writers) == 539
    assert (sizes.min(), sizes.max(), np.median(sizes)) == (19, 131, 116)
    assert len(np.unique(data.test_people)) == 297
    assert not set(writers) & set(data.test_people)
    groups = tuple(g.model_copy(update={"clients": 200}) for g in tiny.plan().groups)
    held = partition(scheme("natural"), data.train_y.numpy(), groups, 1, data.train_people)
    found = personal_test_records(data, held, 17, seed=1)  # their writers are others: the label mix
    mix = np.bincount(data.train_y.numpy()[held.records(17)], minlength=10)
    assert len(found) == 100
    own = np.bincount(data.test_y.numpy()[found], minlength=10)
    assert np.abs(own / 100 - mix / mix.sum()).max() <= 0.01


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


@needs("Shakespeare/leaf_10roles_train.json.gz")
def test_a_sample_made_with_leaf_s_scripts(tmp_path: Path) -> None:
    for part in ("train", "test"):
        folder = tmp_path / "shakespeare" / part
        folder.mkdir(parents=True)
        content = (DATA / "Shakespeare" / f"leaf_10roles_{part}.json.gz").read_bytes()
        (folder / "all_data.json").write_bytes(gzip.decompress(content))
    data = load("shakespeare", tmp_path)
    assert len(data.train_y) == 41990
    assert len(data.test_y) == 3881
    assert len(np.unique(data.train_people)) == 10


ROUND = """
import re
import numpy as np, torch
from simulate.engine.round import batches
from simulate.data.registry import load
from simulate.data.dataset import personal_test_records
from simulate.data.partition.schemes import partition, scheme
from tests.simulate import tiny

data = load("digits")
groups = tuple(g.model_copy(update={"clients": 500_000}) for g in tiny.plan().groups)
held = partition(scheme("iid:50"), data.train_y.numpy(), groups, 1)
clients = np.arange(0, 1_000_000, 1000)
x, y = batches(data, held, clients, seed=1, round_=1, steps=5, size=10, device=torch.device("cpu"))
own = [personal_test_records(data, held, client, 1) for client in clients]
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]
print(len(x), len(own), peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read in /proc")
def test_a_round_of_a_thousand_among_a_million_clients_fits_in_memory() -> None:
    done = subprocess.run([sys.executable, "-c", ROUND], capture_output=True, text=True, check=True)
    trained, tested, peak = map(int, done.stdout.split())
    assert trained == tested == 1000
    assert peak < 2**20  # KiB: 1 GiB in all, libraries included
