"""Histories from and to events of dp-accounting, and an accountant of its interface.

The noise multiplier of an event is the noise standard deviation over the clipping norm
of one client or record, as everywhere in privplan and in dp-accounting's PLD
accountant: replacing a client moves the sum by two clipping norms, and so does a client
that joins a fixed-size cohort.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant

from privplan.accounting.curve import PrivacyCurve, checked_rounds
from privplan.accounting.pld.accountant import TOLERANCE
from privplan.accounting.release import (
    GAUSSIAN,
    History,
    Relation,
    Release,
    SamplingLaw,
)
from privplan.errors import InputError, UnsupportedError

RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Relation.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Relation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL: Relation.ZERO_OUT,
}


def history_from_event(event: dp_event.DpEvent, count: int = 1) -> History:
    """The releases of an event."""
    return History(_releases(event, checked_rounds(count)))


def _releases(event: dp_event.DpEvent, count: int) -> Iterator[tuple[Release, int]]:
    match event:
        case dp_event.NoOpDpEvent():
            return
        case dp_event.NonPrivateDpEvent():
            yield Release(0.0, 1.0, SamplingLaw.FULL), count
        case dp_event.ComposedDpEvent():
            for part in event.events:
                yield from _releases(part, count)
        case dp_event.SelfComposedDpEvent():
            yield from _releases(event.event, count * checked_rounds(event.count))
        case dp_event.GaussianDpEvent():
            yield Release(float(event.noise_multiplier), 1.0, SamplingLaw.FULL), count
        case dp_event.PoissonSampledDpEvent(event=dp_event.GaussianDpEvent() as inner):
            ratio = float(event.sampling_probability)
            yield (
                Release(float(inner.noise_multiplier), ratio, SamplingLaw.POISSON),
                count,
            )
        case dp_event.SampledWithoutReplacementDpEvent(
            event=dp_event.GaussianDpEvent() as inner
        ):
            yield _fixed_size(event, float(inner.noise_multiplier)), count
        case _:
            raise UnsupportedError(f"event: {_rule(event)}")


def _rule(event: object) -> str:
    name = type(event).__name__
    inner = getattr(event, "event", None)
    if inner is not None:
        name += f" of {type(inner).__name__}"
    return (
        "must be a GaussianDpEvent, one that is Poisson sampled or sampled without "
        f"replacement, or a composition of these, found {name}"
    )


def _fixed_size(
    event: dp_event.SampledWithoutReplacementDpEvent, noise: float
) -> Release:
    size = event.source_dataset_size
    cohort = event.sample_size
    if size < 1:
        raise InputError.one("source_dataset_size", "must be 1 or more", size)
    if not 0 <= cohort <= size:
        raise InputError.one("sample_size", f"must be in [0, {size}]", cohort)
    return Release(noise, cohort / size, SamplingLaw.FIXED_SIZE)


def event_from_history(
    history: History, *, clients: int | None = None
) -> dp_event.DpEvent:
    """A history as one event."""
    events = []
    for release, count in history:
        event = _event(release, clients)
        if count != 1:
            event = dp_event.SelfComposedDpEvent(event, count)
        events.append(event)
    if not events:
        return dp_event.NoOpDpEvent()
    if len(events) == 1:
        return events[0]
    return dp_event.ComposedDpEvent(events)


def _event(release: Release, clients: int | None) -> dp_event.DpEvent:
    if math.isinf(release.noise_multiplier) or release.sampling_ratio == 0:
        return dp_event.NoOpDpEvent()
    if release.noise_multiplier == 0:
        return dp_event.NonPrivateDpEvent()
    if release.family != GAUSSIAN:
        raise UnsupportedError(f"family: must be {GAUSSIAN}, found {release.family!r}")
    gaussian = dp_event.GaussianDpEvent(release.noise_multiplier)
    if release.sampling == SamplingLaw.FULL:
        return gaussian
    if release.sampling.law.single == SamplingLaw.POISSON:
        return dp_event.PoissonSampledDpEvent(release.sampling_ratio, gaussian)
    if release.sampling != SamplingLaw.FIXED_SIZE:
        raise UnsupportedError(
            "sampling: must be full, poisson or fixed_size, found "
            f"{str(release.sampling)!r}"
        )
    if clients is None or clients < 1:
        raise InputError.one("clients", "must be given for fixed-size cohorts", clients)
    cohort = release.sampling_ratio * clients
    if abs(cohort - round(cohort)) > 1e-9 * max(cohort, 1.0):
        raise InputError.one("clients", "must give a whole cohort", cohort)
    return dp_event.SampledWithoutReplacementDpEvent(clients, round(cohort), gaussian)


class PrivplanAccountant(PrivacyAccountant):  # type: ignore[misc]
    """dp-accounting's interface on privplan's upper bounds on epsilon and delta.

    Args:
        neighboring_relation: which data sets are neighbours.
        tolerance: relative gap to the lower bound to aim at.
    """

    def __init__(
        self,
        neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
        tolerance: float = TOLERANCE,
    ) -> None:
        super().__init__(neighboring_relation)
        self.curve = PrivacyCurve(RELATIONS[neighboring_relation], tolerance=tolerance)

    def _maybe_compose(
        self, event: dp_event.DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        """Compose, or say why not; the names are dp-accounting's."""
        try:
            history = history_from_event(event, count)
            PrivacyCurve(self.curve.relation).step(history)
        except (UnsupportedError, InputError) as error:
            return self.CompositionErrorDetails(event, str(error))
        if do_compose:
            self.curve.step(history)
        return None

    def get_epsilon(self, target_delta: float) -> float:
        """Upper bound on epsilon."""
        return self.curve.epsilon(target_delta).upper

    def get_delta(self, target_epsilon: float) -> float:
        """Upper bound on delta."""
        return self.curve.delta(target_epsilon).upper
