"""What an epsilon means to the person whom it protects, in guesses of a hundred.

An attacker knows everybody else's records and guesses whether a person took part.
Before looking at what was released, both are equally likely, so a blind guess is right
50 times of 100.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import expit, log_ndtr

from privplan.accounting.accountant import checked_delta
from privplan.accounting.gdp import mu_of
from privplan.errors import InputError

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
"""Rows of the table of meanings: from hardly anything revealed to nearly everything."""


@dataclass(frozen=True)
class Meaning:
    """How often the best attacker is right, with even odds before the release.

    Attributes:
        epsilon: of the guarantee.
        delta: of the guarantee, in (0, 1).
        right_at_most: share of right guesses that no attack exceeds, whatever mechanism
            has this guarantee.
        right_under_gaussian: the same, where the guarantee is spent by Gaussian noise
            without sampling that reaches it exactly.
    """

    epsilon: float
    delta: float
    right_at_most: float
    right_under_gaussian: float


def meaning_of(epsilon: float, delta: float) -> Meaning:
    """What (epsilon, delta) lets the best attacker guess.

    An attack with false-positive rate a has a true-positive rate of at most ``delta +
    e^epsilon a`` and ``1 - e^-epsilon (1 - delta - a)`` (Kairouz, Oh and Viswanath,
    2015, Theorem 2.1). Both meet where the share of right guesses is largest, half of
    ``1 - a`` and the true-positive rate: at ``(e^epsilon + delta) / (1 + e^epsilon)``.
    Under Gaussian noise of parameter mu it is ``Phi(mu / 2)`` (Dong, Roth and Su 2022,
    Section 2.3).

    Args:
        epsilon: above 0 and finite.
        delta: in (0, 1).

    Raises:
        InputError: for another epsilon or delta.
    """
    if not 0 < epsilon < math.inf:
        raise InputError.one("epsilon", "must be positive and finite", epsilon)
    checked_delta(delta)
    right_at_most = expit(epsilon) + delta * expit(-epsilon)
    mu = mu_of(epsilon, delta)
    return Meaning(
        epsilon,
        delta,
        float(min(1.0, right_at_most)),
        float(math.exp(log_ndtr(mu / 2))),
    )


def sentence(meaning: Meaning) -> str:
    """The meaning for somebody who writes no code; counts are rounded up."""
    any_mechanism = _of_hundred(meaning.right_at_most)
    gaussian = _of_hundred(meaning.right_under_gaussian)
    return (
        f"epsilon {meaning.epsilon:g} at delta {meaning.delta:g}: whoever guesses whether a "
        f"person took part is right at most {any_mechanism} times of 100 instead of 50, "
        f"and {gaussian} times where Gaussian noise without sampling spends it all"
    )


def cells(meaning: Meaning) -> list[str]:
    """The meaning as a row: epsilon, any mechanism, Gaussian noise."""
    return [
        f"{meaning.epsilon:g}",
        _of_hundred(meaning.right_at_most),
        _of_hundred(meaning.right_under_gaussian),
    ]


def _of_hundred(share: float) -> str:
    """Guesses of 100, rounded up at the first digit that is shown."""
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f}"
