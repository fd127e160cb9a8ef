"""Time-adaptive plans: savings by round, composed, within every budget."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.accounting.accountant import accountant
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from privplan.planning.baselines import individual_sample, time_adaptive
from privplan.report.tables import plan_table
from tests.planning.problems import make_spec, members


def spent(plan: Plan) -> list[float]:
    return [row.epsilon_upper for row in plan.certificate if row.guarantee]


def test_the_default_saves_in_the_first_half_at_half_the_ratio() -> None:
    plan = time_adaptive(make_spec())
    for group in plan.groups:
        early, late = group.segments or ()
        assert (early.rounds, late.rounds) == (5, 5)
        assert early.sampling_ratio == pytest.approx(late.sampling_ratio / 2)
        assert early.noise_multiplier == late.noise_multiplier == group.noise_multiplier
        mean = (early.sampling_ratio + late.sampling_ratio) / 2
        assert group.sampling_ratio == pytest.approx(mean)
        assert group.expected_cohort == pytest.approx(mean * group.clients)
        assert plan.at_round(group, 5) == (early.sampling_ratio, early.noise_multiplier)
        assert plan.at_round(group, 6) == (late.sampling_ratio, late.noise_multiplier)
    assert len({group.noise_multiplier for group in plan.groups}) == 1
    assert sum(group.expected_cohort for group in plan.groups) == pytest.approx(50, rel=1e-3)
    assert Plan.parse(json.loads(plan.to_json())) == plan
    assert "rounds x q" in plan_table(plan)[1]


@pytest.mark.slow
@given(st.floats(0, 0.9), st.floats(0.05, 1), st.floats(0.5, 3), st.floats(1.0, 4))
@settings(max_examples=6, deadline=None)
def test_every_budget_is_kept_and_used_up(
    rounds: float, factor: float, epsilon: float, more: float
) -> None:
    groups = [members("strict", 200, epsilon), members("loose", 300, epsilon * more)]
    plan = time_adaptive(make_spec(groups=groups, cohort=30), saved=rounds, factor=factor)
    for group, found in zip(plan.groups, spent(plan), strict=True):
        assert 0.999 * group.epsilon < found <= group.epsilon
        history = plan.history(group)
        assert history.rounds == 10
        again = accountant("pld").epsilon(history, group.delta, "add_remove")
        assert again.upper == found


def test_equal_phases_are_one() -> None:
    even = time_adaptive(make_spec(), saved=0.4, factor=1.0)
    sample = individual_sample(make_spec())
    for one, other in zip(even.groups, sample.groups, strict=True):
        assert one.segments is not None
        assert even.history(one) == sample.history(other)
        assert one.sampling_ratio == pytest.approx(other.sampling_ratio, rel=1e-12)


def test_saving_lets_a_group_spend_more_later() -> None:
    sample, saved = individual_sample(make_spec()), time_adaptive(make_spec())
    for one, other in zip(sample.groups, saved.groups, strict=True):
        early, late = other.segments or ()
        assert early.sampling_ratio < one.sampling_ratio < late.sampling_ratio


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"saved: must be in \[0, 1\), found 1"):
        time_adaptive(make_spec(), saved=1)
    with pytest.raises(InputError, match=r"factor: must be in \(0, 1\], found 0"):
        time_adaptive(make_spec(), factor=0)
    with pytest.raises(InputError, match="sampling: must be poisson"):
        time_adaptive(make_spec(sampling="fixed_size"))
    with pytest.raises(InfeasibleError, match=r"cohort: must be at most 375, .*found 450"):
        time_adaptive(make_spec(cohort=450))
