"""What attacks read from the releases of a run: the file that the report prints.

``privplan attack RUN`` writes it into the run folder. It is no evidence: no verdict
reads it, and whoever hands over a folder may have written it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from privplan.files import read_json, write_text
from privplan.values import Count, Name, Probability, Real, Value, parse

ATTACKED = "attacks.json"
_MOST_ROWS = 100  # attacks on one run, more than are registered
_Share = Annotated[float, Field(ge=0, le=1)]


class AttackRow(Value):
    """One attack on some releases of a run.

    Attributes:
        attack: its name.
        releases: how many were attacked.
        labels: share of correct labels; None where none is inferred.
        labels_null: that of an attack that sees nothing.
        psnr: mean, in dB; None where no image is reconstructed.
        psnr_null: that of the best null row.
        lpips: mean distance; None where nobody asked for it.
        lpips_null: that of the best null row.
        identified: share of images that are nearest to their original.
        chance: that of a blind guess.
        better: measures by which the attack is better than every null row.
    """

    attack: Name
    releases: Count
    labels: _Share | None = None
    labels_null: _Share | None = None
    psnr: Real | None = None
    psnr_null: Real | None = None
    lpips: Real | None = None
    lpips_null: Real | None = None
    identified: _Share | None = None
    chance: Probability | None = None
    better: tuple[Name, ...] = Field((), max_length=10)


class RunAttacks(Value):
    """All attacks on a run.

    Attributes:
        rows: one for each attack.
    """

    rows: tuple[AttackRow, ...] = Field(max_length=_MOST_ROWS)

    def save(self, folder: Path) -> None:
        """Write the file into the run folder."""
        write_text(folder / ATTACKED, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> RunAttacks:
        """What the file in a run folder says."""
        return parse(cls, read_json(folder / ATTACKED, "attacks"))
