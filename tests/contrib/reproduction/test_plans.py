"""Tables of plans against the papers' numbers, by the command."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.contrib.reproduction import gdpfed_plus as printed
from privplan.contrib.reproduction.papers import gdpfed_plus
from privplan.contrib.reproduction.robust_hdp import noise_scale
from tests.planning.published import papertables


def reproduced(name: str, folder: Path) -> tuple[dict[tuple[str, str], Any], dict[str, str]]:
    """Cells by row and column, and verdicts by claim."""
    done = CliRunner().invoke(main, ["reproduce", name, "--format", "json", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert json.loads((folder / f"{name}.json").read_text())["cells"] == found["cells"]
    cells = {(one["row"], one["column"]): one for one in found["cells"]}
    return cells, {one["claim"]: one["verdict"] for one in found["claims"]}


def test_printed_numbers_agree_with_a_second_transcription():
    """Those of the planner's tests."""
    for column, ratios in printed.RATIOS.items():
        name = f"gdpfed-{column.lower().replace('-', '')}"
        assert ratios == papertables.RATIOS[name]
        assert printed.UNIFORM_NOISE[column] == papertables.UNIFORM[name]
        assert printed.OPTIMISED_NOISE[column] == papertables.OPTIMISED[name]


def test_table_5_of_gdpfed_plus(tmp_path):
    """All but sigma^2 of Shakespeare's optimised row come out; Lambda has two scales."""
    cells, verdicts = reproduced("gdpfed-plus-table-5", tmp_path)
    off = {
        key
        for key, one in cells.items()
        if one["published"] is not None and abs(one["values"][0] - one["published"]) > 0.006
    }
    assert off == {(f"GDPFed+, sigma^2 of group {group}", "Shakespeare") for group in (1, 2, 3)}
    [weighted] = cells["GDPFed, Lambda with weights", "FMNIST"]["values"]
    assert weighted == pytest.approx(1.5**2 / 3 * (2.26 + 0.90 + 0.53) / 3, abs=0.002)
    assert list(verdicts.values()) == ["not reproduced", "contradicted"]


def test_figure_2_of_gdpfed_plus(tmp_path):
    """Equal budgets of 1.5 have equal ratios; all columns keep the cohort of 2%."""
    cells, verdicts = reproduced("gdpfed-plus-figure-2", tmp_path)
    assert list(verdicts.values()) == ["order reproduced", "reproduced"]
    for first in (0.25, 1.0, 1.5):
        column = f"epsilon_1 = {first:g}"
        ratios = [cells[f"q{group}, FMNIST", column]["values"][0] for group in "123"]
        assert sum(ratios) / 3 == pytest.approx(2.0)


def test_settings_of_dp_fedpgn_and_dp2_fedsam(tmp_path):
    """sigma 0.8, q 0.1, T 300, delta 1/500: 13.46 by Poisson sampling, 76.97 by fixed cohorts.

    Theorem 2 at epsilon 1: sigma^2 = 7 * 0.05^2 * 200 (1 + 2 log 1000).
    """
    cells, verdicts = reproduced("dp-fedpgn-privacy", tmp_path)
    poisson, fixed = (
        cells[f"epsilon, {law}, add/remove", "sigma = 0.8"]["values"][0]
        for law in ("Poisson sampling", "cohorts of fixed size")
    )
    assert (poisson, fixed) == pytest.approx((13.459, 76.963), abs=0.003)
    assert list(verdicts.values()) == ["contradicted"]
    cells, verdicts = reproduced("dp2-fedsam-privacy", tmp_path)
    [noise] = cells["noise multiplier of Theorem 2", "N = 1000, epsilon = 1"]["values"]
    assert noise == pytest.approx(math.sqrt(3.5 * (1 + 2 * math.log(1000))))
    assert list(verdicts.values()) == ["reproduced", "contradicted"]


def test_the_noise_of_hyperfl_is_none(tmp_path):
    """sigma 1e-5 over 200 rounds: mu^2 / 2 = 200 / (2e-10)."""
    cells, verdicts = reproduced("hyperfl-privacy", tmp_path)
    [found] = cells.values()
    assert found["values"] == [pytest.approx(1e12)]
    assert list(verdicts.values()) == ["contradicted"]


@pytest.mark.slow
def test_noise_of_robust_hdp(tmp_path):
    """Table 3's order, and its size: 4 times ours, as with twice the noise multiplier."""
    cells, verdicts = reproduced("robust-hdp-table-3", tmp_path)
    assert list(verdicts.values()) == ["order reproduced", "order reproduced", "not reproduced"]
    ratios = [one["published"] / statistics.fmean(one["values"]) for one in cells.values()]
    assert statistics.median(ratios) == pytest.approx(4, rel=0.1)
    loosest = 75 * (3 * noise_scale(0.5, 32) / 32) ** 2 / 20  # equal budgets and batches of 32
    strictest = 75 * (3 * noise_scale(0.2, 32) / 32) ** 2 / 20
    even = statistics.fmean(cells["DPFedAvg", "Dist9"]["values"])
    assert loosest < even < 4 * strictest
    for name in ("figure-2", "figure-8", "figure-11"):
        _, verdicts = reproduced(f"robust-hdp-{name}", tmp_path)
        assert "order reproduced" in verdicts.values()


def test_the_reduced_size_keeps_noise_and_privacy():
    """Clipping norm over cohort, ratios, delta and rounds are those of the preset."""
    small, full = gdpfed_plus.smaller(3000), gdpfed_plus.spec_of("FMNIST")
    assert small["clipping_norm"] / small["cohort"] == full["clipping_norm"] / full["cohort"]
    clients = [sum(group["clients"] for group in one["groups"]) for one in (small, full)]
    assert small["cohort"] / clients[0] == full["cohort"] / clients[1]
    assert small["delta"] == pytest.approx(clients[1] ** -1.1)
    assert small["rounds"] == full["rounds"]
