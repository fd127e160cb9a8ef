"""The findings of docs/paper-audit.md: each has a test, and these are its own."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from scipy import optimize, stats

from privplan.accounting.closed_form import failed_conditions
from privplan.accounting.release import History, Release
from privplan.contrib.reproduction.epsilon_distribution import TABLE_7
from privplan.files import load_yaml
from privplan.planning.problem import problem_of
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.algorithms.registry import ALGORITHMS
from simulate.models.registry import model
from tests.planning.published.papertables import OPTIMISED, RATIOS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "paper-audit.md").read_text(encoding="utf-8")


def test_every_finding_names_a_test_that_exists():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line][1:]
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


def scale_delta(epsilon: float, coordinates: int, ratio: float) -> float:
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
