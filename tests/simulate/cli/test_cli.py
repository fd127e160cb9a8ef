"""``privplan simulate`` and ``compare``: output, exit codes, bad input in one line."""

import csv
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.plan import Plan
from privplan.planning.recipe import relative_noise
from privplan.planning.solver import solve
from privplan.record import RunRecord
from simulate.algorithms.registry import ALGORITHMS
from tests.command import answer, refused
from tests.simulate.conftest import digits_spec


def call(*arguments):
    """A command line in a terminal where no line of these tests is wrapped."""
    return CliRunner(env={"COLUMNS": "250"}).invoke(
        main, [str(argument) for argument in arguments]
    )


def test_simulate_then_again(short_path, tmp_path):
    output = tmp_path / "run"
    words = ("--algorithm=gdpfed+", "--seed=3", "-o", output)
    arguments = ("simulate", short_path, *words)
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    assert "GDPFed+ on digits: test accuracy" in done.stdout
    again = call(*arguments)
    assert "finished; nothing was trained" in again.stderr
    assert again.stdout == done.stdout
    answer("verify", output)


def test_a_model_that_does_not_fit_the_plan(short_plan, tmp_path):
    parameters = "model.parameters: must be 2410 for mlp-digits"
    shape = "dataset: must have images of shape 1x28x28"
    for update, reason in (
        ({"parameters": 2409}, parameters),
        ({"name": "cnn-2", "parameters": 28938}, shape),
        ({"name": "gpt"}, "model.name: must be that of your own model"),
    ):
        changed = short_plan.spec.model.model_copy(update=update)
        spec = short_plan.spec.model_copy(update={"model": changed})
        path = tmp_path / "plan.json"
        short_plan.model_copy(update={"spec": spec}).save(path)
        words = ("--algorithm=planned", "-o", tmp_path / "run")
        assert reason in refused("simulate", path, *words)


@pytest.mark.slow
def test_compare_makes_a_table_a_file_and_a_plot(short_path, tmp_path):
    output = tmp_path / "results"
    words = ("--algorithms=fedavg,GDPFED+", "--seeds=2", "-o", output)
    arguments = ("compare", short_path, *words)
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    for word in ("FedAvg", "GDPFed+", "inf", "poisson", "add_remove", "pld", "0.00188"):
        assert word in done.stdout
    rows = list(csv.DictReader((output / "results.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 3
    uppers = {row["realised_upper"] for row in rows if row["algorithm"] == "FedAvg"}
    assert uppers == {"inf"}
    finished = [line for line in done.stderr.splitlines() if ", epsilon " in line]
    assert len(finished) == 2
    law = "(delta 0.00188, poisson sampling, add_remove neighbours, pld; unit "
    assert all(law in line for line in finished)
    assert (output / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert RunRecord.load(output / "GDPFed+" / "seed-1").seed == 1
    record = output / "GDPFed+" / "seed-1" / "record.json"
    before = record.stat().st_mtime_ns
    assert call(*arguments).stdout == done.stdout
    assert record.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_spec_is_compared_by_each_methods_own_rule_and_recipe(tmp_path):
    spec = digits_spec(rounds=2).model_dump(mode="json")
    for field in ("planning", "clipping_norm", "recipe", "server", "averaging"):
        spec.pop(field, None)
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    common = ("compare", tmp_path / "spec.yaml", "--seeds", 1, "-o", tmp_path / "out")
    words = ("--algorithms", "GDPFed+,planned,FedAvg,DP-FedPGN", "--recipe", "both")
    done = call(*common, *words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows = {row["algorithm"]: row for row in json.loads(done.stdout)}
    with_recipe = {"planned", "GDPFed+ with recipe", "FedAvg with recipe"}
    for name, row in rows.items():
        plan = Plan.load(tmp_path / "out" / name / "seed-0")
        if name in with_recipe:
            assert plan.spec.clipping_norm == 0.1
            # The same length of a step, signal 1 and the plan's own noise.
            noise = relative_noise(plan) if row["unit"] != "none" else 0.0
            step = plan.spec.server.learning_rate * plan.spec.clipping_norm
            assert step * math.hypot(1, noise) == pytest.approx(2.2, rel=1e-3)
        else:
            assert plan.spec.clipping_norm == 1
        assert (plan.spec.averaging is not None) == (name in with_recipe)
    assert with_recipe < rows.keys()
    assert "DP-FedPGN with recipe" not in rows
    assert (
        "DP-FedPGN cannot have the recipe: plan.server: must be left out" in done.stderr
    )
    assert rows["GDPFed+"]["ratios"] == "gdpfed_plus"
    assert rows["planned without recipe"]["ratios"] == "balanced"
    assert rows["DP-FedPGN"]["ratios"] == "strictest"
    unclipped = [
        name for name, row in rows.items() if row["recipe"].startswith("no clipping")
    ]
    assert unclipped == ["FedAvg"]
    line = refused(*common, "--algorithms", "planned", "--recipe", "ours", "--tune")
    assert "recipe: must be left out with --tune" in line


def test_the_trials_of_a_comparison_are_in_no_book(short_path, tmp_path):
    words = ("compare", short_path, "--algorithms", "planned", "--noise", "secure")
    folder = tmp_path / "out"
    line = refused(*words, "--tune", "--book", tmp_path / "b.sqlite", "-o", folder)
    assert "book: must be left out with --tune, whose trials have no ledger" in line
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json"}


@pytest.mark.slow
def test_compare_in_processes_gives_the_same(short_path, tmp_path):
    common = ("compare", short_path, "--algorithms", "planned", "--seeds", 2)
    for jobs in (1, 2):
        answer(*common, "--jobs", jobs, "-o", tmp_path / str(jobs))
    results = tmp_path / "1" / "results.csv"
    assert results.read_text() == (tmp_path / "2" / "results.csv").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_compare_leaves_folders_of_others_alone(short_path, tmp_path):
    run = tmp_path / "run"
    notes = tmp_path / "notes"
    answer("simulate", short_path, "--algorithm=FedAvg", "-o", run)
    picture = (run / "accuracy.png").read_bytes()
    assert len(picture) > 5000
    notes.mkdir()
    (notes / "notes.txt").write_text("mine")
    for folder in (run, notes, notes / "notes.txt"):
        line = refused(
            "compare", short_path, "--algorithms=FedAvg", "--seeds", 1, "-o", folder
        )
        assert "output: must be a " in line
    assert (run / "accuracy.png").read_bytes() == picture
    assert [path.name for path in notes.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        arguments = ("--algorithms=FedAvg", "--seeds", 1, "-o", tmp_path / "empty")
        answer("compare", short_path, *arguments)


def test_the_docs_have_the_whole_catalogue():
    page = Path(__file__).parents[3] / "docs" / "algorithms.md"
    table = call("simulate", "--algorithms", "markdown").stdout
    assert table.count("\n") == len(ALGORITHMS.names()) + 2
    assert table in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_compare_plans_each_method_by_its_unit_and_says_so(tmp_path):
    short_path = tmp_path / "plan.json"
    solve(digits_spec(rounds=2)).save(short_path)
    words = ("--algorithms", "DPFedAvg", "--seeds", 1, "-o", tmp_path / "all")
    shown = call("compare", short_path, *words)
    folder = tmp_path / "all" / "DPFedAvg" / "seed-0"
    executed = Plan.load(folder / "plan.json")
    assert executed.unit == "record"
    assert Plan.load(short_path).unit == "client"
    table = (tmp_path / "all" / "results.csv").read_text()
    for row in csv.DictReader(table.splitlines()):
        assert row["unit"] == "record"
        assert row["plan"] == executed.digest[:12]
    assert f"unit record; plan {executed.digest[:12]})" in shown.stderr
    verdict = call("verify", folder, "--rounds=0", "--plan", short_path)
    assert verdict.exit_code == 4
    assert "approved was" in verdict.stdout
    report = call("report", "--registry", folder, "--format", "json").stdout
    mechanism = json.loads(report)["mechanism"]
    assert mechanism["release"] == "each participant's own update in each of its rounds"
    noise = "Gaussian, on each step's sum of clipped gradients"
    assert mechanism["noise"].startswith(noise)
