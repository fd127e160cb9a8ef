"""Data sets by name, whole or with a part of their training records.

A data set of the project is a row in a module of ``simulate.data.formats``; other packages
register theirs in the entry-point group ``privplan.datasets``.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import pickle
import tarfile
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, Protocol

import numpy as np

from privplan.errors import InputError, MissingDataError, PrivplanError, did_you_mean
from privplan.limits import most_unpacked, regular
from privplan.registry import Registry, function_of
from simulate.data.dataset import Dataset, part_of

# --- Locations of data sets on disk, and downloads of missing files with checked sums. -----------

CHUNK = 2**20  # bytes of a download that are held at a time


@dataclass(frozen=True)
class Location:
    """Folders in which a data set is looked for."""

    title: str  # in messages
    folders: tuple[str, ...]  # below the data folder, the usual one first
    remedy: str  # how to get missing data, as the end of a sentence


@dataclass(frozen=True)
class Archive:
    """A published tar or zip archive."""

    address: str
    checksum: str  # its published SHA-256 sum
    inside: str = "."  # folder of the archive that is unpacked; ``.`` for all of it
    only: str = ""  # text that the names of the unpacked files of a zip archive contain


def data_folder(data_dir: Path | None) -> Path:
    """The data folder: ``data_dir`` if given, else PRIVPLAN_DATA, else the user's cache."""
    if found := data_dir or os.environ.get("PRIVPLAN_DATA"):
        return Path(found)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "privplan"


def folders(location: Location, data: Path) -> list[Path]:
    """Candidate folders of a data set: below the data folder, or this itself if it is named so."""
    known, whole = location.folders, data.absolute().as_posix()
    itself = any(whole.endswith(f"/{one}") for one in known)
    return [data / text for text in known] + [data] * itself


def find(location: Location, data: Path, *names: str) -> Path | None:
    """The first existing path of some files or folders, in order of preference; None if none."""
    paths = (folder / name for folder in folders(location, data) for name in names)
    return next((path for path in paths if path.exists()), None)


def missing(location: Location, data: Path, name: str) -> MissingDataError:
    """The error that names a missing file and the remedy."""
    return MissingDataError(
        f"dataset: {location.title} is not in {data / location.folders[0]} ({name} is missing); "
        f"name a folder with --data-dir or PRIVPLAN_DATA, or {location.remedy}"
    )


def locate(
    location: Location,
    data: Path,
    sums: Mapping[str, str],
    address: str,
    download: bool,
    suffix: str = "",
) -> list[Path]:
    """Paths of some files; missing ones are downloaded if allowed."""
    paths = []
    for name, checksum in sums.items():
        path = find(location, data, name, f"{name}{suffix}")
        if path is None and not (download and address):
            raise missing(location, data, f"{name}{suffix}")
        if path is None:
            target = data / location.folders[0] / f"{name}{suffix}"
            path = fetch(f"{address}{name}{suffix}", target, checksum)
        paths.append(path)
    return paths


def fetch(address: str, path: Path, published: str) -> Path:
    """Download a file, check its sum, and only then give it its name."""
    checksum, temporary = hashlib.sha256(), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(address, timeout=60) as answer,
            tempfile.NamedTemporaryFile(
                dir=path.parent, suffix=".tmp", delete=False
            ) as file,
        ):
            temporary = Path(file.name)
            while chunk := answer.read(CHUNK):
                checksum.update(chunk)
                file.write(chunk)
        if checksum.hexdigest() != published:
            rule = f"{address} must have the {checksum.name} sum {published}"
            raise InputError.one("dataset", rule, checksum.hexdigest())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except (urllib.error.URLError, OSError) as error:
        raise MissingDataError(
            f"dataset: could not fetch {address} ({error})"
        ) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


def fetch_archive(archive: Archive, folder: Path) -> None:
    """Download and unpack an archive into a folder, where files appear only when complete."""
    name = PurePosixPath(archive.address).name
    path = fetch(archive.address, folder.parent / name, archive.checksum)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, suffix=".tmp") as temporary:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as packed:
                    names = [name for name in packed.namelist() if archive.only in name]
                    packed.extractall(temporary, names)
            else:
                with tarfile.open(path) as files:
                    files.extractall(temporary, filter="data")
            for entry in sorted((Path(temporary) / archive.inside).iterdir()):
                os.replace(entry, folder / entry.name)
        path.unlink()
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError.one("dataset", f"must unpack ({error})", str(path)) from None


# --- Data sets by name, whole or with a part of their training records. --------------------------


class Loader(Protocol):
    """A function that reads a data set."""

    def __call__(self, data: Path, download: bool, /) -> Dataset:
        """The data set."""


DATASETS: Registry[Loader] = Registry(
    "dataset",
    "privplan.datasets",
    "simulate.data.formats",
    function_of("the data folder and of download"),
)
_log = logging.getLogger(__name__)
ALIASES = MappingProxyType(
    {
        "fmnist": "fashion-mnist",
        "fashionmnist": "fashion-mnist",
        "cifar10": "cifar-10",
        "cifar100": "cifar-100",
    }
)


def whole(name: str) -> str:
    """The registered name of a data set of which a name takes all or some records."""
    base = name.partition(":")[0].lower()
    return ALIASES.get(base, base)


def load(name: str, data_dir: Path | None = None, download: bool = False) -> Dataset:
    """The data set of a name."""
    base, colon, count = name.partition(":")
    if colon and base not in DATASETS and base.lower() not in ALIASES:
        base, colon = name, ""
    known = ALIASES.get(base.lower(), base)
    if (
        known not in DATASETS
    ):  # sorted: the registry's order depends on what was imported first
        names = sorted(DATASETS)
        rule = f"must be one of {', '.join(names)}{did_you_mean(base, names)}"
        raise InputError.one("dataset", rule, name)
    if colon and not (count.isdecimal() and count.isascii() and 0 < len(count) < 10):
        rule = f"must be {known} or {known}:RECORDS, RECORDS from 1 to 999999999"
        raise InputError.one("dataset", rule, name)
    folder = data_folder(data_dir)
    _log.info("reading %s from %s", known, folder)
    data = DATASETS.get(known)(folder, download)
    return part_of(data, int(count)) if colon else data


# --- Checked reading of files: one-line errors, numbers, and pickles that cannot run code. -------

MOST_UNPACKED = (
    4 * 2**30
)  # bytes of an unpacked file; the largest known set has half of it


@contextmanager
def reading(path: Path, rule: str) -> Iterator[None]:
    """Turn any exception inside the context into one error that names the file; mute warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except PrivplanError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError.one("data", f"{rule} ({reason})", str(path)) from None


def numbers(content: Any) -> np.ndarray:
    """Real numbers as an array in their own type; numeric text is refused."""
    values = np.asarray(content)
    if values.dtype.kind not in "biuf":
        raise ValueError("holds other than numbers of at most 64 bits")
    return values


def whole_numbers(content: Any) -> np.ndarray:
    """Labels [n], int64; floating-point whole numbers are accepted, as MATLAB writes them."""
    values = numbers(content)
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int64)
    if values.ndim != 1 or (labels != values).any():
        raise ValueError("labels must be a list of whole numbers")
    return labels


class _Array:
    """An array of a pickle: filled by its state, which is checked before NumPy sees it."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, columns_first, content = state
        if (
            columns_first
            or not isinstance(kind, _Kind)
            or not isinstance(content, bytes)
        ):
            raise pickle.UnpicklingError("only plain arrays of numbers are read")
        self.values = np.frombuffer(content, kind.dtype).reshape(shape).copy()


class _Kind:
    """The type of an array's numbers."""

    def __init__(self, name: Any) -> None:
        text = name.decode() if isinstance(name, bytes) else name
        self.dtype = np.dtype(text if isinstance(text, str) else "O")
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError("only arrays of numbers are read")

    def __setstate__(self, state: Any) -> None:
        if state[1] in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


_NDARRAY = object()  # stands for ``numpy.ndarray``, which a file may name and not call


def _reconstruct(subtype: object, shape: object, kind: object) -> _Array:
    """The array that the file then fills; refuses subclasses of ``ndarray``."""
    if subtype is not _NDARRAY:
        raise pickle.UnpicklingError("only numpy's own arrays are read")
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Bytes as Python 3 writes them for Python 2."""
    if encoding != "latin1" or not isinstance(text, str):
        raise pickle.UnpicklingError("only bytes written as latin1 are read")
    return text.encode("latin1")


_ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _NDARRAY,
        ("numpy", "dtype"): lambda name, *rest: _Kind(name),
        ("_codecs", "encode"): _encode,
    }
)
"""The only names that a file may use: functions of this file, none of which runs its arguments."""


_Unpickler: Any = pickle._Unpickler  # in Python, whose memo is no larger than the file


def _build(reader: Any) -> None:
    """Give a state to an array or its type; functions and other values have none."""
    if not isinstance(reader.stack[-2], _Array | _Kind):
        raise pickle.UnpicklingError("only arrays have a state")
    _Unpickler.load_build(reader)


class _Reader(_Unpickler):  # type: ignore[misc]
    """An unpickler restricted to ``_ALLOWED``."""

    dispatch: ClassVar = {**_Unpickler.dispatch, pickle.BUILD[0]: _build}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return _ALLOWED[module, name]


def opened(path: Path) -> BinaryIO:
    """A file of a data set, which may be a stranger's."""
    return open(path, "rb", opener=regular(MOST_UNPACKED))


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in a pickle file, with strings of Python 2 as bytes; runs no code."""
    with reading(path, "must be a pickle of plain data"), opened(path) as file:
        content = _Reader(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise InputError.one("data", "must be a pickled dictionary", str(path))
        return {
            key.encode() if isinstance(key, str) else key: (
                value.values if isinstance(value, _Array) else value
            )
            for key, value in content.items()
        }


def read_unpacked(path: Path, most: int = MOST_UNPACKED) -> bytes:
    """The content of a file, unpacked when its name ends in ``.gz``."""
    with opened(path) as packed:
        if path.suffix == ".gz":
            most = min(most, most_unpacked(path.stat().st_size))
            content = gzip.GzipFile(fileobj=packed).read(most + 1)
        else:
            content = packed.read(most + 1)
    if len(content) > most:
        raise ValueError(f"must unpack to {most} bytes or less")
    return content
