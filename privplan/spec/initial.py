"""Initial parameters of a spec's model from a file of public data's making."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from privplan.errors import InputError
from privplan.values import Name, PathName, Value, is_none

FIELD = "model.initial"


def _sha256(value: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", value):
        raise ValueError("must be 64 hexadecimal digits, as sha256sum prints")
    return value.lower()


class Initial(Value):
    """Parameters before the first round, trained on data that need no protection."""

    file: PathName = Field(
        description="A .npy file with all parameters [d] in the order of the model's, relative to "
        "the current folder. They must not depend on the clients' records."
    )
    sha256: Annotated[str, AfterValidator(_sha256)] = Field(
        description="SHA-256 of the file, 64 hexadecimal digits."
    )
    head: Literal["loaded", "drawn"] = Field(
        "loaded",
        description="drawn: the last dense layer is initialised at random, for other classes than "
        "those of the public data.",
    )
    source: Name | None = Field(
        None, description="The public data that they were trained on.", exclude_if=is_none
    )

    def content(self, copy: Path | None = None) -> bytes:
        """The file's content.

        Args:
            copy: another place of the file, where it is not at the one that the spec names.

        Raises:
            InputError: it cannot be read, or is not the file of this digest.
        """
        if copy is not None and copy.is_file() and not Path(self.file).is_file():
            return self.model_copy(update={"file": str(copy)}).content()
        try:
            content = Path(self.file).read_bytes()
        except OSError as error:
            rule = f"must be a file that can be read ({error.strerror})"
            raise InputError.one(f"{FIELD}.file", rule, self.file) from None
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise InputError.one(f"{FIELD}.sha256", f"must be that of {self.file}", found)
        return content

    @property
    def line(self) -> str:
        """Where the parameters are from, and what that means for privacy."""
        trained = "" if self.source is None else f", trained on {self.source}"
        head = ", the last layer drawn" if self.head == "drawn" else ""
        return (
            f"initial parameters from {self.file} (SHA-256 {self.sha256[:12]}...){trained}{head}: "
            "they must not depend on the clients' records, and no budget counts them"
        )

    def warnings(self) -> list[str]:
        """That runs will refuse the file as it is now; empty when they will not for its digest."""
        try:
            self.content()
        except InputError as error:
            return [f"runs of this plan are refused until {error}"]
        return []
