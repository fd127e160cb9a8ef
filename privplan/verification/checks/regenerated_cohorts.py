"""The check that cohorts are those that the law draws from the seed or the key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privplan.plan import GroupPlan
from privplan.streams import Purpose
from privplan.verification.checks.check import (
    Check,
    at_round,
    first,
    lacking,
    not_shown,
    passed,
    register,
)
from privplan.verification.run import Run


def cohorts_are_of_seed(run: Run) -> bool:
    """Whether all cohorts are those of the seed: how likely they were shows nothing."""
    # A key may have been chosen.
    if run.plan.spec.unit != "client" or run.keyed:
        return False
    return run.once(cohorts_regenerated).passed


@register("cohorts regenerated", order=131)
def cohorts_regenerated(run: Run) -> Check:
    """The participants of each round are those that the law draws from seed or key.

    This is exact, where tests of the law's properties have a power: one client more or
    less in one cohort is a fault.
    """
    name = "cohorts regenerated"
    if run.plan.spec.unit == "record":
        return passed(name, "does not apply, clients take turns; see rounds")
    obstacle = run.other_streams
    if run.keyed and not run.key:
        obstacle = "the key of the cohorts"
    if obstacle is not None:
        return not_shown(name, [obstacle], required=False)

    def problems() -> Iterator[str]:
        """Cohorts of any group that its stream does not give."""
        for index, group in enumerate(run.plan.groups):
            yield from _other_cohorts(run, group, index)

    missing = list(unnamed_participants(run))
    number = sum(len(release.shares) for release in run.ledger.records)
    reason = f"{number} cohorts are those of the {_source_of(run)}"
    return first(problems(), name, reason, missing, required=False)


def unnamed_participants(run: Run) -> Iterator[str]:
    """Missing evidence: participants of releases, also where there is no release."""
    unnamed = []
    for release in run.ledger.records:
        unnamed += [share.participants is None for share in release.shares]
    if not unnamed:
        yield "participants (0 of 0)"
    yield from lacking("participants", unnamed)


def _source_of(run: Run) -> str:
    """What the cohorts follow from, in a word for a reader."""
    if run.key:
        return "key"
    return "seed"


def _other_cohorts(run: Run, group: GroupPlan, index: int) -> Iterator[str]:
    """Cohorts of a group that are not drawn from the stream of its index."""
    law = run.plan.law_of(group).law
    for release, share in run.shares(group.name):
        if share.participants is None:
            continue
        ratio, _ = at_round(run, group, release)
        # Laws that draw once for several rounds draw from the stream of the first.
        first_round = law.stream_round(release.round)
        source = run.source(Purpose.SAMPLING, first_round, index, group=group.name)
        drawn = law.draw(source, run.clients[group.name], ratio, release.round)
        if not np.array_equal(share.participants, drawn):
            different = len(np.setxor1d(drawn, share.participants))
            yield (
                f"round {release.round}, {group.name}: the {_source_of(run)} draws "
                f"another cohort ({different} clients differ)"
            )
