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

CHUNK = 2**20
"""Bytes of a download that are held at a time."""


@dataclass(frozen=True)
class Location:
    """Folders in which a data set is looked for.

    Attributes:
        title: the data set's name in messages.
        folders: folders below the data folder, the usual one first.
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
        checksum: its published SHA-256 sum, or its MD5 sum where no other one is published.
        inside: folder of the archive that is unpacked; ``.`` for all of it.
        only: text that the names of the unpacked files of a zip archive contain.
    """

    address: str
    checksum: str
    inside: str = "."
    only: str = ""


def data_folder(data_dir: Path | None) -> Path:
    """The data folder: ``data_dir`` if given, else PRIVPLAN_DATA, else the user's cache."""
    if data_dir is not None:
        return data_dir
    variable = os.environ.get("PRIVPLAN_DATA")
    if variable:
        return Path(variable)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "privplan"


def folders(location: Location, data: Path) -> list[Path]:
    """Candidate folders of a data set: below the data folder, or the data folder itself.

    The data folder counts itself when its path ends like one of the data set's folders.
    """
    candidates = []
    for text in location.folders:
        parts = PurePosixPath(text).parts
        candidates.append(data.joinpath(*parts))
        for inside in range(1, len(parts) + 1):
            if data.absolute().parts[-inside:] == parts[:inside]:
                candidates.append(data.joinpath(*parts[inside:]))
    return candidates


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
    """Paths of some files; missing ones are downloaded if allowed.

    Args:
        location: the data set's folders.
        data: the data folder.
        sums: published SHA-256 sum of each file, by its name without the suffix; the file
            has the suffix.
        address: URL of the files up to their names; empty when they are not published one by one.
        download: whether missing files are downloaded.
        suffix: ending of the published files, such as ``.gz``; on disk it may be absent.

    Raises:
        MissingDataError: when a file is missing or cannot be downloaded.
        InputError: when a download has another sum.
    """
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
    """Download a file, check its sum, and only then give it its name.

    Args:
        address: URL.
        path: target.
        published: its SHA-256 sum, or its MD5 sum where no other one is published.

    Raises:
        MissingDataError: when it cannot be downloaded or written.
        InputError: when the sum is another one.
    """
    secure = len(published) == hashlib.sha256().digest_size * 2
    checksum = hashlib.sha256() if secure else hashlib.md5(usedforsecurity=False)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(address, timeout=60) as answer,
            tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file,
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
        raise MissingDataError(f"dataset: could not fetch {address} ({error})") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


def fetch_archive(archive: Archive, folder: Path) -> None:
    """Download an archive to the parent of a folder, unpack it into the folder, and remove it.

    A file appears in the folder only when it is complete.

    Raises:
        MissingDataError: when the archive cannot be downloaded.
        InputError: when it has another sum, or cannot be read or written.
    """
    name = PurePosixPath(archive.address).name
    path = fetch(archive.address, folder.parent / name, archive.checksum)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, suffix=".tmp") as temporary:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as packed:
                    packed.extractall(
                        temporary, [name for name in packed.namelist() if archive.only in name]
                    )
            else:
                with tarfile.open(path) as files:
                    files.extractall(temporary, filter="data")
            for entry in sorted((Path(temporary) / archive.inside).iterdir()):
                os.replace(entry, folder / entry.name)
        path.unlink()
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError.one("dataset", f"must unpack ({error})", str(path)) from None
