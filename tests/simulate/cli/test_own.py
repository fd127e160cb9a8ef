"""``privplan simulate --data --model`` and ``check-data``: sources, and bad input in one line."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from privplan.cli import main
from privplan.plan import Plan
from privplan.record import RunRecord
from simulate.data.sources import DataOptions, load_own
from tests.simulate.cli.own_data import write_own_data
from tests.simulate.own_runs import CLIENTS, STRICT

TABLE = "--label ill --client patient --group unit --statistics stats.json"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_own_data(folder)
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


REAL = "real.npz --task regression --model own_code:Line"
WRONG = {
    "mine.npz --task rank": "task: must be one of multi-class, binary, multi-label, regression, ne",
    "real.npz": "data.y: must be whole numbers or names of classes",
    "gap.npz --task regression": "data.y: must be finite, found 'NaN or infinity in row 9'",
    "real.npz --task binary": "data.y: must be 0 or 1 for binary",
    "mine.npz --task multi-label": "data.y: must have shape [records, labels] for multi-label",
    "mine.npz --task next-token": "data.x: must be token ids of shape [records, 2 tokens",
    "tokens.npz": "label: is required for tokens.npz without an array y",
    "tokens.npz --task regression": "label: is required for tokens.npz without an array y",
    "faces --task regression": "task: must be multi-class with a folder of images by class",
    f"{REAL} --metric accuracy": "metric: must be one of rmse, mae, r2 for regression, or package",
    f"{REAL} --metric own_code:nothing": "metric: must be importable as own_code:nothing",
    f"{REAL} --metric own_code:number": "metric: must be a function of outputs and targets, found",
    f"{REAL} --loss number": "loss: must be package.module:name, found 'number'",
    f"{REAL} --loss own_code:number": "loss: must be a function of outputs and targets, found",
    f"{REAL} --loss own_code:by_record": "loss: must return a scalar tensor, the mean over the rec",
    f"{REAL} --loss own_code:constant": "loss: must return a scalar tensor, the mean over the rec",
    f"{REAL} --loss own_code:failing": "loss: must take outputs and targets without an error, fou",
    f"{REAL} --loss torch.nn:Linear": "loss: must be built without arguments; else name an insta",
    f"""{REAL} --model-args '{{"outputs": 2}}'""": "model: must return outputs of shape (3,) for 3",
    f"{REAL} --test mine.csv": "test: must be a .npz file, like the data, found 'mine.csv'",
    f"{REAL} --test nowhere.npz": "data",
    f"{REAL} --test real.npz --test-share 0.2": "data.test_share: must be left out with test",
    "mine.npz --groups people.csv --group group": "group: must be left out with --groups, which",
    "mine.npz --groups nowhere.csv": "groups",
    "mine.npz --groups twice.csv": "groups: must have one line per client, found 'twice.csv'",
    "mine.npz --groups some.csv": "data.group: must name a group for each client, found '1'",
    "mine.npz --groups mine.csv": "groups: must be one of the columns age, sex",
    "mine.npz --model own_code:Normed": "model: must have no batch normalisation, which mixes rec",
    "broken.parquet --label y": "data: must be a Parquet file",
    f"mine.csv {TABLE} --task binary --label ill,sex": "label: must have numbers in sex, record 0",
    f"mine.csv {TABLE} --label ill,sex": "label: must be one column for multi-class, found 'ill,s",
    f"mine.csv {TABLE} --label ill,ill --task multi-label": "label: must be another column than",
    f"mine.csv {TABLE} --client sex --group sex": "group: must be another column than client",
    "own_code:data --task regression": "task: must be left out with data that a function returns",
    "own_code:data --groups people.csv": "groups: must be left out with data that a function",
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
    f"mine.csv {TABLE} --features age,age": "features: must name each column once, found 'age'",
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
    "objects.npz": "data: must hold numbers or text in y, no Python objects (pickle); convert its",
    "hollow": "data: must hold an image for each client; remove empty folders, found 'hollow/d'",
    "bare": "data: must hold an image for each class; remove empty folders, found 'bare/two'",
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
        ("--fix", "fix: is only for --model, found '--fix'"),
        ("--task regression", "task: is only for --data, found 'regression'"),
        ("--test mine.npz", "test: is only for --data, found 'mine.npz'"),
        ("--groups people.csv", "groups: is only for --data, found 'people.csv'"),
        ("--metric accuracy", "metric: is only for own models, found 'accuracy'"),
        ("--loss own_code:constant", "loss: is only for own models"),
    ],
)
def test_options_that_need_others(workplace, monkeypatch, words: str, line: str) -> None:
    monkeypatch.chdir(workplace)
    done = simulate(f"--algorithm planned {words} -o refused")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"privplan: {line}"), done.stderr


def run(words: str) -> Result:
    return CliRunner().invoke(main, shlex.split(words))


def test_solve_takes_clients_and_parameters_from_data_and_model(workplace, monkeypatch) -> None:
    monkeypatch.chdir(workplace)
    spec = (workplace / "spec.yaml").read_text()
    lacking = spec.replace("clients: 12", "clients: 1").replace("parameters: 50", "parameters: 3")
    (workplace / "lacking.yaml").write_text(lacking)
    words = "--data mine.npz --model own_code:Net -o found.json"
    done = run(f"solve lacking.yaml {words}")
    assert done.exit_code == 0, done.output
    assert Plan.load(workplace / "found.json").digest == Plan.load(workplace / "plan.json").digest


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--data nowhere.npz", "data"),
        ("--data mine.npz --client y", "data.group: must be one per client"),
        ("--data mine.npz --group client", "groups: must be the groups of the data, 0, 1, 10"),
        ("--data faces", "data.group: must name the groups strict, loose, by --group or --groups"),
        ("--data own_code:leaves", "data: must be made without an error, found 'SystemExit: 0'"),
        ("--model own_code:leaves", "model: must be built without an error, found 'SystemExit: 0'"),
        ("--label y", "label: is only for --data, found 'y'"),
        ("--fix", "fix: is only for --model"),
        ("--model own_code:pairs", "model: must be a torch.nn.Module or return one"),
        ("--model own_code:Net --model-args []", "model-args: must be a JSON object"),
        ("--model own_code:Normed", "model: must have no batch normalisation, which mixes records"),
        ("--model own_code:Line --data mine.npz", "model: must return a logit for each of the 2"),
    ],
)
def test_solve_refuses_wrong_data_in_one_line(workplace, monkeypatch, words, line) -> None:
    monkeypatch.chdir(workplace)
    done = run(f"solve spec.yaml {words}")
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"privplan: {line}"), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_solve_names_every_fault_of_a_model(workplace, monkeypatch) -> None:
    monkeypatch.chdir(workplace)
    done = run("solve spec.yaml --model own_code:Normed --data faces --groups groups.csv")
    assert done.exit_code == 2
    rules = [line.partition(",")[0] for line in done.stderr.splitlines()]
    assert rules == [
        "privplan: model: must have no batch normalisation",
        "privplan: model: must take records of shape 1x4x4 (after the batch dimension)",
    ]


def test_test_records_of_other_clients_are_named(workplace, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(workplace)
    words = f"--data mine.npz --test strangers.npz --model own_code:Net -o {tmp_path / 'run'}"
    done = simulate(f"--algorithm planned {words}")
    assert done.exit_code == 0, done.output
    assert "300 of 400 test records are of 15 clients that have no training rec" in done.stderr


def test_replay_says_that_dropout_is_not_shown(workplace, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(workplace)
    own = "--data mine.npz --model own_code:Dropped"
    done = simulate(f"--algorithm planned {own} -o {tmp_path / 'run'}")
    assert done.exit_code == 0, done.output
    replayed = run(f"replay {tmp_path / 'run'} {own}")
    assert replayed.exit_code == 5
    assert "missing: support of replay for a module that draws random numbers" in replayed.output


def test_lines_fit_80_columns(workplace, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COLUMNS", "80")
    words = "--data mine.npz --model own_code:Net"
    done = simulate(f"--algorithm planned {words} -o kept-in-this-folder")
    both = run(f"compare plan.json --algorithms planned,FedAvg {words} -o {tmp_path / 'both'}")
    assert done.exit_code == both.exit_code == 0, done.output + both.output
    assert "plot: kept-in-this-folder" in done.stdout
    lines = [*done.output.splitlines(), *both.output.splitlines()]
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80


def test_groups_test_records_and_parquet_give_the_same_run(workplace, monkeypatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'privplan[tables]'")
    import pyarrow

    from simulate.data.sources import read_csv

    monkeypatch.chdir(workplace)
    parquet.write_table(pyarrow.table(read_csv(workplace / "mine.csv")), "mine.parquet")
    names = np.unique([f"p{client}" for client in range(CLIENTS)])
    lines = [f"{name},{'strict' if int(name[1:]) < STRICT else 'loose'}" for name in names]
    (workplace / "patients.csv").write_text("\n".join(["client,group", *lines]) + "\n")
    options = "--algorithm planned --label ill --client patient --statistics stats.json"
    options += " --features age,sex,bmi --model own_code:Net"
    chains = []
    for number, source in enumerate(("mine.csv", "mine.parquet")):
        done = simulate(f"{options} --data {source} --groups patients.csv -o tables{number}")
        assert done.exit_code == 0, done.output
        chains.append(RunRecord.load(workplace / f"tables{number}").chain)
    done = simulate(f"{options} --data mine.csv --group unit -o tables2")
    assert done.exit_code == 0, done.output
    assert {*chains} == {RunRecord.load(workplace / "tables2").chain}
    tested = load_own(
        "mine.npz", DataOptions(test=Path("mine.npz"), groups=Path("people.csv"))
    ).prepared(Plan.load(workplace / "plan.json").groups)[0]
    assert len(tested.test_y) == len(tested.train_y) == 400


def write_line_spec(workplace: Path) -> None:
    """Write line.yaml, the spec of a small regression, into the folder."""
    spec = (workplace / "spec.yaml").read_text()
    (workplace / "line.yaml").write_text(spec.replace("my-net", "line").replace(": 50}", ": 5}"))


def test_a_regression_is_compared_replayed_and_shown_by_its_metric(workplace, monkeypatch) -> None:
    monkeypatch.chdir(workplace)
    write_line_spec(workplace)
    own = "--data real.npz --task regression --model own_code:Line"
    assert run(f"solve line.yaml {own} -o line.json").exit_code == 0
    options = f"{own} --metric mae --loss torch.nn:L1Loss"
    done = run(f"compare line.json --algorithms planned {options} --seeds 1 -o compared")
    assert done.exit_code == 0, done.output
    assert "test mae" in done.output
    folder = Path("compared/planned/seed-0")
    assert set(RunRecord.load(folder).accuracy_by_group) == {"strict", "loose"}
    verified = run(f"verify {folder}")
    assert "test mae " in verified.output
    assert "accuracy" not in verified.output
    replayed = run(f"replay {folder} --rounds 1 {options}")
    assert replayed.exit_code == 0, replayed.output
    for words, line in (
        ("", "data: must be given again for a run on own data, with --data"),
        (own, "metric: must be mae, as in the run, found 'rmse'"),
        (options.replace("Line", "Net"), "model: must be the model of the run"),
        (options.replace("real", "mine"), "dataset: must be the data of the run"),
    ):
        refused = run(f"replay {folder} {words}")
        assert refused.exit_code == 2, refused.output
        assert refused.stderr.strip().startswith(f"privplan: {line}"), refused.stderr


def test_a_pilot_measures_own_data(workplace, monkeypatch) -> None:
    monkeypatch.chdir(workplace)
    write_line_spec(workplace)
    options = "--data real.npz --task regression --model own_code:Line --rounds 2 --clients 8"
    done = run(f"pilot line.yaml {options}")
    assert done.exit_code == 0, done.output
    assert "data set real.npz" in done.stdout
    whole = run(f"pilot line.yaml {options.replace('--clients 8', '')}")  # 50 by default
    assert f"{CLIENTS} of {CLIENTS} clients per round" in whole.stdout, whole.output
    for words, line in (
        ("--rounds 1", "dataset: is required without --data, found 'none'"),
        (f"{options} --metric mae", "metric: must be left out: a pilot computes none"),
    ):
        refused = run(f"pilot line.yaml {words}")
        assert refused.exit_code == 2
        assert refused.stderr.splitlines()[-1].startswith(f"privplan: {line}"), refused.stderr
