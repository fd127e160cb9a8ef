"""What was spent: one composition of all runs, against closed forms and another library."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from privplan.accounting.gdp import epsilon_of
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book.entry import BookedRun
from privplan.book.spending import Account, account_of, groups_of, spending
from privplan.errors import InputError
from tests.book.runs import as_recorded, full, run

DELTA = 1e-5


def _account(*histories: History, relation: Relation = Relation.ADD_REMOVE) -> Account:
    names = tuple(f"run{n}" for n in range(len(histories)))
    return Account("", "strict", "client", relation, names, histories, DELTA)


def _booked(folders: Sequence[Path], population: str = "") -> list[BookedRun]:
    return [as_recorded(folder, population) for folder in folders]


def test_full_participation_adds_squares_as_the_closed_form_says(tmp_path: Path) -> None:
    runs = _booked([full(tmp_path / "a", 20.0, 1), full(tmp_path / "b", 35.0, 2)])
    found = spending(account_of(runs, "", "strict"), DELTA)
    mu = (30 / 20.0**2 + 30 / 35.0**2) ** 0.5
    assert found.epsilon_upper == pytest.approx(epsilon_of(mu, DELTA), rel=1e-9)
    parts = sum(epsilon_of(30**0.5 / sigma, DELTA / 2) for sigma in (20.0, 35.0))
    assert found.epsilon_naive == pytest.approx(parts, rel=1e-9)
    assert (found.runs, found.releases, found.sampling) == (2, 60, "full")


def test_sampled_runs_compose_as_another_library_says() -> None:
    parts = [(1.6, 0.02, 30), (1.1, 0.05, 20), (2.0, 0.01, 100)]
    found = _account(*(History.repeated(Release(s, q), n) for s, q, n in parts))
    other = PLDAccountant(value_discretization_interval=1e-4)
    for sigma, ratio, rounds in parts:
        event = events.PoissonSampledDpEvent(ratio, events.GaussianDpEvent(sigma))
        other.compose(event, rounds)
    bounds = found.composed(History(), DELTA)
    assert bounds.lower * (1 - 1e-9) <= other.get_epsilon(DELTA) <= bounds.upper * (1 + 2e-3)


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
def test_one_composition_is_within_the_naive_sum_and_above_every_run(past: list[History]) -> None:
    whole = spending(_account(*past), DELTA)
    assert whole.epsilon_upper is not None
    assert whole.epsilon_naive is not None
    assert whole.epsilon_upper <= whole.epsilon_naive * (1 + 1e-9)
    for history in past:
        alone = _account(history).composed(History(), DELTA)
        assert alone.lower <= whole.epsilon_upper
    assert spending(_account(*reversed(past)), DELTA).epsilon_upper == whole.epsilon_upper


def test_a_release_without_noise_is_infinite() -> None:
    bare = History.repeated(Release(0.0, 0.1), 1)
    found = spending(_account(History.repeated(Release(2.0, 0.1), 5), bare), DELTA)
    assert (found.epsilon_lower, found.epsilon_upper, found.epsilon_naive) == (None,) * 3


def test_nothing_released_costs_nothing() -> None:
    found = spending(_account(History()), DELTA)
    assert (found.epsilon_upper, found.epsilon_naive, found.sampling) == (0.0, 0.0, "none")


def test_rounds_are_counted_where_clients_take_turns() -> None:
    """A client is in 4 of 12 rounds; ``book add`` counts 12, too."""
    history = History.repeated(Release(2.0, 0.1, SamplingLaw("cyclic_poisson:3")), 4)
    assert spending(_account(history), DELTA).releases == 12


def test_relations_are_not_mixed_unless_one_is_named(tmp_path: Path) -> None:
    runs = _booked([run(tmp_path / "a"), run(tmp_path / "b", 2, relation="replace_one")])
    with pytest.raises(InputError, match=r"relation: must be one .*add_remove and replace_one"):
        account_of(runs, "", "strict")
    read = account_of(runs, "", "strict", Relation.REPLACE_ONE)
    release = Release(1.6, 0.02, SamplingLaw.POISSON)
    expected = _account(History.repeated(release, 60), relation=Relation.REPLACE_ONE)
    assert read.composed(History(), DELTA) == expected.composed(History(), DELTA)


def test_units_are_not_mixed(tmp_path: Path) -> None:
    (booked,) = _booked([run(tmp_path / "a")])
    shares = [share.model_copy(update={"unit": "record"}) for share in booked.shares]
    other = booked.model_copy(update={"shares": tuple(shares)})
    with pytest.raises(InputError, match="unit: must be one"):
        account_of([booked, other], "", "strict")


def test_equal_names_in_two_populations_are_two_groups(tmp_path: Path) -> None:
    north, south = ([run(tmp_path / f"{s}", s)] for s in (1, 2))
    runs = _booked(north, "north") + _booked(south, "south")
    assert groups_of(runs, None) == [
        (where, group) for where in ("north", "south") for group in ("loose", "strict")
    ]
    assert account_of(runs, "north", "strict").history.rounds == 30
    with pytest.raises(InputError, match="'east' has none"):
        account_of(runs, "east", "strict")
