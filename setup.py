"""The description of the distribution: README.md with links that work outside the repository.

Everything else is in pyproject.toml. Links into the repository become absolute when
``project.urls`` names a Repository; without one they become plain text, so that none is broken.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
_IMAGE = re.compile(r"^!\[([^]]*)\]\((?!https?://)([^)]+)\)\n+", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?://|#)([^)]+)\)")


def description(text: str, repository: str | None) -> str:
    """The README without relative links.

    Args:
        text: the README.
        repository: address of the repository, for absolute links; None for plain text.
    """
    if repository is None:
        return _LINK.sub(r"\1", _IMAGE.sub("", text))
    base = repository.rstrip("/")
    text = _IMAGE.sub(rf"![\1]({base}/raw/main/\2)\n\n", text)
    return _LINK.sub(rf"[\1]({base}/blob/main/\2)", text)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    setup(
        long_description=description(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            project.get("urls", {}).get("Repository"),
        ),
        long_description_content_type="text/markdown",
    )
