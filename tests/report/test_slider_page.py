"""The what-if page: the numbers of solve, and no address."""

import json
import math
import re

import pytest
import yaml

from privplan.planning.risks import risks_of
from privplan.planning.solver import solve
from privplan.report.tables import upper_bounds
from privplan.spec.spec import Spec
from tests.command import answer, privplan
from tests.planning.problems import spec_data

NAME = "</script><b>a&b"
DATA = {
    **spec_data(planning={"accountant": "rdp", "ratios": "uniform"}),
    "name": NAME,
    "rounds": 5,
}


def grid_of(page):
    return json.loads(
        re.search(r'<script id="grid"[^>]*>(.*?)</script>', page, re.DOTALL)[1]
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "spec.yaml").write_text(json.dumps(DATA))
    words = [
        "what-if",
        folder / "spec.yaml",
        "strict=0.5,2",
        "rounds=5,1",
        "--workers",
        1,
    ]
    answer(*words, "--html", folder / "page.html")
    return (folder / "page.html").read_text()


def spec_at(grid, positions):
    """The spec that the page shows when its sliders are at these positions."""
    texts = [
        axis["texts"][position]
        for axis, position in zip(grid["axes"], positions, strict=True)
    ]
    # Every second part of the text is the place of a slider's number.
    pieces = list(grid["spec"])
    pieces[1::2] = [texts[int(place)] for place in pieces[1::2]]
    return yaml.safe_load("".join(pieces))


def test_each_position_has_the_numbers_of_its_own_spec(page):
    grid = grid_of(page)
    assert [axis["values"] for axis in grid["axes"]] == [[0.5, 1, 2], [5, 1]]
    for number, rows in enumerate(grid["points"]):
        epsilon_position, rounds_position = divmod(number, 2)
        plan = solve(Spec.parse(spec_at(grid, (epsilon_position, rounds_position))))
        assert plan.spec.groups["strict"].epsilon == [0.5, 1, 2][epsilon_position]
        assert plan.spec.rounds == [5, 1][rounds_position]
        upper = upper_bounds(plan)
        for row, group, risk in zip(rows, plan.groups, risks_of(plan), strict=True):
            assert row["group"] == group.name
            assert row["epsilon"] == group.epsilon
            assert row["epsilon_upper"] == pytest.approx(upper[group.name], rel=1e-4)
            assert row["sampling_ratio"] == group.sampling_ratio
            assert row["noise_multiplier"] == group.noise_multiplier
            share = group.clients / plan.spec.population
            assert row["counts"] == pytest.approx(group.weight / share)
            assert row["value"] == plan.objective.value
            norm = plan.mean_noise_std * plan.spec.model.parameters**0.5
            assert row["noise_norm"] == pytest.approx(norm)
            assert row["advantage"] == pytest.approx(risk.curve.advantage)
            assert row["tpr_at_fpr_0.01"] == pytest.approx(risk.curve.true_positives[1])


def test_sliders_open_at_the_numbers_of_the_spec(page):
    grid = grid_of(page)
    opened = [axis["values"][axis["start"]] for axis in grid["axes"]]
    assert opened == [DATA["groups"][0]["epsilon"], DATA["rounds"]]
    assert grid["whom"] == "client"
    assert grid["guessed"] == "took part"
    assert "objective" not in grid["law"]


def test_the_table_speaks_of_guesses_first_and_of_noise_last(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")  # else a narrow terminal folds the head
    (tmp_path / "spec.yaml").write_text(json.dumps({**DATA, "person": "patient"}))
    words = ["what-if", tmp_path / "spec.yaml", "strict=0.5", "--workers", 1]
    written = answer(*words)
    head = next(line for line in written.splitlines() if "found of 100" in line)
    columns = [name.strip() for name in head.strip("┃ ").split("┃")]
    assert columns[:3] == ["strict epsilon", "group", "right of 100"]
    assert columns[-1] == "noise"
    [row, *_] = json.loads(answer(*words, "--format", "json"))
    right = math.ceil(10 * (50 + 50 * row["advantage"])) / 10
    assert f"│ {right:g} │" in re.sub(" +", " ", written)
    assert "unit client (each patient)" in " ".join(written.split())


def test_no_address_leaves_the_page_and_names_are_escaped(page):
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|src=|XMLHttp", page)
    assert "default-src 'none'" in page
    assert NAME not in page
    assert "What if: &lt;/script&gt;&lt;b&gt;a&amp;b</h1>" in page
    assert (
        yaml.safe_load("".join(grid_of(page)["spec"][:1]).split("groups:")[0])["name"]
        == NAME
    )


def test_what_if_and_verify_take_a_plan(tmp_path):
    plan = solve(Spec.parse({**DATA, "name": "a"}))
    (tmp_path / "run").mkdir()
    plan.save(tmp_path / "run" / "plan.json")
    upper = max(upper_bounds(plan).values())
    words = [tmp_path / "run", "loose=3", "--workers", 1, "--format", "json"]
    rows = json.loads(answer("what-if", *words))
    assert [row["epsilon"] for row in rows] == [plan.groups["strict"].epsilon, 3]
    of_plan = answer("what-if", tmp_path / "run" / "plan.json", *words[1:])
    assert of_plan == answer("what-if", *words)
    done = privplan("verify", tmp_path / "run" / "plan.json")
    assert done.exit_code == 5
    [line] = done.stdout.splitlines()
    assert line.startswith(
        "unverified: nothing ran; plan a promises epsilon strict at most"
    )
    promised = max(map(float, re.findall(r"at most ([\d.]+)", line)))
    assert upper <= promised <= upper + 1e-4
    assert "poisson sampling, by pld" in line
    assert str(plan.spec.relation) in line
