"""Writes ``houses.parquet``: prices of houses by agency, and public ``statistics.json``."""

import json
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

AGENCIES, STRICT, HOUSES = 20, 12, 12


def write(folder: Path = Path()) -> None:
    """Write the table and the statistics into a folder."""
    generator = np.random.default_rng(0)
    agency = np.repeat(np.arange(AGENCIES), HOUSES)
    area, rooms = (
        generator.normal(100, 25, len(agency)),
        generator.integers(1, 7, len(agency)),
    )
    price = 0.02 * area + 0.2 * rooms + generator.normal(0, 0.1, len(agency))
    columns = {
        "agency": agency,
        "consent": np.where(agency < STRICT, "strict", "loose"),
        "area": area,
        "rooms": rooms,
        "price": price,
    }
    parquet.write_table(pyarrow.table(columns), folder / "houses.parquet")
    statistics = {"area": {"mean": 100, "std": 25}, "rooms": {"mean": 3.5, "std": 1.7}}
    (folder / "statistics.json").write_text(json.dumps(statistics))


if __name__ == "__main__":
    write()
