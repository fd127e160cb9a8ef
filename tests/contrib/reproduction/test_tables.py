"""Tables of the papers: claims, plans and runs by the command, and findings of the audit."""

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
    """A result from values by row, by column; a tuple is values, printed number and its error."""
    found = []
    for column, rows in columns.items():
        for row, given in rows.items():
            single = np.ndim(given if np.isscalar(given) else given[0]) == 0
            values, *printed = (
                (given,) if single and not isinstance(given, tuple) else given
            )
            values = values if isinstance(values, list) else [values]
            known = dict(zip(("published", "published_error"), printed, strict=False))
            found.append(claims.Cell(row=row, column=column, values=values, **known))
    return claims.Result(table="t", size=size, seeds=seeds, cells=found)


def leads(values, size="full", printed=2.0):
    """One row that leads another one, at 70 in all seeds, by the values."""
    high = ([70 + one for one in values], 70 + printed, 0.1)
    rows = {"high": high, "low": ([70.0] * len(values), 70.0, 0.1)}
    return cells(size=size, seeds=tuple(range(len(values))), c=rows)


LEAD = claims.Claim("above", claims.Differences(claims.ahead([("high", "low")])))


def verdict(rule, result):
    [found] = claims.verdicts([claims.Claim("a claim", rule)], result)
    return found.verdict


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
    [found] = claims.verdicts([LEAD], leads(values, size))
    assert found.verdict == expected
    if len(values) > 1:
        assert f"p {stats.ttest_1samp(values, 0.0).pvalue:.2g}" in found.evidence


def test_a_margin_allows_a_small_difference():
    rule = claims.Differences(claims.ahead([("high", "low")]), margin=3.0)
    assert verdict(rule, leads((-1.0, -1.1, -1.2), "reduced")) == ORDER
    assert verdict(rule, leads((-4.0, -4.1, -4.2), "reduced")) == NOT_REPRODUCED


def test_what_was_not_run_is_said():
    """Of three rows two were run: a lead over all is not known, but a lead below one is."""
    rule = claims.Differences(claims.ahead([("high", "low"), ("high", "absent")]))
    assert verdict(rule, leads((2.0, 2.1, 2.2))) == NOT_RUN
    assert verdict(rule, leads((-2.0, -2.1, -2.2))) == NOT_REPRODUCED
    assert (
        verdict(
            claims.Differences(claims.ahead([("absent", "low")])), leads((1.0, 2.0))
        )
        == NOT_RUN
    )


def test_welch_where_seeds_are_not_shared():
    """Against scipy's test with unequal variances."""
    high, low = [73.0, 75.1, 74.2, 74.4], [71.0, 73.5, 72.1]
    found = claims.difference(("", [(1, "high", "c"), (-1, "low", "c")]),
                       cells(seeds=(0, 1, 2), c={"high": high, "low": low}))  # fmt: skip
    known = stats.ttest_ind(high, low, equal_var=False)
    assert (found.p, found.freedom) == pytest.approx((known.pvalue, known.df))


def test_holm_over_the_claims_of_a_table():
    """By hand, from p-values p1 < p2 < p3: 3 p1, 2 p2 and p3, none below the one before."""
    columns = {"a": [1.0, 1.1, 1.3], "b": [1.0, 1.5, 1.9], "c": [0.2, 1.0, 2.5]}
    result = cells(seeds=(0, 1, 2), **{
        name: {"high": values, "low": [0.0] * 3} for name, values in columns.items()
    })  # fmt: skip
    rules = [
        claims.Differences(claims.ahead([("high", "low")], columns=name))
        for name in columns
    ]
    p = [stats.ttest_1samp(values, 0.0).pvalue for values in columns.values()]
    assert p == sorted(p)
    adjusted = np.maximum.accumulate([3 * p[0], 2 * p[1], p[2]])
    found = claims.verdicts([claims.Claim("", rule) for rule in rules], result)
    for one, value in zip(found, adjusted, strict=True):
        assert f"p {value:.2g}" in one.evidence
    assert [one.verdict for one in found] == [ORDER, UNDECIDED, UNDECIDED]
    assert verdict(rules[1], result) == ORDER  # alone p2 is enough


def test_the_seeds_that_would_decide():
    """At the mean and spread of three seeds, p falls below the level at that number."""
    [found] = claims.verdicts([LEAD], leads([0.0, 2.0, 4.0]))
    many = int(re.search(r"(\d+) seeds would decide", found.evidence)[1])
    p = [2 * stats.t.sf(2.0 / (2.0 / math.sqrt(n)), n - 1) for n in (many - 1, many)]
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
    """Leads of x over y, or its values, printed as 5 over 1; few seeds with a large spread."""
    for columns, spread, expected in (
        (right, 0.01, ORDER), (wrong, 0.01, NOT_REPRODUCED), (right, 9.0, UNDECIDED),
    ):  # fmt: skip
        result = cells(seeds=(0, 1, 2), size="reduced", **{
            name: {"x": ([at, at + spread, at + (1 + at) * spread], 5.0), "y": ([0.0] * 3, 1.0)}
            for name, at in columns.items()
        })  # fmt: skip
        assert verdict(claims.Differences(rule), result) == expected
    assert verdict(claims.Differences(rule), cells(a={"z": 1}, b={"z": 1})) == NOT_RUN
    exact = {
        name: {"x": (value, 5.0), "y": (0.0, 1.0)} for name, value in right.items()
    }
    assert verdict(claims.Differences(rule), cells(**exact)) == ORDER


EMPTY = cells(a={"nothing": 1.0})


def test_each_rule_of_computed_numbers_has_each_outcome():
    found = {
        claim.rule.__name__: claim.rule
        for one in stored.tables()
        for claim in one.claims
        if not isinstance(claim.rule, claims.Differences)
        and claim.rule.__name__ != "judge"
    }
    known = load_yaml(
        (Path(__file__).parent / "outcomes.yaml").read_text("utf-8"), "outcomes"
    )
    assert set(found) == set(known)
    for name, results in known.items():
        for outcome, columns in results.items():
            assert verdict(found[name], cells(**columns)) == outcome, (name, outcome)
    for name in set(found) - {"is_private", "within_draws", "order_of_others"}:
        assert verdict(found[name], EMPTY) == NOT_RUN


def test_the_conditions_of_lemma_4_can_hold(monkeypatch):
    """Over 1,000 rounds in place of 200, at sigma 2."""
    monkeypatch.setattr(dp2_fedsam, "ROUNDS", 1000)
    rows = {"noise multiplier of Theorem 2": 2.0}
    columns = [f"N = {n}, epsilon = {e}" for n in (500, 1000) for e in (1, 2)]
    assert (
        verdict(dp2_fedsam.conditions, cells(**dict.fromkeys(columns, rows)))
        == REPRODUCED
    )


def test_printed_numbers_and_their_tolerance():
    near = cells(a={"x": (74.004, 74.0), "y": (71.996, 72.0)})
    assert verdict(claims.printed_within(0.005), near) == REPRODUCED
    assert verdict(claims.printed_within(0.003), near) == NOT_REPRODUCED
    assert verdict(claims.printed_within(0.003), EMPTY) == NOT_RUN


MEANS = {  # by hand: sum of weight times mean of Table 7
    "Dist1": 2.0, "Dist2": 1.64, "Dist3": 2.6, "Dist4": 0.74, "Dist5": 1.1,
    "Dist6": 0.51, "Dist7": 0.6, "Dist8": 0.32, "Dist9": 0.35,
}  # fmt: skip


@pytest.mark.parametrize("name", list(TABLE_7))
def test_the_means_of_table_7(name):
    """Means of 4,000 draws; what the paper's normal laws have below 0.1 is drawn again."""
    found = drawn(name, 4000, seed=1)
    assert found.min() >= 0.1
    assert np.all(np.diff(found) >= 0)
    allowed = (
        0.03 if name in ("Dist1", "Dist4") else 0.01
    )  # truncation moves these means
    error = 4 * found.std() / np.sqrt(len(found))
    assert abs(found.mean() - MEANS[name]) < allowed * MEANS[name] + error


def by_command(name, folder):
    """Cells by row and column, and verdicts by claim."""
    found = json.loads(answer("reproduce", name, "--format", "json", "-o", folder))
    assert json.loads((folder / f"{name}.json").read_text())["cells"] == found["cells"]
    by_head = {(one["row"], one["column"]): one for one in found["cells"]}
    return by_head, {one["claim"]: one["verdict"] for one in found["claims"]}


def test_table_5_of_gdpfed_plus(tmp_path):
    """All but sigma^2 of Shakespeare's optimised row come out; Lambda has two scales."""
    found, outcomes = by_command("gdpfed-plus-table-5", tmp_path)
    off = {
        key
        for key, one in found.items()
        if one["published"] is not None
        and abs(one["values"][0] - one["published"]) > 0.006
    }
    assert off == {
        (f"GDPFed+, sigma^2 of group {group}", "Shakespeare") for group in (1, 2, 3)
    }
    [weighted] = found["GDPFed, Lambda with weights", "FMNIST"]["values"]
    assert weighted == pytest.approx(1.5**2 / 3 * (2.26 + 0.90 + 0.53) / 3, abs=0.002)
    assert list(outcomes.values()) == ["not reproduced", "contradicted by proof"]


def test_settings_of_dp_fedpgn_and_dp2_fedsam(tmp_path):
    """sigma 0.8, q 0.1, T 300, delta 1/500: 13.46 by Poisson sampling, 76.96 by fixed cohorts.

    Theorem 2 at epsilon 1: sigma^2 = 7 * 0.05^2 * 200 (1 + 2 log 1000).
    """
    found, outcomes = by_command("dp-fedpgn-privacy", tmp_path)
    bounds = [
        found[f"{bound}, add/remove", "sigma = 0.8"]["values"][0]
        for bound in (
            "epsilon, Poisson sampling",
            "least epsilon, cohorts of fixed size",
        )
    ]
    assert bounds == pytest.approx([13.459, 76.963], abs=0.003)
    assert list(outcomes.values()) == ["contradicted by proof"]
    found, outcomes = by_command("dp2-fedsam-privacy", tmp_path)
    [noise] = found["noise multiplier of Theorem 2", "N = 1000, epsilon = 1"]["values"]
    assert noise == pytest.approx(math.sqrt(3.5 * (1 + 2 * math.log(1000))))
    assert list(outcomes.values()) == ["reproduced", "contradicted by proof"]


def test_the_noise_of_hyperfl_is_none(tmp_path):
    """sigma 1e-5 over 200 rounds: mu^2 / 2 = 200 / (2e-10)."""
    found, outcomes = by_command("hyperfl-privacy", tmp_path)
    [found] = found.values()
    assert found["values"] == [pytest.approx(1e12)]
    assert list(outcomes.values()) == ["contradicted by proof"]


@pytest.mark.slow
def test_noise_of_robust_hdp(tmp_path):
    """Table 3's order, and its size: 4 times ours, as with twice the noise multiplier."""
    found, outcomes = by_command("robust-hdp-table-3", tmp_path)
    assert list(outcomes.values()) == ["order reproduced", "not reproduced"]
    ratios = [
        one["published"] / statistics.fmean(one["values"]) for one in found.values()
    ]
    assert statistics.median(ratios) == pytest.approx(4, rel=0.1)
    loosest = (
        75 * (3 * noise_scale(0.5, 32) / 32) ** 2 / 20
    )  # equal budgets and batches of 32
    strictest = 75 * (3 * noise_scale(0.2, 32) / 32) ** 2 / 20
    assert (
        loosest < statistics.fmean(found["DPFedAvg", "Dist9"]["values"]) < 4 * strictest
    )
    for name in ("figure-2", "figure-5", "figure-8", "figure-11"):
        _, outcomes = by_command(f"robust-hdp-{name}", tmp_path)
        assert "order reproduced" in outcomes.values()


def test_pictures_have_lines_by_number_and_rows_beside_the_printed_ones(tmp_path):
    answer(
        "reproduce", "robust-hdp-figure-8", "-o", tmp_path, "--plot", tmp_path / "8.svg"
    )
    assert "<svg" in (tmp_path / "8.svg").read_text()
    columns = {f"Dist4, rate {one}": {"x": (one, 9.0)} for one in (0.5, 1.5, 5.0)} | {
        "D": {"y": 7}
    }
    panels = [
        *panels_of(stored.table_of("robust-hdp-table-13-rates"), cells(**columns))
    ]
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
        "toy-table-1", "Table 1", trained={"reduced": lambda: settings(clipping_norm)},
        printed={("DP-FedAvg", "digits"): (50.0, 0.5)},
    )  # fmt: skip


def refuse(arguments):
    raise AssertionError(f"trained again: {arguments}")


def test_runs_are_trained_once_and_resume(tmp_path):
    shown: list[int] = []
    first = run_table(
        table(), "reduced", 1, tmp_path, execute,
        finished=lambda one, cell: shown.append(len(one.cells)),
    )  # fmt: skip
    assert shown == [1, 2]
    assert [cell.row for cell in first.cells] == ["DP-FedAvg", "DP-FedSAM, rho 0.2"]
    record = json.loads(
        (tmp_path / "runs/digits/DP-FedAvg/seed-0/record.json").read_text()
    )
    cell = first.cells[0]
    assert cell.values == (100 * record["accuracy"],)
    assert (cell.published, cell.published_error) == (50.0, 0.5)
    assert all(
        0 < (spent or 9) <= 2 for spent in cell.spent.values()
    )  # the strictest budget
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


def test_weights_are_compared_with_those_of_the_least_noise(tmp_path):
    """By hand: the oracle has them; those of DPFedAvg are equal, those of Robust-HDP recorded."""
    spec = load_yaml(
        (ROOT / "tests/golden/specs/records-digits.yaml").read_text(), "spec"
    )
    spec |= {
        "rounds": 2,
        "planning": {"accountant": "rdp", "weights": "inverse_variance"},
    }
    names = ("Robust-HDP-oracle", "DPFedAvg", "Robust-HDP")
    one = stored.Setting(
        "digits", spec, "digits", {name: stored.Method(name) for name in names}
    )
    measure = "distance of the weights to the optimal ones in percent"
    toy = stored.Table(
        "toy", "Toy", trained={"reduced": lambda: [one]}, measure=measure
    )
    found = [
        cell.mean for cell in run_table(toy, "reduced", 1, tmp_path, execute).cells
    ]
    strict, loose = _solved(json.dumps(spec)).groups
    groups = ((strict, 10, 4 / 8), (loose, 20, 6 / 4))  # batch size, clients over steps
    best = [many * (size / one.noise_multiplier) ** 2 for one, size, many in groups]
    best = best[0] / sum(best)
    record = json.loads(
        (tmp_path / "runs/digits/Robust-HDP/seed-0/record.json").read_text()
    )
    by_hand = [0.0, 100 * (0.4 - best), 100 * abs(record["weights"]["strict"] - best)]
    assert found == pytest.approx(by_hand, abs=1e-6)
    assert 0 < found[2] < found[1]


@pytest.mark.parametrize(
    ("score", "value"), [("PSNR in dB", 20.0), ("SSIM", 0.5), ("SSIM", None)]
)
def test_scores_of_an_attack(score, value, tmp_path):
    """SSIM needs scikit-image; without it the score is a word, and the run is refused."""
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
    for one in stored.tables():
        for size, make in one.trained.items():
            for setting in make():
                scheme(setting.partition)
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
                    assert built.parameters == spec.model.parameters, (
                        one.name,
                        size,
                        row,
                    )


SLOW = pytest.param("robust-hdp", marks=pytest.mark.slow)  # plans of 60 groups


@pytest.mark.parametrize(
    "paper", [*(one for one in stored.PAPERS.names() if one != "robust-hdp"), SLOW]
)
def test_stored_runs_are_of_todays_settings_and_plans(paper):
    """A setting, a default or a plan that changes makes the stored result of its row stale."""
    for one in stored.PAPERS.get(paper).tables:
        result = reproduction.stored(one)
        if result is None or not one.trained:
            continue
        for setting in one.trained[result.size]():
            for row, method in setting.methods.items():
                cell, described = (
                    result.at(row, setting.column),
                    _described(setting, row),
                )
                if cell is None:
                    continue
                plain = json.loads(json.dumps(described))
                assert result.configuration[setting.column][row] == plain, (
                    one.name,
                    row,
                )
                printed = one.printed.get((row, setting.column), (None, None))
                assert (cell.published, cell.published_error) == printed, (
                    one.name,
                    row,
                )
                # A group that states its noise has an epsilon of an accountant, whose last digits
                # follow the processor; the digest of such a spec is that of one machine.
                if not any(
                    "noise_multiplier" in group for group in described["spec"]["groups"]
                ):
                    assert cell.executed == executed_today(described, method), (
                        one.name,
                        row,
                    )


@pytest.mark.parametrize(
    "grid", [one.name for one in stored.tables() if one.trained and not one.claims]
)
def test_tuned_values_are_the_best_of_the_stored_grids(grid):
    """At seed 0, which is not judged, of each row and column."""
    result = reproduction.stored(stored.table_of(grid))
    own = [
        one for one in stored.tables() if one.first_seed and one.name[:8] == grid[:8]
    ]
    tuned = [
        one for one in own if one.name == grid.removesuffix("-rates") != grid
    ] or own
    tried = {}
    for cell in result.cells:
        column, name, value = re.fullmatch(r"(.*), (\w+) (\S+)", cell.column).groups()
        tried.setdefault((cell.row, column, name), {})[float(value)] = cell.mean
    settings = {
        one.column: one for table in tuned for one in table.trained["reduced"]()
    }
    ties = (
        reproduction.stored(stored.table_of("dp-fedpgn-ties")).cells
        if "pgn-table" in grid
        else ()
    )
    for cell in ties:  # rates within a point of the best: at seeds 6 and 7
        column, value = cell.column.split(", rate ")
        if (key := (cell.row, column, "rate")) in tried:
            tried[key][float(value)] = 100 + cell.mean
    for (row, column, name), values in tried.items():
        method = settings[column].methods[row]
        rate = {"rate": method.changes.get("local", {}).get("learning_rate")}
        assert {**rate, **method.hyperparameters}[name] == max(values, key=values.get)
    rows = {(row, one.column) for one in settings.values() for row in one.methods}
    assert not grid.endswith("-rates") or {key[:2] for key in tried} == rows


def executed_today(described, method):
    """The digest of the plan that the algorithm makes today, and of its numbers."""
    plan, entry = (
        _solved(json.dumps(described["spec"])),
        ALGORITHMS.get(method.algorithm),
    )
    if "attack" in described:  # of the plan that is attacked
        return stored.executed(plan, {})
    numbers = entry.complete(Hyperparameters("paper", method.hyperparameters)).values
    held = {group.name: group.records or 1 for group in plan.groups}
    return stored.executed(entry.plan(plan, held), numbers)


@pytest.mark.slow
def test_stored_numbers_of_plans_come_out_again():
    for one in stored.tables():
        result = reproduction.stored(one)
        if result is not None and one.planned:
            for cell in one.computed():
                known = result.at(cell.row, cell.column)
                assert known.model_copy(update={"values": cell.values}) == cell, (
                    one.name
                )
                assert known.values == pytest.approx(cell.values, rel=1e-6)


PAGE = (ROOT / "docs" / "evidence" / "reproduction.md").read_text(encoding="utf-8")


def test_the_pages_are_written_from_the_stored_results():
    for page, part in reproduction.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert reproduction.replaced(text, part()) == text
    for path, text in reproduction.ROWS.items():
        assert path.read_text(encoding="utf-8") == text()


def test_every_table_and_figure_of_the_five_papers_has_its_line():
    """As many tables and figures as the papers have."""
    counts = {"gdpfed-plus": (10, 2), "dp2-fedsam": (3, 7), "dp-fedpgn": (5, 8), "hyperfl": (5, 8),
              "robust-hdp": (22, 13)}  # fmt: skip
    assert set(counts) == set(stored.PAPERS.names())
    known = {one.name for one in stored.tables()}
    for paper, (many, figures) in counts.items():
        assert {f"{paper}-table-{number}" for number in range(1, many + 1)} <= known
        assert {f"{paper}-figure-{number}" for number in range(1, figures + 1)} <= known
    for one in stored.tables():
        assert not one.claims or f"| {one.title}" in PAGE
        assert one.claims or one.left_out or one.trained


AUDIT = (ROOT / "docs" / "evidence" / "paper-audit.md").read_text(encoding="utf-8")


def test_every_finding_names_a_test_that_exists():
    rows = [
        line
        for line in AUDIT.splitlines()
        if line.startswith("| ") and "---" not in line
    ][1:]
    assert len(rows) >= 8
    for row in rows:
        found = re.findall(r"`(tests/[^`:]+\.py)(?:::(\w+))?`", row)
        assert found, row
        for file, name in found:
            assert not name or f"def {name}(" in (ROOT / file).read_text(
                encoding="utf-8"
            ), row


def test_the_rates_of_heads():
    """0.005 / 0.1 in words, 0.1 / 0.005 in symbols: the default is their geometric mean."""
    for name in ("DP2-FedSAM", "P-FedSAM", "CENTAUR"):
        default = ALGORITHMS.get(name).hyperparameters["head_rate"].default
        assert default == pytest.approx(math.sqrt(0.005 / 0.1 * 0.1 / 0.005))
    meaning = ALGORITHMS.get("HyperFL").hyperparameters["head_rate"].meaning
    assert f"{0.1 / 0.01:g} for grey images" in meaning
    assert f"{0.1 / 0.02:g} for colour" in meaning


def test_theorem_1_of_gdpfed_plus_fails_at_its_own_settings():
    """At the noise of Table 5 and the ratios of Table 1, in every group."""
    given = problem_of(Spec.parse(load_yaml(preset("gdpfed-fmnist"), "preset")))
    rows = zip(
        RATIOS["gdpfed-fmnist"], OPTIMISED["gdpfed-fmnist"], given.deltas, strict=True
    )
    for percent, square, delta in rows:
        release = Release(math.sqrt(square), percent / 100, given.sampling)
        assert failed_conditions(
            History.repeated(release, given.rounds), delta, given.relation
        )


def test_dist1_has_negative_budgets():
    mean, deviation = TABLE_7["Dist1"][0].numbers
    assert stats.norm.cdf(0, mean, deviation) == pytest.approx(0.0228, abs=1e-4)


def scale_delta(epsilon, coordinates, ratio):
    """Hockey-stick divergence of N(0, 1) from N(0, ratio^2) in all coordinates, ratio above 1.

    The privacy loss falls with |x|^2, which has a chi-square law under both.
    """
    threshold = 2 * (coordinates * math.log(ratio) - epsilon) / (1 - ratio**-2)
    if threshold <= 0:
        return 0.0
    first = stats.chi2.cdf(threshold, coordinates)
    return float(
        first - math.exp(epsilon) * stats.chi2.cdf(threshold / ratio**2, coordinates)
    )


def test_an_unpaid_median_shows_in_the_scale_of_the_noise():
    """A lower bound on epsilon: what the noise of DP-FedPGN's round tells without its update."""
    coordinates = model("resnet-18").parameters
    assert coordinates == 11_173_962
    found = optimize.brentq(
        lambda x: scale_delta(x, coordinates, 1.001) - 1 / 500, 1.0, 100.0
    )
    assert found == pytest.approx(23.9, abs=0.1)
    assert "epsilon 23.9" in " ".join(
        (ALGORITHMS.get("DP-FedPGN").function.__doc__ or "").split()
    )
    assert scale_delta(5.0, coordinates, 1.01) > 0.99  # by 1% it is all but certain
