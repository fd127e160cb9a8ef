"""HyperFL's Table 5 and Figures 6 and 7: settings, measure, and verdicts both ways."""

import json

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
from privplan.contrib.reproduction.papers.hyperfl import is_hidden, released
from privplan.contrib.reproduction.tables import MEASURES, table_of
from privplan.planning.solver import solve
from privplan.spec.spec import Spec


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
