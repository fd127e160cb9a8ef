"""Locations of data sets on disk, and downloads of missing files with checked sums."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from privplan.errors import InputError, MissingDataError

CHUNK = 2**20  # bytes of a download that are held at a time
TIMEOUT = 60  # seconds without an answer after which a download fails


@dataclass(frozen=True)
class Location:
    """Folders in which a data set is looked for.

    Attributes:
        title: in messages.
        folders: below the data folder, the usual one first.
        remedy: how to get missing data, as the end of a sentence.
    """

    title: str
    folders: tuple[str, ...]
    remedy: str


@dataclass(frozen=True)
class Archive:
    """A published tar or zip archive.

    Attributes:
        address: its URL.
        checksum: its published SHA-256 sum.
        inside: folder of the archive that is unpacked; ``.`` for all of it.
        only: text that the names of the unpacked files of a zip archive contain.
    """

    address: str
    checksum: str
    inside: str = "."
    only: str = ""


def data_folder(data_dir: Path | None) -> Path:
    """The data folder: ``data_dir``, else PRIVPLAN_DATA, else the user's cache."""
    folder = data_dir or os.environ.get("PRIVPLAN_DATA")
    if folder:
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "privplan"


def folders(location: Location, data: Path) -> list[Path]:
    """Candidate folders of a data set.

    Below the data folder, or the data folder itself if it is named as the set's.
    """
    candidates = [data / folder for folder in location.folders]
    path = data.absolute().as_posix()
    if any(path.endswith(f"/{folder}") for folder in location.folders):
        candidates.append(data)
    return candidates


def find(location: Location, data: Path, *names: str) -> Path | None:
    """The first existing path of some files or folders, in order of preference."""
    for folder in folders(location, data):
        for name in names:
            if (folder / name).exists():
                return folder / name
    return None


def missing(location: Location, data: Path, name: str) -> MissingDataError:
    """The error that names a missing file and the remedy."""
    return MissingDataError(
        f"dataset: {location.title} is not in {data / location.folders[0]} "
        f"({name} is missing); name a folder with --data-dir or PRIVPLAN_DATA, or "
        f"{location.remedy}"
    )


def locate(
    location: Location,
    data: Path,
    sums: Mapping[str, str],
    address: str,
    download: bool,
    suffix: str = "",
) -> list[Path]:
    """Paths of some files; missing ones are downloaded if allowed.

    Args:
        location: of the data set.
        data: the data folder.
        sums: published SHA-256 sums, by name of the file.
        address: URL of the files up to their names; empty where they have none.
        download: whether missing files may be downloaded.
        suffix: of compressed files, which stand in for the names without it.

    Raises:
        MissingDataError: for a file that is missing.
    """
    paths = []
    for name, checksum in sums.items():
        packed = f"{name}{suffix}"
        path = find(location, data, name, packed)
        if path is None:
            if not (download and address):
                raise missing(location, data, packed)
            target = data / location.folders[0] / packed
            path = fetch(f"{address}{packed}", target, checksum)
        paths.append(path)
    return paths


def fetch(address: str, path: Path, published: str) -> Path:
    """Download a file, check its sum, and only then give it its name."""
    checksum = hashlib.sha256()
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(address, timeout=TIMEOUT) as answer,
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
        temporary.chmod(0o644)  # a temporary file is its owner's alone
        os.replace(temporary, path)
    except (urllib.error.URLError, OSError) as error:
        message = f"dataset: could not fetch {address} ({error})"
        raise MissingDataError(message) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


def fetch_archive(archive: Archive, folder: Path) -> None:
    """Download and unpack an archive into a folder; files appear when complete."""
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
