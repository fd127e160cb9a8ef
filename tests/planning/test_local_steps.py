"""Free local steps of the default recipe: against brute force, within every limit, clear faults."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.cli import main
from privplan.errors import InfeasibleError, InputError, PrivplanError
from privplan.planning.choices import (
    FEW_ROUNDS,
    HALF_WORTH,
    MOST_LOCAL_STEPS,
    decide_free_choices,
    lost_with_steps,
    worth,
)
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import make_spec

ALL = ("rounds", "cohort", "local_steps")


def searched(free: tuple[str, ...] = ALL, changes: Any = None, **planning: Any) -> Spec:
    data = make_spec().model_dump(mode="json", exclude={"clipping_norm", "recipe", "planning"})
    chosen = {"free": ["ratios", "weights", *free], **planning}
    return Spec.parse({**data, **(changes or {}), "planning": chosen})


def test_worth_is_half_at_its_constant_and_grows() -> None:
    assert worth(round(HALF_WORTH)) == pytest.approx(0.5, abs=0.03)
    values = [worth(steps) for steps in range(1, 100)]
    assert values == sorted(values)
    assert values[-1] < 1


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"max_local_steps": 2000}, marks=pytest.mark.slow),
        pytest.param({"max_local_steps": 40_000}, marks=pytest.mark.slow),
        pytest.param({"max_local_steps": 20_000, "max_uploads": 900}, marks=pytest.mark.slow),
        pytest.param({"max_local_steps": 20_000, "max_cohort": 40}, marks=pytest.mark.slow),
        {"max_device_seconds": 500, "step_seconds": 0.1, "max_rounds": 30},
    ],
)
def test_steps_are_the_best_of_a_scan(limits: dict[str, float]) -> None:
    """Against plans of given steps: none is better, and that of the same steps is the same."""
    settled, notes = decide_free_choices(searched(**limits))
    assert any(note.startswith("planning.free: local_steps is") for note in notes)
    assert "local_steps" not in settled.planning.free
    found, steps = lost_with_steps(settled), settled.local.steps
    for other in {1, steps - 2, steps, steps + 2, 2 * steps, MOST_LOCAL_STEPS}:
        local = {**make_spec().model_dump(mode="json")["local"], "steps": other}
        with suppress(PrivplanError):
            alone = searched(("rounds", "cohort"), {"local": local}, **limits)
            scanned, _ = decide_free_choices(alone)
            assert found <= lost_with_steps(scanned) * 1.01
            assert other != steps or scanned == settled


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.integers(2, 200_000),
    st.integers(2, 5000) | st.none(),
    st.integers(2, 600) | st.none(),
    st.integers(1, 200) | st.none(),
    st.sampled_from(["poisson", "fixed_size"]),
    st.sampled_from([ALL, ("cohort", "local_steps"), ("rounds", "local_steps"), ("local_steps",)]),
)
def test_limits_are_never_exceeded(
    steps: int,
    uploads: int | None,
    cohort: int | None,
    rounds: int | None,
    sampling: str,
    free: tuple[str, ...],
) -> None:
    """A plan is within all limits, or a limit is named with the nearest feasible value."""
    limits = {"max_uploads": uploads, "max_cohort": cohort, "max_rounds": rounds}
    spec = searched(free, {"sampling": sampling}, max_local_steps=steps, **limits)
    try:
        settled, _ = decide_free_choices(spec)
    except InfeasibleError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "nearest feasible value is" in said
        return
    used = settled.rounds * settled.expected_cohort
    for order in permutations((settled.rounds, settled.expected_cohort, settled.local.steps)):
        assert math.prod(order) <= steps
    assert used <= (uploads or math.inf)
    assert settled.expected_cohort <= (cohort or math.inf)
    assert settled.rounds <= (rounds or math.inf)
    assert 1 <= settled.local.steps <= MOST_LOCAL_STEPS
    assert decide_free_choices(settled) == (settled, ())


@pytest.mark.parametrize(
    ("free", "limits"),
    [
        (("cohort",), {"max_uploads": 211}),
        (("cohort",), {"max_local_steps": 1005}),
        (("rounds", "cohort"), {"max_uploads": 700}),
        (("cohort",), {"max_device_seconds": 300.0, "step_seconds": 0.07}),
    ],
)
@pytest.mark.parametrize("rounds", [11, 23])
def test_totals_exceed_no_limit_whatever_is_multiplied_first(
    rounds: int, free: tuple[str, ...], limits: dict[str, float]
) -> None:
    """Neither those of the spec nor those of the groups' cohorts, not even by rounding."""
    plan = solve(searched(free, {"rounds": rounds}, **limits), second_opinion=False)
    [most, *step] = limits.values()
    each = [float(plan.spec.local.steps)] if "max_uploads" not in limits else []
    sums = sum(group.expected_cohort for group in plan.groups)
    for cohort in (plan.spec.expected_cohort, sums):
        for order in permutations([float(plan.spec.rounds), cohort, *each, *step]):
            assert math.prod(order) <= most
    assert sums == pytest.approx(plan.spec.expected_cohort, rel=1e-12)


def test_fixed_rounds_and_cohort_take_the_most_steps() -> None:
    """Ten rounds of 50 clients with 20 steps each are 10,000; no more than were tried."""
    for most, steps in ((10_000, 20), (10_499, 20), (500, 1), (10**9, MOST_LOCAL_STEPS)):
        settled, _ = decide_free_choices(searched(("local_steps",), max_local_steps=most))
        assert (settled.rounds, settled.cohort, settled.local.steps) == (10, 50, steps)
    with pytest.raises(InfeasibleError, match=r"planning\.max_local_steps: 499 is below the 500"):
        decide_free_choices(searched(("local_steps",), max_local_steps=499))


@pytest.mark.slow
def test_more_device_time_buys_more_of_all() -> None:
    found = [decide_free_choices(searched(max_local_steps=most))[0] for most in (500, 5000, 50_000)]
    assert [spec.rounds for spec in found] == sorted(spec.rounds for spec in found)
    steps = [spec.local.steps for spec in found]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


@pytest.mark.slow
def test_momentum_gets_its_local_rate_by_the_decided_steps() -> None:
    """The rate that the recipe decides is that of the steps of the plan."""
    local = {"batch_size": 5, "momentum": 0.9}
    settled, _ = decide_free_choices(searched(changes={"local": local}, max_local_steps=9000))
    given_steps = {**local, "steps": settled.local.steps}
    alone = searched((), changes={"local": given_steps})
    assert settled.local.learning_rate == alone.local.learning_rate


@pytest.mark.parametrize(("most", "few"), [(700, True), (9000, False)])
def test_few_rounds_warn_of_too_many_local_steps(most: int, few: bool) -> None:
    """The rule does not know that steps of a given length need rounds to arrive."""
    plan = solve(searched(max_local_steps=most), second_opinion=False)
    assert (plan.spec.rounds <= FEW_ROUNDS) == few
    said = f"{plan.spec.local.steps} local steps are likely too many for {plan.spec.rounds} rounds"
    assert [said in line for line in plan.warnings].count(True) == few
    given = searched(("cohort", "local_steps"), max_local_steps=most)
    assert not any("likely too many" in line for line in decide_free_choices(given)[1])


def test_a_solved_plan_says_what_was_decided_and_why(tmp_path: Path) -> None:
    plan = solve(searched(max_local_steps=9000), second_opinion=False)
    [line] = [one for one in plan.warnings if "local_steps is" in one]
    used = plan.spec.rounds * plan.spec.expected_cohort * plan.spec.local.steps
    assert f"local_steps is {plan.spec.local.steps}: an update then holds" in line
    assert f"take {used:.6g} of 9000 steps" in line
    assert solve(plan.spec, second_opinion=False).groups == plan.groups
    plan.save(tmp_path / "plan.json")
    explained = CliRunner().invoke(main, ["explain", str(tmp_path / "plan.json")])
    assert line in explained.stdout.splitlines()


@pytest.mark.parametrize(
    ("changes", "planning", "said"),
    [
        (
            {},
            {},
            "planning.free: can name local_steps only with planning.max_local_steps or "
            "planning.max_device_seconds, which fewer local steps spare, found 'local_steps'",
        ),
        ({}, {"max_uploads": 100}, "planning.free: can name local_steps only with planning.max_"),
        (
            {"clipping_norm": 1.0},
            {"max_local_steps": 100},
            "planning.free: can name local_steps only with the default recipe",
        ),
        (
            {"recipe": "none", "clipping_norm": 1.0},
            {"max_local_steps": 100},
            "planning.free: can name local_steps only with the default recipe",
        ),
        (
            {},
            {"max_local_steps": 100, "constants": {"smoothness": 1, "initial_gap": 1}},
            "planning.free: can name local_steps only with the default recipe",
        ),
        ({}, {"max_local_steps": 0}, "planning.max_local_steps: must be"),
        ({}, {"max_device_seconds": 10}, "planning.step_seconds: is required with"),
        ({}, {"ratios": "uniform", "max_local_steps": 9}, "planning.free: is only for"),
    ],
)
def test_what_free_local_steps_need_is_named(
    changes: dict[str, Any], planning: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        searched(("local_steps",), changes, **planning)
    assert said in str(caught.value)
