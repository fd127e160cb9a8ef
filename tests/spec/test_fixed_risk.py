"""Fixed noise with a risk: the group's own curve decides what is kept, not a Gaussian tangent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.tradeoff import advantage_point, profile_of, tightest_budget
from privplan.errors import InfeasibleError
from privplan.planning.explain import risks_of, unspent_lines
from privplan.planning.solver import solve
from privplan.spec.spec import Spec

BASE: dict[str, Any] = {
    "name": "risk",
    "planning": {"ratios": "uniform"},
    "model": {"name": "mlp-digits", "parameters": 2410},
}
RISK = {"true_positives": 0.11, "false_positives": 0.01}


def spec(clients: int, noise: float | None, risk: dict[str, float], **more: Any) -> Spec:
    group = {"name": "a", "clients": clients, "risk": risk}
    fixed = {} if noise is None else {"noise_multiplier": noise}
    return Spec.parse({**BASE, **more, "groups": [{**group, **fixed}]})


def test_noise_that_a_plan_found_keeps_the_risk_when_it_is_fixed() -> None:
    """Three ways of one question: the noise, whether it is kept, and for how many rounds."""
    found = solve(spec(3000, None, RISK, rounds=5, cohort=300)).groups[0].noise_multiplier
    fixed = solve(spec(3000, found, RISK, rounds=5, cohort=300))
    assert fixed.groups[0].noise_multiplier == found
    assert unspent_lines(fixed) == []
    assert spec(3000, found, RISK, cohort=300).rounds == 5
    with pytest.raises(InfeasibleError, match=r"groups\.a\.risk: .* cannot be met"):
        solve(spec(3000, 0.97 * found, RISK, rounds=5, cohort=300))


@pytest.mark.parametrize(
    ("noise", "ratio", "rounds"), [(0.6, 40 / 3000, 20), (1.0, 40 / 300, 78), (2.0, 1.0, 7)]
)
def test_an_advantage_is_kept_up_to_that_of_another_library(
    noise: float, ratio: float, rounds: int
) -> None:
    """One percent above delta at epsilon 0 by dp-accounting is kept, one percent below refused."""
    loss = pld.from_gaussian_mechanism(
        noise, value_discretization_interval=1e-4, sampling_prob=ratio
    ).self_compose(rounds)
    true = float(loss.get_delta_for_epsilon(0.0))
    asked = {"rounds": rounds, "cohort": 3000 * ratio}
    plan = solve(spec(3000, noise, {"advantage": 1.01 * true}, **asked))
    assert risks_of(plan)[0].curve.advantage == pytest.approx(true, rel=2e-3)
    with pytest.raises(InfeasibleError, match="cannot be met"):
        solve(spec(3000, noise, {"advantage": 0.99 * true}, **asked))


def test_the_most_rounds_keep_the_risk_and_one_more_does_not() -> None:
    most = spec(300, 1.0, {"advantage": 0.5}, cohort=40).rounds
    release = Release(1.0, 40 / 300, SamplingLaw("poisson"))
    risks = [
        float(profile_of(History.repeated(release, n), Relation("add_remove"))(np.zeros(1))[0])
        for n in (most, most + 1)
    ]
    assert risks[0] <= 0.5 < risks[1]


def test_the_budget_of_an_advantage_is_kept_where_a_quarter_of_the_tangent_is_not() -> None:
    """Sampled rounds have a curve that is steeper near epsilon 0 than the Gaussian one."""
    history = History.repeated(Release(0.6, 40 / 3000, SamplingLaw("poisson")), 20)
    profile = profile_of(history, Relation("add_remove"))
    advantage = float(profile(np.zeros(1))[0])
    point = advantage_point(1.005 * advantage)
    _, (epsilon, delta) = tightest_budget(point, profile)
    assert float(profile(np.array([epsilon]))[0]) <= delta
