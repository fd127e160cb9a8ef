"""What each kind of error costs, and the insurance that the default h is."""

import warnings

import numpy as np
import pytest

from privplan.planning.choices import optimised, task_of
from privplan.planning.error import terms
from privplan.planning.objectives import (
    heterogeneity_of,
    objective_of,
    variance_coefficients,
)
from privplan.planning.problem import problem_of
from privplan.planning.search import allocate
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.values import LARGEST
from privplan.yaml_text import load_yaml
from tests.planning.problems import make_spec

CONSTANTS = {"smoothness": 8.0, "initial_gap": 2.0}


def balanced(**planning):
    return make_spec(planning={"accountant": "rdp", "ratios": "balanced", **planning})


def test_variance_averages_over_the_rounds_when_no_curvature_is_known():
    assert variance_coefficients(balanced()) == (0.1, 0.1)


def test_variance_costs_the_curvature_that_it_meets():
    """Local training has length 0.1 x 5; unmeasured curvature is the smoothness."""
    assert variance_coefficients(balanced(constants=CONSTANTS)) == pytest.approx(
        (4.0, 4.0)
    )
    measured = {**CONSTANTS, "noise_curvature": 0.01, "sampling_curvature": 3.0}
    assert variance_coefficients(balanced(constants=measured)) == pytest.approx(
        (0.005, 1.5)
    )


def test_price_of_noise_is_what_a_quadratic_loses():
    """Isotropic noise of variance v per coordinate costs v tr(H) / 2 of the objective.

    One step of length gamma earns gamma / 2 times a squared gradient, so in squared
    norm of an update (gamma^2 times a gradient's) the noise d v costs gamma tr(H) / d
    times d v.
    """
    curvatures = np.array([4.0, 1.0, 0.5, 0.25, 0.25])
    variance = 0.3
    gamma = 0.5
    noise = np.random.default_rng(0).normal(0, variance**0.5, (200_000, 5))
    lost = float(np.mean(noise**2 @ curvatures / 2))
    constants = {**CONSTANTS, "noise_curvature": float(curvatures.mean())}
    price, _ = variance_coefficients(balanced(constants=constants))
    assert price * 5 * variance == pytest.approx(
        lost / (gamma / 2) * gamma**2, rel=0.01
    )


def test_default_h_is_a_sixth_of_the_clipping_norm():
    spec = make_spec(
        clipping_norm=3.0, planning={"accountant": "rdp", "ratios": "balanced"}
    )
    assert heterogeneity_of(spec) == 0.5
    assert objective_of(spec).coefficients(spec, problem_of(spec)).bias == 0.25


@pytest.mark.slow
def test_the_largest_h_is_planned_without_overflow():
    spec = balanced(heterogeneity=LARGEST)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice = optimised(spec, problem_of(spec))
    assert choice.weights.tolist() == pytest.approx([0.4, 0.6])


def test_default_h_of_separate_releases_keeps_every_group():
    """At a sixth the strictest group of the preset would get no weight at all."""
    data = load_yaml(preset("gdpfed-fmnist"), "preset")
    spec = Spec.parse(
        {**data, "planning": {"accountant": "rdp", "release": "per_group"}}
    )
    assert heterogeneity_of(spec) == data["clipping_norm"] / 3
    assert allocate(task_of(spec, problem_of(spec))).weights.min() > 0.1


def test_default_h_regrets_little_whatever_h_is_up_to_a_third():
    """At both ends, 0 and C / 3, the default plan loses at most 20% to knowing h."""
    data = load_yaml(preset("gdpfed-fmnist"), "preset")

    def task(heterogeneity):
        planning = {} if heterogeneity is None else {"heterogeneity": heterogeneity}
        defaults = {"accountant": "rdp", "least_share": 0.0}
        spec = Spec.parse({**data, "planning": {**defaults, **planning}})
        return task_of(spec, problem_of(spec))

    chosen = allocate(task(None))
    regrets = []
    for true_heterogeneity in (0.0, data["clipping_norm"] / 3):
        true_task = task(true_heterogeneity)

        def error(choice, coefficients=true_task.coefficients):
            split = (choice.weights, choice.cohorts, choice.noise)
            return terms(*split, coefficients, "joint").total

        default_error = error(chosen)
        least_error = error(allocate(true_task))
        regrets.append(default_error / least_error - 1)
    assert all(0.01 < regret < 0.2 for regret in regrets)
    assert regrets[0] == pytest.approx(regrets[1], abs=0.06)
