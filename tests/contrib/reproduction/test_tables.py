"""Tables of the papers: claims, plans and runs by the command, and audit findings."""

import itertools
import json
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from benchmarks import reproduction
from privplan.accounting.closed_form import failed_conditions
from privplan.accounting.release import History, Release
from privplan.contrib.reproduction import claims
from privplan.contrib.reproduction import tables as stored
from privplan.contrib.reproduction.command import execute, panels_of
from privplan.contrib.reproduction.epsilon_distribution import (
    TABLE_7,
    drawn,
    with_distribution,
)
from privplan.contrib.reproduction.papers import dp2_fedsam
from privplan.contrib.reproduction.papers.robust_hdp import noise_scale
from privplan.contrib.reproduction.runs import _described, _solved, run_table
from privplan.errors import InputError
from privplan.planning.problem import problem_of
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.data.partition.schemes import scheme
from simulate.data.registry import DATASETS
from simulate.models.registry import model
from tests.command import answer
from tests.planning.papertables import OPTIMISED, RATIOS

REPRODUCED, ORDER, UNDECIDED, NOT_REPRODUCED, _, NOT_RUN = claims.VERDICTS
ROOT = Path(__file__).parents[3]


def cells(size="full", seeds=(), **columns):
    """A result from contents by row, by column.

    A content is a value, a list of values by seed, or either with the printed number
    and its error: as a tuple, or, from a file, as a list that begins with a list.
    """
    result_cells = []
    for column, rows in columns.items():
        for row, content in rows.items():
            values = content
            printed = {}
            is_nested = isinstance(content, list) and isinstance(content[0], list)
            if is_nested or isinstance(content, tuple):
                values, *numbers = content
                fields = ("published", "published_error")
                printed = dict(zip(fields, numbers, strict=False))
            if not isinstance(values, list):
                values = [values]
            cell = claims.Cell(row=row, column=column, values=values, **printed)
            result_cells.append(cell)
    return claims.Result(table="t", size=size, seeds=seeds, cells=result_cells)


def leads(values, size="full", printed=2.0):
    """One row that leads another one, at 70 in all seeds, by the values."""
    high = ([70 + lead for lead in values], 70 + printed, 0.1)
    rows = {"high": high, "low": ([70.0] * len(values), 70.0, 0.1)}
    return cells(size=size, seeds=tuple(range(len(values))), c=rows)


LEAD = claims.Claim("above", claims.Differences(claims.ahead([("high", "low")])))


def spread_leads(lead_by_column, spread):
    """Three seeds of x over y, which lie above each column's lead by the spread."""
    columns = {}
    for name, lead in lead_by_column.items():
        values = [lead, lead + spread, lead + (1 + lead) * spread]
        columns[name] = {"x": (values, 5.0), "y": ([0.0] * 3, 1.0)}
    return cells(seeds=(0, 1, 2), size="reduced", **columns)


def verdict(rule, result):
    [judged_claim] = claims.verdicts([claims.Claim("a claim", rule)], result)
    return judged_claim.verdict


@pytest.mark.parametrize(
    ("size", "values", "expected"),
    [
        ("full", (2.0, 2.1, 2.2), REPRODUCED),
        ("reduced", (2.0, 2.1, 2.2), ORDER),  # another size cannot reproduce a number
        ("full", (0.1, 0.12, 0.14), ORDER),
        ("full", (0.0, 2.0, 4.0), UNDECIDED),  # t = 1.73 of 4.30 that two degrees need
        ("full", (-1.0, -1.1, -1.1), NOT_REPRODUCED),
        ("full", (9.0,), UNDECIDED),  # one seed has no interval
    ],
)
def test_a_lead_is_judged_by_its_interval(size, values, expected):
    [judged_claim] = claims.verdicts([LEAD], leads(values, size))
    assert judged_claim.verdict == expected
    if len(values) > 1:
        assert f"p {stats.ttest_1samp(values, 0.0).pvalue:.2g}" in judged_claim.evidence


def test_a_margin_allows_a_small_difference():
    rule = claims.Differences(claims.ahead([("high", "low")]), margin=3.0)
    assert verdict(rule, leads((-1.0, -1.1, -1.2), "reduced")) == ORDER
    assert verdict(rule, leads((-4.0, -4.1, -4.2), "reduced")) == NOT_REPRODUCED


def test_what_was_not_run_is_said():
    """Of three rows two were run: whether it leads all is unknown, a deficit is not."""
    rule = claims.Differences(claims.ahead([("high", "low"), ("high", "absent")]))
    assert verdict(rule, leads((2.0, 2.1, 2.2))) == NOT_RUN
    assert verdict(rule, leads((-2.0, -2.1, -2.2))) == NOT_REPRODUCED
    absent = claims.Differences(claims.ahead([("absent", "low")]))
    assert verdict(absent, leads((1.0, 2.0))) == NOT_RUN


def test_welch_where_seeds_are_not_shared():
    """Against scipy's test with unequal variances."""
    high = [73.0, 75.1, 74.2, 74.4]
    low = [71.0, 73.5, 72.1]
    difference = claims.difference(
        ("", [(1, "high", "c"), (-1, "low", "c")]),
        cells(seeds=(0, 1, 2), c={"high": high, "low": low}),
    )
    scipy_test = stats.ttest_ind(high, low, equal_var=False)
    assert (difference.p, difference.freedom) == pytest.approx(
        (scipy_test.pvalue, scipy_test.df)
    )


def test_holm_over_the_claims_of_a_table():
    """By hand, from p-values p1 < p2 < p3: 3 p1, 2 p2 and p3, in rising order."""
    columns = {"a": [1.0, 1.1, 1.3], "b": [1.0, 1.5, 1.9], "c": [0.2, 1.0, 2.5]}
    rows_by_column = {
        name: {"high": values, "low": [0.0] * 3} for name, values in columns.items()
    }
    result = cells(seeds=(0, 1, 2), **rows_by_column)
    rules = [
        claims.Differences(claims.ahead([("high", "low")], columns=name))
        for name in columns
    ]
    p = [stats.ttest_1samp(values, 0.0).pvalue for values in columns.values()]
    assert p == sorted(p)
    adjusted = np.maximum.accumulate([3 * p[0], 2 * p[1], p[2]])
    judged_claims = claims.verdicts([claims.Claim("", rule) for rule in rules], result)
    for judged_claim, value in zip(judged_claims, adjusted, strict=True):
        assert f"p {value:.2g}" in judged_claim.evidence
    assert [judged_claim.verdict for judged_claim in judged_claims] == [
        ORDER,
        UNDECIDED,
        UNDECIDED,
    ]
    assert verdict(rules[1], result) == ORDER  # alone p2 is enough


def test_the_seeds_that_would_decide():
    """At the mean and spread of three seeds, p falls below the level at that number."""
    [judged_claim] = claims.verdicts([LEAD], leads([0.0, 2.0, 4.0]))
    seeds_needed = int(re.search(r"(\d+) seeds would decide", judged_claim.evidence)[1])
    p = [
        2 * stats.t.sf(2.0 / (2.0 / math.sqrt(n)), n - 1)
        for n in (seeds_needed - 1, seeds_needed)
    ]
    assert p[1] <= 0.05 < p[0]


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (claims.rises(["x"]), {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (claims.rises(["x"], sign=-1), {"a": 2, "b": 1}, {"a": 1, "b": 2}),
        (claims.rises(["x"], columns=["b", "a"]), {"a": 2, "b": 1}, {"a": 1, "b": 2}),
        (
            stored._rule({"rises": ["x"], "columns": [["b", "a"]]}, {}).of,
            {"a": 2, "b": 1},
            {"a": 1, "b": 2},
        ),
        (claims.lead_rises("x", "y"), {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (claims.lead_rises("x", "y", sign=-1), {"a": 2, "b": 1}, {"a": 1, "b": 2}),
        (claims.ahead([("x", "y")]), {"a": 1, "b": 1}, {"a": 1, "b": -1}),
        (
            claims.ahead([("x", "y")], as_printed=True),
            {"a": 1, "b": 1},
            {"a": 1, "b": -1},
        ),
        (
            claims.ahead([("y", "x")], as_printed=True),
            {"a": 1, "b": 1},
            {"a": 1, "b": -1},
        ),
    ],
)
def test_each_rule_of_means_has_each_outcome(rule, right, wrong):
    """Leads of x over y, or its values, printed as 5 over 1."""
    assert verdict(claims.Differences(rule), spread_leads(right, 0.01)) == ORDER
    assert (
        verdict(claims.Differences(rule), spread_leads(wrong, 0.01)) == NOT_REPRODUCED
    )
    assert verdict(claims.Differences(rule), spread_leads(right, 9.0)) == UNDECIDED
    assert verdict(claims.Differences(rule), cells(a={"z": 1}, b={"z": 1})) == NOT_RUN
    exact = {
        name: {"x": (value, 5.0), "y": (0.0, 1.0)} for name, value in right.items()
    }
    assert verdict(claims.Differences(rule), cells(**exact)) == ORDER


EMPTY = cells(a={"nothing": 1.0})


def test_each_rule_of_computed_numbers_has_each_outcome():
    rules = {}
    for table_ in stored.tables():
        for claim in table_.claims:
            if not isinstance(claim.rule, claims.Differences):
                rules[claim.rule.__name__] = claim.rule
    rules.pop("judge")
    outcomes = load_yaml(
        (Path(__file__).parent / "outcomes.yaml").read_text("utf-8"), "outcomes"
    )
    assert set(rules) == set(outcomes)
    for name, results in outcomes.items():
        for outcome, columns in results.items():
            assert verdict(rules[name], cells(**columns)) == outcome, (name, outcome)
    for name in set(rules) - {"is_private", "within_draws", "order_of_others"}:
        assert verdict(rules[name], EMPTY) == NOT_RUN


def test_the_conditions_of_lemma_4_can_hold(monkeypatch):
    """Over 1,000 rounds in place of 200, at sigma 2."""
    monkeypatch.setattr(dp2_fedsam, "ROUNDS", 1000)
    rows = {"noise multiplier of Theorem 2": 2.0}
    columns = [
        f"N = {n}, epsilon = {epsilon}"
        for n, epsilon in itertools.product((500, 1000), (1, 2))
    ]
    result = cells(**dict.fromkeys(columns, rows))
    assert verdict(dp2_fedsam.conditions, result) == REPRODUCED


def test_printed_numbers_and_their_tolerance():
    near = cells(a={"x": (74.004, 74.0), "y": (71.996, 72.0)})
    assert verdict(claims.printed_within(0.005), near) == REPRODUCED
    assert verdict(claims.printed_within(0.003), near) == NOT_REPRODUCED
    assert verdict(claims.printed_within(0.003), EMPTY) == NOT_RUN


MEANS = {  # by hand: sum of weight times mean of Table 7
    "Dist1": 2.0,
    "Dist2": 1.64,
    "Dist3": 2.6,
    "Dist4": 0.74,
    "Dist5": 1.1,
    "Dist6": 0.51,
    "Dist7": 0.6,
    "Dist8": 0.32,
    "Dist9": 0.35,
}


@pytest.mark.parametrize("name", list(TABLE_7))
def test_the_means_of_table_7(name):
    """Means of 4,000 draws; what the paper's laws have below 0.1 is drawn again."""
    budgets = drawn(name, 4000, seed=1)
    assert budgets.min() >= 0.1
    assert np.all(np.diff(budgets) >= 0)
    # Truncation moves the means of Dist1 and Dist4.
    tolerance = 0.03 if name in ("Dist1", "Dist4") else 0.01
    error = 4 * budgets.std() / np.sqrt(len(budgets))
    assert abs(budgets.mean() - MEANS[name]) < tolerance * MEANS[name] + error


def by_command(name, folder):
    """Cells by row and column, and verdicts by claim."""
    report = json.loads(answer("reproduce", name, "--format", "json", "-o", folder))
    assert json.loads((folder / f"{name}.json").read_text())["cells"] == report["cells"]
    by_head = {(cell["row"], cell["column"]): cell for cell in report["cells"]}
    return by_head, {claim["claim"]: claim["verdict"] for claim in report["claims"]}


def test_table_5_of_gdpfed_plus(tmp_path):
    """All but sigma^2 of Shakespeare's optimised row come out; Lambda has 2 scales."""
    cells_by_place, outcomes = by_command("gdpfed-plus-table-5", tmp_path)
    deviating = {
        key
        for key, cell in cells_by_place.items()
        if cell["published"] is not None
        and abs(cell["values"][0] - cell["published"]) > 0.006
    }
    assert deviating == {
        (f"GDPFed+, sigma^2 of group {group}", "Shakespeare") for group in (1, 2, 3)
    }
    [weighted] = cells_by_place["GDPFed, Lambda with weights", "FMNIST"]["values"]
    assert weighted == pytest.approx(1.5**2 / 3 * (2.26 + 0.90 + 0.53) / 3, abs=0.002)
    assert list(outcomes.values()) == ["not reproduced", "contradicted by proof"]


def test_settings_of_dp_fedpgn_and_dp2_fedsam(tmp_path):
    """sigma 0.8, q 0.1, T 300, delta 1/500: 13.46 by Poisson, 76.96 by fixed size.

    Theorem 2 at epsilon 1: sigma^2 = 7 * 0.05^2 * 200 (1 + 2 log 1000).
    """
    cells_by_place, outcomes = by_command("dp-fedpgn-privacy", tmp_path)
    bounds = [
        cells_by_place[f"{bound}, add/remove", "sigma = 0.8"]["values"][0]
        for bound in (
            "epsilon, Poisson sampling",
            "least epsilon, cohorts of fixed size",
        )
    ]
    assert bounds == pytest.approx([13.459, 76.963], abs=0.003)
    assert list(outcomes.values()) == ["contradicted by proof"]
    cells_by_place, outcomes = by_command("dp2-fedsam-privacy", tmp_path)
    [noise] = cells_by_place["noise multiplier of Theorem 2", "N = 1000, epsilon = 1"][
        "values"
    ]
    assert noise == pytest.approx(math.sqrt(3.5 * (1 + 2 * math.log(1000))))
    assert list(outcomes.values()) == ["reproduced", "contradicted by proof"]


def test_the_noise_of_hyperfl_is_none(tmp_path):
    """sigma 1e-5 over 200 rounds: mu^2 / 2 = 200 / (2e-10)."""
    cells_by_place, outcomes = by_command("hyperfl-privacy", tmp_path)
    [cell] = cells_by_place.values()
    assert cell["values"] == [pytest.approx(1e12)]
    assert list(outcomes.values()) == ["contradicted by proof"]


@pytest.mark.slow
def test_noise_of_robust_hdp(tmp_path):
    """Table 3's order, and its size: 4 times ours, as of twice the noise multiplier."""
    cells_by_place, outcomes = by_command("robust-hdp-table-3", tmp_path)
    assert list(outcomes.values()) == ["order reproduced", "not reproduced"]
    ratios = [
        cell["published"] / statistics.fmean(cell["values"])
        for cell in cells_by_place.values()
    ]
    assert statistics.median(ratios) == pytest.approx(4, rel=0.1)
    # With equal budgets and batches of 32.
    loosest = 75 * (3 * noise_scale(0.5, 32) / 32) ** 2 / 20
    strictest = 75 * (3 * noise_scale(0.2, 32) / 32) ** 2 / 20
    assert (
        loosest
        < statistics.fmean(cells_by_place["DPFedAvg", "Dist9"]["values"])
        < 4 * strictest
    )
    for name in ("figure-2", "figure-5", "figure-8", "figure-11"):
        _, outcomes = by_command(f"robust-hdp-{name}", tmp_path)
        assert "order reproduced" in outcomes.values()


def test_pictures_have_lines_by_number_and_rows_beside_the_printed_ones(tmp_path):
    answer(
        "reproduce", "robust-hdp-figure-8", "-o", tmp_path, "--plot", tmp_path / "8.svg"
    )
    assert "<svg" in (tmp_path / "8.svg").read_text()
    columns = {f"Dist4, rate {rate}": {"x": (rate, 9.0)} for rate in (0.5, 1.5, 5.0)}
    columns["D"] = {"y": 7}
    rates = stored.table_of("robust-hdp-table-13-rates")
    panels = list(panels_of(rates, cells(**columns)))
    assert (
        "by rate: x 0.5 at 0.5, 1.5 at 1.5, 5 at 5; x, printed 9 at 0.5"
        in panels[0].alt
    )
    assert panels[1].alt == "D, accuracy in percent: y 7."


def settings(clipping_norm=1.0):
    spec = {**load_yaml(preset("digits"), "preset"), "rounds": 2}
    methods = {
        "DP-FedAvg": stored.Method("DP-FedAvg"),
        "DP-FedSAM, rho 0.2": stored.Method(
            "DP-FedSAM", {"rho": 0.2}, {"clipping_norm": clipping_norm}
        ),
    }
    return [stored.Setting("digits", spec, "digits", methods)]


def table(clipping_norm=1.0):
    return stored.Table(
        "toy-table-1",
        "Table 1",
        trained={"reduced": lambda: settings(clipping_norm)},
        printed={("DP-FedAvg", "digits"): (50.0, 0.5)},
    )


def refuse(arguments):
    raise AssertionError(f"trained again: {arguments}")


def test_runs_are_trained_once_and_resume(tmp_path):
    shown: list[int] = []
    first = run_table(
        table(),
        "reduced",
        1,
        tmp_path,
        execute,
        finished=lambda result, cell: shown.append(len(result.cells)),
    )
    assert shown == [1, 2]
    assert [cell.row for cell in first.cells] == ["DP-FedAvg", "DP-FedSAM, rho 0.2"]
    record = json.loads(
        (tmp_path / "runs/digits/DP-FedAvg/seed-0/record.json").read_text()
    )
    cell = first.cells[0]
    assert cell.values == (100 * record["accuracy"],)
    assert cell.published == 50.0
    assert cell.published_error == 0.5
    # The strictest budget is 2.
    assert all(0 < (spent or 9) <= 2 for spent in cell.spent.values())
    named = json.loads(
        (tmp_path / "runs/digits/DP-FedSAM-rho-0.2/seed-0/record.json").read_text()
    )
    assert named["configuration"]["numbers"]["rho"] == 0.2
    again = run_table(table(), "reduced", 1, tmp_path, refuse)
    assert again == first
    assert claims.Result.load(again.save(tmp_path)) == again
    with pytest.raises(AssertionError, match=r"trained again.*rho"):
        run_table(table(clipping_norm=0.5), "reduced", 1, tmp_path, refuse)
    with pytest.raises(AssertionError, match="--seed=1"):
        run_table(table(), "reduced", 2, tmp_path, refuse)
    with pytest.raises(AssertionError, match="--seed=1"):
        run_table(
            replace(table(), first_seed=1), "reduced", 1, tmp_path, refuse, stored=first
        )


def spec_of_records():
    """The golden spec of records for two rounds, weighted for the least noise."""
    path = ROOT / "tests/golden/specs/records-digits.yaml"
    planning = {"accountant": "rdp", "weights": "inverse_variance"}
    return {**load_yaml(path.read_text(), "spec"), "rounds": 2, "planning": planning}


def best_strict_weight(spec):
    """By hand, of the spec's strict group: clients over steps, times a square."""
    strict, loose = _solved(json.dumps(spec)).groups
    # The square is that of the batch size over the noise multiplier.
    strict_precision = 4 / 8 * (10 / strict.noise_multiplier) ** 2
    loose_precision = 6 / 4 * (20 / loose.noise_multiplier) ** 2
    return strict_precision / (strict_precision + loose_precision)


def test_weights_are_compared_with_those_of_the_least_noise(tmp_path):
    """The oracle has them, DPFedAvg has equal ones, and Robust-HDP records its own."""
    spec = spec_of_records()
    names = ("Robust-HDP-oracle", "DPFedAvg", "Robust-HDP")
    methods = {name: stored.Method(name) for name in names}
    digits_setting = stored.Setting("digits", spec, "digits", methods)
    measure = "distance of the weights to the optimal ones in percent"
    toy = stored.Table(
        "toy", "Toy", trained={"reduced": lambda: [digits_setting]}, measure=measure
    )
    result = run_table(toy, "reduced", 1, tmp_path, execute)
    distances = [cell.mean for cell in result.cells]
    best = best_strict_weight(spec)
    record = tmp_path / "runs/digits/Robust-HDP/seed-0/record.json"
    estimated = json.loads(record.read_text())["weights"]["strict"]
    by_hand = [0.0, 100 * (0.4 - best), 100 * abs(estimated - best)]
    assert distances == pytest.approx(by_hand, abs=1e-6)
    assert 0 < distances[2] < distances[1]


@pytest.mark.parametrize(
    ("score", "value"), [("PSNR in dB", 20.0), ("SSIM", 0.5), ("SSIM", None)]
)
def test_scores_of_an_attack(score, value, tmp_path):
    """SSIM needs scikit-image, without which the score is a word and is refused."""
    scores = {
        "psnr": [20.0, 19.0, 21.0],
        "ssim": "not available" if value is None else [0.5, 0, 1],
    }
    row = {"scores": scores, "epsilon": "inf", "groups": ["all"], "seconds": 1.0}
    plan = _solved(json.dumps(load_yaml(preset("digits"), "digits")))

    def measured():
        return stored.MEASURES[score](lambda words: {"rows": [row]}, plan, [], tmp_path)

    if value is None:
        with pytest.raises(
            InputError, match=r"measure: must be available; pip install"
        ):
            measured()
    else:
        done = {
            "spent": {"all": None},
            "seconds": 1.0,
            "executed": stored.executed(plan, {}),
        }
        assert measured() == {"value": value, **done}


@pytest.mark.slow
def test_every_declared_setting_is_a_valid_spec():
    """Also of full sizes, which no machine of the tests can train."""
    checked: set[str] = set()
    for table_ in stored.tables():
        for size, make in table_.trained.items():
            for setting in make():
                scheme(setting.partition)
                for row, method in setting.methods.items():
                    assert setting.dataset.partition(":")[0] in DATASETS, table_.name
                    entry = ALGORITHMS.get(method.algorithm)
                    assert set(method.hyperparameters) <= set(entry.hyperparameters)
                    data = {**setting.spec, **method.changes}
                    text = json.dumps(data, sort_keys=True)
                    if text in checked:
                        continue
                    checked.add(text)
                    spec = Spec.parse(with_distribution(data))
                    built = model(spec.model.name)
                    assert built.parameters == spec.model.parameters, (
                        table_.name,
                        size,
                        row,
                    )


# Plans of 60 groups, and of four data sets by each method.
SLOW = ("robust-hdp", "gdpfed-plus", "dp2-fedsam")


@pytest.mark.parametrize(
    "paper",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in stored.PAPERS.names()
    ],
)
def test_stored_runs_are_of_todays_settings_and_plans(paper):
    """A setting, a default or a plan that changes makes the stored row stale."""
    for table_ in stored.PAPERS.get(paper).tables:
        result = reproduction.stored(table_)
        if result is None or not table_.trained:
            continue
        for setting in table_.trained[result.size]():
            for row, method in setting.methods.items():
                cell = result.cell_at(row, setting.column)
                described = _described(setting, row)
                if cell is None:
                    continue
                plain = json.loads(json.dumps(described))
                assert result.configuration[setting.column][row] == plain, (
                    table_.name,
                    row,
                )
                printed = table_.printed.get((row, setting.column), (None, None))
                assert (cell.published, cell.published_error) == printed, (
                    table_.name,
                    row,
                )
                # A group that states its noise has an epsilon of an accountant, whose
                # last digits follow the processor: the digest of its spec is of one
                # machine.
                if not any(
                    "noise_multiplier" in group for group in described["spec"]["groups"]
                ):
                    assert cell.executed == executed_today(described, method), (
                        table_.name,
                        row,
                    )


def scores_of_grid(grid):
    """Mean scores by value, by row, column and name of what was tuned.

    Rates within a point of the best were tried again at seeds 6 and 7, which decide.
    """
    scores = {}
    for cell in reproduction.stored(stored.table_of(grid)).cells:
        column, name, value = re.fullmatch(r"(.*), (\w+) (\S+)", cell.column).groups()
        by_value = scores.setdefault((cell.row, column, name), {})
        by_value[float(value)] = cell.mean
    if "pgn-table" in grid:
        for cell in reproduction.stored(stored.table_of("dp-fedpgn-ties")).cells:
            column, value = cell.column.split(", rate ")
            key = (cell.row, column, "rate")
            if key in scores:
                scores[key][float(value)] = 100 + cell.mean
    return scores


def tuned_settings(grid):
    """The settings, by column, that the values of a grid were chosen for.

    A grid of rates is named after its table; any other belongs to all of its paper.
    """
    paper_tables = [
        table_
        for table_ in stored.tables()
        if table_.first_seed and table_.name[:8] == grid[:8]
    ]
    tuned_tables = [
        table_
        for table_ in paper_tables
        if table_.name == grid.removesuffix("-rates") != grid
    ]
    settings = {}
    for table_ in tuned_tables or paper_tables:
        for setting in table_.trained["reduced"]():
            settings[setting.column] = setting
    return settings


GRIDS = [
    table_.name for table_ in stored.tables() if table_.trained and not table_.claims
]


@pytest.mark.parametrize("grid", GRIDS)
def test_tuned_values_are_the_best_of_the_stored_grids(grid):
    """At seed 0, which is not judged, of each row and column."""
    scores = scores_of_grid(grid)
    settings = tuned_settings(grid)
    for (row, column, name), score_by_value in scores.items():
        method = settings[column].methods[row]
        rate = method.changes.get("local", {}).get("learning_rate")
        chosen = {"rate": rate, **method.hyperparameters}[name]
        assert chosen == max(score_by_value, key=score_by_value.get)
    if grid.endswith("-rates"):
        trained_rows = set()
        for column, setting in settings.items():
            trained_rows.update((row, column) for row in setting.methods)
        assert {(row, column) for row, column, _ in scores} == trained_rows


def executed_today(described, method):
    """The digest of the plan that the algorithm makes today, and of its numbers."""
    plan = _solved(json.dumps(described["spec"]))
    entry = ALGORITHMS.get(method.algorithm)
    # An attack is on the plan itself.
    if "attack" in described:
        return stored.executed(plan, {})
    numbers = entry.complete(Hyperparameters("paper", method.hyperparameters)).values
    records_by_group = {group.name: group.records or 1 for group in plan.groups}
    return stored.executed(entry.plan(plan, records_by_group), numbers)


@pytest.mark.slow
def test_stored_numbers_of_plans_come_out_again():
    for table_ in stored.tables():
        result = reproduction.stored(table_)
        if result is not None and table_.planned:
            for cell in table_.computed():
                stored_cell = result.cell_at(cell.row, cell.column)
                assert stored_cell.model_copy(update={"values": cell.values}) == cell, (
                    table_.name
                )
                assert stored_cell.values == pytest.approx(cell.values, rel=1e-6)


PAGE = (ROOT / "docs" / "evidence" / "reproduction.md").read_text(encoding="utf-8")


def test_the_pages_are_written_from_the_stored_results():
    for page, part in reproduction.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert reproduction.replaced(text, part()) == text
    for path, text in reproduction.ROWS.items():
        assert path.read_text(encoding="utf-8") == text()


def test_every_table_and_figure_of_the_five_papers_has_its_line():
    """As many tables and figures as the papers have."""
    counts = {
        "gdpfed-plus": (10, 2),
        "dp2-fedsam": (3, 7),
        "dp-fedpgn": (5, 8),
        "hyperfl": (5, 8),
        "robust-hdp": (22, 13),
    }
    assert set(counts) == set(stored.PAPERS.names())
    table_names = {table_.name for table_ in stored.tables()}
    for paper, (tables_printed, figures) in counts.items():
        assert {
            f"{paper}-table-{number}" for number in range(1, tables_printed + 1)
        } <= table_names
        assert {
            f"{paper}-figure-{number}" for number in range(1, figures + 1)
        } <= table_names
    for table_ in stored.tables():
        assert not table_.claims or f"| {table_.title}" in PAGE
        assert table_.claims or table_.left_out or table_.trained


AUDIT = (ROOT / "docs" / "evidence" / "paper-audit.md").read_text(encoding="utf-8")


def test_every_finding_names_a_test_that_exists():
    rows = [
        line
        for line in AUDIT.splitlines()
        if line.startswith("| ") and "---" not in line
    ][1:]
    assert len(rows) >= 8
    for row in rows:
        tests_named = re.findall(r"`(tests/[^`:]+\.py)(?:::(\w+))?`", row)
        assert tests_named, row
        for file, name in tests_named:
            assert not name or f"def {name}(" in (ROOT / file).read_text(
                encoding="utf-8"
            ), row


def test_the_rates_of_heads():
    """0.005 / 0.1 in words, 0.1 / 0.005 in symbols; the default is their mean, 1."""
    for name in ("DP2-FedSAM", "P-FedSAM", "CENTAUR"):
        default = ALGORITHMS.get(name).hyperparameters["head_rate"].default
        assert default == pytest.approx(math.sqrt(0.005 / 0.1 * 0.1 / 0.005))
    meaning = ALGORITHMS.get("HyperFL").hyperparameters["head_rate"].meaning
    assert f"{0.1 / 0.01:g} for grey images" in meaning
    assert f"{0.1 / 0.02:g} for colour" in meaning


def test_theorem_1_of_gdpfed_plus_fails_at_its_own_settings():
    """At the noise of Table 5 and the ratios of Table 1, in every group."""
    problem = problem_of(Spec.parse(load_yaml(preset("gdpfed-fmnist"), "preset")))
    rows = zip(
        RATIOS["gdpfed-fmnist"], OPTIMISED["gdpfed-fmnist"], problem.deltas, strict=True
    )
    for percent, square, delta in rows:
        release = Release(math.sqrt(square), percent / 100, problem.sampling)
        assert failed_conditions(
            History.repeated(release, problem.rounds), delta, problem.relation
        )


def test_dist1_has_negative_budgets():
    mean, deviation = TABLE_7["Dist1"][0].numbers
    assert stats.norm.cdf(0, mean, deviation) == pytest.approx(0.0228, abs=1e-4)


def scale_delta(epsilon, coordinates, ratio):
    """Hockey-stick divergence of N(0, 1) from N(0, ratio^2) in all coordinates.

    The ratio is above 1: the privacy loss falls with |x|^2, which has a chi-square law
    under both.
    """
    threshold = 2 * (coordinates * math.log(ratio) - epsilon) / (1 - ratio**-2)
    if threshold <= 0:
        return 0.0
    first = stats.chi2.cdf(threshold, coordinates)
    return float(
        first - math.exp(epsilon) * stats.chi2.cdf(threshold / ratio**2, coordinates)
    )


def test_an_unpaid_median_shows_in_the_scale_of_the_noise():
    """A lower bound on epsilon: what the noise of DP-FedPGN's round tells alone."""
    coordinates = model("resnet-18").parameters
    assert coordinates == 11_173_962
    epsilon = optimize.brentq(
        lambda x: scale_delta(x, coordinates, 1.001) - 1 / 500, 1.0, 100.0
    )
    assert epsilon == pytest.approx(23.9, abs=0.1)
    assert "epsilon 23.9" in " ".join(
        (ALGORITHMS.get("DP-FedPGN").function.__doc__ or "").split()
    )
    assert scale_delta(5.0, coordinates, 1.01) > 0.99  # by 1% it is all but certain
