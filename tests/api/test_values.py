"""What public values answer where somebody takes them for another kind of value."""

import dataclasses
import operator
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import privplan
from privplan.accounting.accountant import Interval
from privplan.bundle import Bundle
from privplan.guidance import Guided


@pytest.fixture(scope="module")
def values():
    plan = privplan.solve(privplan.preset("digits-planned").replace(rounds=2))
    history = plan.history("strict")
    numbers = {"sampling_ratio": 0.1, "rounds": 3, "delta": 1e-5}
    curve = privplan.compose(history)
    by_kind = {
        "spec": plan.spec,
        "group": plan.spec.groups[0],
        "plan": plan,
        "groups": plan.groups,
        "certificate": privplan.account(history, delta=1e-5),
        "row": plan.certificate[0],
        "interval": curve.epsilon(1e-5),
        "curve": curve,
        "bounds": privplan.account(noise_multiplier=[1.0, 2.0], **numbers),
        "history": history,
        "release": next(iter(history))[0],
        "tradeoff": privplan.tradeoff(history, delta=1e-5),
        "accountant": privplan.accountant("pld"),
    }
    return SimpleNamespace(**by_kind)


KINDS = [
    "spec",
    "group",
    "plan",
    "groups",
    "certificate",
    "row",
    "interval",
    "curve",
    "bounds",
    "history",
    "release",
    "tradeoff",
    "accountant",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_a_value_lacks_is_answered_in_a_line(values, kind):
    value = getattr(values, kind)
    for name in ("nosuch", "get_epsilons", "to_yaml", "items"):
        with pytest.raises(AttributeError, match="has no attribute") as caught:
            getattr(value, name)
        line = str(caught.value)
        assert "\n" not in line
        # What is written instead, or all that there is.
        assert "; " in line or "did you mean" in line


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"certificate", "interval"}))
def test_a_value_that_is_no_number_names_its_numbers(values, kind):
    value = getattr(values, kind)
    with pytest.raises(
        TypeError, match=r"is no number; (write|its numbers are|it has) "
    ):
        float(value)
    if kind != "release":  # releases have an order among themselves
        with pytest.raises(TypeError, match="is no number; "):
            operator.le(value, 2)
    with pytest.raises(TypeError, match="is a value and is not called"):
        value()


def test_a_group_is_found_by_its_name(values):
    assert "strict" in values.plan.groups
    assert "strict" in values.plan.certificate
    assert "nobody" not in values.plan.groups
    assert values.plan.groups[0] in values.plan.groups
    assert "pld" in values.certificate
    with pytest.raises(TypeError, match=r"write \.groups\['strict'\]"):
        "strict" in values.plan  # noqa: B015
    with pytest.raises(TypeError, match=r"; it has .*clients"):
        values.plan.groups[0]["nosuch"]
    assert values.history[0] == next(iter(values.history))


@pytest.mark.parametrize("kind", ["certificate", "interval"])
def test_bounds_are_below_what_their_upper_bound_is_below(values, kind):
    value = getattr(values, kind)
    upper = float(value)
    assert value <= upper
    assert upper >= value
    assert value < np.float64(upper + 1)
    assert not value < upper
    # The exact number, not the float that is nearest to it.
    below = Fraction(upper) - Fraction(1, 10**30)
    assert float(below) == upper
    assert not value <= below
    for compare in (operator.gt, operator.ge, operator.eq, operator.ne):
        with pytest.raises(TypeError, match="a lower and an upper bound; write "):
            compare(value, upper)


def test_intervals_are_equal_where_both_bounds_are():
    assert Interval(1.0, 2.0) == Interval(1.0, 2.0)
    assert Interval(1.0, 2.0) != Interval(1.0, 2.5)
    assert len({Interval(1.0, 2.0), Interval(1.0, 2.0)}) == 1
    assert Interval(1.0, 2.0) != "text"


@pytest.mark.parametrize(
    ("owner", "name", "line"),
    [
        (privplan.Plan, "from_json", "write privplan.Plan.load(path)"),
        (privplan.Plan, "from_yaml", "write privplan.Plan.load(path)"),
        (privplan.Plan, "from_dict", "write privplan.Plan.parse(data)"),
        (privplan.Plan, "dump", "write .save(path)"),
        (privplan.Spec, "from_file", "write privplan.Spec.load(path)"),
        (privplan.History, "from_list", "write privplan.History([(privplan.Release("),
        (privplan.Release, "to_dict", "write dataclasses.asdict(value)"),
        (privplan.PrivacyCurve, "get_epsilon", "write PrivacyCurve.epsilon(delta)"),
        (privplan.Certificate, "to_json", "write .to_frame().to_json("),
        (Bundle, "open", "write Bundle.load(folder)"),
    ],
)
def test_a_name_of_other_libraries_is_answered_with_a_call(owner, name, line):
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert line in str(caught.value)


def test_what_is_written_instead_works(values):
    rows = values.certificate.to_frame().to_dict("records")
    assert len(rows) == len(values.certificate)
    assert dataclasses.asdict(values.interval)["upper"] == values.interval.upper
    assert dict(values.group)["name"] == "strict"


def test_a_column_that_a_frame_lacks_is_answered_as_an_attribute(values):
    frame = values.certificate.to_frame()
    with pytest.raises(AttributeError, match=r"accountants: is no column .*accountant"):
        _ = frame.accountants


def test_arguments_that_no_value_is_made_of_are_answered():
    with pytest.raises(privplan.PrivplanError, match="write noise_multiplier"):
        privplan.Release(sigma=1.0, q=0.1)
    with pytest.raises(privplan.PrivplanError, match="is not an argument"):
        privplan.PrivacyCurve(noise_multiplier=1.0)


def test_every_public_value_is_guided():
    simulate = pytest.importorskip("simulate")
    not_values = {"SamplingLaw", "Relation", "PrivplanError", "Callback"}
    for package in (privplan, simulate):
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, type) and name not in not_values:
                assert issubclass(value, Guided), name


def test_the_frame_of_a_book_names_budgets_as_budgets(tmp_path):
    book = privplan.Book(tmp_path / "book.sqlite")
    history = privplan.History([(privplan.Release(10.0, 1.0, "full"), 2)])
    book.declare("counts", history, group="all", clients=100, delta=1e-5)
    frame = book.to_frame()
    assert book.spent()["all"] == book.spent("all")[0]
    with pytest.raises(AttributeError, match=r"write \['all'\].epsilon_upper"):
        _ = book.spent().epsilon
    with pytest.raises(privplan.PrivplanError, match=r"groups: .*; write group"):
        book.spent(groups=["all"])
    # A group of another population is another one, and named by both.
    book.declare("others", history, group="all", clients=9, delta=1e-5, population="b")
    assert book.spent()["b/all"].population == "b"
    assert len(frame) == 1
    assert "budget_epsilon" in frame.columns
    assert "epsilon" not in frame.columns
