"""Colour images in each of their layouts, EMNIST's letters, and what models see of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from privplan.errors import InputError
from simulate.data.dataset import Dataset
from simulate.data.formats.images import CLASSES
from simulate.data.registry import DATASETS, load
from tests.simulate.data.test_data import idx

draw = np.random.default_rng(0)
IMAGES = draw.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
LABELS = [3, 8, 8, 0, 6, 6, 1, 6, 3, 1, 9, 9]


def batch(rows: slice, key: bytes = b"labels") -> bytes:
    """A pickled batch as CIFAR's are: a dictionary of bytes, rows of channels, a list."""
    content = {key: LABELS[rows], b"data": IMAGES[rows].reshape(-1, 3072), b"batch_label": b"one"}
    return pickle.dumps(content, protocol=2)


def python_files() -> dict[str, bytes]:
    """Two records in each of the six files of CIFAR-10."""
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    return {name: batch(slice(2 * row, 2 * row + 2)) for row, name in enumerate(names)}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def check_cifar_10(data: Dataset) -> None:
    assert data.name == "cifar-10"
    np.testing.assert_array_equal(data.train_x, IMAGES[:10])
    np.testing.assert_array_equal(data.test_x, IMAGES[10:])
    assert data.train_y.tolist() + data.test_y.tolist() == LABELS
    assert data.classes[LABELS[0]] == "cat"


def test_cifar_10_from_pickled_batches(tmp_path: Path) -> None:
    folder = written(tmp_path / "cifar-10-batches-py", python_files())
    check_cifar_10(load("cifar10", tmp_path))
    check_cifar_10(load("cifar-10", folder))


def test_cifar_100_has_fine_labels(tmp_path: Path) -> None:
    names = [f"thing-{number}" for number in range(100)]
    meta = {b"fine_label_names": [name.encode() for name in names]}
    files = {
        "train": batch(slice(0, 9), b"fine_labels"),
        "test": batch(slice(9, 12), b"fine_labels"),
        "meta": pickle.dumps(meta, protocol=2),
    }
    written(tmp_path / "cifar-100-python", files)
    data = load("cifar-100", tmp_path)
    assert data.classes == tuple(names)
    assert data.train_y.tolist() == LABELS[:9]
    np.testing.assert_array_equal(data.test_x, IMAGES[9:])


def archive(folder: str, files: dict[str, bytes]) -> bytes:
    """A tar archive, compressed."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{folder}{name}")
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def published(monkeypatch: pytest.MonkeyPatch, content: bytes) -> str:
    """Every address answers with this; returns its sum."""
    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: io.BytesIO(content))
    return hashlib.sha256(content).hexdigest()


def with_checksum(monkeypatch: pytest.MonkeyPatch, name: str, checksum: str) -> None:
    """A data set whose published archive has another sum."""
    row = DATASETS.get(name)
    changed = replace(row, archive=replace(row.archive, checksum=checksum))
    monkeypatch.setitem(DATASETS._components, name, changed)


def test_an_archive_is_fetched_checked_and_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive("cifar-10-batches-py/", python_files())
    checksum = published(monkeypatch, content)
    with pytest.raises(
        InputError, match=f"must have the sha256 sum {DATASETS.get('cifar-10').archive.checksum}"
    ):
        load("cifar-10", tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []
    with_checksum(monkeypatch, "cifar-10", checksum)
    check_cifar_10(load("cifar-10", tmp_path, download=True))
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_an_archive_writes_nothing_outside(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checksum = published(monkeypatch, archive("", {name: b"bad"}))
    with_checksum(monkeypatch, "cifar-10", checksum)
    with pytest.raises(InputError, match="dataset: must unpack"):
        load("cifar-10", tmp_path / "data", download=True)
    assert not list(tmp_path.rglob("outside"))


def svhn_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    labels = np.array([[10], [1], [9]], np.uint8)
    for part, first in (("train", 0), ("test", 3)):
        images = IMAGES[first : first + 3].transpose(2, 3, 1, 0)
        savemat(folder / f"{part}_32x32.mat", {"X": images, "y": labels})
    return folder


def test_svhn_from_its_files(tmp_path: Path) -> None:
    folder = svhn_files(tmp_path / "SVHN")
    data = load("svhn", tmp_path)
    np.testing.assert_array_equal(data.train_x, IMAGES[:3])
    np.testing.assert_array_equal(data.test_x, IMAGES[3:6])
    assert data.train_y.tolist() == [0, 1, 9]
    for content in (b"", b"MATLAB 5.0 MAT-file" + 300 * b"x"):
        (folder / "test_32x32.mat").write_bytes(content)
        with pytest.raises(InputError, match="data: must be a MATLAB file") as caught:
            load("svhn", tmp_path)
        assert "\n" not in str(caught.value)
    savemat(folder / "test_32x32.mat", {"X": IMAGES, "y": np.ones((3, 1))})
    with pytest.raises(InputError, match="must hold X of 32 x 32 x 3 x n"):
        load("svhn", tmp_path)


def cinic_files(folder: Path) -> dict[str, bytes]:
    files = {}
    for part in ("train", "test"):
        for label, name in enumerate(CLASSES):
            content = io.BytesIO()
            Image.fromarray(IMAGES[label].transpose(1, 2, 0)).save(content, "png")
            files[f"{part}/{name}/cifar10-{label}.png"] = content.getvalue()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return files


def test_cinic_10_from_folders_of_images(tmp_path: Path) -> None:
    folder = tmp_path / "CINIC-10"
    cinic_files(folder)
    grey = Image.fromarray(np.full((32, 32), 7, np.uint8))
    grey.save(folder / "train" / "cat" / "a-grey.png")  # before the other, by its name
    data = load("cinic-10", tmp_path)
    assert data.train_y.tolist() == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]
    assert (data.train_x[3] == 7).all()
    np.testing.assert_array_equal(data.test_x, IMAGES[:10])
    grey.resize((31, 32)).save(folder / "test" / "cat" / "b.png")
    with pytest.raises(InputError, match=r"must be 32x32 pixels, found .*b.png, 31x32"):
        load("cinic-10", tmp_path)
    (folder / "test" / "cat" / "b.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(InputError, match="data: must be an image"):
        load("cinic-10", tmp_path)
    for path in (folder / "test" / "cat").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"must hold .png images, found .*test/cat"):
        load("cinic-10", tmp_path)


def png_of_size(side: int) -> bytes:
    """The start of an image, which says that it has this many rows and columns."""
    header = b"IHDR" + struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n\0\0\0\x0d" + header + struct.pack(">I", zlib.crc32(header))


@pytest.mark.parametrize("side", [12_000, 100_000])
def test_an_image_that_claims_to_be_huge_is_refused(side: int, tmp_path: Path) -> None:
    cinic_files(tmp_path / "CINIC-10")
    content = png_of_size(side) + b"\0\0\0\0IDAT"
    (tmp_path / "CINIC-10" / "test" / "cat" / "b.png").write_bytes(content)
    with pytest.raises(InputError, match=r"data: must be .*, found .*b\.png") as caught:
        load("cinic-10", tmp_path)
    assert "\n" not in str(caught.value)


def emnist_files() -> dict[str, bytes]:
    letters = np.zeros((4, 28, 28), np.uint8)
    letters[:, 3, 20] = 200  # stored on its side: column 3, row 20
    files = {}
    for part in ("train", "test"):
        files[f"emnist-byclass-{part}-images-idx3-ubyte"] = idx(letters)
        files[f"emnist-byclass-{part}-labels-idx1-ubyte"] = idx(np.array([0, 10, 36, 61]))
    return files


def test_emnist_is_upright_from_files_or_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "EMNIST" / "raw", emnist_files())
    data = load("emnist", tmp_path)
    assert data.train_x.shape == (4, 1, 28, 28)
    assert data.train_x[0, 0, 20, 3] == 200
    assert [data.classes[label] for label in data.train_y] == ["0", "A", "a", "z"]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("gzip/emnist-letters-mapping.txt", "not asked for")
        for name, data_ in emnist_files().items():
            packed.writestr(f"gzip/{name}.gz", gzip.compress(data_))
    with_checksum(monkeypatch, "emnist", published(monkeypatch, content.getvalue()))
    fetched = load("emnist", tmp_path / "fetched", download=True)
    assert fetched.digest == data.digest
    assert len(list((tmp_path / "fetched" / "EMNIST" / "raw").iterdir())) == 4


def test_a_colour_has_its_own_centre_and_spread(tmp_path: Path) -> None:
    written(tmp_path / "cifar-10-batches-py", python_files())
    data = load("cifar-10", tmp_path)
    many = data.train_x[:4].reshape(2, 2, 3, 32, 32)
    seen = data.inputs(many)
    assert seen.dtype == torch.float32
    expected = (IMAGES[3, 2] / 255 - 0.4465) / 0.2616
    np.testing.assert_allclose(seen[1, 1, 2], expected, rtol=1e-5, atol=1e-6)
    expected = (IMAGES[3, 0] / 255 - 0.4914) / 0.2470
    np.testing.assert_allclose(seen[1, 1, 0], expected, rtol=1e-5, atol=1e-6)
