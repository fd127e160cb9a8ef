"""``privplan simulate`` and ``privplan compare``: output, exit codes, bad input in one line."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch
from click.testing import CliRunner, Result

from privplan.cli import main
from privplan.errors import InputError, PrivplanError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import RoundMetrics, RunRecord
from privplan.registry import Registry
from simulate.algorithms import registry
from simulate.algorithms.registry import ALGORITHMS, AlgorithmEntry
from simulate.runs import compare
from simulate.runs import plots as pictures
from simulate.runs.compare import run_on_one_core
from simulate.runs.request import Request
from tests.simulate.conftest import digits_spec


def call(*arguments: object) -> Result:
    """A command line in a terminal where no line of these tests is wrapped."""
    return CliRunner(env={"COLUMNS": "250"}).invoke(main, [str(argument) for argument in arguments])


def test_simulate_then_again(short_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    arguments = ("simulate", short_path, "--algorithm", "gdpfed+", "--seed", 3, "-o", output)
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    assert "GDPFed+ on digits: test accuracy" in done.stdout
    again = call(*arguments)
    assert again.exit_code == 0
    assert "finished; nothing was trained" in again.stderr
    assert again.stdout == done.stdout
    assert call("verify", output).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--algorithm", "sgd"], "algorithm: must be one of CENTAUR, DP-FedAvg"),
        (["--algorithm", "FedAvg", "--dataset", "mnist9"], "dataset: must be one of cifar-10"),
        (["--algorithm", "FedAvg", "--partition", "dirichlet:-1"], "partition: must be by-class"),
        (["--algorithm", "FedAvg", "--partition", "by-class:no=1"], "partition: must name one of"),
        (["--algorithm", "FedAvg", "--seed", "-1"], "-1 is not in the range"),
        (["--algorithm", "FedAvg", "--seed", str(2**64)], "is not in the range"),
        (["--algorithm", "FedAvg", "--device", "tpu"], "'tpu' is not one of"),
        ([], "Missing option '--algorithm'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: list[str], said: str, short_path: Path, tmp_path: Path
) -> None:
    done = call("simulate", short_path, *arguments, "-o", tmp_path / "run")
    assert done.exit_code == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert said in line
    assert not (tmp_path / "run").exists()


def test_missing_data_is_one_line(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRIVPLAN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ("--algorithm", "FedAvg", "--dataset", "fashion-mnist", "-o", tmp_path / "run")
    done = call("simulate", short_path, *arguments)
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert "--data-dir" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", '{"schema_version": 1}'])
def test_a_plan_that_is_none(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    for command in (["simulate", "--algorithm=FedAvg"], ["compare", "--algorithms=FedAvg"]):
        done = call(*command, path, "-o", tmp_path / "run")
        assert done.exit_code == 2
        assert done.stderr.startswith("privplan: ")
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_model_that_does_not_fit_the_plan(short_plan: Plan, tmp_path: Path) -> None:
    for update, said in (
        ({"parameters": 2409}, "model.parameters: must be 2410 for mlp-digits"),
        ({"name": "cnn-2", "parameters": 28938}, "dataset: must have images of shape 1x28x28"),
        ({"name": "gpt"}, "model.name: must be one of"),
    ):
        changed = short_plan.spec.model.model_copy(update=update)
        spec = short_plan.spec.model_copy(update={"model": changed})
        short_plan.model_copy(update={"spec": spec}).save(tmp_path / "plan.json")
        arguments = (tmp_path / "plan.json", "--algorithm", "planned", "-o", tmp_path / "run")
        done = call("simulate", *arguments)
        assert done.exit_code == 2
        [line] = done.stderr.splitlines()
        assert said in line


def test_compare_makes_a_table_a_file_and_a_plot(short_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "results"
    arguments = (
        "compare",
        short_path,
        "--algorithms",
        "fedavg,GDPFED+",
        "--seeds",
        2,
        "-o",
        output,
    )
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    for word in ("FedAvg", "GDPFed+", "inf", "poisson", "add_remove", "pld", "0.00188"):
        assert word in done.stdout
    rows = list(csv.DictReader((output / "results.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 3
    assert {row["realised_upper"] for row in rows if row["algorithm"] == "FedAvg"} == {"inf"}
    finished = [line for line in done.stderr.splitlines() if ", epsilon " in line]
    assert len(finished) == 2
    law = "(delta 0.00188, poisson sampling, add_remove neighbours, pld; unit "
    assert all(law in line for line in finished)
    points = list(csv.DictReader((output / "accuracy.csv").read_text().splitlines()))
    assert [int(one["round"]) for one in points[:8]] == list(range(1, 9))
    assert len(points) == 2 * 2 * 8
    assert (output / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    record = RunRecord.load(output / "GDPFed+" / "seed-1")
    assert record.seed == 1
    before = (output / "GDPFed+" / "seed-1" / "record.json").stat().st_mtime_ns
    assert call(*arguments).stdout == done.stdout
    assert (output / "GDPFed+" / "seed-1" / "record.json").stat().st_mtime_ns == before


def test_an_aggregation_that_no_method_has_is_refused(short_path: Path, tmp_path: Path) -> None:
    mean = ("--aggregation", "mean", "-o", tmp_path / "run")
    for command in (("simulate", "--algorithm"), ("compare", "--algorithms")):
        done = call(command[0], short_path, command[1], "planned", *mean)
        assert done.exit_code == 2
        assert "aggregation: is only for GDPFed, GDPFed+, GDPFed-op, PFA, WeiAvg" in done.stderr
    assert not (tmp_path / "run").exists()
    done = call("compare", short_path, "--algorithms", "planned,GDPFed+", "--seeds", 1, *mean)
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_compare_in_processes_gives_the_same(short_path: Path, tmp_path: Path) -> None:
    common = ("compare", short_path, "--algorithms", "planned", "--seeds", 2)
    for jobs in (1, 2):
        done = call(*common, "--jobs", jobs, "-o", tmp_path / str(jobs))
        assert done.exit_code == 0, done.stderr
    one, two = ((tmp_path / jobs / "results.csv").read_text() for jobs in ("1", "2"))
    assert one == two


def test_a_fault_of_one_run_is_one_line(short_path: Path, short_plan: Plan, tmp_path: Path) -> None:
    folder = tmp_path / "results" / "planned" / "seed-1"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    done = call("compare", short_path, "--algorithms=planned", "-o", tmp_path / "results")
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert "output: must be a run folder" in line
    threads = torch.get_num_threads()
    with pytest.raises(InputError) as caught:
        run_on_one_core(Request(short_plan, "planned", "digits", folder, seed=1))
    torch.set_num_threads(threads)
    [fault] = pickle.loads(pickle.dumps(caught.value)).faults  # as from a worker process
    assert [fault] == list(caught.value.faults)


def only(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only these algorithms in the registry."""
    subset: Registry[AlgorithmEntry] = Registry("algorithm", "privplan.none")
    for name in names:
        subset.register(name, ALGORITHMS.get(name))
    for module in (registry, compare):
        monkeypatch.setattr(module, "ALGORITHMS", subset)


def test_compare_with_all_says_what_cannot_execute_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = digits_spec(rounds=2, sampling="fixed_size")
    solve(spec).save(tmp_path / "plan.json")
    some = ("FedAvg", "IDP-FedAvg-Sample", "Time-adaptive HDPFL")
    only(some, monkeypatch)
    arguments = ("compare", tmp_path / "plan.json", "--seeds", 1, "-o", tmp_path / "results")
    done = call(*arguments, "--algorithms", "all")
    assert done.exit_code == 0
    warning, row = done.stderr.splitlines()
    assert warning == (
        "warning: --algorithms all leaves out IDP-FedAvg-Sample, Time-adaptive HDPFL: "
        "plan.sampling: must be poisson, found 'fixed_size'"
    )
    assert row.startswith("FedAvg: accuracy")
    assert "FedAvg" in done.stdout
    named = call(*arguments, "--algorithms", ",".join(some))
    assert named.exit_code == 2
    [line] = named.stderr.splitlines()
    assert "plan.sampling: must be poisson for IDP-FedAvg-Sample" in line


def test_compare_with_all_leaves_out_who_cannot_share_records(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(("FedAvg", "DPFedAvg", "Robust-HDP"), monkeypatch)
    arguments = ("--algorithms=all", "--partition=iid:40", "--seeds", 1, "-o", tmp_path / "results")
    done = call("compare", short_path, *arguments)
    assert done.exit_code == 0
    warning, row = done.stderr.splitlines()
    assert warning == (
        "warning: --algorithms all leaves out DPFedAvg, Robust-HDP: "
        "partition: must leave each record with one client, found 'iid:40'"
    )
    assert row.startswith("FedAvg: accuracy")


def test_a_fault_of_any_seed_comes_before_any_training(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(request: Request) -> None:
        if request.seed == 2 and request.algorithm in ("FedAvg", "DPFedAvg"):
            raise InputError.one("partition", "must suit seed 2", request.algorithm)

    monkeypatch.setattr(compare, "prepare", refused)
    for names, culprit in (("FedAvg,planned", "FedAvg"), ("FedAvg,planned,DPFedAvg", "DPFedAvg")):
        done = call("compare", short_path, "--algorithms", names, "-o", tmp_path / "results")
        assert done.exit_code == 2
        assert done.stderr == f"privplan: partition: must suit seed 2, found '{culprit}'\n"
        assert not (tmp_path / "results").exists()


def test_compare_leaves_folders_of_others_alone(short_path: Path, tmp_path: Path) -> None:
    run, notes = tmp_path / "run", tmp_path / "notes"
    assert call("simulate", short_path, "--algorithm=FedAvg", "-o", run).exit_code == 0
    picture = (run / "accuracy.png").read_bytes()
    notes.mkdir()
    (notes / "notes.txt").write_text("mine")
    for folder in (run, notes, notes / "notes.txt"):
        done = call("compare", short_path, "--algorithms=FedAvg", "--seeds", 1, "-o", folder)
        assert done.exit_code == 2
        [line] = done.stderr.splitlines()
        assert "output: must be a " in line
    assert (run / "accuracy.png").read_bytes() == picture
    assert [path.name for path in notes.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        arguments = ("--algorithms=FedAvg", "--seeds", 1, "-o", tmp_path / "empty")
        assert call("compare", short_path, *arguments).exit_code == 0


def test_ctrl_c_in_compare_says_how_to_go_on(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(request: Request) -> None:
        raise KeyboardInterrupt

    arguments = ("compare", short_path, "--algorithms=planned", "-o", tmp_path / "results")
    with monkeypatch.context() as patch:
        patch.setattr(compare, "execute", interrupted)
        done = call(*arguments)
    assert done.exit_code == 130
    [line] = done.stderr.splitlines()
    assert "the same command resumes" in line


@pytest.mark.parametrize(
    ("first", "said"), [(2**64, "is not in the range"), (2**64 - 1, "seeds: must end at")]
)
def test_compare_refuses_seeds_that_no_record_holds(
    first: int, said: str, short_path: Path, tmp_path: Path
) -> None:
    named = ("--algorithms=FedAvg", "--first-seed", first, "-o", tmp_path / "results")
    done = call("compare", short_path, *named)
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert said in line


def test_options_of_tuning_are_not_ignored(short_path: Path, tmp_path: Path) -> None:
    named = ("--algorithms=FedAvg", "-o", tmp_path / "results")
    for option, field, value in (
        ("trials", "trials", 5),
        ("validation-share", "validation-share", 0.3),
    ):
        done = call("compare", short_path, *named, f"--{option}", value)
        assert done.exit_code == 2
        assert f"{field}: must be left out without --tune, found '{value}'" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_refused_tuned_comparison_leaves_nothing_behind(short_path: Path, tmp_path: Path) -> None:
    named = ("--algorithms=DP-FedAvg", "--tune", "--trials=2", "-o", tmp_path / "results")
    done = call("compare", short_path, *named, "--partition=nosuch")
    assert done.exit_code == 2
    assert "partition: must be" in done.stderr
    assert not (tmp_path / "results").exists()


def test_the_seed_of_a_pilot_has_the_same_limit(short_path: Path) -> None:
    done = call("pilot", "--dataset=digits", short_path, "--seed", 2**64)
    assert done.exit_code == 2
    assert "is not in the range" in done.stderr


@pytest.mark.parametrize("names", ["GDPFed,", ",gdpfed, GDPFed ,,"])
def test_compare_takes_each_name_once(names: str, short_path: Path, tmp_path: Path) -> None:
    named = ("--algorithms", names, "--seeds", 1, "-o", tmp_path / "results")
    assert call("compare", short_path, *named).exit_code == 0
    assert [path.name for path in (tmp_path / "results").iterdir() if path.is_dir()] == ["GDPFed"]


def test_all_among_names_is_all(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    asked: list[str] = []

    def nothing(base: Request, names: list[str], *rest: object, **more: object) -> None:
        asked.extend(names)
        raise PrivplanError("enough")

    monkeypatch.setattr(compare, "compare", nothing)
    call("compare", short_path, "--algorithms", "GDPFed, ALL")
    assert len(asked) > 20


@pytest.mark.parametrize("names", ["nope", "FedAvg,nope", ",", ""])
def test_compare_refuses_unknown_names(names: str, short_path: Path, tmp_path: Path) -> None:
    done = call("compare", short_path, "--algorithms", names, "-o", tmp_path / "results")
    assert done.exit_code == 2
    assert "algorithm: must be one of" in done.stderr
    assert not (tmp_path / "results").exists()


def test_algorithms_lists_the_whole_catalogue() -> None:
    done = call("algorithms", "--format", "json")
    assert done.exit_code == 0
    entries = {entry["algorithm"]: entry for entry in json.loads(done.stdout)}
    assert list(entries) == list(ALGORITHMS)
    for entry in entries.values():
        assert entry["unit"] in ("client", "record", "none")
        assert entry["released"]
        assert entry["source"]
    assert entries["DP-FedSAM"]["hyperparameters"]["rho"]["default"] > 0
    assert all(name in call("algorithms").stdout for name in entries)


def test_the_docs_have_the_whole_catalogue() -> None:
    page = Path(__file__).parents[3] / "docs" / "algorithms.md"
    table = call("algorithms", "--format", "markdown").stdout
    assert table.count("\n") == len(ALGORITHMS.names()) + 2
    assert table in page.read_text(encoding="utf-8")


def test_a_number_that_a_method_does_not_have_is_refused(short_path: Path, tmp_path: Path) -> None:
    arguments = ("simulate", short_path, "--algorithm", "DP-FedSAM", "-o", tmp_path / "run")
    unknown = call(*arguments, "--set", "sharpness=1")
    assert unknown.exit_code == 2
    assert unknown.stderr.strip() == (
        "privplan: set: must be one of rho for DP-FedSAM, found 'sharpness'"
    )
    assert "set: must be NAME=NUMBER" in call(*arguments, "--set", "rho").stderr
    assert "set.rho: must be in" in call(*arguments, "--set", "rho=-1").stderr
    assert not (tmp_path / "run").exists()


def test_many_curves_still_fit_into_one_picture(tmp_path: Path) -> None:
    """Warnings are errors here, and matplotlib warns when a legend leaves no room."""
    points = tuple(RoundMetrics(round=number, accuracy=0.1 * number, loss=1.0) for number in (1, 2))
    record = RunRecord(
        plan_digest="0",
        algorithm="FedAvg",
        dataset="digits",
        partition="iid",
        model="cnn-digits",
        seed=0,
        device="cpu",
        configuration={},
        versions={},
        status="complete",
        rounds_done=2,
        metrics=points,
        accuracy=0.2,
        accuracy_by_class={},
        accuracy_by_group={},
        wall_seconds=0.0,
    )
    few, many = tmp_path / "few.png", tmp_path / "many.png"
    pictures.comparison(few, {"one": [record]}, "few")
    pictures.comparison(many, {name: [record] for name in ALGORITHMS}, "many")
    assert plt.imread(many).shape[1] > plt.imread(few).shape[1]
