"""Statistical tests of what a ledger recorded, with false-alarm rates that are upper bounds.

Each p-value is an upper bound on the chance that an honest run looks at least as odd.
"""

from __future__ import annotations

import numpy as np

from privplan.accounting.noise_families import noise_p_value as noise_p_value

FALSE_ALARM = 1e-6
"""Largest false-alarm rate of a check of the ledger, per honest run."""
EVIDENCE_FALSE_ALARM = 1e-4
"""The same for a check of measured noise or of cohorts; power needs a larger rate there."""


def oddest_client(counts: np.ndarray, law: np.ndarray) -> tuple[int, float]:
    """The client whose number of participations is the oddest, and how odd it is.

    Args:
        counts: how often each client took part [n].
        law: probability of 0, 1, ... participations of each client.

    Returns:
        The client's position, and a bound on the chance that any of the n clients has a count
        that far out on either side. Clients need not be independent of each other (union bound).
    """
    below, above = np.cumsum(law), np.cumsum(law[::-1])[::-1]
    inside = np.minimum(counts, len(law) - 1)
    chances = np.where(counts < len(law), np.minimum(below[inside], above[inside]), 0.0)
    oddest = int(np.argmin(chances))
    return oddest, float(min(1.0, 2 * len(counts) * chances[oddest]))
