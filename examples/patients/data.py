"""Writes ``patients.csv``, one line per visit, and the public ``statistics.json``."""

import json
from pathlib import Path

import numpy as np

PATIENTS, STRICT, VISITS = 20, 12, 12


def write(folder: Path = Path()) -> None:
    """Write the table and the statistics into a folder."""
    generator, lines = (
        np.random.default_rng(0),
        ["patient,consent,age,sex,pressure,relapse"],
    )
    for patient in range(PATIENTS):
        consent, sex = "strict" if patient < STRICT else "loose", "fm"[patient % 2]
        age = generator.normal(55, 12)
        for _ in range(VISITS):
            pressure = generator.normal(130, 15)
            relapse = int(pressure + 0.5 * age + generator.normal(0, 8) > 157)
            shown = "" if generator.random() < 0.05 else f"{pressure:.1f}"
            lines.append(f"p{patient:02d},{consent},{age:.1f},{sex},{shown},{relapse}")
    (folder / "patients.csv").write_text("\n".join(lines) + "\n")
    statistics = {
        "age": {"mean": 55, "std": 12},
        "sex": {"categories": ["f", "m"]},
        "pressure": {"mean": 130, "std": 15, "fill": 130},
    }
    (folder / "statistics.json").write_text(json.dumps(statistics))


if __name__ == "__main__":
    write()
