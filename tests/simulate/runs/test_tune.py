"""Comparisons in which each method is tuned by itself."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from privplan.errors import InputError
from privplan.plan import Plan
from simulate.algorithms.registry import ALGORITHMS, algorithm
from simulate.data.registry import load
from simulate.data.subsets import validation_split
from simulate.runs import tune as tuning
from simulate.runs.compare import select
from simulate.runs.request import Request
from simulate.runs.rows import ComparisonRow
from simulate.runs.tables import printed_table
from simulate.runs.tuning_space import Point, SearchSpace, retuned


def quiet(done, total):
    """Progress that nobody looks at."""


def test_validation_records_are_training_records_and_no_others():
    data = load("digits")
    split = validation_split(data, 0.25, seed=3)
    assert len(split.train_y) + len(split.test_y) == len(data.train_y)
    records = torch.cat([split.train_x, split.test_x]).flatten(1).numpy()
    training = data.train_x.flatten(1).numpy()
    assert_array_equal(records[np.lexsort(records.T)], training[np.lexsort(training.T)])
    counts = torch.bincount(split.test_y).numpy() / torch.bincount(data.train_y).numpy()
    assert np.all(np.abs(counts - 0.25) < 0.01)
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match=r"validation_share: must be in \(0, 1\)"):
            validation_split(data, share, seed=3)


@pytest.mark.parametrize(
    "name", ["DP-FedAvg", "IDP-FedAvg-Scale", "planned", "GDPFed+"]
)
def test_another_norm_and_rate_leave_the_guarantee(name, short_plan):
    """The certificate is of noise over bound; the noise itself scales with the norm."""
    plan = algorithm(name, short_plan).plan
    point = Point(clipping=0.25, rate=2.0)
    changed_plan = retuned(plan, point)
    assert changed_plan.certificate == plan.certificate
    for group, changed in zip(plan.groups, changed_plan.groups, strict=True):
        assert changed.noise_multiplier == group.noise_multiplier
        assert changed_plan.clip_bound(changed) == pytest.approx(
            plan.clip_bound(group) / 4
        )
    assert changed_plan.mean_noise_std == pytest.approx(plan.mean_noise_std / 4)
    assert changed_plan.spec.local.learning_rate == pytest.approx(
        2 * plan.spec.local.learning_rate
    )
    assert [g.name for g in algorithm(name, retuned(short_plan, point)).plan.groups]


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_every_method_has_a_space_within_its_own_ranges(name):
    entry = ALGORITHMS.get(name)
    space = SearchSpace(entry, {})
    lowest = space.point({key: low for key, (low, _) in space.ranges.items()})
    highest = space.point({key: high for key, (_, high) in space.ranges.items()})
    assert "rate" in space.ranges
    assert ("clipping" in space.ranges) is (
        entry.unit != "none" and name != "Local-only"
    )
    for key, value in space.default.items():
        assert space.ranges[key][0] <= value <= space.ranges[key][1]
    for key, value in (*lowest.values.items(), *highest.values.items()):
        assert entry.hyperparameters[key].fault(key, value) is None
    for key, hyperparameter in entry.hyperparameters.items():
        if hyperparameter.integer:
            continue
        assert lowest.values[key] < highest.values[key]
        fixed = SearchSpace(entry, {key: 0.5})
        assert key not in fixed.ranges
        assert fixed.point({}).values[key] == 0.5


def test_all_leaves_out_methods_of_another_unit_when_tuned(short_plan, tmp_path):
    base = Request(short_plan, "", "digits", tmp_path, device="cpu")
    names, lines = select("all", base, one_unit=True)
    assert "DP-FedAvg" in names
    assert {ALGORITHMS.get(name).unit_under(short_plan) for name in names} == {"client"}
    [line] = [line for line in lines if "of clients" in line]
    assert "DPFedAvg" in line
    [line] = [line for line in lines if "nobody" in line]
    assert "leaves out FedAvg, HyperFL, " in line
    assert {"DPFedAvg", "FedAvg"} <= set(select("all", base)[0])
    assert select("DPFedAvg", base, one_unit=True)[0] == ["DPFedAvg"]
    with_fedavg, lines = select("all,FedAvg", base, one_unit=True)
    assert set(with_fedavg) == {*names, "FedAvg"}
    assert "FedAvg, " not in "".join(lines).replace("DPFedAvg, ", "")


@pytest.mark.slow
def test_a_tuned_comparison(short_plan, tmp_path, monkeypatch):
    names = ["DP-FedAvg", "DP2-FedSAM"]
    request = Request(short_plan, "", "digits", tmp_path / "out", device="cpu")
    base = replace(request, plan=tuning.same_accountant(short_plan))
    assert base.plan.spec.planning.accountant == "pld"
    assert tuning.same_accountant(base.plan) is base.plan
    seen: list[ComparisonRow] = []
    rows, chosen = tuning.tuned_comparison(
        base, names, [4, 5], 3, 1, quiet, seen.append
    )
    assert [row.algorithm for row in seen] == names == [row.algorithm for row in rows]
    assert json.loads((base.folder / "tuned.json").read_text()) == chosen
    assert_shown(rows, chosen)
    for row in rows:
        assert row.spent("strict") > 0.999 * 2
        for verdict in row.verdicts:
            assert verdict.outcome == "kept"
            for group in verdict.groups:
                assert group.realised_upper <= group.budget
    monkeypatch.setattr(tuning, "_score", None)  # nothing is run again
    best = tuning.tune(base, names, trials=3)
    for name in names:
        spec = tuning.tuned_request(base, best[name]).plan.spec
        # A method's own planning keeps the tuned values.
        executed = Plan.load(base.folder / name / "seed-4" / "plan.json").spec
        assert executed.clipping_norm == spec.clipping_norm
        assert executed.local.learning_rate == spec.local.learning_rate
    with pytest.raises(
        InputError, match="output: must not hold results of other settings"
    ):
        tuning.tune(base, names, trials=3, seed=1)


def assert_shown(rows, chosen):
    """The table has the tuned values, and no validation scores."""
    _, columns, cells, _ = printed_table("a title", rows, chosen)
    values = chosen["DP2-FedSAM"]
    assert columns[-1] == "tuned"
    assert cells[1][-1][:2] == "C="
    assert "rho=" in cells[1][-1]
    assert "validation" not in cells[1][-1]
    assert values["validation"] >= values["validation_default"]
