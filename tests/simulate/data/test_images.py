"""Images: their files, archives, downloads, colours and sizes; pickles of data only."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

from privplan.errors import InputError, MissingDataError
from simulate.data.dataset import Dataset
from simulate.data.fitting import BLOCK, fitted
from simulate.data.formats.idx import read_idx
from simulate.data.pickles import read_pickle
from simulate.data.registry import DATASETS, load

FILES = tuple(DATASETS.get("fashion-mnist").sums)


@pytest.fixture(autouse=True)
def any_records(monkeypatch):
    """Files of few made-up records pass as those that are published."""
    monkeypatch.setattr("simulate.data.registry.DIGESTS", {})


def idx(values):
    """IDX format of bytes, from its published description."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(
        n.to_bytes(4, "big") for n in values.shape
    )
    return header + values.astype(np.uint8).tobytes()


def idx_of_integers(values):
    """IDX format of 32-bit integers, likewise."""
    return (
        b"\0\0\x0c"
        + idx(values)[3 : 4 + 4 * values.ndim]
        + values.astype(">i4").tobytes()
    )


def small_files():
    draw = default_rng(0)
    return {
        FILES[0]: idx(draw.integers(0, 256, (20, 28, 28))),
        FILES[1]: idx(np.arange(20) % 10),
        FILES[2]: idx(draw.integers(0, 256, (10, 28, 28))),
        FILES[3]: idx(np.arange(10)),
    }


def test_digits_are_whole_and_split_by_class():
    data = load("digits")
    assert len(data.train_y) + len(data.test_y) == 1797
    assert data.shape == (1, 8, 8)
    assert data.train_x.dtype == torch.uint8
    assert data.train_x.max() == 16
    shares = torch.bincount(data.test_y) / torch.bincount(
        torch.cat([data.train_y, data.test_y])
    )
    assert ((shares > 0.18) & (shares <= 0.2)).all()


def test_fashion_mnist_in_torchvision_s_layout(tmp_path):
    files = small_files()
    for name in list(files)[::2]:
        files[f"{name}.gz"] = gzip.compress(files.pop(name))
    written(tmp_path / "FashionMNIST" / "raw", files)
    data = load("fmnist", tmp_path)
    assert data.name == "fashion-mnist"
    assert data.train_x.shape == (20, 1, 28, 28)
    assert data.test_y.tolist() == list(range(10))


def test_mnist_knows_its_writers(tmp_path):
    """Extended labels: writer 7 or 8, then 9; the test file is longer."""
    files = {
        f"{name}.gz": gzip.compress(content) for name, content in small_files().items()
    }
    train = np.zeros((20, 8), np.int64)
    train[:, 0] = np.arange(20) % 10
    train[:, 2] = 7 + np.arange(20) // 15
    test = np.zeros((13, 8), np.int64)
    test[:, 0] = np.arange(13)
    test[:, 2] = 9
    files["qmnist-train-labels-idx2-int"] = idx_of_integers(train)
    files["qmnist-test-labels-idx2-int"] = idx_of_integers(test)
    folder = written(tmp_path / "MNIST" / "raw", files)
    data = load("mnist", tmp_path)
    assert data.train_people.tolist() == [7] * 15 + [8] * 5
    assert data.test_people.tolist() == [9] * 10
    writers = load("mnist-writers", tmp_path)
    assert writers.train_people.tolist() == [7] * 14 + [8] * 5
    assert torch.equal(writers.test_x, data.train_x[9:10])  # the tenth of writer 7
    (folder / "qmnist-test-labels-idx2-int").unlink()
    with pytest.raises(
        MissingDataError, match="mnist-writers needs qmnist-train-labels-idx2-int"
    ):
        load("mnist-writers", tmp_path)
    plain = load("mnist", tmp_path)
    assert plain.train_people is None
    assert plain.digest != data.digest
    wrong = idx_of_integers(np.ones((20, 8), np.int64))
    for name in ("train", "test"):
        (folder / f"qmnist-{name}-labels-idx2-int").write_bytes(wrong)
    with pytest.raises(InputError, match="must have a row for each MNIST label"):
        load("mnist", tmp_path)


def test_downloads_use_https_and_sha256():
    addresses = []
    for name, dataset in DATASETS.items():
        archive = getattr(dataset, "archive", None)
        if archive is None:
            sums = (getattr(dataset, "sums", None) or {}).values()
            addresses.append(getattr(dataset, "address", ""))
        else:
            sums = [archive.checksum]
            addresses.append(archive.address)
        for checksum in sums:
            assert len(checksum) == 64, name
    addresses = [address for address in addresses if address]
    assert len(addresses) >= 6
    for address in addresses:
        assert address.startswith("https://")


def test_a_download_is_checked_and_kept(tmp_path, monkeypatch):
    packed = {name: gzip.compress(content) for name, content in small_files().items()}
    sums = {
        name: hashlib.sha256(content).hexdigest() for name, content in packed.items()
    }
    requested = []

    def answer(address, timeout):
        requested.append(address)
        return io.BytesIO(packed[address.rpartition("/")[2].removesuffix(".gz")])

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    published = DATASETS.get("fashion-mnist")
    monkeypatch.setitem(
        DATASETS._components, "fashion-mnist", replace(published, sums=sums)
    )
    load("fashion-mnist", tmp_path, download=True)
    load("fashion-mnist", tmp_path, download=True)
    assert len(requested) == 4
    wrong = {**sums, FILES[0]: "0" * 64}
    monkeypatch.setitem(
        DATASETS._components, "fashion-mnist", replace(published, sums=wrong)
    )
    first_file = tmp_path / "FashionMNIST" / "raw" / f"{FILES[0]}.gz"
    first_file.unlink()
    with pytest.raises(InputError, match="must have the sha256 sum 000"):
        load("fashion-mnist", tmp_path, download=True)
    names = sorted(path.name for path in first_file.parent.iterdir())
    assert names == sorted(f"{name}.gz" for name in FILES[1:])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x08\x01\0\0\0\x05ab",
        b"\0\0\x0c\x01\0\0\0\x01abc",
        b"\0\0\x0d\x01\0\0\0\x01a",
        b"\0\0\x08\x02\0\0",
        b"\0\0\x08\xff" + 255 * b"\0\0\0\x01" + b"a",
        b"\0\0\x08\x04" + bytes(4) + 12 * b"\xff",
    ],
)
def test_a_damaged_idx_file_is_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match="data: must be"):
        read_idx(path)
    packed = tmp_path / "file.gz"
    packed.write_bytes(gzip.compress(content)[:-3])
    with pytest.raises(InputError, match="data: must be"):
        read_idx(packed)


draw = default_rng(0)
IMAGES = draw.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
LABELS = [3, 8, 8, 0, 6, 6, 1, 6, 3, 1, 9, 9]


def batch(rows, key=b"labels"):
    """A pickled batch as CIFAR's are: a dictionary of bytes, channels and a list."""
    content = {
        key: LABELS[rows],
        b"data": IMAGES[rows].reshape(-1, 3072),
        b"batch_label": b"one",
    }
    return pickle.dumps(content, protocol=2)


def python_files():
    """Two records in each of the six files of CIFAR-10."""
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    return {name: batch(slice(2 * row, 2 * row + 2)) for row, name in enumerate(names)}


def written(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def check_cifar_10(data):
    assert data.name == "cifar-10"
    assert_array_equal(data.train_x, IMAGES[:10])
    assert_array_equal(data.test_x, IMAGES[10:])
    assert data.train_y.tolist() + data.test_y.tolist() == LABELS
    assert data.classes[LABELS[0]] == "cat"


def test_cifar_10_from_pickled_batches(tmp_path):
    folder = written(tmp_path / "cifar-10-batches-py", python_files())
    check_cifar_10(load("cifar10", tmp_path))
    check_cifar_10(load("cifar-10", folder))


def test_cifar_100_has_fine_labels(tmp_path):
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
    assert_array_equal(data.test_x, IMAGES[9:])


def archive(folder, files):
    """A tar archive, compressed."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{folder}{name}")
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def answering(monkeypatch, content):
    """Every address answers with this; returns its sum."""
    monkeypatch.setattr(
        urllib.request, "urlopen", lambda address, timeout: io.BytesIO(content)
    )
    return hashlib.sha256(content).hexdigest()


def with_checksum(monkeypatch, name, checksum):
    """A data set whose published archive has another sum."""
    row = DATASETS.get(name)
    changed = replace(row, archive=replace(row.archive, checksum=checksum))
    monkeypatch.setitem(DATASETS._components, name, changed)


def test_an_archive_is_fetched_checked_and_unpacked(tmp_path, monkeypatch):
    checksum = answering(monkeypatch, archive("cifar-10-batches-py/", python_files()))
    rule = f"must have the sha256 sum {DATASETS.get('cifar-10').archive.checksum}"
    with pytest.raises(InputError, match=rule):
        load("cifar-10", tmp_path, download=True)
    assert list(tmp_path.iterdir()) == []
    with_checksum(monkeypatch, "cifar-10", checksum)
    check_cifar_10(load("cifar-10", tmp_path, download=True))
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_an_archive_writes_nothing_outside(name, tmp_path, monkeypatch):
    with_checksum(
        monkeypatch, "cifar-10", answering(monkeypatch, archive("", {name: b"bad"}))
    )
    with pytest.raises(InputError, match="dataset: must unpack"):
        load("cifar-10", tmp_path / "data", download=True)
    assert not list(tmp_path.rglob("outside"))


def svhn_files(folder):
    folder.mkdir(parents=True)
    labels = np.array([[10], [1], [9]], np.uint8)
    for split, start in (("train", 0), ("test", 3)):
        images = IMAGES[start : start + 3].transpose(2, 3, 1, 0)
        savemat(folder / f"{split}_32x32.mat", {"X": images, "y": labels})
    return folder


def test_svhn_from_its_files(tmp_path):
    folder = svhn_files(tmp_path / "SVHN")
    data = load("svhn", tmp_path)
    assert_array_equal(data.train_x, IMAGES[:3])
    assert_array_equal(data.test_x, IMAGES[3:6])
    assert data.train_y.tolist() == [0, 1, 9]
    for content in (b"", b"MATLAB 5.0 MAT-file" + 300 * b"x"):
        (folder / "test_32x32.mat").write_bytes(content)
        with pytest.raises(InputError, match="data: must be a MATLAB file") as caught:
            load("svhn", tmp_path)
        assert "\n" not in str(caught.value)
    savemat(folder / "test_32x32.mat", {"X": IMAGES, "y": np.ones((3, 1))})
    with pytest.raises(InputError, match="must hold X of 32 x 32 x 3 x n"):
        load("svhn", tmp_path)


def emnist_files():
    letters = np.zeros((4, 28, 28), np.uint8)
    letters[:, 3, 20] = 200  # stored on its side: column 3, row 20
    files = {}
    for split in ("train", "test"):
        files[f"emnist-byclass-{split}-images-idx3-ubyte"] = idx(letters)
        files[f"emnist-byclass-{split}-labels-idx1-ubyte"] = idx(
            np.array([0, 10, 36, 61])
        )
    return files


def test_emnist_is_upright_from_files_or_archive(tmp_path, monkeypatch):
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
    with_checksum(monkeypatch, "emnist", answering(monkeypatch, content.getvalue()))
    assert load("emnist", tmp_path / "fetched", download=True).digest == data.digest
    assert len(list((tmp_path / "fetched" / "EMNIST" / "raw").iterdir())) == 4


def test_a_colour_has_its_own_centre_and_spread(tmp_path):
    written(tmp_path / "cifar-10-batches-py", python_files())
    data = load("cifar-10", tmp_path)
    seen = data.inputs(data.train_x[:4].reshape(2, 2, 3, 32, 32))
    assert seen.dtype == torch.float32
    expected = (IMAGES[3, 2] / 255 - 0.4465) / 0.2616
    assert_allclose(seen[1, 1, 2], expected, rtol=1e-5, atol=1e-6)
    expected = (IMAGES[3, 0] / 255 - 0.4914) / 0.2470
    assert_allclose(seen[1, 1, 0], expected, rtol=1e-5, atol=1e-6)


def own_images(shape, count=5, **options):
    source = torch.Generator().manual_seed(1)
    x = torch.randint(256, (count, *shape), generator=source).to(torch.uint8)
    y = torch.zeros(count, dtype=torch.int64)
    return Dataset("own", x, y, x, y, ("a",), **options)  # type: ignore[arg-type]


def test_colour_becomes_its_mean():
    data = own_images((3, 8, 8), mean=(10.0, 20.0, 60.0), std=(1.0, 2.0, 6.0))
    grey = fitted(data, (1, 8, 8))
    expected = np.round(data.train_x.numpy().astype(float).mean(1, keepdims=True))
    assert np.array_equal(grey.train_x.numpy(), expected)
    assert grey.mean == 30.0
    assert grey.std == 3.0
    assert grey.train_x.dtype == torch.uint8


def test_grey_is_repeated():
    data = own_images((1, 8, 8), mean=10.0)
    colour = fitted(data, (3, 8, 8))
    for channel in range(3):
        assert torch.equal(colour.train_x[:, channel], data.train_x[:, 0])
    assert colour.mean == 10.0


def test_half_the_size_keeps_the_mean():
    data = own_images((1, 16, 16), count=BLOCK + 3)
    small = fitted(data, (1, 8, 8))
    assert small.train_x.shape == (BLOCK + 3, 1, 8, 8)
    mean = data.train_x.double().mean().item()
    assert small.train_x.double().mean().item() == pytest.approx(mean, abs=0.2)
    assert fitted(own_images((1, 4, 4)), (1, 9, 5)).test_x.shape == (5, 1, 9, 5)


ARRAY = np.arange(12, dtype=np.uint8).reshape(3, 4)


class OldPickler(pickle._Pickler):
    """Writes bytes and texts as Python 2 wrote its strings."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_old(self, value):
        content = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)

    dispatch[bytes] = dispatch[str] = save_old


def dump(value, path):
    """Protocol 2 of Python 2 with names of an old numpy, as in the published files."""
    content = io.BytesIO()
    OldPickler(content, protocol=2).dump(value)
    path.write_bytes(content.getvalue().replace(b"cnumpy._core.", b"cnumpy.core."))


def test_a_file_of_python_2_is_read(tmp_path):
    path = tmp_path / "batch"
    dump({b"data": ARRAY, b"labels": [1, 2, 3], b"batch_label": b"one"}, path)
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in path.read_bytes()
    content = read_pickle(path)
    assert_array_equal(content[b"data"], ARRAY)
    assert content[b"labels"] == [1, 2, 3]
    assert content[b"batch_label"] == b"one"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_a_file_of_python_3_is_read(protocol, tmp_path):
    path = tmp_path / "batch"
    path.write_bytes(
        pickle.dumps({"data": ARRAY, b"text": b"\xff\x00"}, protocol=protocol)
    )
    content = read_pickle(path)
    assert_array_equal(content[b"data"], ARRAY)
    assert content[b"text"] == b"\xff\x00"


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


MARK = "was-run"
BAD = {
    "system": lambda mark: Call(os.system, f"touch {mark}"),
    "eval": lambda mark: Call(eval, f"open({str(mark)!r}, 'w')"),
    "open": lambda mark: Call(open, str(mark), "w"),
    "getattr": lambda mark: Call(getattr, ARRAY, "tofile"),
    "subclass": lambda mark: np.zeros(2).view(np.recarray),
    "load": lambda mark: Call(np.load, str(mark)),
    "class": lambda mark: Path(mark),
    "ndarray": lambda mark: Call(np.ndarray, (2**20,), "O"),
    "huge": lambda mark: Call(np.ndarray, (2**50,)),
    "objects": lambda mark: np.array([1, "a"], dtype=object),
    "fields": lambda mark: np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_file_that_would_run_code_is_refused_and_not_run(kind, protocol, tmp_path):
    mark = tmp_path / MARK
    path = tmp_path / "batch"
    content = {b"data": ARRAY, b"labels": [BAD[kind](mark)]}
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(
        InputError, match="data: must be a pickle of plain data"
    ) as caught:
        read_pickle(path)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_the_attack_of_this_test_works_where_it_is_not_refused(tmp_path):
    mark = tmp_path / MARK
    pickle.loads(pickle.dumps(BAD["system"](mark)))
    assert mark.exists()
