"""Compositions of equal releases: every fault at once, default delta, calibrated unknowns."""

import pytest
from scipy.special import ndtr

from privplan.accounting.calibrate import MOST_ROUNDS
from privplan.accounting.certificate import composition
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.errors import InputError

CELL = {"sampling": "poisson", "relation": "add_remove"}


def test_a_composition_is_a_repeated_release():
    made = composition(1.5, 0.02, 50, delta=1e-5, clients=None, **CELL)
    assert made.history == History.repeated(Release(1.5, 0.02), 50)
    full = composition(1.5, None, 2, delta=1e-5, clients=None, sampling="full", relation="zero_out")
    assert full.history == History.repeated(Release(1.5, 1.0, SamplingLaw.FULL), 2)
    assert full.title == "epsilon at delta 1e-05, full sampling, zero_out"


def test_delta_is_a_power_of_the_population_by_default():
    assert composition(1, 0.1, 5, delta=None, clients=6000, **CELL).delta == 6000**-1.1
    assert composition(1, 0.1, 5, delta=1e-4, clients=6000, **CELL).delta == 1e-4


def test_every_fault_is_reported_at_once():
    with pytest.raises(InputError) as caught:
        composition(0.0, 2.0, MOST_ROUNDS + 1, delta=None, clients=0, **CELL)
    fields = [fault.field for fault in caught.value.faults]
    assert fields == ["sampling_ratio", "noise_multiplier", "rounds", "clients", "delta"]


def test_bounds_on_attacks_of_one_gaussian_release():
    full = composition(2.0, 1.0, 1, delta=1e-5, clients=None, sampling="full", relation="zero_out")
    [row], curve = full.tradeoff()
    assert row.guarantee
    assert curve.advantage == pytest.approx(2 * ndtr(0.25) - 1, rel=2e-3)
    bounds = curve.to_dict()
    assert bounds["gdp_mu"] == curve.mu
    assert bounds["tpr_at_fpr_0.01"] == curve.true_positives[1]
