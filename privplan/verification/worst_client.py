"""The worst-off client of a group, where clients of one group have different histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from privplan.accounting.release import History, Release
from privplan.record import ReleaseRecord


def most_exposed(records: Iterable[ReleaseRecord], group: str) -> tuple[int | None, History]:
    """The client of the group with the largest signal, and its history.

    Where releases protect clients, all clients of a group have the same history. Where each
    protects the records of one client, clients are ranked by the sum of
    (ratio / noise multiplier)^2 over their own releases; the epsilon of the first one is a lower
    bound on the epsilon of the group's worst-off client.

    Returns:
        The client's position in the group, None where all are equal, and its history.
    """
    shared: Counter[Release] = Counter()
    own: dict[int, Counter[Release]] = {}
    for record in records:
        for share in record.shares:
            if share.group != group:
                continue
            release = record.release_for(share)
            if record.unit == "record" and share.participants is not None:
                for client in share.participants:
                    own.setdefault(client, Counter())[release] += record.steps
            else:
                shared[release] += record.steps
    if not own:
        return None, History(shared.items())
    worst = max(own, key=lambda client: (_signal(own[client]), -client))
    return worst, History((shared + own[worst]).items())


def _signal(releases: Counter[Release]) -> float:
    return sum(
        count * (release.sampling_ratio / release.noise_multiplier) ** 2
        if release.noise_multiplier > 0
        else float("inf")
        for release, count in releases.items()
    )
