"""Every number in docs/sharp-edges.md, recomputed."""

import math
import re
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.calibrate import (
    noise_multiplier,
    noise_multiplier_by_bisection,
)
from privplan.accounting.closed_form import (
    ClosedFormAccountant,
    conditions,
    failed_conditions,
)
from privplan.accounting.closed_form import noise_multiplier as theorem_one
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.planning.adaptive_clipping import update_noise

TEXT = (Path(__file__).parents[2] / "docs" / "sharp-edges.md").read_text()
AR = Relation.ADD_REMOVE
RO = Relation.REPLACE_ONE
FMNIST = 6000**-1.1


@cache
def section(title):
    """One section of the page, without line breaks."""
    sections = [part for part in TEXT.split("\n## ")[1:] if part.startswith(title)]
    assert len(sections) == 1, title
    return " ".join(sections[0].split())


def assert_says(title, *numbers):
    """The page prints these numbers, in bold or in a table, to the digits it prints."""
    values = []
    marked = re.findall(r"\*\*\[?([^*]*?)\]?\*\*|\| ([\d.]+) (?=\|)", section(title))
    for bold, cell in marked:
        values += map(float, re.findall(r"\d[\d.]*(?:e-?\d+)?", bold or cell))
    for number in numbers:
        assert any(
            abs(value - number) <= 0.51 * 10.0 ** (math.floor(math.log10(value)) - 2)
            for value in values
        ), (number, values)


def epsilon(
    sigma, q, rounds, delta, law="poisson", relation=AR, accountant_name="dp_accounting"
):
    history = History.repeated(Release(sigma, q, SamplingLaw(law)), rounds)
    bounds: Interval = accountant(accountant_name).epsilon(history, delta, relation)
    return bounds.upper


def test_the_sampling_law():
    title = "The sampling law"
    for sigma, q, rounds, delta in (
        (math.sqrt(2.262), 0.02, 50, FMNIST),
        (0.8, 0.1, 300, 0.002),
    ):
        for law in ("poisson", "fixed_size"):
            assert_says(
                title, epsilon(sigma, q, rounds, delta, law, accountant_name="pld")
            )


def test_replace_one():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    theirs = RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    ).compose(dp_accounting.GaussianDpEvent(2.0), 10)
    exact = epsilon(2.0, 1.0, 10, 1e-5, "full", RO, accountant_name="gdp")
    assert_says("Replace-one", exact, theirs.get_epsilon(1e-5))
    assert epsilon(2.0, 1.0, 10, 1e-5, "full", RO, accountant_name="rdp") > exact


def test_a_fixed_grid():
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    event = dp_accounting.PoissonSampledDpEvent(
        0.001, dp_accounting.GaussianDpEvent(2.0)
    )
    for grid in (1e-3, 1e-4):
        theirs = PLDAccountant(value_discretization_interval=grid).compose(
            event, 10_000
        )
        assert_says("A fixed grid", theirs.get_epsilon(1e-6))
    assert_says(
        "A fixed grid", epsilon(2.0, 0.001, 10_000, 1e-6, accountant_name="pld")
    )


@pytest.mark.slow
def test_prv_misses_the_truth():
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    def ask(sigma, rounds, delta):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return PRVAccountant(
                prvs=PoissonSubsampledGaussianMechanism(0.1, sigma),
                eps_error=0.01,
                delta_error=delta / 1000,
                max_self_compositions=rounds,
            ).compute_epsilon(delta, [rounds])

    lower, _, upper = ask(0.8, 300, 1 / 500)
    assert f"[{lower:.3f}, {upper:.3f}]" in section("prv-accountant's interval")
    truth = accountant("pld").epsilon(
        History.repeated(Release(0.8, 0.1), 300), 1 / 500, AR
    )
    assert truth.upper < lower
    assert truth.upper >= 13.452
    assert truth.lower <= 13.459
    with pytest.raises(RuntimeError):
        ask(0.5, 100, 1e-5)


def test_renyi_overspends():
    for accountant_name in ("rdp", "pld"):
        assert_says(
            "Rényi",
            epsilon(
                math.sqrt(1.42), 0.0069, 50, FMNIST, accountant_name=accountant_name
            ),
        )


def test_the_central_limit():
    assert "the truth is 0.368" in section("The central limit")
    assert_says(
        "The central limit",
        epsilon(math.sqrt(2.262), 0.02, 50, FMNIST, accountant_name="gdp"),
    )


def test_a_calibrators_tolerance():
    keep = {"sampling_ratio": 0.05, "rounds": 100, "accountant": "rdp"}
    assert_says(
        "A calibrator's", noise_multiplier_by_bisection(0.5, FMNIST, **keep) ** 2
    )
    assert_says("A calibrator's", noise_multiplier(0.5, FMNIST, **keep) ** 2)


def test_theorem_one():
    title = "Theorem 1's closed form"
    (failed,) = conditions(0.5, FMNIST, 0.0069, theorem_one(0.5, FMNIST, 0.0069, 50))
    limit, alpha = re.findall(r"at most ([\d.]+), found ([\d.]+)", failed)[0]
    assert_says(title, float(limit), float(alpha))
    history = History.repeated(Release(0.9, 0.001), 170_000)
    assert failed_conditions(history, 1e-3, AR) == []
    claimed = ClosedFormAccountant().epsilon(history, 1e-3, AR).upper
    poisson = epsilon(0.9, 0.001, 170_000, 1e-3, accountant_name="pld")
    fixed = epsilon(0.9, 0.001, 170_000, 1e-3, "fixed_size", accountant_name="pld")
    assert poisson < claimed < fixed
    assert_says(title, claimed, poisson, fixed)
    cohort = History.repeated(Release(0.9, 0.001, SamplingLaw.FIXED_SIZE), 170_000)
    assert ClosedFormAccountant().epsilon(cohort, 1e-3, AR).upper > claimed


def test_dropouts():
    # 25 of 100 equal shares of the variance.
    remaining_noise = 2.0 * math.sqrt(25 / 100)
    assert_says("Dropouts", remaining_noise)
    for sigma in (2.0, remaining_noise):
        assert_says(
            "Dropouts",
            epsilon(sigma, 0.1, 50, 1e-5, "fixed_size", accountant_name="pld"),
        )


def test_data_dependent_clipping():
    assert f"**{update_noise(1.0, 5.0):.5f}**" in section("Data-dependent clipping")


def test_delta():
    assert f"**{600**-1.1:.2e}**".replace("e-04", "e-4") in section(
        "Delta must be below"
    )
