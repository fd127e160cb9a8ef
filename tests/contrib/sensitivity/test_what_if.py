"""What-if sweeps: every combination, resumed where they stopped, tidy tables."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.errors import InputError
from privplan.planning.solver import solve
from privplan.planning.sweep import JOURNAL, TABLE, parse_vary, points, sweep, with_point
from privplan.report.tables import sweep_table
from privplan.spec.spec import Spec
from privplan.sweeps import InterruptedSweepError
from tests.planning.problems import spec_data

DATA = spec_data(planning={"accountant": "rdp", "ratios": "uniform"})
VARIES = [parse_vary("groups.strict.epsilon=0.5:2:2"), parse_vary("rounds=20:40:2")]


def test_even_steps_and_even_factors() -> None:
    assert parse_vary("cohort=10:30:3").values == (10, 20, 30)
    assert parse_vary("cohort=10:1000:3:log").values == pytest.approx((10, 100, 1000))
    assert parse_vary("cohort=10:30:1").values == (10,)
    assert parse_vary("rounds=5:5:3").values == (5,)


@pytest.mark.parametrize(
    "text", ["cohort", "cohort=1:2", "cohort=a:b:3", "cohort=1:inf:3", "cohort=1:2:0", "=1:2:3"]
)
def test_bad_ranges_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="vary"):
        parse_vary(text)


def test_numbers_are_found_by_path_and_group_name() -> None:
    found = with_point(DATA, {"groups.strict.epsilon": 0.7, "local.steps": 3.0})
    assert found["groups"][0]["epsilon"] == 0.7
    assert found["local"]["steps"] == 3
    assert DATA["groups"][0]["epsilon"] == 1.0
    for path in ("groups.none.epsilon", "colour.x", "groups"):
        with pytest.raises(InputError, match="vary"):
            with_point(DATA, {path: 1.0})


def test_a_sweep_has_a_row_for_each_point_and_group(tmp_path: Path) -> None:
    rows = sweep(DATA, VARIES, tmp_path)
    assert len(rows) == 8
    table = list(csv.DictReader((tmp_path / TABLE).read_text().splitlines()))
    assert len(table) == 8
    assert {row["group"] for row in table} == {"strict", "loose"}
    assert all(float(row["epsilon_upper"]) <= float(row["epsilon"]) for row in table)
    assert all(row["sampling"] == "poisson" and row["accountant"] == "pld" for row in table)


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("rounds=10:20:4", {}, [10, 13, 17, 20]),
        ("rounds=10:11:5", {}, [10, 11]),
        ("groups.strict.clients=100.4:101:2", {}, [100, 101]),
        ("cohort=20:21:3", {}, [20, 20.5, 21]),
        ("cohort=20:22:4", {"sampling": "fixed_size"}, [20, 21, 22]),
    ],
)
def test_only_numbers_that_must_be_whole_are_rounded(
    text: str, changes: dict[str, str], expected: list[float]
) -> None:
    vary = parse_vary(text)
    rows = sweep({**DATA, **changes}, [vary])
    assert not [row["error"] for row in rows if "error" in row]
    assert list(dict.fromkeys(row[vary.path] for row in rows)) == expected


def test_a_path_that_is_varied_twice_is_refused() -> None:
    with pytest.raises(InputError, match=r"^vary: must name each path once, found 'rounds'$"):
        sweep(DATA, [parse_vary("rounds=10:20:2"), parse_vary("rounds=30:40:2")])


def test_what_solve_decides_cannot_be_varied() -> None:
    free = spec_data(planning={"free": ["ratios", "weights", "rounds"], "max_uploads": 600})
    del free["clipping_norm"]
    with pytest.raises(InputError, match="vary: must not name what planning"):
        sweep(free, [parse_vary("rounds=10:40:3")])
    recipe = {"source": "default", "decides": ["clipping_norm", "server"]}
    with pytest.raises(InputError, match="vary: must not name what recipe"):
        sweep({**DATA, "recipe": recipe}, [parse_vary("clipping_norm=1:2:2")])
    with pytest.raises(InputError, match="must be a list"):
        sweep({**DATA, "planning": {"free": 0}}, [parse_vary("rounds=10:40:2")])


def test_an_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    whole = sweep(DATA, VARIES, tmp_path / "whole")
    seen: list[int] = []

    def interrupt(done: int, total: int) -> None:
        seen.append(done)
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedSweepError, match="the same command resumes"):
        sweep(DATA, VARIES, tmp_path / "cut", progress=interrupt)
    journal = tmp_path / "cut" / JOURNAL
    journal.write_text(journal.read_text() + '{"sweep": "torn')
    seen.clear()
    again = sweep(DATA, VARIES, tmp_path / "cut", progress=lambda done, total: seen.append(done))
    assert seen[0] == 2
    assert again == whole
    assert (tmp_path / "cut" / TABLE).read_text() == (tmp_path / "whole" / TABLE).read_text()


def test_another_sweep_is_not_mixed_in(tmp_path: Path) -> None:
    sweep(DATA, VARIES[:1], tmp_path)
    with pytest.raises(InputError, match="must not hold results of other settings"):
        sweep(DATA, VARIES, tmp_path)


def test_points_without_a_plan_say_why(tmp_path: Path) -> None:
    rows = sweep(DATA, [parse_vary("cohort=50:5000:2")], tmp_path)
    assert "error" not in rows[0]
    assert "cohort: must not exceed the population" in rows[-1]["error"]


@pytest.mark.slow
def test_rows_show_what_each_plan_decided(tmp_path: Path) -> None:
    """Only what planning.free leaves to the plan; the same in table, JSON and CSV."""
    free = ["ratios", "weights", "rounds", "cohort", "local_steps"]
    data = spec_data(planning={"accountant": "rdp", "free": free, "max_local_steps": 3000})
    del data["clipping_norm"]
    [vary] = varies = [parse_vary("groups.strict.epsilon=0.5:2:2")]
    rows = sweep(data, varies, tmp_path / "out")
    for row in rows:
        plan = solve(Spec.parse(with_point(data, {vary.path: row[vary.path]})))
        assert row["rounds"] == plan.spec.rounds
        assert row["local_steps"] == plan.spec.local.steps
        assert row["cohort"] == pytest.approx(plan.spec.expected_cohort, rel=1e-6)
        assert "clipping_norm" not in row
    table = list(csv.DictReader((tmp_path / "out" / TABLE).read_text().splitlines()))
    assert [int(row["rounds"]) for row in table] == [row["rounds"] for row in rows]
    (tmp_path / "spec.yaml").write_text(json.dumps(data))
    words = ["what-if", str(tmp_path / "spec.yaml"), "--vary", "groups.strict.epsilon=0.5:2:2"]
    words += ["--workers", "1", "-o", str(tmp_path / "shown")]
    done = CliRunner(env={"COLUMNS": "160"}).invoke(main, words)
    assert done.exit_code == 0, done.stderr
    assert "local steps" in done.stdout
    assert f" {rows[0]['rounds']} " in done.stdout
    plain = sweep(DATA, VARIES[:1])
    assert not {"rounds", "local_steps", "cohort", "clipping_norm"} & {*plain[0]}
    _, columns, _, _ = sweep_table(plain, [VARIES[0].path])
    assert columns == [VARIES[0].path, "noise of the mean, norm", "weights"]


def test_one_sound_point_is_enough_for_a_sweep() -> None:
    """Both ends have the same fault, that they are not in (0, 1)."""
    rows = sweep(DATA, [parse_vary("delta=-0.5:1.5:5")])
    assert ["error" in row for row in rows] == [True, True, False, False, True, True]
    assert "delta: must be in (0, 1)" in rows[0]["error"]
    assert rows[2]["delta"] == 0.5


@pytest.mark.parametrize(
    ("varied", "written", "sound"),
    [
        ("epsilon=1:0.0001:2", 1.0, [True, False]),
        ("epsilon=1:0.0001:2", 0.0001, [True, False]),
        ("epsilon=0.0001:0.0002:2", 1.0, [False, False]),
        ("noise_multiplier=0.1:2:2", 1.0, [False, True]),
        ("noise_multiplier=0.03:2:2", 1.0, [False, True]),
        ("noise_multiplier=-1:2:2", 1.0, [False, True]),
    ],
)
def test_a_budget_that_no_round_keeps_is_a_cell_of_the_table(
    varied: str, written: float, sound: list[bool], tmp_path: Path
) -> None:
    """Where rounds follow from the budgets, as where they are given."""
    fixed = {"clients": 300, "noise_multiplier": 2.0}
    groups = [{"name": "a", "epsilon": written, **fixed}, {"name": "b", "epsilon": 4.0, **fixed}]
    data = {key: value for key, value in DATA.items() if key != "rounds"}
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps({**data, "groups": groups}))
    words = ["what-if", str(spec), "--workers", "1", "--format", "json"]
    done = CliRunner().invoke(main, [*words, "--vary", f"groups.a.{varied}"])
    assert done.exit_code == 0, done.stderr
    found: dict[float, bool] = {}
    for row in json.loads(done.stdout):
        [value] = [row[name] for name in row if name.startswith("groups.a.")]
        found[value] = "error" not in row
    assert list(found.values()) == sound


def test_faults_of_every_point_are_named_once(tmp_path: Path) -> None:
    for text in ("cohort=600:5000:5", "rounds=-5:-1:3"):
        with pytest.raises(InputError) as caught:
            sweep(DATA, [parse_vary(text)], tmp_path / "out")
        assert len(str(caught.value).splitlines()) == 1
        assert not (tmp_path / "out").exists()


def test_every_combination_is_a_point() -> None:
    assert len(points(VARIES)) == 4


def test_command_writes_table_and_plot(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(DATA))
    arguments = ["what-if", str(spec), "--vary", "rounds=5:10:2", "--workers", "1"]
    done = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out" / "what-if.png").read_bytes().startswith(b"\x89PNG")
    assert "rounds" in done.stdout
    refused = CliRunner().invoke(main, ["what-if", str(spec), "--vary", "rounds"])
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("groups.strict.epsilo", "groups.strict.epsilo: is not a known field"),
        ("planning.heterogenity", "planning.heterogenity: is not a known field"),
        ("planning.constants.smoothness", "planning.constants.initial_gap: is required"),
        ("name", "name: must be text"),
    ],
)
def test_a_name_that_is_no_number_is_refused_before_the_sweep(
    path: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        sweep(DATA, [parse_vary(f"{path}=1:2:2")], tmp_path / "out")
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_part_that_was_left_out_can_be_varied() -> None:
    bare = {key: value for key, value in DATA.items() if key != "planning"}
    assert with_point(bare, {"planning.heterogeneity": 0.5})["planning"] == {"heterogeneity": 0.5}


@pytest.mark.parametrize("stored", [True, False])
def test_an_interrupted_command_says_how_to_go_on(
    stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(task: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("privplan.planning.sweep.solve_point", interrupted)
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(DATA))
    arguments = ["what-if", str(spec), "--vary", "rounds=5:10:2", "--workers", "1"]
    output = ["-o", str(tmp_path / "out")] if stored else []
    done = CliRunner().invoke(main, [*arguments, *output])
    assert done.exit_code == 130
    [line] = done.stderr.splitlines()
    said = "the same command resumes" if stored else "name a folder with -o to resume"
    assert said in line


def test_nothing_is_written_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sweep(DATA, VARIES[:1]) == sweep(DATA, VARIES[:1], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("varied", ["rounds=5:10:2", "horizon.runs=4:6:2"])
def test_a_horizon_is_refused(varied: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "spec.yaml", tmp_path / "sweep"
    path.write_text(json.dumps({**DATA, "horizon": {"runs": 4}}))
    arguments = ["what-if", str(path), "--vary", varied, "-o", str(folder)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("privplan: horizon: has several plans")
    assert line.endswith("found 'runs: 4'")
    assert not folder.exists()
