"""``privplan simulate --data --model`` and ``check-data``: sources, and bad input in one line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from privplan.cli import main
from privplan.record import RunRecord
from simulate.data.sources import DataOptions, load_own
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

class Faces(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2), nn.Linear(2, 4))

number = 3
"""
TABLE = "--label ill --client patient --group unit --statistics stats.json"
STATISTICS = {
    "age": {"mean": 50, "std": 10},
    "sex": {"categories": ["f", "m"]},
    "bmi": {"mean": 25, "std": 5},
}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan, and own data in every form."""
    folder = tmp_path_factory.mktemp("own")
    plan(folder).save(folder / "plan.json")
    known = arrays()
    np.savez(folder / "mine.npz", **known)
    np.savez(folder / "other.npz", records=known["x"], y=known["y"])
    (folder / "broken.npz").write_text("no archive")
    (folder / "own_code.py").write_text(MODULE)
    (folder / "own_fault.py").write_text("import no_such_package\n")
    (folder / "own_exit.py").write_text("raise SystemExit(0)\n")
    (folder / "empty").mkdir()
    lines = [
        f"{50 + 10 * x[0]:.2f},{'fm'[row % 2]},{25 + x[1]:.2f},{y},p{client},{group}"
        for row, (x, y, client, group) in enumerate(zip(*known.values(), strict=True))
    ]
    header = "age,sex,bmi,ill,patient,unit"
    (folder / "mine.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "text.csv").write_text("\n".join([header, "old,f,1,0,p0,strict"]) + "\n")
    (folder / "short.csv").write_text("\n".join([header, "1,f"]) + "\n")
    (folder / "header.csv").write_text(header + "\n")
    (folder / "lacking.csv").write_text("\n".join([header, "1,f,1,,p0,strict"]) + "\n")
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
    for name, size in (("one", 4), ("two", 5)):
        path = folder / "mixed" / "c" / "class" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((size, size), np.uint8)).save(path)
    return folder


def simulate(words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", "plan.json", *shlex.split(words)])


def test_a_function_gives_the_run_of_the_npz_file(workplace, monkeypatch) -> None:
    monkeypatch.chdir(workplace)
    options = "--algorithm planned --model own_code:Net --seed 4"
    for number, source in enumerate(("mine.npz", "own_code:data")):
        done = simulate(f"{options} --data {source} -o run{number}")
        assert done.exit_code == 0, done.output
    one, other = (RunRecord.load(workplace / f"run{number}") for number in range(2))
    assert one.chain == other.chain
    assert one.configuration == other.configuration
    again = simulate(f"{options} --data mine.npz -o run0")
    assert "nothing was trained" in again.stderr
    without = simulate("--algorithm planned --seed 4 --data mine.npz -o run0")
    assert without.exit_code == 2
    assert "or the plan's name of your own model, given with --model" in without.stderr


def test_a_folder_of_images_by_client_and_class(workplace, monkeypatch) -> None:
    monkeypatch.chdir(workplace)
    data = load_own("faces", DataOptions(group="groups.csv"))
    assert data.shape == (1, 4, 4)
    assert data.class_names() == ("class0", "class1")
    assert data.clients is not None
    assert len(np.unique(data.clients)) == CLIENTS
    done = simulate(
        "--algorithm planned --data faces --group groups.csv --model own_code:Faces "
        "--test-share 0.3 -o run-faces"
    )
    assert done.exit_code == 0, done.output


WRONG = {
    "nowhere.npz": "data",
    "nowhere": "data: must be FILE.npz, FILE.csv, FILE.parquet, a folder of images, or pack",
    "broken.npz": "data: must be an NPZ file of plain arrays",
    "mine.npz --label z": "label: must be one of the arrays x, y, client, group, found 'z'",
    "mine.npz --features a,b": "features: must name one array of an NPZ file",
    "mine.npz --statistics stats.json": "statistics: must be left out with NPZ files",
    "mine.npz --partition shards:2": "partition: must be left out with data that name the client",
    "mine.npz --dataset digits": "dataset: must be left out with --data, found 'digits'",
    "mine.npz --test-share 2": "data.test_share: must be above 0 and below 1, found 2.0",
    "mine.npz --test-share nan": "data.test_share: must be above 0 and below 1, found nan",
    "mine.npz --group client": "data.group: must be one of the plan's groups loose, strict",
    "mine.npz --client group": "data.group: must have the plan's 12 clients in strict, found 1",
    "other.npz": "features: is required for other.npz without an array x",
    "mine.csv": "label: is required for a table: the column of labels, found 'none'",
    "mine.csv --label ill": "statistics: is required for a table: fitted on private data",
    "mine.csv --label sick --statistics stats.json": "label: must be one of the columns age, sex",
    f"mine.csv {TABLE} --client nobody": "client: must be one of the columns",
    f"mine.csv {TABLE} --features age,weight": "features: must be among the columns",
    f"mine.csv {TABLE} --features ill": "features: must not hold the label, found 'ill'",
    f"mine.csv {TABLE} --features ,": "features: must name a column, found ','",
    f"mine.csv {TABLE} --statistics no-bmi.json": "statistics.bmi: is required for a feature",
    f"mine.csv {TABLE} --statistics flat.json": "statistics.age.std: must be above 0, found 0",
    f"mine.csv {TABLE} --statistics worded.json": "statistics.age.mean: must be a finite number",
    f"mine.csv {TABLE} --statistics half.json": "statistics.age: must have mean and std, or",
    f"mine.csv {TABLE} --statistics filled.json": "statistics.sex.fill: must be one of the categ",
    f"mine.csv {TABLE} --statistics list.json": "statistics: must be a mapping from columns",
    f"mine.csv {TABLE} --statistics damaged.json": "statistics: must be JSON",
    f"mine.csv {TABLE} --statistics none.json": "statistics",
    f"text.csv {TABLE}": "data: must have numbers in age, record 0, found 'old'",
    f"short.csv {TABLE}": "data: must have the 6 fields of the header in line 2, found 2",
    f"header.csv {TABLE}": "data: must have a header and a line per record",
    f"lacking.csv {TABLE}": "label: must not be missing in ill, found 'record 0'",
    "empty": "data: must hold either CLIENT/CLASS/*.png or CLASS/*.png, found 'no image in empty'",
    "mixed": "data: must have images like the first one, (1, 4, 4)",
    "faces --label x": "label: must be left out with a folder",
    "faces": "data.group: is required with a plan of 2 groups, found 'none'",
    "faces --group mine.csv": "groups: must be one of the columns age, sex",
    "own_code:nothing": "data: must be importable as own_code:nothing, found \"AttributeError",
    "own_code:broken": "data: must be made without an error, found 'ZeroDivisionError: division",
    "own_code:pairs": "data: must be a function that returns simulate.Data",
    "own_code:data --label y": "label: must be left out with data that a function returns",
    "own_fault:data": "data: must be importable as own_fault:data, found \"ModuleNotFoundError",
    "own_exit:data": "data: must be importable as own_exit:data, found 'SystemExit: 0'",
    "own-code:data": "data: must be package.module:name, found 'own-code:data'",
    "mine.npz --model own_code:Nothing": "model: must be importable as own_code:Nothing",
    "mine.npz --model own_code:number": "model: must be a torch.nn.Module, or a class or function",
    "mine.npz --model own_code": "model: must be package.module:name, found 'own_code'",
    "mine.npz --model own_code:pairs": "model: must be a torch.nn.Module or return one",
    "mine.npz --model own_fault:Net": "model: must be importable as own_fault:Net",
    "mine.npz --model-args []": "model-args: must be a JSON object, found '[]'",
    "mine.npz --model-args {": "model-args: must be a JSON object",
    """mine.npz --model-args '{"width": 3}'""": "model: must be built without an error, found",
    """mine.npz --model-args '{"hidden": 7}'""": "model.parameters: must be 58 for my-net, found",
    """mine.npz --model-args '{"classes": 1}'""": "model: must return a logit for each of the 2",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_bad_input_is_one_line(workplace, monkeypatch, tmp_path, words: str) -> None:
    monkeypatch.chdir(workplace)
    model = "" if "--model " in words else "--model own_code:Net"
    done = simulate(f"--algorithm planned {model} --data {words} -o {tmp_path / 'run'}")
    assert done.exit_code == 2, done.output
    said = done.stderr.strip()
    assert said.startswith(f"privplan: {WRONG[words]}"), said
    assert all(line.startswith("privplan: ") for line in said.splitlines())  # one per fault
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--model own_code:Net", "model: must take records of shape 1x8x8"),
        ("--label y", "label: is only for --data, found 'y'"),
        ("--model-args {}", "model-args: is only for --model, found '{}'"),
    ],
)
def test_options_that_need_others(workplace, monkeypatch, words: str, line: str) -> None:
    monkeypatch.chdir(workplace)
    done = simulate(f"--algorithm planned {words} -o refused")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"privplan: {line}"), done.stderr
