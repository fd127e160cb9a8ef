"""The table of what attacks read from a run, for its report."""

from __future__ import annotations

from pathlib import Path

from privplan.attacked import ATTACKED, RunAttacks
from privplan.report.table import Table, table_of


def attacked_table(folder: Path) -> Table | None:
    """What attacks read, as the run folder claims; None without the file."""
    if not (folder / ATTACKED).is_file():
        return None
    caption = (
        "as attacks.json claims; it is no evidence, and attacks that find nothing "
        "promise nothing; null: an attacker who sees no release"
    )
    cells = {
        "attack": lambda row: row.attack,
        "releases": lambda row: f"{row.releases}",
        "labels (null)": lambda row: _pair(row.labels, row.labels_null, ".2f"),
        "PSNR in dB (null)": lambda row: _pair(row.psnr, row.psnr_null, ".1f"),
        "LPIPS (null)": lambda row: _pair(row.lpips, row.lpips_null, ".3f"),
        "re-identified (chance)": lambda row: _pair(row.identified, row.chance, ".2g"),
        "better than null by": lambda row: ", ".join(row.better) or "nothing",
    }
    rows = RunAttacks.load(folder).rows
    if all(row.lpips is None for row in rows):
        del cells["LPIPS (null)"]
    return table_of("what attacks read from the releases", rows, cells, caption)


def _pair(value: float | None, null: float | None, form: str) -> str:
    """A value with that of an attacker who sees nothing; empty without a value."""
    if value is None:
        return ""
    if null is None:
        return f"{value:{form}}"
    return f"{value:{form}} ({null:{form}})"
