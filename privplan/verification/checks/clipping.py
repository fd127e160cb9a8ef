"""That no client, or no record, counts for more than its bound."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.record import GroupShare, ReleaseRecord
from privplan.verification.checks.check import Check, Run, first

CLIP_TOLERANCE = 1e-5
"""Relative slack on a clipped norm, for the rounding of single precision."""


def clipping(run: Run) -> Check:
    """No client added more to a sum than its bound, and the bound is the planned one.

    A client that was shortened lands on the bound. Where some were shortened and none reached
    it, the threshold was another one, such as a quantile of this very round's norms.
    """

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            bound = run.plan.clip_bound(group)
            for release, share in run.shares(group.name):
                if release.family != "silent":
                    where = f"round {release.round}, {group.name}"
                    yield from (f"{where}: {fault}" for fault in _faults(release, share, bound))

    norm = run.plan.spec.clipping_norm
    return first(problems(), "clipping", f"no update above its bound (C = {norm:g})")


def _faults(release: ReleaseRecord, share: GroupShare, bound: float) -> Iterator[str]:
    if share.clip_bound is None:
        yield "updates were not clipped"
    elif not math.isclose(share.clip_bound, bound, rel_tol=1e-9):
        yield f"clip bound {share.clip_bound:g}, planned {bound:g}"
    elif share.largest_norm > share.clip_bound * (1 + CLIP_TOLERANCE):
        yield f"an update of norm {share.largest_norm:.6g} exceeds its bound {share.clip_bound:g}"
    elif (
        release.unit == "client"
        and share.clipped > 0
        and share.largest_norm < share.clip_bound * (1 - CLIP_TOLERANCE)
    ):
        yield (
            f"{share.clipped} updates were shortened, and the largest has norm "
            f"{share.largest_norm:.6g} where the bound is {share.clip_bound:g}: the threshold was "
            "another one"
        )
