"""Planning from a book: what is planned and what is past keep the promise together."""

import json
import math
import re

import pytest
from scipy.optimize import brentq

from privplan.accounting.accountant import accountant, at_most
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book import filters
from privplan.book.accounts import Budgets
from privplan.book.book import Book
from privplan.book.composition import composition_of, scaled
from privplan.book.entry import booking_of
from privplan.book.replan import LEAST_SHARE, solve_at, solve_from_book
from privplan.book.spending import account_of
from privplan.errors import InfeasibleError, InputError
from privplan.ledger import history_of, read_ledger
from privplan.plan import Plan, book_lines
from tests.book.runs import run, two_groups
from tests.planning.problems import members
from tests.verification.honest_run import spec


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """Three runs, 0.424 of strict and 2.255 of loose."""
    folder = tmp_path_factory.mktemp("past")
    return [booking_of(run(folder / f"{seed}", seed), "").run for seed in (1, 2, 3)]


def _spec(strict=1.0, loose=3.0, **changes):
    groups = [members("strict", 800, strict), members("loose", 700, loose)]
    return spec(**{"groups": groups, **changes})


UNIFORM = {"ratios": "uniform"}


@pytest.mark.parametrize(
    "planning",
    [
        pytest.param({}, marks=pytest.mark.slow),
        UNIFORM,
        {**UNIFORM, "accountant": "rdp", "calibration": "published"},
    ],
)
def test_past_and_plan_keep_the_budget_and_use_it(past, tmp_path, planning):
    plan = solve_from_book(_spec(planning=planning), past, rule="exact")
    records = read_ledger(run(tmp_path / "again"), two_groups().digest).records
    for name, budget in (("strict", 1.0), ("loose", 3.0)):
        group = plan.group(name)
        all_releases = history_of(records, name) * 3 + plan.history(group)
        after = account_of(past, "", name).composed(plan.history(group), group.delta)
        assert account_of(past, "", name).history + plan.history(group) == all_releases
        assert after.upper <= budget
        if (
            "accountant" in planning
        ):  # a looser accountant may leave room for all it asked for
            assert after.upper >= 0.9 * budget or group.epsilon == budget
        else:
            # A frugal plan leaves a part of its allotment, which the book could pay.
            alone = accountant("pld").epsilon(
                plan.history(group), group.delta, "add_remove"
            )
            unspent = group.epsilon - alone.upper
            assert after.upper + unspent >= 0.99 * budget
            assert group.epsilon < budget
        (line,) = [line for line in plan.warnings if line.startswith(f"{name}: of ")]
        for word in (
            "poisson",
            "add_remove",
            "0.0001",
            "pld",
            f"of {budget:g}",
            "with the 3",
        ):
            assert word in line


@pytest.mark.parametrize(
    "planning", [pytest.param({"slack": 0}, marks=pytest.mark.slow), UNIFORM]
)
def test_by_default_a_filter_holds_past_and_plan(past, planning):
    """The next run may be chosen by the last: divergences at one order add up."""
    plan = solve_from_book(_spec(planning=planning), past)
    exactly = solve_from_book(_spec(planning=planning), past, rule="exact")
    for budget, exact_budget in zip(plan.book, exactly.book, strict=True):
        group = plan.group(budget.group)
        account = account_of(past, "", budget.group)
        order = filters.order_of(budget.budget, group.delta, account.histories[0])
        spent = account.history + plan.history(group)
        units = filters.cost("renyi", spent, Relation.ADD_REMOVE, order)
        assert (
            0.99
            < units / filters.capacity("renyi", budget.budget, group.delta, order)
            <= 1
        )
        assert budget.total == filters.spent_epsilon("renyi", units, group.delta, order)
        exact = account.composed(plan.history(group), group.delta).upper
        assert budget.exact_total == exact < budget.total <= budget.budget
        least_noise = budget.exact_noise_multiplier or math.inf
        assert least_noise < budget.noise_multiplier
        tight = scaled(plan.history(group), least_noise / budget.noise_multiplier)
        after = account.composed(tight, group.delta).upper
        assert 0.999 * budget.total <= after <= budget.total <= budget.budget
        (line,) = [
            line
            for line in plan.warnings
            if line.startswith(f"{budget.group}: adaptivity")
        ]
        assert f"{least_noise:.6g} instead of {budget.noise_multiplier:.6g}" in line
        assert line in book_lines(plan.book)
        assert exact_budget.rule == "exact"
        assert exact_budget.adaptivity is None
    assert Plan.parse(json.loads(plan.to_json())) == plan


def test_the_rule_of_an_account_counts_with_what_is_reserved(past, tmp_path):
    """With the runs of the book the plan fits into the account and its ceiling."""
    uniform = _spec(planning={**UNIFORM, "accountant": "rdp"})
    budgets = Budgets(str(tmp_path / "book.sqlite"))
    plan = solve_from_book(uniform, past)
    for name, budget in (("strict", 1.0), ("loose", 8.0)):
        history = plan.history(plan.group(name))
        budgets.open(f"site:{name}", 0.9 * budget, 1e-4, typical=history)
        budgets.open(name, budget, 1e-4, typical=history, ceilings=[f"site:{name}"])
    budgets.reserve("other", {"strict": History.repeated(Release(1.2, 0.02), 30)})
    limits = {name: budgets.limits(name, past) for name in ("strict", "loose")}
    smaller = solve_from_book(uniform, past, limits=limits)
    assert smaller.group("strict").epsilon < plan.group("strict").epsilon
    for limit in limits["strict"]:
        assert limit.fits(smaller.history(smaller.group("strict")))
    budgets.reserve(
        "this", {group.name: smaller.history(group) for group in smaller.groups}
    )
    with pytest.raises(
        InputError, match="rule: must be renyi, as of the account strict"
    ):
        solve_from_book(uniform, past, limits=limits, rule="exact")
    limited = {"strict": budgets.limits("strict")[:1]}
    fresh = solve_from_book(uniform, (), limits=limited)
    assert [budget.group for budget in fresh.book] == ["strict"]


def test_runs_of_another_group_count_in_a_shared_ceiling(tmp_path):
    """What the plan says of its ceiling is what its reservation comes to."""
    address = str(tmp_path / "book.sqlite")
    budgets = Budgets(address)
    budgets.open("site", 4.0, 1e-4)
    for name in ("strict", "loose", "third"):
        budgets.open(name, 8.0, 1e-4, ceilings=["site"])
    counts = History.repeated(Release(20.0, 1.0, SamplingLaw.FULL), 60)
    Book(address).declare("counts", counts, group="third", clients=9)
    before = budgets.state("site").spent
    assert before > 1
    plan = solve_at(_spec(loose=4.0, planning=UNIFORM), address)
    budgets.reserve("this", {group.name: plan.history(group) for group in plan.groups})
    committed = budgets.state("site").committed
    assert before < committed <= 4.0
    lines = [line for line in plan.warnings if line.startswith("site: with this run ")]
    assert any(at_most(committed, 6) in line for line in lines)


def test_a_filter_that_does_not_cover_the_plan_is_one_line(past):
    with pytest.raises(
        InputError, match=r"^rule: must cover .*everybody takes part.*'gaussian'$"
    ):
        solve_from_book(_spec(), past, rule="gaussian")


@pytest.mark.slow
def test_a_group_whose_budget_does_not_bind_may_spend_what_is_left(past):
    """Of 12: groups share noise under random allocation, so that strict binds loose."""
    law = {"sampling": "random_allocation:5", "cohort": None}
    plan = solve_from_book(_spec(loose=12.0, **law), past, rule="exact")
    group = plan.group("loose")
    account = account_of(past, "", "loose")
    tight = scaled(plan.history(group), 0.2)
    assert (
        accountant("pld").epsilon(tight, group.delta, "add_remove").upper
        > group.epsilon
        > 10
    )
    assert account.composed(tight, group.delta).upper < 12


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("exact", {"strict": 0.8, "loose": 12.0}),
        (None, {"planning": {"ratios": "balanced"}}),
    ],
)
def test_no_group_is_said_to_have_more_than_the_book_leaves(past, rule, changes):
    """Also one that its plan does not spend: less noise, up to its epsilon, fits."""
    problem = _spec(**changes)
    plan = solve_from_book(problem, past, rule=rule)
    for group, stated in zip(plan.groups, problem.groups, strict=True):
        account = account_of(past, "", group.name)
        bound = composition_of(account, stated.epsilon, group.delta, rule)
        history = plan.history(group)

        def unspent(factor, group=group, history=history, bound=bound):
            return group.epsilon - bound.alone(scaled(history, factor))

        assert unspent(1.0) >= 0
        factor = brentq(unspent, 0.3, 1.0)
        spent = bound.epsilon(scaled(history, factor))
        # A group that spends all but 3% of its allotment counts as spending it.
        assert spent <= bound.budget * 1.03


def test_a_spent_budget_is_refused_with_a_feasible_one(past):
    with pytest.raises(
        InfeasibleError, match=r"^strict: the book counts epsilon"
    ) as refused:
        solve_from_book(_spec(0.4241, planning=UNIFORM), past, rule="exact")
    nearest = float(re.search(r"nearest feasible budget (\S+) ", str(refused.value))[1])
    plan = solve_from_book(_spec(nearest, planning=UNIFORM), past, rule="exact")
    assert plan.group("strict").epsilon >= 0.98 * 0.4241 > LEAST_SHARE * nearest


def test_another_relation_is_refused(past):
    with pytest.raises(
        InputError, match=r"relation: must be add_remove, as in the book .*strict"
    ):
        solve_from_book(_spec(relation="replace_one"), past)
