"""What each client was exposed to, where clients of one group differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from privplan.accounting.release import History, Release
from privplan.record import ReleaseRecord


def most_exposed(records: Iterable[ReleaseRecord], group: str) -> tuple[int | None, History]:
    """A client of the group who was exposed as much as any, by the size of its signal.

    Where releases protect clients, all clients of a group are exposed alike, and none is named.
    Where they protect the records of one client each, clients are ranked by the sum of
    (ratio / noise multiplier)^2 over their own releases; whatever that client spent is a lower
    bound on what the worst-off client of the group spent.

    Returns:
        Its position in the group, and its own history.
    """
    shared: Counter[Release] = Counter()
    alone: dict[int, Counter[Release]] = {}
    for record in records:
        for share in record.shares:
            if share.group != group:
                continue
            release = record.release_for(share)
            if record.unit == "record" and share.participants is not None:
                for client in share.participants:
                    alone.setdefault(client, Counter())[release] += record.steps
            else:
                shared[release] += record.steps
    if not alone:
        return None, History(shared.items())
    worst = max(alone, key=lambda client: (_signal(alone[client]), -client))
    return worst, History((shared + alone[worst]).items())


def _signal(releases: Counter[Release]) -> float:
    return sum(
        count * (release.sampling_ratio / release.noise_multiplier) ** 2
        if release.noise_multiplier > 0
        else float("inf")
        for release, count in releases.items()
    )
