"""Tables of the papers: claims, plans and runs by the command, and findings of the audit."""

import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from benchmarks import reproduction
from privplan.accounting.closed_form import failed_conditions
from privplan.accounting.release import History, Release
from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    ORDER,
    REPRODUCED,
    Cell,
    Result,
    ahead,
    every,
    monotone,
    printed_within,
)
from privplan.contrib.reproduction.command import execute
from privplan.contrib.reproduction.epsilon_distribution import (
    TABLE_7,
    EpsilonDistribution,
    with_distribution,
)
from privplan.contrib.reproduction.robust_hdp import noise_scale
from privplan.contrib.reproduction.runs import run_table
from privplan.contrib.reproduction.tables import PAPERS, Method, Setting, Table, tables
from privplan.errors import InputError
from privplan.files import load_yaml
from privplan.planning.problem import problem_of
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.values import parse
from simulate.algorithms.registry import ALGORITHMS
from simulate.data.registry import DATASETS
from simulate.models.registry import model
from tests.command import answer
from tests.planning.papertables import OPTIMISED, RATIOS


def toy_result(size="full", **rows):
    """One column with the values of two rows, printed 74 and 72 with errors of 0.1."""
    printed = {"high": 74.0, "low": 72.0}
    cells = tuple(
        Cell(row=row, column="c", published=printed[row], published_error=0.1, values=values)
        for row, values in rows.items()
    )
    return Result.model_validate({"table": "t", "size": size, "cells": cells})


@pytest.mark.parametrize(
    ("size", "high", "verdict"),
    [
        ("full", (73.0, 75.1, 74.2), REPRODUCED),  # leads 2.0, 2.1, 2.2; printed 2
        ("reduced", (73.0, 75.1, 74.2), ORDER),  # another size cannot reproduce a number
        ("full", (71.1, 73.2, 72.3), ORDER),  # leads 0.1, 0.2, 0.3
        ("full", (70.8, 73.2, 71.9), NOT_REPRODUCED),  # leads -0.2, 0.2, -0.1
        ("full", (70.0, 71.9, 70.9), CONTRADICTED),  # leads -1.0, -1.1, -1.1
        ("reduced", (70.0, 71.9, 70.9), NOT_REPRODUCED),
        ("full", (71.0, 73.5, 72.1), NOT_REPRODUCED),  # leads 0, 0.5, 0.1: within two errors
        ("full", (74.0,), ORDER),  # one seed has no standard error
    ],
)
def test_a_lead_is_judged_by_its_standard_errors(size, high, verdict):
    low = (71.0, 73.0, 72.0)[: len(high)]
    assert ahead("high", "low")(toy_result(size, high=high, low=low)).verdict == verdict


def test_leads_are_paired_by_seed():
    """Seeds differ by 10 points, the lead by 0.1: unpaired, nothing could be said."""
    found = ahead("low", "high")(toy_result(high=(62.0, 72.1, 82.2), low=(61.0, 71.0, 81.0)))
    assert found.verdict == CONTRADICTED
    assert "-1.10 (± 0.06, printed -2.00)" in found.evidence


def test_rows_that_nothing_computed_are_not_run():
    assert ahead("high", "low")(toy_result(high=(1.0,))).verdict == NOT_RUN
    assert monotone("high", rising=True)(toy_result(high=(1.0,))).verdict == NOT_RUN


def test_printed_numbers_and_their_tolerance():
    near = toy_result(high=(74.004,), low=(71.996,))
    assert printed_within(0.005)(near).verdict == REPRODUCED
    found = printed_within(0.003)(near)
    assert (found.verdict, found.evidence[:17]) == (NOT_REPRODUCED, "0 of 2 within 0.0")
    both = every(printed_within(0.005), printed_within(0.003))(near)
    assert both.verdict == NOT_REPRODUCED


MEANS = {  # by hand: sum of weight times mean of Table 7
    "Dist1": 2.0, "Dist2": 1.64, "Dist3": 2.6, "Dist4": 0.74, "Dist5": 1.1,
    "Dist6": 0.51, "Dist7": 0.6, "Dist8": 0.32, "Dist9": 0.35,
}  # fmt: skip


def spec(law):
    data = {
        "name": "drawn",
        "unit": "record",
        "epsilon_distribution": law,
        "delta": 1e-4,
        "rounds": 5,
        "model": {"name": "mlp-digits", "parameters": 2410},
    }
    return Spec.parse(with_distribution(data))


@pytest.mark.parametrize("name", list(TABLE_7))
def test_the_means_of_table_7(name):
    """Means of 4,000 draws; what the paper's normal laws have below 0.1 is drawn again."""
    law = parse(EpsilonDistribution, {"name": name, "clients": 4000, "seed": 1})
    drawn = law.draw()
    assert drawn.min() >= 0.1
    assert np.all(np.diff(drawn) >= 0)
    allowed = 0.03 if name in ("Dist1", "Dist4") else 0.01  # truncation moves these means
    error = 4 * drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean() - MEANS[name]) < allowed * MEANS[name] + error


def test_each_client_is_a_group_of_records():
    law = {"name": "Dist3", "clients": 12, "seed": 3, "records": 600, "batch_sizes": [16, 64]}
    found = spec(law)
    assert [group.clients for group in found.groups] == [1] * 12
    assert {group.batch_size for group in found.groups} == {16, 64}
    assert {group.records for group in found.groups} == {600}
    epsilons = [group.epsilon for group in found.groups]
    assert 0.2 <= min(epsilons) < max(epsilons) <= 5
    assert spec(law) == found
    assert spec({**law, "seed": 4}).groups != found.groups
    assert Spec.parse(found.model_dump(mode="json")) == found


def mixture(**part):
    return {"clients": 3, "mixture": [part]}


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ({"name": "Dist10", "clients": 3}, r"epsilon_distribution\.name: must be one of Dist1, "),
        ({"clients": 3}, r"epsilon_distribution\.name: .*or give a mixture, found 'nothing'"),
        ({"name": "Dist3"}, r"epsilon_distribution\.clients: "),
        ({"name": "Dist3", "clients": 3}, r"epsilon_distribution\.records: is required"),
        (
            mixture(weight=0.5, normal=[1, 1]),
            r"mixture: must have weights that sum to 1, ",
        ),
        (mixture(uniform=[2, 1]), r"mixture\.0\.uniform: must be \[low, high\]"),
        (mixture(uniform=[0.01, 0.02]), r"mixture\.0: must reach the least epsilon, 0\.1"),
    ],
)
def test_faults_are_named(law, message):
    with pytest.raises(InputError, match=message):
        spec(law)


def by_command(name, folder):
    """Cells by row and column, and verdicts by claim."""
    found = json.loads(answer("reproduce", name, "--format", "json", "-o", folder))
    assert json.loads((folder / f"{name}.json").read_text())["cells"] == found["cells"]
    cells = {(one["row"], one["column"]): one for one in found["cells"]}
    return cells, {one["claim"]: one["verdict"] for one in found["claims"]}


def test_table_5_of_gdpfed_plus(tmp_path):
    """All but sigma^2 of Shakespeare's optimised row come out; Lambda has two scales."""
    cells, verdicts = by_command("gdpfed-plus-table-5", tmp_path)
    off = {
        key
        for key, one in cells.items()
        if one["published"] is not None and abs(one["values"][0] - one["published"]) > 0.006
    }
    assert off == {(f"GDPFed+, sigma^2 of group {group}", "Shakespeare") for group in (1, 2, 3)}
    [weighted] = cells["GDPFed, Lambda with weights", "FMNIST"]["values"]
    assert weighted == pytest.approx(1.5**2 / 3 * (2.26 + 0.90 + 0.53) / 3, abs=0.002)
    assert list(verdicts.values()) == ["not reproduced", "contradicted"]


def test_settings_of_dp_fedpgn_and_dp2_fedsam(tmp_path):
    """sigma 0.8, q 0.1, T 300, delta 1/500: 13.46 by Poisson sampling, 76.97 by fixed cohorts.

    Theorem 2 at epsilon 1: sigma^2 = 7 * 0.05^2 * 200 (1 + 2 log 1000).
    """
    cells, verdicts = by_command("dp-fedpgn-privacy", tmp_path)
    poisson, fixed = (
        cells[f"epsilon, {law}, add/remove", "sigma = 0.8"]["values"][0]
        for law in ("Poisson sampling", "cohorts of fixed size")
    )
    assert (poisson, fixed) == pytest.approx((13.459, 76.963), abs=0.003)
    assert list(verdicts.values()) == ["contradicted"]
    cells, verdicts = by_command("dp2-fedsam-privacy", tmp_path)
    [noise] = cells["noise multiplier of Theorem 2", "N = 1000, epsilon = 1"]["values"]
    assert noise == pytest.approx(math.sqrt(3.5 * (1 + 2 * math.log(1000))))
    assert list(verdicts.values()) == ["reproduced", "contradicted"]


def test_the_noise_of_hyperfl_is_none(tmp_path):
    """sigma 1e-5 over 200 rounds: mu^2 / 2 = 200 / (2e-10)."""
    cells, verdicts = by_command("hyperfl-privacy", tmp_path)
    [found] = cells.values()
    assert found["values"] == [pytest.approx(1e12)]
    assert list(verdicts.values()) == ["contradicted"]


@pytest.mark.slow
def test_noise_of_robust_hdp(tmp_path):
    """Table 3's order, and its size: 4 times ours, as with twice the noise multiplier."""
    cells, verdicts = by_command("robust-hdp-table-3", tmp_path)
    assert list(verdicts.values()) == ["order reproduced", "order reproduced", "not reproduced"]
    ratios = [one["published"] / statistics.fmean(one["values"]) for one in cells.values()]
    assert statistics.median(ratios) == pytest.approx(4, rel=0.1)
    loosest = 75 * (3 * noise_scale(0.5, 32) / 32) ** 2 / 20  # equal budgets and batches of 32
    strictest = 75 * (3 * noise_scale(0.2, 32) / 32) ** 2 / 20
    even = statistics.fmean(cells["DPFedAvg", "Dist9"]["values"])
    assert loosest < even < 4 * strictest
    for name in ("figure-2", "figure-8", "figure-11"):
        _, verdicts = by_command(f"robust-hdp-{name}", tmp_path)
        assert "order reproduced" in verdicts.values()


def settings(clipping_norm=1.0):
    spec = {**load_yaml(preset("digits"), "preset"), "rounds": 2}
    methods = {
        "DP-FedAvg": Method("DP-FedAvg"),
        "DP-FedSAM, rho 0.2": Method("DP-FedSAM", {"rho": 0.2}, {"clipping_norm": clipping_norm}),
    }
    return [Setting("digits", spec, "digits", methods)]


def table(clipping_norm=1.0):
    return Table(
        "toy-table-1", "Table 1", trained={"reduced": lambda: settings(clipping_norm)},
        printed={("DP-FedAvg", "digits"): (50.0, 0.5)},
    )  # fmt: skip


def refuse(arguments):
    raise AssertionError(f"trained again: {arguments}")


def test_runs_are_trained_once_and_resume(tmp_path):
    shown: list[int] = []
    first = run_table(
        table(), "reduced", [0], tmp_path, execute,
        finished=lambda one: shown.append(len(one.cells)),
    )  # fmt: skip
    assert shown == [1, 2]
    assert [cell.row for cell in first.cells] == ["DP-FedAvg", "DP-FedSAM, rho 0.2"]
    record = json.loads((tmp_path / "runs/digits/DP-FedAvg/seed-0/record.json").read_text())
    cell = first.cells[0]
    assert cell.values == (100 * record["accuracy"],)
    assert (cell.published, cell.published_error) == (50.0, 0.5)
    assert all(0 < (spent or 9) <= 2 for spent in cell.spent.values())  # the strictest budget
    named = json.loads((tmp_path / "runs/digits/DP-FedSAM-rho-0.2/seed-0/record.json").read_text())
    assert named["configuration"]["numbers"]["rho"] == 0.2
    again = run_table(table(), "reduced", [0], tmp_path, refuse)
    assert again == first
    assert Result.load(again.save(tmp_path)) == again
    with pytest.raises(AssertionError, match=r"trained again.*rho"):
        run_table(table(clipping_norm=0.5), "reduced", [0], tmp_path, refuse)
    with pytest.raises(AssertionError, match="--seed=1"):
        run_table(table(), "reduced", [0, 1], tmp_path, refuse)


def test_every_declared_setting_is_a_valid_spec():
    """Also of full sizes, which no machine of the tests can train."""
    checked: set[str] = set()
    for one in tables():
        for size, make in one.trained.items():
            for setting in make():
                for row, method in setting.methods.items():
                    assert setting.dataset.partition(":")[0] in DATASETS, one.name
                    entry = ALGORITHMS.get(method.algorithm)
                    assert set(method.hyperparameters) <= set(entry.hyperparameters)
                    data = {**setting.spec, **method.changes}
                    text = json.dumps(data, sort_keys=True)
                    if text in checked:
                        continue
                    checked.add(text)
                    spec = Spec.parse(with_distribution(data))
                    built = model(spec.model.name)
                    assert built.parameters == spec.model.parameters, (one.name, size, row)


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def test_the_page_is_written_from_the_stored_results():
    assert reproduction.replaced(PAGE, reproduction.written()) == PAGE


def test_every_table_of_the_five_papers_has_its_line():
    """As many tables as the papers have: 10, 3, 5, 5 and 22."""
    assert len(PAPERS.names()) == 5
    counts = {"gdpfed-plus": 10, "dp2-fedsam": 3, "dp-fedpgn": 5, "hyperfl": 5, "robust-hdp": 22}
    known = {one.name for one in tables()}
    for paper, count in counts.items():
        assert {f"{paper}-table-{number}" for number in range(1, count + 1)} <= known
    for one in tables():
        assert f"| {one.title}" in PAGE
        assert one.claims or one.left_out


AUDIT = (ROOT / "docs" / "paper-audit.md").read_text(encoding="utf-8")


def test_every_finding_names_a_test_that_exists():
    rows = [line for line in AUDIT.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) >= 8
    for row in rows:
        found = re.findall(r"`(tests/[^`:]+\.py)(?:::(\w+))?`", row)
        assert found, row
        for file, name in found:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in text, row


def test_the_head_rate_of_dp2_fedsam():
    """0.005 / 0.1 in words, 0.1 / 0.005 in symbols: the default is their geometric mean."""
    words, symbols = 0.005 / 0.1, 0.1 / 0.005
    for name in ("DP2-FedSAM", "P-FedSAM", "CENTAUR"):
        default = ALGORITHMS.get(name).hyperparameters["head_rate"].default
        assert default == pytest.approx(math.sqrt(words * symbols))


def test_the_head_rate_of_hyperfl():
    meaning = ALGORITHMS.get("HyperFL").hyperparameters["head_rate"].meaning
    assert f"{0.1 / 0.01:g} for grey images" in meaning
    assert f"{0.1 / 0.02:g} for colour" in meaning


def test_theorem_1_of_gdpfed_plus_fails_at_its_own_settings():
    """At the noise of Table 5 and the ratios of Table 1, in every group."""
    given = problem_of(Spec.parse(load_yaml(preset("gdpfed-fmnist"), "preset")))
    rows = zip(RATIOS["gdpfed-fmnist"], OPTIMISED["gdpfed-fmnist"], given.deltas, strict=True)
    for percent, square, delta in rows:
        release = Release(math.sqrt(square), percent / 100, given.sampling)
        history = History.repeated(release, given.rounds)
        assert failed_conditions(history, delta, given.relation)


def test_dist1_has_negative_budgets():
    [part] = TABLE_7["Dist1"]
    mean, deviation = part.normal
    assert stats.norm.cdf(0, mean, deviation) == pytest.approx(0.0228, abs=1e-4)


def scale_delta(epsilon, coordinates, ratio):
    """Hockey-stick divergence of N(0, 1) from N(0, ratio^2) in all coordinates, ratio above 1.

    The privacy loss falls with |x|^2, which has a chi-square law under both.
    """
    threshold = 2 * (coordinates * math.log(ratio) - epsilon) / (1 - ratio**-2)
    if threshold <= 0:
        return 0.0
    first = stats.chi2.cdf(threshold, coordinates)
    second = stats.chi2.cdf(threshold / ratio**2, coordinates)
    return float(first - math.exp(epsilon) * second)


def test_an_unpaid_median_shows_in_the_scale_of_the_noise():
    """A lower bound on epsilon: what the noise of DP-FedPGN's round tells without its update."""
    coordinates = model("resnet-18").parameters
    assert coordinates == 11_173_962
    found = optimize.brentq(lambda x: scale_delta(x, coordinates, 1.001) - 1 / 500, 1.0, 100.0)
    assert found == pytest.approx(23.9, abs=0.1)
    assert "epsilon 23.9" in " ".join((ALGORITHMS.get("DP-FedPGN").function.__doc__ or "").split())
    assert scale_delta(5.0, coordinates, 1.01) > 0.99  # by 1% it is all but certain
