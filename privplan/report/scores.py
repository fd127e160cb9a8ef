"""Whose scores a report may show.

An exact score on records of clients is a release that no budget paid for: of many
candidates for a record few agree with it. A report is for others and leaves it out.
"""

from __future__ import annotations

from privplan.record import RunRecord

WITHHELD = (
    "Scores are left out: their test records may be clients' own, and an exact score on these is "
    "a release that no budget pays for. Whoever trained the run reads them in its folder."
)
"""Why a report shows no score."""


def are_withheld(record: RunRecord) -> bool:
    """Whether scores of the run may be on records of its clients.

    They are not where the user said that the test records are of people who are no
    clients.
    """
    return record.scores_are_of_members
