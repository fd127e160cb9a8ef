"""Groups with different laws: each as if alone, in plan, run, guard and forecast."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import privplan
from privplan.accounting.accountant import accountant
from privplan.errors import InputError
from privplan.forecast.features import plan_features
from privplan.guard import Guard
from privplan.guard.storage import DRAW
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.proxy.pilot import Pilot, run
from simulate.proxy.variations import variations, varied
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.guard.plans import ledger_of, train

LAWS = {"a": None, "b": "random_allocation:4", "c": "min_separation:3", "d": "full"}
GROUPS = [
    {"name": name, "clients": 60, "epsilon": 4.0, "sampling": law}
    for name, law in LAWS.items()
]
DATA = {
    "name": "mixed",
    "groups": GROUPS,
    "rounds": 8,
    "cohort": 110,
    "delta": 1e-4,
    "model": {"name": "mlp-digits", "parameters": 2410},
    "planning": {"release": "per_group"},
}


def spec_of(**changes):
    return Spec.parse({**DATA, **changes})


@cache
def plan():
    """The plan of these groups, solved by the first test that needs it."""
    return privplan.solve(spec_of())


def test_each_group_has_the_noise_that_it_would_have_alone():
    [poisson, *full_laws] = plan().groups
    assert (
        poisson.sampling_ratio * 60
        == poisson.expected_cohort
        == pytest.approx(110 - 95)
    )
    assert [group.expected_cohort for group in full_laws] == [15, 20, 60]
    for group, law in zip(full_laws, [*LAWS.values()][1:], strict=True):
        alone = {**GROUPS[0], "name": group.name}
        single_plan = privplan.solve(spec_of(groups=[alone], sampling=law, cohort=None))
        assert group.noise_multiplier == pytest.approx(
            single_plan.groups[0].noise_multiplier, rel=1e-4
        )
        spent = accountant("pld").epsilon(plan().history(group), 1e-4, "add_remove")
        # The same releases, but for what the search leaves of the noise multiplier.
        history = plan().history(group)
        release, _ = next(iter(history))
        release = replace(
            release, noise_multiplier=single_plan.groups[0].noise_multiplier
        )
        assert single_plan.history(group.name) == history.repeated(
            release, history.rounds
        )
        assert spent.upper <= 4


def test_what_is_planned_beside_them_is_the_best_of_a_grid():
    groups = [*GROUPS, {**GROUPS[0], "name": "e", "epsilon": 1.0}]
    best = privplan.solve(spec_of(groups=groups, cohort=125)).objective.value
    objectives = []
    for ratio in np.linspace(0.05, 0.45, 9):
        fixed = {"min_sampling_ratio": ratio, "max_sampling_ratio": ratio}
        fixed_spec = spec_of(groups=[{**groups[0], **fixed}, *groups[1:]], cohort=125)
        objectives.append(privplan.solve(fixed_spec).objective.value)
    assert best <= min(objectives) * (1 + 1e-5) < best * 1.01
    assert max(objectives) > best * 1.02
    shares = [group.weight for group in plan().groups]
    assert shares == pytest.approx([0.25] * 4, abs=0.15)


@pytest.mark.slow
def test_a_run_is_verified_and_replayed_by_the_laws_of_its_groups(tmp_path):
    execute(Request(plan(), "planned", "digits", tmp_path, seed=1))
    verdict = judge(load_run(tmp_path), 0)
    assert verdict.kept
    assert verdict.laws == "poisson+random_allocation:4+min_separation:3+full"
    assert [group.realised_upper <= 4 for group in verdict.groups] == [True] * 4
    report = Replay(tmp_path).run(None, 0, lambda done, total: None)
    assert report.outcome == "passed", report.reason
    changed_group = (
        plan().groups[1].model_copy(update={"sampling": "random_allocation:2"})
    )
    groups = (plan().groups[0], changed_group, *plan().groups[2:])
    data = plan().model_dump(mode="json")
    data["groups"] = [group.model_dump(mode="json") for group in groups]
    with pytest.raises(InputError, match=r"groups\.b\.sampling: must be the spec's"):
        privplan.Plan.parse(data)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"sampling": "cyclic_poisson:2"}, "sampling: must have independent noise"),
        ({"sampling": "fixed_size"}, "sampling: must not be beside other laws"),
        ({"rounds": 9}, "rounds: must be a multiple of 4 under random_allocation:4"),
        ({"cohort": None}, "cohort: is required"),
        (
            {"relation": "replace_one"},
            "relation: must be add_remove under random_allocation:4",
        ),
        (
            {"planning": {"ratios": "gdpfed_plus"}},
            "ratios: must be another where groups have own",
        ),
        (
            {"cohort": 95},
            "cohort: must be above 95, of the groups that all come, and at most 155",
        ),
        (
            {"groups": GROUPS[1:]},
            "cohort: must be left out where the laws of all groups give it",
        ),
    ],
)
def test_what_goes_with_no_laws_of_groups(changes, rule):
    with pytest.raises(privplan.PrivplanError, match=rule):
        privplan.solve(spec_of(**changes))
    assert "one law of all groups" in plan().spec.excludes_use("attacks")


def test_a_guard_keeps_the_draw_of_a_block_through_interruptions(tmp_path):
    for rounds in (1, 2, 2, 8):
        with Guard(plan(), tmp_path) as guard:
            train(guard, rounds)
            is_complete = guard.round in (1, 5, 9)
            assert (guard.epsilon("b").lower > 0) == (guard.round > 4)
            assert (
                guard.epsilon("b").lower > 0.99 * guard.epsilon("b").upper
            ) == is_complete
    records = ledger_of(tmp_path, plan())
    for first_round in (1, 5):
        participants = []
        for record in records:
            for share in record.shares:
                if share.group == "b" and record.round - first_round in range(4):
                    participants += share.participants
        assert sorted(participants) == [*range(60)]
    assert judge(load_run(tmp_path), 0).outcome == "kept"
    assert guard.epsilon("b").upper <= 4


@pytest.mark.parametrize("failed", [(1,), (3, 6), (4, 5, 8)])
def test_a_round_that_fails_before_its_draw_is_no_fault(tmp_path, failed):
    with Guard(plan(), tmp_path) as guard:
        for round_ in range(1, 9):
            if round_ in failed:
                guard.fail(round_, "nobody was there")
            train(guard, 1 if round_ not in failed else 0)
    assert judge(load_run(tmp_path), 0).outcome == "kept"


def test_a_guard_refuses_a_block_whose_draw_is_lost(tmp_path):
    with Guard(plan(), tmp_path) as guard:
        train(guard, 2)
    (tmp_path / "guard" / DRAW).unlink()
    with (
        Guard(plan(), tmp_path) as guard,
        pytest.raises(InputError, match="the draw that began in round 1"),
    ):
        guard.draw(3)


@pytest.mark.slow
def test_forecasts_vary_whole_turns():
    spec = spec_of(sampling="poisson")
    settings = variations(spec, ["iid"], 12, 0, 1.0)
    assert {setting.rounds % 4 for setting in settings} == {0}
    plans = [varied(spec.model_dump(mode="json"), setting) for setting in settings[:2]]
    assert all(plan.spec.expected_cohort > 95 for plan in plans)
    banded_plan = privplan.solve(
        spec_of(groups=GROUPS[:1], sampling="banded_separation:4", cohort=None)
    )
    assert plan_features(banded_plan).kind != plan_features(plans[0]).kind


def test_a_pilot_measures_what_a_mix_is_planned_with():
    measurement = run(Pilot(spec_of(), "digits", rounds=2, clients=12))
    assert measurement.heterogeneity.value >= 0
