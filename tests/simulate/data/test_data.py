"""Data sets from disk, and how records are spread over clients."""

from __future__ import annotations

import gzip
import hashlib
import io
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from privplan.errors import InputError
from simulate.data.formats.images import WRITERS, read_idx
from simulate.data.registry import DATASETS, load

FILES = tuple(DATASETS.get("fashion-mnist").sums)


def idx(values: np.ndarray) -> bytes:
    """IDX format of bytes, from its published description."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    return header + values.astype(np.uint8).tobytes()


def idx_of_integers(values: np.ndarray) -> bytes:
    """IDX format of 32-bit integers, likewise."""
    return b"\0\0\x0c" + idx(values)[3 : 4 + 4 * values.ndim] + values.astype(">i4").tobytes()


def small_files() -> dict[str, bytes]:
    draw = np.random.default_rng(0)
    return {
        FILES[0]: idx(draw.integers(0, 256, (20, 28, 28))),
        FILES[1]: idx(np.arange(20) % 10),
        FILES[2]: idx(draw.integers(0, 256, (10, 28, 28))),
        FILES[3]: idx(np.arange(10)),
    }


def test_digits_are_whole_and_split_by_class() -> None:
    data = load("digits")
    assert len(data.train_y) + len(data.test_y) == 1797
    assert data.shape == (1, 8, 8)
    assert data.train_x.dtype == torch.uint8
    assert data.train_x.max() == 16
    shares = torch.bincount(data.test_y) / torch.bincount(torch.cat([data.train_y, data.test_y]))
    assert ((shares > 0.18) & (shares <= 0.2)).all()


def test_fashion_mnist_in_torchvision_s_layout(tmp_path: Path) -> None:
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for index, (name, content) in enumerate(small_files().items()):
        if index % 2:
            (folder / name).write_bytes(content)
        else:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    data = load("fmnist", tmp_path)
    assert data.name == "fashion-mnist"
    assert data.train_x.shape == (20, 1, 28, 28)
    assert data.test_y.tolist() == list(range(10))


@pytest.fixture
def mnist_folder(tmp_path: Path) -> Path:
    """MNIST's layout with extended labels: writer 7 or 8, then 9; the test file is longer."""
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name, content in small_files().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    train, test = np.zeros((20, 8), np.int64), np.zeros((13, 8), np.int64)
    train[:, 0], train[:, 2] = np.arange(20) % 10, 7 + np.arange(20) // 15
    test[:, 0], test[:, 2] = np.arange(13), 9
    (folder / "qmnist-train-labels-idx2-int").write_bytes(idx_of_integers(train))
    (folder / "qmnist-test-labels-idx2-int").write_bytes(idx_of_integers(test))
    return folder


def test_mnist_knows_its_writers(mnist_folder: Path) -> None:
    data = load("mnist", mnist_folder.parents[1])
    assert data.train_people.tolist() == [7] * 15 + [8] * 5
    assert data.test_people.tolist() == [9] * 10
    digest = data.digest
    (mnist_folder / "qmnist-test-labels-idx2-int").unlink()
    plain = load("mnist", mnist_folder.parents[1])
    assert plain.train_people is None
    assert plain.digest != digest
    wrong = idx_of_integers(np.ones((20, 8), np.int64))
    for name in ("train", "test"):
        (mnist_folder / f"qmnist-{name}-labels-idx2-int").write_bytes(wrong)
    with pytest.raises(InputError, match="must have a row for each MNIST label"):
        load("mnist", mnist_folder.parents[1])


def test_downloads_use_https_and_sha256_but_for_one_archive() -> None:
    weak, addresses = set(), []
    for name, row in DATASETS.items():
        archive = getattr(row, "archive", None)
        sums = [] if archive is None else [archive.checksum]
        if archive is None:
            sums = [*(getattr(row, "sums", None) or {}).values(), *WRITERS.values()]
        weak |= {name for one in sums if len(one) != 64}
        addresses += [archive.address] if archive else [getattr(row, "address", "")]
    assert weak == {"cinic-10"}
    assert all(one.startswith("https://") for one in addresses if one)
    assert len([one for one in addresses if one]) >= 6


def test_a_download_is_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = {name: gzip.compress(content) for name, content in small_files().items()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in packed.items()}
    asked = []

    def answer(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(packed[address.rpartition("/")[2].removesuffix(".gz")])

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    published = DATASETS.get("fashion-mnist")
    monkeypatch.setitem(DATASETS._components, "fashion-mnist", replace(published, sums=sums))
    load("fashion-mnist", tmp_path, download=True)
    load("fashion-mnist", tmp_path, download=True)
    assert len(asked) == 4
    wrong = {**sums, FILES[0]: "0" * 64}
    monkeypatch.setitem(DATASETS._components, "fashion-mnist", replace(published, sums=wrong))
    first = tmp_path / "FashionMNIST" / "raw" / f"{FILES[0]}.gz"
    first.unlink()
    with pytest.raises(InputError, match="must have the sha256 sum 000"):
        load("fashion-mnist", tmp_path, download=True)
    names = sorted(path.name for path in first.parent.iterdir())
    assert names == sorted(f"{name}.gz" for name in FILES[1:])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\0\0\x08", b"\0\0\x08\x01\0\0\0\x05ab", b"\0\0\x0c\x01\0\0\0\x01abc",
        b"\0\0\x0d\x01\0\0\0\x01a", b"\0\0\x08\x02\0\0",
        b"\0\0\x08\xff" + 255 * b"\0\0\0\x01" + b"a", b"\0\0\x08\x04" + bytes(4) + 12 * b"\xff",
    ],
)  # fmt: skip
def test_a_damaged_idx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match="data: must be"):
        read_idx(path)
    packed = tmp_path / "file.gz"
    packed.write_bytes(gzip.compress(content)[:-3])
    with pytest.raises(InputError, match="data: must be"):
        read_idx(packed)
