"""Plans of published methods: segments, own clips and ratios, and savings by round."""

import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan import preset
from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import calibrate, noise_multiplier
from privplan.accounting.release import History, Release
from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan, Segment
from privplan.planning import baselines
from privplan.planning.assemble import certificate_of
from privplan.planning.problem import problem_of
from privplan.planning.solver import solve
from privplan.report.tables import plan_table
from privplan.spec.spec import Spec
from tests.planning.papertables import IDP_RATIOS
from tests.planning.problems import make_spec, members, spec_data


def plan_with(**changes):
    """The small plan, its first group changed."""
    plan = solve(make_spec())
    first_group = plan.groups[0].model_copy(update=changes)
    fields = {name: getattr(plan, name) for name in type(plan).model_fields}
    return Plan(**{**fields, "groups": (first_group, *plan.groups[1:])})


def segments(*rounds):
    return tuple(
        Segment(rounds=count, sampling_ratio=0.1 * (m + 1), noise_multiplier=2.0)
        for m, count in enumerate(rounds)
    )


def test_segments_are_the_history_and_the_rounds():
    plan = plan_with(segments=segments(4, 6))
    group = plan.groups[0]
    assert plan.history(group) == History(
        [(Release(2.0, 0.1), 4), (Release(2.0, 0.2), 6)]
    )
    assert [plan.at_round(group, r)[0] for r in (1, 4, 5, 10)] == [0.1, 0.1, 0.2, 0.2]
    assert Plan.parse(json.loads(plan.to_json())) == plan
    for outside in (0, 11):
        with pytest.raises(InputError, match="round: must be in"):
            plan.at_round(group, outside)


def test_segments_must_cover_the_rounds():
    with pytest.raises(
        InputError, match=r"segments: must cover the 10 rounds, found 9"
    ):
        plan_with(segments=segments(4, 5))


def test_the_bound_is_the_groups_own_and_scaled():
    plan = plan_with(clipping_norm=0.5, scale=0.25)
    assert plan.clip_bound(plan.groups[0]) == 0.125
    assert (
        plan.clip_bound(plan.groups[1])
        == plan.spec.clipping_norm * plan.groups[1].scale
    )


def test_the_law_of_delta_counts_what_a_budget_protects():
    data = spec_data(unit="record", delta="n^-1.1", planning={})
    for group, records in zip(data["groups"], (100, 1000), strict=True):
        group["records"] = records
    spec = Spec.parse(data)
    assert [spec.delta_of(group) for group in spec.groups] == pytest.approx(
        [100**-1.1, 1000**-1.1]
    )
    assert spec.weighting == "inverse_variance"


@cache
def sampled(name):
    """The plan of a preset by the rule of Sample."""
    return baselines.individual_sample(preset(name))


def spent(plan):
    return [row.epsilon_upper for row in plan.certificate if row.guarantee]


def test_scale_has_one_noise_and_clips_that_average_to_c():
    plan = baselines.individual_scale(
        make_spec(clipping_norm=0.8, planning={"accountant": "pld"})
    )
    stds = [g.noise_multiplier * plan.clip_bound(g) for g in plan.groups]
    assert stds == pytest.approx([stds[0]] * 2, rel=1e-12)
    clips = [plan.clip_bound(group) for group in plan.groups]
    assert np.average(clips, weights=[200, 300]) == pytest.approx(0.8)
    assert clips[0] < 0.8 < clips[1]
    assert [group.sampling_ratio for group in plan.groups] == [0.1, 0.1]
    assert [group.weight for group in plan.groups] == pytest.approx([0.4, 0.6])
    assert plan.mean_noise_std == pytest.approx(stds[0] / 50)
    for group, epsilon in zip(plan.groups, spent(plan), strict=True):
        least_multiplier = noise_multiplier(
            group.epsilon, group.delta, sampling_ratio=0.1, rounds=10
        )
        assert group.noise_multiplier == pytest.approx(least_multiplier, rel=1e-4)
        assert 0.99 * group.epsilon < epsilon <= group.epsilon
    assert plan.release == "joint"
    assert all(group.scale == 1 for group in plan.groups)
    assert Plan.parse(json.loads(plan.to_json())) == plan
    assert "clip" in plan_table(plan)[1]


@given(
    st.lists(st.floats(0.3, 20), min_size=2, max_size=6),
    st.lists(st.integers(1, 500), min_size=6, max_size=6),
    st.floats(0.1, 10),
)
def test_clips_are_ordered_as_budgets_and_make_one_deviation(
    noise_multipliers, clients, clip
):
    sigmas = np.array(noise_multipliers)
    people = np.array(clients[: len(noise_multipliers)], dtype=float)
    clips = baselines.individual_clips(sigmas, people, clip)
    assert np.average(clips, weights=people) == pytest.approx(clip)
    assert clips * sigmas == pytest.approx(
        np.full(len(noise_multipliers), clips[0] * sigmas[0])
    )


def test_sample_has_one_noise_and_uses_every_budget_up():
    plan = baselines.individual_sample(make_spec())
    assert len({group.noise_multiplier for group in plan.groups}) == 1
    for group, epsilon in zip(plan.groups, spent(plan), strict=True):
        assert 0.999 * group.epsilon < epsilon <= group.epsilon
        max_ratio = calibrate(
            "sampling_ratio",
            group.epsilon,
            group.delta,
            noise_multiplier=group.noise_multiplier,
            rounds=10,
        )
        assert group.sampling_ratio == pytest.approx(max_ratio, rel=2e-4)
    assert sum(g.expected_cohort for g in plan.groups) == pytest.approx(50, rel=1e-3)
    assert plan.groups[0].sampling_ratio < plan.groups[1].sampling_ratio
    assert plan.spec.planning.accountant == "pld"
    assert all(group.segments is None for group in plan.groups)


@given(st.floats(0.5, 6), st.floats(1.05, 3), st.floats(0.7, 5))
@settings(max_examples=8, deadline=None)
def test_more_epsilon_affords_more_and_more_noise_too(epsilon, factor, noise):
    budgets = [epsilon, epsilon * factor]
    groups = [
        {"name": f"g{m}", "clients": 99, "epsilon": e} for m, e in enumerate(budgets)
    ]
    problem = problem_of(make_spec(groups=groups))
    steady = (baselines.Schedule(((10, 1.0),)),) * 2
    ratios, noisier_ratios = (
        baselines.affordable_ratios(problem, steady, sigma, "pld", np.array([0.1, 0.1]))
        for sigma in (noise, noise * factor)
    )
    assert ratios[0] <= ratios[1] * (1 + 1e-4)
    assert np.all(ratios <= noisier_ratios * (1 + 1e-4))


def test_a_ratio_stops_at_everybody():
    groups = [members("strict", 100, 1.0), members("loose", 100, 50.0)]
    plan = baselines.individual_sample(make_spec(groups=groups, cohort=150))
    assert plan.groups[1].sampling_ratio == 1.0
    assert spent(plan)[1] < 50.0
    assert plan.groups[0].sampling_ratio == pytest.approx(0.5, rel=2e-3)


def test_what_sample_and_scale_refuse():
    with pytest.raises(
        InputError, match="sampling: must be poisson where each group has"
    ):
        baselines.individual_sample(make_spec(sampling="fixed_size"))
    plan = baselines.individual_scale(
        make_spec(sampling="fixed_size", planning={"accountant": "pld"})
    )
    assert [group.expected_cohort for group in plan.groups] == [20, 30]
    thin = [
        g.model_copy(update={"noise_multiplier": g.noise_multiplier / 2})
        for g in plan.groups
    ]
    with pytest.raises(
        InfeasibleError, match=r"groups\.strict\.epsilon: 1 is overspent: pld"
    ):
        certificate_of(plan.model_copy(update={"groups": tuple(thin)}))


SLOW_PRESETS = ("gdpfed-cifar10", "gdpfed-shakespeare")


def each_preset(**values_by_preset):
    """Parameters of a test, the larger presets for the slow tests."""
    parameters = []
    for name, values in values_by_preset.items():
        preset_name = f"gdpfed-{name}"
        marks = pytest.mark.slow if preset_name in SLOW_PRESETS else ()
        parameters.append(pytest.param(preset_name, *values, marks=marks))
    return parameters


@pytest.mark.parametrize(
    "name",
    [
        "gdpfed-svhn",
        *(
            pytest.param(f"gdpfed-{data}", marks=pytest.mark.slow)
            for data in ("fmnist", "cifar10", "shakespeare")
        ),
    ],
)
def test_no_printed_ratios_share_one_noise_multiplier(name):
    """The printed ratios of Sample make the cohort; no single sigma meets the budgets.

    Two of the four fall where epsilon grows. Under one sigma a larger budget always
    affords a larger ratio, and one sigma has to be the largest that any group needs.
    """
    spec = preset(name)
    percent = np.array(IDP_RATIOS[name])
    assert percent.mean() == pytest.approx(
        100 * spec.expected_cohort / spec.population, rel=1e-3
    )
    assert bool(np.all(np.diff(percent) > 0)) == (
        name in ("gdpfed-svhn", "gdpfed-cifar10")
    )
    deltas = [spec.delta_of(group) for group in spec.groups]
    needed_multipliers = [
        noise_multiplier(g.epsilon, delta, sampling_ratio=q / 100, rounds=spec.rounds)
        for g, delta, q in zip(spec.groups, deltas, percent, strict=True)
    ]
    assert max(needed_multipliers) > 1.3 * min(needed_multipliers)
    plan = sampled(name)
    assert np.all(np.diff([100 * group.sampling_ratio for group in plan.groups]) > 0)
    assert plan.groups[0].noise_multiplier < max(needed_multipliers)
    assert all(e <= g.epsilon for e, g in zip(spent(plan), plan.groups, strict=True))


@pytest.mark.parametrize(
    ("name", "expected", "tolerance"),
    each_preset(
        fmnist=([0.54, 1.67, 3.79], 0.01),
        svhn=([1.71, 4.62, 8.67], 0.02),
        cifar10=([3.35, 9.29, 17.36], 0.03),
        shakespeare=([3.61, 9.32, 17.07], 0.03),
    ),
)
def test_the_ratios_of_the_rule(name, expected, tolerance):
    """What the rule gives for the four data sets, in percent."""
    percent = [100 * group.sampling_ratio for group in sampled(name).groups]
    assert percent == pytest.approx(expected, abs=tolerance)


def test_the_default_saves_in_the_first_half_at_half_the_ratio():
    plan = baselines.time_adaptive(make_spec())
    for group in plan.groups:
        early, late = group.segments or ()
        assert early.rounds == 5
        assert late.rounds == 5
        assert early.sampling_ratio == pytest.approx(late.sampling_ratio / 2)
        assert early.noise_multiplier == late.noise_multiplier == group.noise_multiplier
        mean = (early.sampling_ratio + late.sampling_ratio) / 2
        assert group.sampling_ratio == pytest.approx(mean)
        assert group.expected_cohort == pytest.approx(mean * group.clients)
        assert plan.at_round(group, 5) == (early.sampling_ratio, early.noise_multiplier)
        assert plan.at_round(group, 6) == (late.sampling_ratio, late.noise_multiplier)
    assert len({group.noise_multiplier for group in plan.groups}) == 1
    assert sum(group.expected_cohort for group in plan.groups) == pytest.approx(
        50, rel=1e-3
    )
    assert Plan.parse(json.loads(plan.to_json())) == plan
    assert "rounds x q" in plan_table(plan)[1]


@pytest.mark.slow
@given(st.integers(1, 9), st.floats(0.05, 1), st.floats(0.5, 3), st.floats(1.0, 4))
@settings(max_examples=6, deadline=None)
def test_every_budget_is_kept_and_used_up(rounds, factor, epsilon, epsilon_factor):
    groups = [
        members("strict", 200, epsilon),
        members("loose", 300, epsilon * epsilon_factor),
    ]
    schedule = baselines.Schedule(((rounds, factor), (10 - rounds, 1.0)))
    plan = baselines.scheduled(
        make_spec(groups=groups, cohort=30), (schedule,) * 2, "scheduled", "pld"
    )
    for group, epsilon_upper in zip(plan.groups, spent(plan), strict=True):
        assert 0.999 * group.epsilon < epsilon_upper <= group.epsilon
        history = plan.history(group)
        assert history.rounds == 10
        assert (
            accountant("pld").epsilon(history, group.delta, "add_remove").upper
            == epsilon_upper
        )
