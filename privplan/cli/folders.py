"""Folders that commands write, which are not named as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from privplan.errors import InputError

_OF_FILES = (
    ".csv .htm .html .json .jsonl .onnx .pdf .png .pt .pth .py .safetensors .svg .yaml "
    ".yml .zip"
)
"""Endings of an output that is meant as a file, and would be made a folder."""


class FolderPath(click.Path):
    """The path of a folder that may be new.

    Args:
        hint: what writes a file instead, as the end of a rule.
    """

    def __init__(self, hint: str = "") -> None:
        super().__init__(path_type=Path)
        self._hint = hint

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """The path, refused where it is that of a file."""
        folder = cast("Path", super().convert(value, param, ctx))
        is_named_as_file = (
            folder.suffix.lower() in _OF_FILES.split() and not folder.is_dir()
        )
        if is_named_as_file or folder.is_file():
            rule = f"must be a folder{self._hint}"
            raise InputError.one("output", rule, str(folder))
        return folder
