"""A folder with a plan, own data in every form, and modules of own models and losses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from tests.simulate.own_runs import CLIENTS, STRICT, arrays, plan

MODULE = """
import numpy as np
from torch import nn
from tests.simulate.own_runs import Net, data
import simulate

def broken():
    return 1 / 0

def pairs():
    return [1, 2]

def leaves():
    raise SystemExit(0)

class Faces(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2), nn.Linear(2, 4))

number = 3

class Line(nn.Sequential):
    def __init__(self, outputs=1):
        super().__init__(nn.Linear(4, outputs))

class Dropped(Net):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, self.training))

class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))

def by_record(outputs, targets):
    return (outputs - targets).square()

def constant(outputs, targets):
    return 0.0

def failing(outputs, targets):
    return outputs[99]
"""
STATISTICS = {
    "age": {"mean": 50, "std": 10},
    "sex": {"categories": ["f", "m"]},
    "bmi": {"mean": 25, "std": 5},
}


def write_own_data(folder: Path) -> None:
    """Write a plan, and own data in every form."""
    plan(folder).save(folder / "plan.json")
    known = arrays()
    np.savez(folder / "mine.npz", **known)
    real = {**known, "y": known["x"][:, 0].astype(np.float32)}
    np.savez(folder / "real.npz", **real)
    np.savez(folder / "gap.npz", **{**real, "y": np.where(np.arange(400) == 9, np.nan, 1.0)})
    np.savez(folder / "tokens.npz", x=np.arange(1200).reshape(400, 3) % 7)
    people = {f"{number}": "strict" if number < STRICT else "loose" for number in range(CLIENTS)}
    people_lines = [f"{client},{group}" for client, group in people.items()]
    (folder / "people.csv").write_text("\n".join(["client,group", *people_lines]) + "\n")
    (folder / "twice.csv").write_text("client,group\n0,strict\n0,loose\n")
    (folder / "some.csv").write_text("client,group\n0,strict\n")
    (folder / "broken.parquet").write_text("no table")
    np.savez(folder / "other.npz", records=known["x"], y=known["y"])
    (folder / "broken.npz").write_text("no archive")
    (folder / "own_code.py").write_text(MODULE)
    (folder / "own_exit.py").write_text("raise SystemExit(0)\n")
    lines = [
        f"{50 + 10 * x[0]:.2f},{'fm'[row % 2]},{25 + x[1]:.2f},{y},p{client},{group}"
        for row, (x, y, client, group) in enumerate(zip(*known.values(), strict=True))
    ]
    header = "age,sex,bmi,ill,patient,unit"
    (folder / "mine.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "text.csv").write_text("\n".join([header, "old,f,1,0,p0,strict"]) + "\n")
    for name, change in {
        "stats": {},
        "no-bmi": {"bmi": None},
        "flat": {"age": {"mean": 50, "std": 0}},
        "worded": {"age": {"mean": "fifty", "std": 1}},
        "half": {"age": {"mean": 50}},
        "filled": {"sex": {"categories": ["f", "m"], "fill": "x"}},
    }.items():
        content = {key: value for key, value in {**STATISTICS, **change}.items() if value}
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "list.json").write_text("[]")
    (folder / "damaged.json").write_text("{")
    generator, groups = np.random.default_rng(1), ["client,group"]
    for client in range(CLIENTS):
        groups.append(f"c{client:02d},{'strict' if client < STRICT else 'loose'}")
        for row in range(6):
            path = folder / "faces" / f"c{client:02d}" / f"class{row % 2}" / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(0, 100, (4, 4)) + 100 * (row % 2)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    (folder / "groups.csv").write_text("\n".join(groups) + "\n")
    np.savez(folder / "objects.npz", x=known["x"], y=np.array([{}, None] * 200, object))
    strangers = {name: known[name] for name in ("x", "y")}
    np.savez(folder / "strangers.npz", **strangers, client=known["client"] + 15)
    for name, size in (("one", 4), ("two", 5)):
        path = folder / "mixed" / "c" / "class" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((size, size), np.uint8)).save(path)
