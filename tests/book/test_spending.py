"""What was spent and what is left: closed forms, another library, the accountant."""

import math
from fractions import Fraction

import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.rdp import ORDERS
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book import filters
from privplan.book.remaining import remaining
from privplan.book.spending import (
    Account,
    account_of,
    delta_for,
    groups_of,
    spending,
    spendings,
)
from privplan.errors import InfeasibleError, InputError
from tests.book.runs import as_recorded, full, run

DELTA = 1e-5


def _account(*histories, relation=Relation.ADD_REMOVE):
    names = tuple(f"run{n}" for n in range(len(histories)))
    return Account("", "strict", "client", relation, names, histories, DELTA)


def _booked(folders, population=""):
    return [as_recorded(folder, population) for folder in folders]


def test_full_participation_adds_squares_as_the_closed_form_says(tmp_path):
    runs = _booked([full(tmp_path / "a", 20.0, 1), full(tmp_path / "b", 35.0, 2)])
    spent = spending(account_of(runs, "", "strict"), DELTA)
    mu = (30 / 20.0**2 + 30 / 35.0**2) ** 0.5
    assert spent.epsilon_upper == pytest.approx(epsilon_of(mu, DELTA), rel=1e-9)
    sum_of_runs = sum(epsilon_of(30**0.5 / sigma, DELTA / 2) for sigma in (20.0, 35.0))
    assert spent.epsilon_naive == pytest.approx(sum_of_runs, rel=1e-9)
    assert spent.runs == 2
    assert spent.kept == 2
    assert spent.releases == 60
    assert spent.sampling == "full"


def test_sampled_runs_compose_as_another_library_says():
    past_runs = [(1.6, 0.02, 30), (1.1, 0.05, 20), (2.0, 0.01, 100)]
    account = _account(*(History.repeated(Release(s, q), n) for s, q, n in past_runs))
    library = PLDAccountant(value_discretization_interval=1e-4)
    for sigma, ratio, rounds in past_runs:
        library.compose(
            events.PoissonSampledDpEvent(ratio, events.GaussianDpEvent(sigma)), rounds
        )
    bounds = account.composed(History(), DELTA)
    assert (
        bounds.lower * (1 - 1e-9)
        <= library.get_epsilon(DELTA)
        <= bounds.upper * (1 + 2e-3)
    )


noises = st.floats(0.8, 5.0)
pasts = st.lists(
    st.builds(
        lambda sigma, ratio, rounds: History.repeated(Release(sigma, ratio), rounds),
        noises,
        st.sampled_from([0.01, 0.1, 0.5]),
        st.integers(1, 40),
    ),
    min_size=2,
    max_size=3,
)


@settings(max_examples=12, deadline=None)
@given(pasts)
def test_one_composition_is_within_the_naive_sum_and_above_every_run(past):
    spent = spending(_account(*past), DELTA)
    assert spent.epsilon_upper <= spent.epsilon_naive * (1 + 1e-9)
    for history in past:
        assert _account(history).composed(History(), DELTA).lower <= spent.epsilon_upper
    assert (
        spending(_account(*reversed(past)), DELTA).epsilon_upper == spent.epsilon_upper
    )


def test_the_sum_of_runs_counts_each_for_the_person_with_the_most_clients():
    """A run that counts single clients costs a person with three of them more."""
    everybody = SamplingLaw.FULL
    of_single = History.repeated(Release(4.0, 1.0, everybody), 20)
    of_three = History.repeated(Release(30.0, 1.0, everybody.of_person(3)), 20)
    spent = spending(_account(of_single, of_three), DELTA)
    sum_of_runs = sum(
        epsilon_of(3 * 20**0.5 / sigma, DELTA / 2) for sigma in (4.0, 30.0)
    )
    assert spent.epsilon_naive == pytest.approx(sum_of_runs, rel=1e-6)
    assert spent.epsilon_naive >= spent.epsilon_lower


def test_a_release_without_noise_is_infinite():
    bare = History.repeated(Release(0.0, 0.1), 1)
    spent = spending(_account(History.repeated(Release(2.0, 0.1), 5), bare), DELTA)
    assert spent.epsilon_lower is None
    assert spent.epsilon_upper is None
    assert spent.epsilon_naive is None


def test_rounds_are_counted_where_clients_take_turns():
    """A client is in 4 of 12 rounds; ``book add`` counts 12, too."""
    history = History.repeated(Release(2.0, 0.1, SamplingLaw("cyclic_poisson:3")), 4)
    assert spending(_account(history), DELTA).releases == 12


def test_relations_are_not_mixed_unless_one_is_named(tmp_path):
    runs = _booked(
        [run(tmp_path / "a"), run(tmp_path / "b", 2, relation="replace_one")]
    )
    with pytest.raises(
        InputError, match=r"relation: must be one .*add_remove and replace_one"
    ):
        account_of(runs, "", "strict")
    read = account_of(runs, "", "strict", Relation.REPLACE_ONE)
    release = Release(1.6, 0.02, SamplingLaw.POISSON)
    expected = _account(History.repeated(release, 60), relation=Relation.REPLACE_ONE)
    assert read.composed(History(), DELTA) == expected.composed(History(), DELTA)


def test_a_run_that_stopped_within_a_turn_may_have_spent_nothing(tmp_path):
    (booked,) = _booked([run(tmp_path / "a")])
    (share, *_) = booked.shares
    by_turns = ("running", "random_allocation:5")
    for status, law in (by_turns, ("running", "full"), ("complete", by_turns[1])):
        change = {"sampling": SamplingLaw(law), "sampling_ratio": 1.0}
        releases = (share.releases[0].model_copy(update=change),)
        shares = (share.model_copy(update={"releases": releases}),)
        changed = booked.model_copy(update={"shares": shares, "status": status})
        spent = spending(account_of([changed], "", share.group), DELTA)
        assert (spent.epsilon_lower == 0) == ((status, law) == by_turns)


def test_a_group_that_cannot_be_composed_is_a_fault(tmp_path):
    folders = [run(tmp_path / "a"), run(tmp_path / "b", 2, relation="replace_one")]
    spent, faults = spendings(_booked(folders, "north"), population="north")
    assert spent == []
    assert {fault.field for fault in faults} == {"relation"}
    with pytest.raises(InputError, match="population: must be in the book"):
        spendings(_booked(folders, "north"), population="east")


def test_runs_share_the_word_for_whom_they_protect(tmp_path):
    runs = _booked([run(tmp_path / word, person=word) for word in ("user", "patient")])
    assert account_of(runs[:1], "", "strict").person == "user"
    assert account_of(runs, "", "strict").person == "person"


def test_a_delta_is_between_0_and_1():
    for delta in (0, 1, 1.5):
        with pytest.raises(InputError, match="delta: must be in"):
            delta_for(_account(), delta)


def test_units_are_not_mixed(tmp_path):
    (booked,) = _booked([run(tmp_path / "a")])
    shares = [share.model_copy(update={"unit": "record"}) for share in booked.shares]
    of_records = booked.model_copy(update={"shares": tuple(shares)})
    with pytest.raises(InputError, match="unit: must be one"):
        account_of([booked, of_records], "", "strict")


def test_equal_names_in_two_populations_are_two_groups(tmp_path):
    north, south = ([run(tmp_path / f"{s}", s)] for s in (1, 2))
    runs = _booked(north, "north") + _booked(south, "south")
    assert groups_of(runs, None) == [
        ("north", "loose"),
        ("north", "strict"),
        ("south", "loose"),
        ("south", "strict"),
    ]
    assert account_of(runs, "north", "strict").history.rounds == 30
    with pytest.raises(InputError, match="'east' has none"):
        account_of(runs, "east", "strict")


def _full(sigma, rounds, law="full"):
    return History.repeated(Release(sigma, 1.0, SamplingLaw(law)), rounds)


@pytest.mark.parametrize("law", ["full", "random_allocation:5"])
def test_full_participation_has_a_closed_form(law):
    """As which the filter counts a block of random allocation."""
    account = _account(_full(30.0, 10, law), _full(40.0, 20))
    next_run = remaining(account, 3.0, DELTA)
    room = mu_of(3.0, DELTA) ** 2 - 10 / 30.0**2 - 20 / 40.0**2
    assert next_run.noise_multiplier == pytest.approx(math.sqrt(20 / room), rel=2e-4)
    assert next_run.noise_multiplier >= math.sqrt(20 / room)
    assert next_run.rule == "gaussian filter"  # costs nothing over exact composition
    assert next_run.headroom == pytest.approx(3.0 - next_run.spent, abs=1e-6)
    exact = remaining(account, 3.0, DELTA, rule="exact")
    assert exact.headroom == 3.0 - exact.spent_upper
    assert (exact.spent_upper < 0.99 * next_run.spent) == (law != "full")


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
@pytest.mark.parametrize("law", [SamplingLaw.POISSON, SamplingLaw.FIXED_SIZE])
def test_the_answers_fit_and_one_more_does_not(law, relation):
    first_history, last_history = (
        History.repeated(Release(sigma, 0.02, law), 20) for sigma in (5.0, 6.0)
    )
    account = _account(first_history, last_history, relation=relation)
    answer = remaining(account, 2.0, DELTA, rule="exact")
    sigma = answer.noise_multiplier
    next_run = History.repeated(Release(sigma, 0.02, law), 20)
    assert account.composed(next_run, DELTA).upper == answer.total
    assert answer.total <= 2.0
    less = History.repeated(Release(sigma * 0.999, 0.02, law), 20)
    assert account.composed(less, DELTA).upper > 2.0


def test_a_next_run_may_have_another_shape():
    account = _account(History.repeated(Release(2.0, 0.02), 50))
    answer = remaining(
        account, 1.0, DELTA, sampling_ratio=0.1, rounds=200, rule="exact"
    )
    assert answer.next_ratio == 0.1
    assert answer.next_rounds == 200
    sigma = answer.noise_multiplier or 0.0
    assert (
        0.998
        <= account.composed(History.repeated(Release(sigma, 0.1), 200), DELTA).upper
        <= 1.0
    )


def test_sampled_runs_are_filtered_by_the_divergence_at_one_order():
    """By definition: capacity and cost at the order that fits the first run."""
    history = History.repeated(Release(2.0, 0.02), 50)
    account = _account(history, history)
    answer = remaining(account, 1.0, DELTA)
    order = filters.order_of(1.0, DELTA, history)
    assert answer.rule == f"renyi filter at order {ORDERS[order]:g}"
    assert 0.997 <= answer.total <= 1.0
    assert (
        answer.noise_multiplier
        > remaining(account, 1.0, DELTA, rule="exact").noise_multiplier
    )


def test_a_refusal_by_a_filter_names_what_it_counts():
    account = _account(_full(10.0, 30))
    total = account.composed(History(), DELTA).upper * 1.01
    with pytest.raises(InfeasibleError, match="nothing is left") as refused:
        remaining(account, total, DELTA, rule="renyi")
    assert float(str(refused.value).split(" counts ")[1]) > total


def test_a_spent_capacity_is_the_budget():
    for rule, order in (("gaussian", 0), ("renyi", 0), ("renyi", 40)):
        units = filters.capacity(rule, 900, DELTA, order)
        spent = filters.spent_epsilon(rule, units, DELTA, order)
        assert spent == pytest.approx(900)
        assert filters.spent_epsilon(rule, filters.MOST_UNITS, DELTA, 0) == math.inf


def test_a_capacity_is_below_every_rounding():
    exact = Fraction(mu_of(900.0, DELTA)) ** 2 / Fraction(filters.UNIT)
    units = filters.capacity("gaussian", 900.0, DELTA, 0)
    # Twice the margin of a conversion, for the square.
    assert 1 <= exact - units <= 1 + exact * Fraction("2.1e-8")
