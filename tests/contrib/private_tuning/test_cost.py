"""What tuning on private data costs, and verdicts on runs of plans that paid for it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from privplan.book.entry import booking_of
from privplan.cli import main
from privplan.contrib.private_tuning.command import command
from privplan.contrib.private_tuning.cost import PrivateTuning, costs
from privplan.errors import InputError
from privplan.guard.guard import past_runs
from privplan.plan import Plan
from privplan.report.tables import group_table, worst_line
from privplan.spec.spec import Spec
from privplan.values import digest, parse
from privplan.verification.verify import judge, load_run
from tests.planning.test_recipe import DATA
from tests.verification import honest_run


@pytest.mark.parametrize(
    "tuning",
    [
        {"runs": 20},
        {"runs": 20, "law": "geometric"},
        {"runs": 5, "law": "truncated_negative_binomial", "shape": 0.8},
    ],
)
def test_budgets_hold_for_the_best_of_all_runs(tuning):
    spec = Spec.parse(DATA)
    for one, group in zip(costs(spec, parse(PrivateTuning, tuning)), spec.groups, strict=True):
        assert one.budget == group.epsilon
        assert 0.99 * one.budget <= one.best <= one.budget < one.whole
        assert one.left < one.budget


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ({"runs": 0.5}, "runs: must be 1 or more, found 0.5"),
        ({"runs": 1, "law": "geometric"}, "runs: must be greater than 1 for law: geometric"),
        ({"runs": 9, "shape": 1}, "shape: is only for law: truncated_negative_binomial"),
        ({"runs": 9, "law": "binomial"}, "law: must be one of 'poisson', 'geometric' or"),
    ],
)
def test_faults_are_one_line(tuning, message):
    with pytest.raises(InputError) as caught:
        parse(PrivateTuning, tuning)
    assert str(caught.value).startswith(message)


def test_the_command_says_what_is_left(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(DATA))
    words = [str(path), "--runs", "20", "--format", "json"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.stderr
    assert all(row["left"] < row["budget"] for row in json.loads(done.stdout))


def stored(runs: float) -> Plan:
    """A plan as 0.2.0 wrote it before, whose guarantee is of the best of that many runs."""
    plan = honest_run.plan()
    data = plan.model_dump(mode="json")
    data["spec"] = {**data["spec"], "tuning": {"runs": runs, "law": "poisson"}}
    data["certificate"] = [
        {
            "group": group.name,
            "accountant": "selection",
            "epsilon_lower": 0.0,
            "epsilon_upper": group.epsilon,
            "delta": group.delta,
            "sampling": "poisson",
            "relation": "add_remove",
            "version": "privplan-selection 1",
            "guarantee": True,
            "kind": "upper bound",
        }
        for group in plan.groups
    ]
    return Plan.parse({**data, "digest": digest(data)})


def test_the_verdict_counts_the_choice(tmp_path):
    tuned = stored(3)
    assert Plan.parse(json.loads(tuned.to_json())).digest == tuned.digest
    honest_run.write_run(tmp_path / "run", the_plan=tuned)
    honest_run.write_run(tmp_path / "single")
    verdict, single = (judge(load_run(tmp_path / name)) for name in ("run", "single"))
    for one, other in zip(verdict.groups, single.groups, strict=True):
        assert one.accountant == "selection"
        assert one.one_run.upper == other.realised_upper
        assert one.realised_upper > 1.2 * (other.realised_upper or 0.0)
        assert one.realised_lower == 0


def test_a_book_counts_no_choice_between_runs(tmp_path):
    tuned = stored(3)
    honest_run.write_run(tmp_path / "run", the_plan=tuned)
    said = r"certificate: cannot go with a book, which counts the releases of single runs"
    with pytest.raises(InputError, match=said):
        booking_of(tmp_path / "run", "staff")
    with pytest.raises(InputError, match=said):
        past_runs([], "staff", tuned, [])
    arguments = ["book", "reserve", str(tmp_path / "run" / "plan.json"), "--run", "one"]
    done = CliRunner().invoke(main, [*arguments, "--address", str(tmp_path / "book.sqlite")])
    assert done.exit_code == 2
    assert "certificate: cannot go with a book" in done.stderr


def test_the_best_of_several_runs_names_the_accountant_that_bounds_it(tmp_path):
    honest_run.write_run(tmp_path / "alone")
    honest_run.write_run(tmp_path / "tuned", the_plan=stored(3))
    before, verdict = (judge(load_run(tmp_path / name)) for name in ("alone", "tuned"))
    for group, run in zip(verdict.groups, before.groups, strict=True):
        assert (run.accountant, run.one_run) == ("pld", None)
        assert (group.accountant, group.realised_lower) == ("selection", 0.0)
        assert group.realised_rdp == group.realised_upper > run.realised_upper
        assert group.one_run.model_dump() == {
            "lower": run.realised_lower,
            "upper": run.realised_upper,
            "rdp": run.realised_rdp,
        }
    assert verdict.worst.accountant == "selection"
    assert "accountant selection" in worst_line(verdict)
    assert "epsilon at most " in worst_line(verdict)
    _, columns, rows, caption = group_table(verdict)
    assert "realised by selection" in caption
    assert "this run alone" in caption
    assert "rdp upper" not in columns
    cells = dict(zip(columns, rows[0], strict=True))
    assert cells["realised lower"] == "-"
    assert cells["one run, pld"] == f"{before.groups[0].realised_upper:.4f}"
