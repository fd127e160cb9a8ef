"""HyperFL's Table 5 and Figures 6 and 7: settings, measure, and verdicts both ways."""

import json
from dataclasses import replace

import pytest

from privplan.contrib.reproduction.claims import (
    NOT_REPRODUCED,
    NOT_RUN,
    ORDER,
    UNDECIDED,
    Cell,
    Result,
    verdicts,
)
from privplan.contrib.reproduction.command import execute
from privplan.contrib.reproduction.papers.hyperfl import is_hidden, released
from privplan.contrib.reproduction.runs import run_table
from privplan.contrib.reproduction.tables import (
    MEASURES,
    Method,
    Setting,
    Table,
    table_of,
)
from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from simulate.attacks import sweep


def _result(table, **values):
    cells = [
        Cell(row=row, column="MNIST", values=numbers) for row, numbers in values.items()
    ]
    return Result(table=table, size="reduced", seeds=(0, 1, 2), cells=tuple(cells))


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((-2.0, -2.1, -1.9), ORDER),
        ((9.0, 8.5, 9.5), NOT_REPRODUCED),
        ((-3.0, 0.1, 3.0), UNDECIDED),
        ((9.0,), UNDECIDED),
    ],
)
def test_images_are_hidden_or_seen_or_undecided(gains, verdict):
    result = _result("hyperfl-figure-7", FedAvg=(20.0, 21.0, 22.0), HyperFL=gains)
    assert is_hidden(result).verdict == verdict
    [outcome] = verdicts(table_of("hyperfl-figure-7").claims, result)
    assert outcome.verdict == verdict
    assert "closed form" in outcome.evidence


def test_nothing_is_said_without_hyperfl():
    assert is_hidden(_result("hyperfl-figure-7", FedAvg=(20.0,))).verdict == NOT_RUN


@pytest.mark.parametrize(
    ("hyperfl", "verdict"),
    [((4.0, 4.1, 3.9), ORDER), ((30.0, 31.0, 29.0), NOT_REPRODUCED)],
)
def test_table_5_comes_out_either_way(hyperfl, verdict):
    result = _result("hyperfl-table-5", FedAvg=(24.0, 24.5, 23.5), HyperFL=hyperfl)
    [outcome] = verdicts(table_of("hyperfl-table-5").claims, result)
    # CIFAR-10 is not in the result: no row of it is asked for.
    assert outcome.verdict == verdict


def test_fifty_images_by_default_and_a_decoder_of_the_same_data():
    mnist, cifar = table_of("hyperfl-figure-6").trained["reduced"]()
    assert mnist.options["images"] == "50"
    assert cifar.options["decoder-data"] == cifar.dataset == "cifar-10"
    assert list(mnist.methods) == ["FedAvg", "HyperFL"]
    [few, _] = released(attack="tailored", images=2, steps=3)
    assert few.options == {"attack": "tailored", "images": "2", "steps": "3"}


def test_a_figure_measures_the_attacks_of_its_table(tmp_path, monkeypatch):
    """Figure 6 and the SSIM of Table 5 are of the runs of Table 5."""
    for name in ("hyperfl-figure-6", "hyperfl-table-5-ssim"):
        assert table_of(name).runs_of == "hyperfl-table-5"
    spec = {
        **load_yaml(preset("digits"), "digits"),
        "model": {"name": "mlp-digits", "parameters": 2410},
    }
    options = {"attack": "ig", "images": "2", "steps": "3"}
    methods = {"FedAvg": Method("FedAvg")}
    setting = Setting("digits", spec, "digits", methods, options=options)
    table = Table(
        "attacked",
        "Scores",
        trained={"reduced": lambda: [setting]},
        measure="PSNR in dB",
    )
    gain = "PSNR over the best null row in dB"
    figure = replace(table, name="pictured", runs_of="attacked", measure=gain)
    [score] = run_table(table, "reduced", 1, tmp_path, execute).cells
    monkeypatch.setattr(sweep, "_attacked", None)  # a second attack would call it
    [over_null] = run_table(figure, "reduced", 1, tmp_path, execute).cells
    stored = tmp_path / "runs/digits/FedAvg/seed-0/attacks.json"
    [row] = json.loads(stored.read_text())["rows"]
    best = max(null["psnr"][0] for null in row["nulls"].values())
    assert over_null.mean == pytest.approx(score.mean - best)
    # Each keeps its own numbers.
    again = run_table(table, "reduced", 1, tmp_path, execute).cells
    assert again == (score,)


def test_the_gain_is_over_the_best_null_row(tmp_path):
    plan = solve(Spec.parse(released(attack="tailored")[0].spec))
    row = {
        "scores": {"psnr": [25.0, 24.0, 26.0]},
        "nulls": {"noise": {"psnr": [5.0]}, "mean image": {"psnr": [12.0]}},
        "epsilon": "inf",
        "groups": ["all"],
        "seconds": 1.0,
    }
    (tmp_path / "attacks.json").write_text(json.dumps({"rows": [row]}))
    measure = MEASURES[table_of("hyperfl-figure-7").measure]
    measured = measure(lambda words: {"rows": [row]}, plan, [], tmp_path)
    assert measured["value"] == 13.0
    assert measured["spent"] == {"all": None}
