"""Events of dp-accounting in and out, and its PLD against the bounds."""

import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError

from privplan.accounting.release import History, Release, SamplingLaw
from privplan.contrib.adapters.dp_accounting import (
    RELATIONS,
    PrivplanAccountant,
    event_from_history,
    history_from_event,
)
from privplan.errors import UnsupportedError

GAUSSIAN = events.GaussianDpEvent(1.2)
POISSON = events.PoissonSampledDpEvent(0.05, GAUSSIAN)
COHORT = events.SampledWithoutReplacementDpEvent(200, 30, GAUSSIAN)


def test_events_in_and_out():
    event = events.ComposedDpEvent([
        events.SelfComposedDpEvent(POISSON, 40),
        events.SelfComposedDpEvent(events.ComposedDpEvent([POISSON, GAUSSIAN]), 3),
        COHORT, events.NoOpDpEvent(),
    ])  # fmt: skip
    history = history_from_event(event, 2)
    expected = History(
        [
            (Release(1.2, 0.05), 86),
            (Release(1.2, 1.0, SamplingLaw.FULL), 6),
            (Release(1.2, 0.15, SamplingLaw.FIXED_SIZE), 2),
        ]
    )
    assert history == expected
    assert history_from_event(event_from_history(history, clients=200)) == history
    assert event_from_history(History()) == events.NoOpDpEvent()

    # A release without noise is one of the full population: sampling hides nothing.
    bare = event_from_history(History([(Release(0.0, 0.5), 1)]))
    assert history_from_event(bare) == History(
        [(Release(0.0, 1.0, SamplingLaw.FULL), 1)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("relation", list(NeighboringRelation))
@pytest.mark.parametrize(
    "event", [POISSON, events.ComposedDpEvent([POISSON, events.GaussianDpEvent(4.0)])]
)
def test_its_pld_is_within_the_bounds_and_its_looseness(relation, event):
    """dp-accounting rounds each loss up to a multiple of its interval.

    Its epsilon is thus at most one interval above the truth for each round.
    """
    interval = 1e-4
    rounds = 60
    theirs = PLDAccountant(relation, interval).compose(event, rounds)
    ours = PrivplanAccountant(relation).compose(event, rounds)
    bounds = ours.curve.epsilon(1e-5)
    assert (
        bounds.lower
        <= theirs.get_epsilon(1e-5)
        <= bounds.upper + interval * (rounds + 1)
    )
    assert ours.get_epsilon(1e-5) == bounds.upper
    delta = ours.curve.delta(2.0)
    assert delta.lower <= theirs.get_delta(2.0) <= delta.upper * (1 + 0.05)
    assert ours.get_delta(2.0) == delta.upper
    assert ours.curve.relation == RELATIONS[relation]
    assert history_from_event(ours.ledger) == ours.curve.history


def test_unsupported_events_are_refused_in_one_line():
    wrong = [
        events.LaplaceDpEvent(1.0),
        events.PoissonSampledDpEvent(0.1, events.LaplaceDpEvent(1.0)),
        events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(GAUSSIAN, 2)),
        events.SampledWithReplacementDpEvent(10, 2, GAUSSIAN),
        events.ComposedDpEvent([GAUSSIAN, events.ZCDpEvent(1.0)]),
        "event",
    ]
    for event in wrong:
        with pytest.raises(
            UnsupportedError, match="event: must be a GaussianDpEvent"
        ) as caught:
            history_from_event(event)
        assert "\n" not in str(caught.value)
    accountant = PrivplanAccountant()
    assert not accountant.supports(wrong[0])
    assert accountant.supports(POISSON)
    with pytest.raises(UnsupportedEventError):
        accountant.compose(wrong[-2])
    assert accountant.get_epsilon(1e-5) == 0
