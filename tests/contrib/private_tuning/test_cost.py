"""What tuning on private data costs, and verdicts on plans that paid for it."""

import json
import math

import dp_accounting as dp
import pytest
from click.testing import CliRunner
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from numpy.testing import assert_allclose

from privplan.accounting.rdp import ORDERS
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book.entry import booking_of
from privplan.contrib.private_tuning import selection
from privplan.contrib.private_tuning.command import command
from privplan.contrib.private_tuning.cost import PrivateTuning, costs
from privplan.errors import InputError
from privplan.guard.booked import past_runs
from privplan.plan import Plan
from privplan.report.verdicts import group_table, worst_line
from privplan.spec.spec import Spec
from privplan.values import digest, parse
from privplan.verification.verify import judge, load_run
from tests.command import refused
from tests.planning.test_recipe import DATA
from tests.verification import honest_run


@pytest.mark.parametrize(
    "tuning",
    [
        pytest.param({"runs": 20}, marks=pytest.mark.slow),
        pytest.param({"runs": 20, "law": "geometric"}, marks=pytest.mark.slow),
        {"runs": 5, "law": "truncated_negative_binomial", "shape": 0.8},
    ],
)
def test_budgets_hold_for_the_best_of_all_runs(tuning):
    spec = Spec.parse(DATA)
    by_group = costs(spec, parse(PrivateTuning, tuning))
    for cost, group in zip(by_group, spec.groups, strict=True):
        assert cost.budget == group.epsilon
        assert 0.99 * cost.budget <= cost.best <= cost.budget < cost.whole
        assert cost.left < cost.budget


@pytest.mark.parametrize(
    ("tuning", "message"),
    [
        ({"runs": 0.5}, "runs: must be 1 or more, found 0.5"),
        (
            {"runs": 1, "law": "geometric"},
            "runs: must be greater than 1 for law: geometric",
        ),
        (
            {"runs": 9, "shape": 1},
            "shape: is only for law: truncated_negative_binomial",
        ),
        (
            {"runs": 9, "law": "binomial"},
            "law: must be one of 'poisson', 'geometric' or",
        ),
    ],
)
def test_faults_are_one_line(tuning, message):
    with pytest.raises(InputError) as caught:
        parse(PrivateTuning, tuning)
    assert str(caught.value).startswith(message)


def test_the_command_says_what_is_left(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(DATA))
    done = CliRunner().invoke(command, [str(path), "--runs", "20", "--format", "json"])
    assert done.exit_code == 0, done.stderr
    assert all(row["left"] < row["budget"] for row in json.loads(done.stdout))


def stored(runs):
    """A plan of version 0.2.0, whose guarantee is of the best of that many runs."""
    plan = honest_run.plan()
    data = plan.model_dump(mode="json")
    data["spec"] = {**data["spec"], "tuning": {"runs": runs, "law": "poisson"}}
    fixed = {
        "accountant": "selection",
        "epsilon_lower": 0.0,
        "sampling": "poisson",
        "relation": "add_remove",
        "version": "privplan-selection 1",
        "guarantee": True,
        "kind": "upper bound",
    }
    tuning = PrivateTuning(runs=runs)
    data["certificate"] = []
    for group in plan.groups:
        spent = tuning.epsilon(
            plan.history(group), group.delta, Relation(plan.spec.relation)
        )
        row = {"group": group.name, "epsilon_upper": spent, "delta": group.delta}
        data["certificate"].append({**row, **fixed})
    return Plan.parse({**data, "digest": digest(data)})


def test_a_book_counts_no_choice_between_runs(tmp_path):
    tuned = stored(3)
    honest_run.write_run(tmp_path / "run", the_plan=tuned)
    reason = (
        r"certificate: cannot go with a book, which counts the releases of single runs"
    )
    with pytest.raises(InputError, match=reason):
        booking_of(tmp_path / "run", "staff")
    with pytest.raises(InputError, match=reason):
        past_runs([], "staff", tuned, [])
    arguments = ["book", "reserve", str(tmp_path / "run" / "plan.json"), "--run", "one"]
    line = refused(*arguments, "--address", tmp_path / "book.sqlite")
    assert "certificate: cannot go with a book" in line


def test_the_best_of_several_runs_names_the_accountant_that_bounds_it(tmp_path):
    honest_run.write_run(tmp_path / "alone")
    tuned = stored(3)
    assert Plan.parse(json.loads(tuned.to_json())).digest == tuned.digest
    honest_run.write_run(tmp_path / "tuned", the_plan=tuned)
    before, verdict = (
        judge(load_run(tmp_path / name), 0) for name in ("alone", "tuned")
    )
    for group, run in zip(verdict.groups, before.groups, strict=True):
        assert run.accountant == "pld"
        assert run.one_run is None
        assert group.accountant == "selection"
        assert group.realised_lower == 0.0
        assert group.realised_rdp == group.realised_upper > 1.2 * run.realised_upper
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


WHOLE = [float(order) for order in ORDERS if order == round(order) and order <= 256]


@pytest.mark.parametrize(
    ("mean", "shape"),
    [(20, math.inf), (1.5, math.inf), (20, 1.0), (5, 0.5), (100, 2.0)],
)
@pytest.mark.parametrize(("q", "sigma", "rounds"), [(0.02, 1.5, 50), (1.0, 20.0, 30)])
def test_it_is_dp_accountings_repeat_and_select(mean, shape, q, sigma, rounds):
    run: dp.DpEvent = dp.GaussianDpEvent(sigma)
    if q < 1:
        run = dp.PoissonSampledDpEvent(q, run)
    event = dp_event.RepeatAndSelectDpEvent(
        dp.SelfComposedDpEvent(run, rounds), mean, shape
    )
    theirs = RdpAccountant(WHOLE).compose(event).get_epsilon(1e-5)
    history = History.repeated(Release(sigma, q, SamplingLaw.POISSON), rounds)
    ours = selection.epsilon_of_selection(
        history, 1e-5, Relation.ADD_REMOVE, mean=mean, shape=shape
    )
    assert ours <= theirs * (1 + 1e-6)  # more orders than theirs
    assert ours == pytest.approx(theirs, rel=0.02)


def test_geometric_by_hand_for_a_gaussian():
    """Theorem 2 with eta 1: epsilon(l) = l / 2 s^2, gamma = 1 / E[K]."""
    sigma = 4.0
    mean = 10.0
    computed = selection.rdp_of_selection(ORDERS / (2 * sigma**2), mean, 1.0)
    extra = 2 * min(
        (1 - 1 / a) * a / (2 * sigma**2) + math.log(mean) / a for a in ORDERS
    )
    expected = ORDERS / (2 * sigma**2) + extra + math.log(mean) / (ORDERS - 1)
    assert_allclose(computed, expected, rtol=1e-9)


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("mean", [1.01, 5.0, 1e4])
def test_gamma_gives_the_mean(shape, mean):
    gamma = selection.negative_binomial_gamma(mean, shape)
    mean_of_gamma = shape * (1 - gamma) / (gamma * (1 - gamma**shape))
    assert mean_of_gamma == pytest.approx(mean, rel=1e-6)
