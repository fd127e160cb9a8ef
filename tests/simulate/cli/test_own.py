"""``simulate --data --model`` and ``check-data``: sources, bad input in one line."""

import json
import re
import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.processes import in_processes
from privplan.record import RunRecord
from simulate.data.columns import read_csv
from simulate.data.own import Data
from simulate.data.own_files import DataOptions
from simulate.data.sources import load_own
from simulate.data.user_code import imported
from tests.command import answer, privplan, refused
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

class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))

def by_record(outputs, targets):
    return (outputs - targets).square()

def constant(outputs, targets):
    return 0.0
"""
STATISTICS = {
    "age": {"mean": 50, "std": 10},
    "sex": {"categories": ["f", "m"]},
    "bmi": {"mean": 25, "std": 5},
}


def write_own_data(folder):
    """Write a plan, and own data in every form."""
    plan(folder).save(folder / "plan.json")
    (folder / "own_code.py").write_text(MODULE)
    (folder / "own_exit.py").write_text("raise SystemExit(0)\n")
    write_archives(folder)
    write_tables(folder)
    write_statistics(folder)
    write_images(folder)


def group_of(client):
    """The privacy group of a client, by its number."""
    return "strict" if client < STRICT else "loose"


def write_archives(folder):
    """Write NPZ files."""
    mine = arrays()
    np.savez(folder / "mine.npz", **mine)
    real = {**mine, "y": mine["x"][:, 0].astype(np.float32)}
    np.savez(folder / "real.npz", **real)
    gap = {**real, "y": np.where(np.arange(400) == 9, np.nan, 1.0)}
    np.savez(folder / "gap.npz", **gap)
    np.savez(folder / "tokens.npz", x=np.arange(1200).reshape(400, 3) % 7)
    np.savez(folder / "other.npz", records=mine["x"], y=mine["y"])
    np.savez(folder / "objects.npz", x=mine["x"], y=np.array([{}, None] * 200, object))
    strangers = mine["client"] + 15
    np.savez(folder / "strangers.npz", x=mine["x"], y=mine["y"], client=strangers)
    (folder / "broken.npz").write_text("no archive")


def write_tables(folder):
    """Write tables of records, and of the groups of clients."""
    people = [f"{client},{group_of(client)}" for client in range(CLIENTS)]
    write_csv(folder / "people.csv", "client,group", people)
    write_csv(folder / "twice.csv", "client,group", ["0,strict", "0,loose"])
    write_csv(folder / "some.csv", "client,group", ["0,strict"])
    columns = zip(*arrays().values(), strict=True)
    lines = [
        f"{50 + 10 * x[0]:.2f},{'fm'[row % 2]},{25 + x[1]:.2f},{y},p{client},{group}"
        for row, (x, y, client, group) in enumerate(columns)
    ]
    header = "age,sex,bmi,ill,patient,unit"
    write_csv(folder / "mine.csv", header, lines)
    write_csv(folder / "text.csv", header, ["old,f,1,0,p0,strict"])
    (folder / "broken.parquet").write_text("no table")


def write_csv(path, header, lines):
    path.write_text("\n".join([header, *lines]) + "\n")


def write_statistics(folder):
    """Write sound and wrong statistics of the table's columns."""
    for name, change in {
        "stats": {},
        "no-bmi": {"bmi": None},
        "more": {"lab4": {"mean": 0, "std": 1}},
        "flat": {"age": {"mean": 50, "std": 0}},
        "worded": {"age": {"mean": "fifty", "std": 1}},
        "filled": {"sex": {"categories": ["f", "m"], "fill": "x"}},
    }.items():
        statistics = {**STATISTICS, **change}
        content = {key: value for key, value in statistics.items() if value}
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "list.json").write_text("[]")
    (folder / "damaged.json").write_text("{")


def write_images(folder):
    """Write images by client and class, and some of two sizes."""
    generator = np.random.default_rng(1)
    groups = []
    for client in range(CLIENTS):
        name = f"c{client:02d}"
        groups.append(f"{name},{group_of(client)}")
        for row in range(6):
            pixels = generator.integers(0, 100, (4, 4)) + 100 * (row % 2)
            path = folder / "faces" / name / f"class{row % 2}" / f"{row}.png"
            write_image(path, pixels)
    write_csv(folder / "groups.csv", "client,group", groups)
    mixed = folder / "mixed" / "c" / "class"
    write_image(mixed / "small.png", np.zeros((4, 4)))
    write_image(mixed / "tall.png", np.zeros((5, 5)))


def write_image(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


TABLE = "--label ill --client patient --group unit --statistics stats.json"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    write_own_data(folder)
    return folder


def simulate(words, how=answer):
    """What a run said; ``how`` calls the command."""
    return how("simulate", "plan.json", *shlex.split(f"{words} --noise seeded"))


def test_a_function_gives_the_run_of_the_npz_file(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    options = "--algorithm planned --model own_code:Net --seed 4"
    for number, source in enumerate(("mine.npz", "own_code:data")):
        simulate(f"{options} --data {source} -o run{number}")
    of_file = RunRecord.load(workplace / "run0")
    of_function = RunRecord.load(workplace / "run1")
    assert of_file.chain == of_function.chain
    assert of_file.configuration == of_function.configuration
    again = simulate(f"{options} --data mine.npz -o run0", privplan)
    assert "nothing was trained" in again.stderr
    line = simulate("--algorithm planned --seed 4 --data mine.npz -o run0", refused)
    assert "must be that of your own model, given with --model MODULE:CLASS" in line


def test_a_method_without_noise_says_that_nobody_is_protected(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    words = "--algorithm FedAvg --model own_code:Net --data mine.npz -o exposed"
    # The second run is the first one again, which trains nothing.
    for form in ("table", "json"):
        done = run(f"simulate plan.json {words} --format {form}")
        assert done.exit_code == 0, done.stderr
        assert "FedAvg adds no noise: nobody is protected" in done.stderr
        assert "key of the noise" not in done.stdout


def test_a_folder_of_images_by_client_and_class(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    data = load_own("faces", DataOptions(groups=Path("groups.csv")))
    assert data.shape == (1, 4, 4)
    assert data.class_names() == ("class0", "class1")
    assert len(np.unique(data.clients)) == CLIENTS
    faces = "--data faces --groups groups.csv --model own_code:Faces --test-share 0.3"
    simulate(f"--algorithm planned {faces} -o run-faces")


REAL = "real.npz --task regression --model own_code:Line"
WRONG = {
    "task": ["mine.npz --task rank", "faces --task regression"],
    "data.y": ["real.npz", "gap.npz --task regression"],
    "data.x": ["mine.npz --task next-token"],
    "label": [
        "tokens.npz",
        "mine.csv TABLE --task binary --label ill,sex",
        "faces --label x",
    ],
    "metric": ["REAL --metric accuracy", "REAL --metric own_code:nothing"],
    "loss": ["REAL --loss own_code:number", "REAL --loss own_code:by_record"],
    "model": [
        "mine.npz --model own_code:Normed",
        "mine.npz --model own_code:Nothing",
        "mine.npz --model-args '{\"width\": 3}'",
    ],
    "test": ["REAL --test mine.csv", "REAL --test nowhere.npz"],
    "data": [
        "broken.parquet --label y",
        "own_exit:data",
        "own-code:data",
        "objects.npz",
        "mixed",
        "text.csv TABLE",
    ],
    "data.test_share": [
        "REAL --test real.npz --test-share 0.2",
        "mine.npz --test-share nan",
    ],
    "group": ["mine.npz --groups people.csv --group group"],
    "groups": [
        "mine.npz --groups nowhere.csv",
        "mine.npz --groups twice.csv",
        "mine.npz --groups mine.csv",
        "own_code:data --groups people.csv",
    ],
    "data.group": ["mine.npz --groups some.csv", "mine.npz --group client", "faces"],
    "features": [
        "mine.npz --features a,b",
        "other.npz",
        "mine.csv TABLE --features age,age",
    ],
    "statistics": [
        "mine.npz --statistics stats.json",
        "mine.csv --label ill",
        "mine.csv TABLE --statistics list.json",
        "mine.csv TABLE --statistics damaged.json",
    ],
    "partition": ["mine.npz --partition pathological:2"],
    "dataset": ["mine.npz --dataset digits"],
    "client": ["mine.csv TABLE --client nobody"],
    "statistics.bmi": ["mine.csv TABLE --statistics no-bmi.json"],
    "statistics.lab4": ["mine.csv TABLE --statistics more.json"],
    "statistics.age.std": ["mine.csv TABLE --statistics flat.json"],
    "statistics.age.mean": ["mine.csv TABLE --statistics worded.json"],
    "statistics.sex.fill": ["mine.csv TABLE --statistics filled.json"],
    "model-args": ["mine.npz --model-args ["],
    "model.parameters": ["mine.npz --model-args '{\"hidden\": 7}'"],
}
"""Words after ``--data``, by the field that the refusal names."""
ALONE = (
    "--model own_code:Net",
    "--label y",
    "--model-args {}",
    "--fix",
    "--task regression",
    "--test mine.npz",
    "--groups people.csv",
    "--metric accuracy",
    "--loss own_code:constant",
)
"""Options of ``simulate`` that need ``--data`` or ``--model``, as the refusal says."""
CHECKED = {
    "data": ["own_code:leaves"],
    "data.group": ["mine.npz --client y"],
    "model": [
        "--model own_code:pairs",
        "--model own_code:Normed",
        "real.npz --model own_code:Faces --task regression",
    ],
    "fix": ["mine.npz --fix"],
    "model-args": ["--model own_code:Net --model-args []"],
}
"""Words after ``check-data``, by the field that the refusal names."""


def cases(table):
    """Pairs of a field and words."""
    pairs = []
    for field, lines in table.items():
        pairs += [(field, words) for words in lines]
    return pairs


def check_refused(done, field):
    """One line per fault, the first of which names the field; nothing is written."""
    assert done.exit_code == 2, done.output
    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith(f"privplan: {field}"), lines
    assert all(line.startswith("privplan: ") for line in lines)
    assert not Path("refused").exists()


def table_beside(words):
    """The options of TABLE that words do not state: an option stands once."""
    options = re.findall(r"--\S+ \S+", TABLE)
    return " ".join(option for option in options if option.split()[0] not in words)


@pytest.mark.parametrize(("field", "words"), cases(WRONG))
def test_wrong_data_are_refused(workplace, monkeypatch, field, words):
    monkeypatch.chdir(workplace)
    model = "" if "--model " in words or "REAL" in words else "--model own_code:Net"
    words = words.replace("TABLE", table_beside(words)).replace("REAL", REAL)
    words = f"--algorithm planned {model} --data {words} -o refused"
    check_refused(simulate(words, privplan), field)


@pytest.mark.parametrize("words", ALONE)
def test_options_that_need_others(workplace, monkeypatch, words):
    monkeypatch.chdir(workplace)
    field = words.partition(" ")[0].removeprefix("--")
    check_refused(simulate(f"--algorithm planned {words} -o refused", privplan), field)


@pytest.mark.parametrize(("field", "words"), cases(CHECKED))
def test_check_data_refuses_wrong_data(workplace, monkeypatch, field, words):
    monkeypatch.chdir(workplace)
    check_refused(run(f"check-data {words}"), field)


def run(words):
    return privplan(*shlex.split(words))


def test_check_data_says_what_a_spec_needs(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    assert "unit: a client, with all its records" in run("check-data mine.npz").stdout
    words = "check-data mine.npz --model own_code:Net --format json"
    facts = json.loads(answer(*words.split()))
    plan = Plan.load(workplace / "plan.json")
    assert facts["parameters"] == plan.spec.model.parameters
    clients = {name: group["clients"] for name, group in facts["groups"].items()}
    assert clients == {group.name: group.clients for group in plan.spec.groups}
    of_model = run("check-data --model own_code:Net").stdout
    assert of_model == "model: own_code:Net, parameters: 50\n"


def test_test_records_of_other_clients_are_named(workplace, monkeypatch, tmp_path):
    monkeypatch.chdir(workplace)
    words = "--algorithm planned --data mine.npz --test strangers.npz"
    done = simulate(f"{words} --model own_code:Net -o {tmp_path / 'run'}", privplan)
    warning = "300 of 400 test records are of clients whose group is not named"
    assert warning in done.stderr


def test_test_records_that_are_training_records_are_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},{number % 2},p{number}" for number in range(8)]
    header = "dose,ill,patient"
    Path("train.csv").write_text("\n".join([header, *rows]) + "\n")
    # Two are trained on, one has another label, one is new; names do not count.
    test_rows = ["0,0,q0", "3,1,q1", "5,0,q2", "9,1,q3"]
    Path("test.csv").write_text("\n".join([header, *test_rows]) + "\n")
    words = "check-data train.csv --label ill --client patient --statistics none"
    done = run(f"{words} --test test.csv")
    assert done.exit_code == 0
    assert "2 of 4 test records are also training records" in done.stderr
    assert "training records" not in run(words).stderr


def test_a_table_of_tabs_is_read_by_its_own_ending(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},{number % 2},p{number % 4}" for number in range(16)]
    text = "\n".join(["dose,ill,patient", *rows]) + "\n"
    Path("mine.csv").write_text(text)
    Path("mine.TSV").write_text(text.replace(",", "\t"))
    words = "--label ill --client patient --statistics none --format json"
    facts = [
        json.loads(run(f"check-data mine.{ending} {words}").stdout)
        for ending in ("csv", "TSV")
    ]
    assert facts[0].pop("data") == "mine.csv"
    assert facts[1].pop("data") == "mine.TSV"
    assert facts[0] == facts[1]


def test_a_share_for_test_is_led_to_test_share(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    line = refused("check-data", "mine.npz", "--test", "0.2")
    assert "; --test-share 0.2 splits off that share of the data, found '0.2'" in line


def test_a_module_that_was_made_is_no_model_of_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["from torch import nn", "net = nn.Linear(4, 2)", "make = lambda: net"]
    Path("own_instance.py").write_text("\n".join(lines))
    line = refused("check-data", "--model", "own_instance:net")
    assert line.startswith(
        "model: must be a class or function that returns a torch.nn."
    )
    assert line.endswith("found 'Linear'")
    assert "parameters: 10" in answer("check-data", "--model", "own_instance:make")


def test_classes_without_a_record_are_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{row / 9},{row % 2 + 1},p{row % 4}" for row in range(16)]
    Path("grades.csv").write_text("\n".join(["dose,grade,patient", *rows]))
    words = "check-data grades.csv --label grade --client patient --statistics none"
    shown = run(words)
    assert "classes: 3 (records of each: 0 0, 1 8, 2 8)\n" in shown.stdout
    # Which there are is said once, by the warning.
    Path("clinic_of_grades.py").write_text(
        "import torch\nnet = lambda: torch.nn.Linear(1, 3)\n"
    )
    counted = run(f"{words} --model clinic_of_grades:net")
    assert counted.output.count("1,2") == 1
    named = run(f"{words} --classes 1,2").stdout
    assert "classes: 2 (records of each: 1 8, 2 8)\n" in named
    rows = [f"{row / 9},{row % 2 * 2},p{row % 4}" for row in range(16)]
    Path("grades.csv").write_text("\n".join(["dose,grade,patient", *rows]))
    counted = "whole numbers are counted from 0 unless --classes names them, here 0,2"
    assert f"(records of each: 0 8, 1 0, 2 8); {counted}" in run(words).stdout


@pytest.mark.parametrize("task", ["regression", "multi-label"])
def test_targets_are_compared_like_labels(task, caplog):
    x = np.arange(12, dtype="f4").reshape(6, 2)
    y = np.arange(6) % 2
    y = y[:, None] if task == "multi-label" else y.astype("f4")
    test = Data(x[:4], np.concatenate([y[:3], 1 - y[3:4]]), task=task)
    Data(x, y, test=test, task=task)
    [line] = caplog.messages
    assert line.startswith("3 of 4 test records are also training records")


@pytest.mark.slow
def test_groups_test_records_and_parquet_give_the_same_run(workplace, monkeypatch):
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="pip install 'privplan[tables]'"
    )
    import pyarrow

    monkeypatch.chdir(workplace)
    parquet.write_table(pyarrow.table(read_csv(workplace / "mine.csv")), "mine.parquet")
    names = np.unique([f"p{client}" for client in range(CLIENTS)])
    lines = [
        f"{name},{'strict' if int(name[1:]) < STRICT else 'loose'}" for name in names
    ]
    (workplace / "patients.csv").write_text("\n".join(["client,group", *lines]) + "\n")
    options = "--algorithm planned --label ill --client patient --statistics stats.json"
    options += " --features age,sex,bmi --model own_code:Net"
    chains = []
    for number, source in enumerate(("mine.csv", "mine.parquet")):
        simulate(f"{options} --data {source} --groups patients.csv -o tables{number}")
        chains.append(RunRecord.load(workplace / f"tables{number}").chain)
    simulate(f"{options} --data mine.csv --group unit -o tables2")
    assert {*chains} == {RunRecord.load(workplace / "tables2").chain}
    options = DataOptions(test=Path("mine.npz"), groups=Path("people.csv"))
    data = load_own("mine.npz", options)
    tested, _ = data.prepared(Plan.load(workplace / "plan.json").groups)
    assert len(tested.test_y) == len(tested.train_y) == 400


def write_line_spec(workplace):
    """Write line.yaml, the spec of a small regression, into the folder."""
    spec = (workplace / "spec.yaml").read_text()
    (workplace / "line.yaml").write_text(
        spec.replace("my-net", "line").replace(": 50}", ": 5}")
    )


@pytest.mark.slow
def test_a_regression_is_compared_replayed_and_shown_by_its_metric(
    workplace, monkeypatch
):
    monkeypatch.chdir(workplace)
    write_line_spec(workplace)
    with_own = "--data real.npz --task regression --model own_code:Line"
    answer("solve", "line.yaml", "-o", "line.json")
    options = f"{with_own} --metric mae --loss torch.nn:L1Loss"
    words = f"compare line.json --algorithms planned {options} --seeds 1 -o compared"
    assert "test mae" in answer(*words.split())
    folder = Path("compared/planned/seed-0")
    assert set(RunRecord.load(folder).accuracy_by_group) == {"strict", "loose"}
    verified = run(f"verify {folder}")
    assert "test mae " in verified.output
    assert "accuracy" not in verified.output
    assert "its score and names are only claimed" in verified.output
    alone = refused(*f"verify {folder} --model own_code:Line --task regression".split())
    assert alone.startswith("task: is only for --data")
    of_others = refused(*f"verify {folder} {options.replace('real', 'mine')}".split())
    assert of_others.startswith("dataset: must be the data of the run")
    answer(
        *shlex.split(
            f"report {folder} --plan line.json --rounds 1 {options} -o page.html"
        )
    )
    words = Path("page.html").read_text()
    assert "1 of 5 rounds were executed again for this page" in words
    assert "the code of its own module and loss is believed" in words
    [line] = re.findall("privplan (simulate plan.json .*) -o run", words)
    line = line.replace("plan.json", "line.json").replace(
        "MODULE:CLASS", "own_code:Line"
    )
    answer(*shlex.split(f"{line} --loss torch.nn:L1Loss -o again"))
    again = RunRecord.load(Path("again")).configuration
    assert RunRecord.load(folder).configuration["data"] == again["data"]
    for words, line in (
        ("", "data: must be given again for a run on own data, with --data"),
        (
            with_own,
            "metric: must be mae, as in the run, by --metric beside --data, found",
        ),
        (
            f"{with_own} --metric mae",
            "loss: must be given again for a run of an own loss, with --loss",
        ),
        (options.replace("Line", "Net"), "model: must be the model of the run"),
        (
            options.replace("real", "mine"),
            "dataset: must be the data of the run, read with",
        ),
        (
            f"{options} --data mine.npz --task multi-class",
            "task: must be that of the run, with",
        ),
    ):
        assert refused("replay", folder, *words.split()).startswith(line)


def test_a_metric_of_the_task_is_computed_again_unasked(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    write_line_spec(workplace)
    answer("solve", "line.yaml", "-o", "line.json")
    own_parts = [
        "--data",
        "real.npz",
        "--task",
        "regression",
        "--model",
        "own_code:Line",
    ]
    words = ["simulate", "line.json", "--algorithm", "planned", *own_parts]
    answer(*words, "--metric", "mae", "-o", "by-name")
    assert RunRecord.load(Path("by-name")).configuration["task_metric"]
    assert "passed" in answer("replay", "by-name", *own_parts, "--rounds", "1")
    # A record that leaves its own loss out would not name it as believed.
    line = refused("replay", "by-name", *own_parts, "--loss", "torch.nn:L1Loss")
    assert line.startswith("loss: must be left out for a run of a task's loss")
    answer(*words, "--metric", "own_code:constant", "-o", "by-function")
    assert "task_metric" not in RunRecord.load(Path("by-function")).configuration
    line = refused("replay", "by-function", *own_parts)
    assert line.startswith("metric: must be constant, as in the run, by --metric")


@pytest.mark.slow
def test_a_pilot_measures_own_data(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    write_line_spec(workplace)
    options = (
        "--data real.npz --task regression --model own_code:Line --rounds 2 --clients 8"
    )
    assert "data set real.npz" in answer(*f"proxy pilot line.yaml {options}".split())
    # 50 clients by default, at most all.
    pilot_of_all = run(f"proxy pilot line.yaml {options.replace('--clients 8', '')}")
    assert f"{CLIENTS} of {CLIENTS} clients per round" in pilot_of_all.stdout, (
        pilot_of_all.output
    )
    done = run(f"proxy pilot line.yaml {options} --metric mae")
    assert "metric: must be left out: a pilot computes none" in done.stderr


@pytest.mark.slow
def test_runs_on_the_same_people_say_what_they_spend_together(workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COLUMNS", "200")  # no cell of the table is folded
    words = [
        "compare",
        "plan.json",
        "--algorithms",
        "planned,DP-FedAvg",
        "--seeds",
        "2",
        "--model",
        "own_code:Net",
        "--data",
        "mine.npz",
    ]
    done = privplan(*words, "-o", "all", "--book", "b.sqlite")
    assert done.exit_code == 0, done.stderr
    shown = json.loads(
        answer("book", "show", "--address", "b.sqlite", "--format", "json")
    )
    booked = {account["group"]: account["epsilon_upper"] for account in shown}
    for begin in ("before the first run", "spent"):
        line = r"(\w+): 4 runs .* together epsilon ([\d.]+) for each client"
        epsilons = re.findall(f"{begin}: {line}", done.stderr)
        together = {name: float(epsilon) for name, epsilon in epsilons}
        assert together == pytest.approx(booked, rel=1e-3)
    again = privplan(*words, "-o", "seeded", "--noise", "seeded")
    assert again.stderr.count("together epsilon inf") == 4  # their noise is the same
    assert "(2 rehearsals)" in again.stdout
    refused(*words, "-o", "all", "--noise", "seeded", "--book", "b.sqlite")


@pytest.mark.slow
def test_own_code_leaves_nothing_on_the_path_but_workers_find_it(tmp_path, monkeypatch):
    (tmp_path / "own_work.py").write_text(
        "def double(number):\n    return 2 * number\n"
    )
    (tmp_path / "beside_it.py").write_text("")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    double = imported("loss", "own_work:double")
    assert sys.path == before
    assert find_spec("beside_it") is None
    assert list(in_processes(double, [3, 4], jobs=1)) == [6, 8]


def _write_test_records(workplace, has_group):
    """A table and arrays without the names of people, with or without their group."""
    left_out = {"patient"} if has_group else {"patient", "unit"}
    columns = read_csv(workplace / "mine.csv")
    names = [name for name in columns if name not in left_out]
    rows = zip(*(columns[name] for name in names), strict=True)
    lines = [",".join(names), *(",".join(map(str, row)) for row in rows)]
    (workplace / "others.csv").write_text("\n".join(lines) + "\n")
    stored = dict(np.load(workplace / "mine.npz"))
    arrays = {"x", "y", "group"} if has_group else {"x", "y"}
    np.savez(workplace / "others.npz", **{name: stored[name] for name in arrays})


@pytest.mark.parametrize("has_group", [True, False])
def test_people_who_are_no_clients_need_no_name(has_group, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    _write_test_records(workplace, has_group)

    table = {"label": "ill", "client": "patient", "group": "unit"}
    table |= {"features": ("age", "sex", "bmi"), "statistics": Path("stats.json")}
    groups = Plan.load(workplace / "plan.json").groups
    for suffix, named in (("csv", table), ("npz", {})):
        of_clients = DataOptions(test=Path(f"others.{suffix}"), **named)
        if suffix == "csv":
            with pytest.raises(InputError, match=r"test.client: must be one of"):
                load_own("mine.csv", of_clients)
        data = load_own(f"mine.{suffix}", replace(of_clients, test_of_others=True))
        tested, _ = data.prepared(groups)
        assert (data.test.groups is not None) == has_group
        assert (tested.test_groups is not None) == has_group
