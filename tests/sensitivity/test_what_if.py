"""What-if sweeps and frontiers: combinations, resumed, and directions that hold."""

import csv
import json

import pytest

from privplan.errors import InputError
from privplan.planning.choices import decide_free_choices
from privplan.planning.frontier import frontier
from privplan.planning.solver import solve
from privplan.planning.sweep import (
    JOURNAL,
    TABLE,
    parse_vary,
    sweep,
    with_and_without,
    with_point,
)
from privplan.spec.spec import Spec
from privplan.sweeps import InterruptedSweepError
from tests.command import answer, refused
from tests.planning.problems import make_spec, spec_data

DATA = spec_data(planning={"accountant": "rdp", "ratios": "uniform"})
VARIES = [parse_vary("groups.strict.epsilon=0.5:2:2"), parse_vary("rounds=20:40:2")]


def test_even_steps_and_even_factors():
    assert parse_vary("cohort=10:30:3").values == (10, 20, 30)
    assert parse_vary("cohort=10:1000:3:log").values == pytest.approx((10, 100, 1000))
    assert parse_vary("cohort=10:30:1").values == (10,)
    assert parse_vary("rounds=5:5:3").values == (5,)


def test_numbers_are_found_by_path_and_group_name():
    changed = with_point(DATA, {"groups.strict.epsilon": 0.7, "local.steps": 3.0})
    assert changed["groups"][0]["epsilon"] == 0.7
    assert changed["local"]["steps"] == 3
    assert DATA["groups"][0]["epsilon"] == 1.0
    with pytest.raises(
        InputError, match="groups: must be one of strict, loose, found 'none'"
    ):
        with_point(DATA, {"groups.none.epsilon": 1.0})


def test_a_sweep_has_a_row_for_each_point_and_group(tmp_path):
    assert len(sweep(DATA, VARIES, tmp_path)) == 8
    table = list(csv.DictReader((tmp_path / TABLE).read_text().splitlines()))
    assert len(table) == 8
    assert {row["group"] for row in table} == {"strict", "loose"}
    assert all(float(row["epsilon_upper"]) <= float(row["epsilon"]) for row in table)
    assert all(
        row["sampling"] == "poisson" and row["accountant"] == "pld" for row in table
    )


@pytest.mark.slow
def test_what_a_group_costs_the_others_is_the_plan_without_it(tmp_path):
    (tmp_path / "spec.yaml").write_text(json.dumps(DATA))
    text = answer(
        "what-if", tmp_path / "spec.yaml", "--without", "strict", "--format", "json"
    )
    rows = json.loads(text)
    alone = solve({**DATA, "groups": DATA["groups"][1:]})
    strict_clients = DATA["groups"][0]["clients"]
    cells = [(row["groups.strict.clients"], row["group"]) for row in rows]
    assert cells == [
        (strict_clients, "strict"),
        (strict_clients, "loose"),
        (0, "loose"),
    ]
    assert rows[2]["noise_multiplier"] == alone.groups[0].noise_multiplier
    assert rows[2]["mean_noise_std"] == alone.mean_noise_std
    with pytest.raises(
        InputError, match=r"without: must be one of strict, loose .*, found 'loos'"
    ):
        with_and_without(DATA, ["loos"])


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
def test_only_numbers_that_must_be_whole_are_rounded(text, changes, expected):
    vary = parse_vary(text)
    rows = sweep({**DATA, **changes}, [vary])
    assert not [row["error"] for row in rows if "error" in row]
    assert list(dict.fromkeys(row[vary.path] for row in rows)) == expected


def test_what_solve_decides_cannot_be_varied():
    free = spec_data(
        planning={"free": ["ratios", "weights", "rounds"], "max_uploads": 600}
    )
    del free["clipping_norm"]
    with pytest.raises(InputError, match="vary: must not name what planning"):
        sweep(free, [parse_vary("rounds=10:40:3")])
    recipe = {"source": "default", "decides": ["clipping_norm", "server"]}
    with pytest.raises(InputError, match="vary: must not name what recipe"):
        sweep({**DATA, "recipe": recipe}, [parse_vary("clipping_norm=1:2:2")])
    with pytest.raises(InputError, match="must be a list"):
        sweep({**DATA, "planning": {"free": 0}}, [parse_vary("rounds=10:40:2")])


def test_an_interrupted_sweep_goes_on(tmp_path):
    uninterrupted = sweep(DATA, VARIES, tmp_path / "whole")
    seen: list[int] = []

    def interrupt(done, total):
        seen.append(done)
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedSweepError, match="the same command resumes"):
        sweep(DATA, VARIES, tmp_path / "cut", progress=interrupt)
    journal = tmp_path / "cut" / JOURNAL
    journal.write_text(journal.read_text() + '{"sweep": "torn')
    seen.clear()
    again = sweep(
        DATA, VARIES, tmp_path / "cut", progress=lambda done, total: seen.append(done)
    )
    assert seen[0] == 2
    assert again == uninterrupted
    assert (tmp_path / "cut" / TABLE).read_text() == (
        tmp_path / "whole" / TABLE
    ).read_text()


def test_one_sound_point_is_enough_for_a_sweep():
    """Both ends have the same fault, that they are not in (0, 1)."""
    rows = sweep(DATA, [parse_vary("delta=-0.5:1.5:5")])
    assert ["error" in row for row in rows] == [True, True, False, False, True, True]
    assert "delta: must be in (0, 1)" in rows[0]["error"]
    assert rows[2]["delta"] == 0.5


@pytest.mark.parametrize(
    ("varied", "written", "sound"),
    [
        ("epsilon=1:0.0001:2", 1.0, [True, False]),
        ("epsilon=0.0001:0.0002:2", 1.0, [False, False]),
        ("noise_multiplier=0.03:2:2", 1.0, [False, True]),
        ("noise_multiplier=-1:2:2", 1.0, [False, True]),
    ],
)
def test_a_budget_that_no_round_keeps_is_a_cell_of_the_table(
    varied, written, sound, tmp_path
):
    fixed = {"clients": 300, "noise_multiplier": 2.0}
    groups = [
        {"name": "a", "epsilon": written, **fixed},
        {"name": "b", "epsilon": 4.0, **fixed},
    ]
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps({**DATA, "groups": groups}))
    words = ["what-if", str(spec), "--workers", "1", "--format", "json"]
    done = answer(*words, "--vary", f"groups.a.{varied}")
    is_sound: dict[float, bool] = {}
    for row in json.loads(done):
        [value] = [row[name] for name in row if name.startswith("groups.a.")]
        is_sound[value] = "error" not in row
    assert list(is_sound.values()) == sound


def test_command_writes_table_and_plot(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(DATA))
    arguments = ["what-if", str(spec), "--vary", "rounds=5:10:2", "--workers", "1"]
    done = answer(*arguments, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "what-if.png").read_bytes().startswith(b"\x89PNG")
    assert "rounds" in done
    assert "vary: " in refused("what-if", spec, "--vary", "rounds")


PLANNING = {"accountant": "rdp", "ratios": "noise"}


@pytest.fixture(scope="module")
def answers():
    return frontier(make_spec(planning=PLANNING))


def noises(answers, question):
    return [a.noise for a in answers if a.question == question and a.noise is not None]


@pytest.mark.slow
def test_more_rounds_more_noise_more_clients_less_more_budget_less(answers):
    assert noises(answers, "rounds") == sorted(noises(answers, "rounds"))
    assert noises(answers, "cohort") == sorted(noises(answers, "cohort"), reverse=True)
    assert noises(answers, "epsilon") == sorted(
        noises(answers, "epsilon"), reverse=True
    )


@pytest.mark.slow
def test_free_rounds_and_cohort_are_decided_first():
    data = spec_data(planning={"accountant": "rdp", "max_uploads": 600})
    del data["clipping_norm"]
    data["planning"]["free"] = ["ratios", "weights", "rounds", "cohort"]
    spec = Spec.parse(data)
    decided = decide_free_choices(spec)[0]
    assert decided.rounds != spec.rounds
    answers_by_rounds = {
        answer.what: answer for answer in frontier(spec) if answer.question == "rounds"
    }
    decided_answer = answers_by_rounds[str(decided.rounds)]
    assert decided_answer.change == pytest.approx(0, abs=1e-9)
    assert decided_answer.note == ""
    assert (
        answers_by_rounds[str(2 * decided.rounds)].note
        == "beyond planning.max_uploads: 600"
    )


def test_every_group_has_a_shadow_price_below_zero(answers):
    prices = {a.what: a.change for a in answers if a.question == "shadow_price"}
    assert set(prices) == {"strict", "loose"}
    assert all(price is not None and price < 0 for price in prices.values())


def test_doubling_the_cohort_goes_on_to_everybody_and_finds_the_knee(answers):
    cohorts = [float(a.what) for a in answers if a.question == "cohort"]
    assert cohorts[0] == 12.5
    assert cohorts[-1] == 500
    assert [a.what for a in answers if a.question == "knee"]
