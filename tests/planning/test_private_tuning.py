"""Plans with ``tuning``: budgets hold for the best of all runs, in certificate and verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from privplan.book.entry import booking_of
from privplan.book.replan import solve_from_book
from privplan.cli import main
from privplan.errors import InputError
from privplan.guard.guard import past_runs
from privplan.plan import Plan
from privplan.planning.baselines import strictest, uniform
from privplan.planning.choices import recipe_lines
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.test_recipe import DATA
from tests.verification import honest_run


def solved(**tuning: Any) -> Plan:
    return solve(Spec.parse({**DATA, "tuning": tuning}), second_opinion=False)


@pytest.mark.parametrize(
    "tuning",
    [
        {"runs": 20},
        {"runs": 20, "law": "geometric"},
        {"runs": 5, "law": "truncated_negative_binomial", "shape": 0.8},
    ],
)
def test_the_guarantee_is_that_of_the_selection(tuning: dict[str, Any]) -> None:
    plan, before = solved(**tuning), solve(Spec.parse(DATA), second_opinion=False)
    guarantees = {row.group: row for row in plan.certificate if row.guarantee}
    for group, other in zip(plan.groups, before.groups, strict=True):
        row = guarantees[group.name]
        assert row.accountant == "selection"
        assert group.epsilon == other.epsilon
        assert 0.99 * group.epsilon <= row.epsilon_upper <= group.epsilon
        run = [one for one in plan.certificate if one.group == group.name and not one.guarantee]
        assert all(one.epsilon_upper < row.epsilon_upper for one in run)
        assert all(one.kind.endswith(", one run") for one in run)
        assert group.noise_multiplier > other.noise_multiplier
    assert any("the budgets hold for the best of K runs" in line for line in plan.warnings)
    assert not any("not tuned on private data" in line for line in recipe_lines(plan))
    assert solve(plan.spec, second_opinion=False).digest == plan.digest


def test_baselines_that_ignore_it_refuse() -> None:
    plan = solved(runs=3)
    assert {row.accountant for row in uniform(plan.spec).certificate if row.guarantee} == {
        "selection"
    }
    with pytest.raises(InputError, match=r"tuning: must be left out with this"):
        strictest(plan.spec)


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ({"runs": 0.5}, "tuning.runs: must be 1 or more, found 0.5"),
        ({"runs": 1, "law": "geometric"}, "tuning.runs: must be greater than 1 for law: geometric"),
        ({"runs": 9, "shape": 1}, "tuning.shape: is only for law: truncated_negative_binomial"),
        ({"runs": 9, "law": "binomial"}, "tuning.law: must be one of 'poisson', 'geometric' or"),
    ],
)
def test_faults_are_one_line(tuning: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Spec.parse({**DATA, "tuning": tuning})
    assert str(caught.value).startswith(message)


def test_a_book_counts_no_choice_between_runs(tmp_path: Path) -> None:
    tuned = honest_run.plan(honest_run.spec(tuning={"runs": 3}))
    honest_run.write_run(tmp_path / "run", the_plan=tuned)
    said = r"tuning: cannot go with a book, which counts the releases of single runs"
    with pytest.raises(InputError, match=said):
        booking_of(tmp_path / "run", "staff")
    with pytest.raises(InputError, match=said):
        solve_from_book(tuned.spec, ())
    with pytest.raises(InputError, match=said):
        past_runs(str(tmp_path / "book.sqlite"), "staff", tuned, [])
    arguments = ["book", "reserve", str(tmp_path / "run" / "plan.json"), "--run", "one"]
    done = CliRunner().invoke(main, [*arguments, "--address", str(tmp_path / "book.sqlite")])
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 2
    assert "tuning: cannot go with a book" in done.stderr
