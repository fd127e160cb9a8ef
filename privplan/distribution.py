"""The installed distribution, whose metadata say its version and its commands."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from privplan.errors import PrivplanError


def own_version() -> str:
    """The version of privplan, as records and certificates name it.

    Raises:
        PrivplanError: where the package is imported from a folder without having been
            installed, so that its commands, data sets and algorithms are unknown, too.
    """
    try:
        return version("privplan")
    except PackageNotFoundError:
        raise PrivplanError(
            "the package must be installed, not only be on PYTHONPATH: pip install -e "
            "FOLDER, where FOLDER has its pyproject.toml"
        ) from None
