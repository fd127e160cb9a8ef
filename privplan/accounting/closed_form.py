"""Theorem 1 of GDPFed+ as printed, the conditions of its proof, and what it really covers.

The theorem: T rounds at sampling ratio q are (epsilon, delta)-private when
``sigma^2 >= 7 q^2 T (epsilon + 2 log(1/delta)) / epsilon^2`` and
``epsilon < 2 log(1/delta)``. Its proof (Appendix C) takes ``3.5 q^2 alpha / sigma^2`` for
the Rényi divergence of one round at ``alpha = 1 + 2 log(1/delta) / epsilon``, from Lemma 7
(Wang, Balle and Kasiviswanathan 2019), and needs two conditions that the theorem does not
repeat: ``sigma^2 >= 0.7`` and
``alpha <= 1 + (2/3) sigma^2 psi^2 log(1 / (q alpha (1 + sigma^2)))``. The proof prints C^2
where the lemma has psi^2. Here sigma is a multiplier of the sensitivity, so psi = 1.

What it covers. Lemma 7 is about cohorts drawn without replacement and neighbours that
differ by replacing one client, whose sensitivity is 2C; the paper adds noise C sigma and
speaks of adding or removing a client. Its right-hand side dominates the exact moments of
Poisson sampling under add/remove term by term (Mironov et al. 2019, Section 3.3), so under
Poisson the printed formula holds where its conditions do. For a fixed-size cohort the
noise multiplier must be halved before it is inserted, under either relation. The lemma is
for whole alpha; ``(alpha - 1)`` times a Rényi divergence is convex in alpha, which carries
the bound to other alpha up to a relative ``1 / (4 alpha (alpha - 1))``.
"""

from __future__ import annotations

import math

from privplan.accounting.accountant import (
    ACCOUNTANTS,
    Interval,
    check_supported,
    checked_delta,
    checked_relation,
)
from privplan.accounting.families import not_gaussian
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InputError


class ClosedFormAccountant:
    """Theorem 1 solved for epsilon; a bound only where ``failed_conditions`` finds nothing."""

    name = "closed_form"
    version = "GDPFed+ Theorem 1"
    kind = "published formula"
    guarantee = False

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Poisson sampling under replace-one, and zero-out of a cohort, are not covered."""
        for release, _ in history:
            law = release.sampling.law
            if not law.has_theorem_1(relation):
                return f"Theorem 1 does not cover {law.phrase} under {relation}"
        return not_gaussian(history)

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """The epsilon of Theorem 1 at ``delta``; see ``failed_conditions``."""
        check_supported(self, history, delta, relation)
        return Interval(0.0, _epsilon(history, delta, relation))


def _epsilon(history: History, delta: float, relation: Relation) -> float:
    """Positive root of ``eps^2 - 7 S eps - 14 S log(1/delta)``, S the sum of q^2 / sigma^2."""
    total = 0.0
    for release, count in history:
        sigma = effective_noise(release, relation)
        if release.sampling_ratio == 0 or math.isinf(sigma):
            continue
        if sigma < 1e-100:
            return math.inf
        total += count * (release.sampling_ratio / sigma) ** 2
    seven = 7 * total
    return (seven + math.sqrt(seven * seven + 8 * seven * math.log(1 / delta))) / 2


def effective_noise(release: Release, relation: Relation | str) -> float:
    """The sigma to insert in the theorem: half of it wherever neighbours are 2C apart."""
    return release.noise_multiplier / release.sampling.law.sensitivity(
        checked_relation(relation)
    )


def noise_multiplier(
    epsilon: float, delta: float, sampling_ratio: float, rounds: int
) -> float:
    """The smallest sigma that Theorem 1 allows, whether or not its conditions hold."""
    checked_delta(delta)
    if not 0 < epsilon < math.inf:
        raise InputError.one("epsilon", "must be positive and finite", epsilon)
    if not 0 < sampling_ratio <= 1:
        raise InputError.one("sampling_ratio", "must be in (0, 1]", sampling_ratio)
    if not rounds >= 1:
        raise InputError.one("rounds", "must be 1 or more", rounds)
    return (
        sampling_ratio
        * math.sqrt(7 * rounds * (epsilon + 2 * math.log(1 / delta)))
        / epsilon
    )


def conditions(
    epsilon: float, delta: float, sampling_ratio: float, noise_multiplier: float
) -> list[str]:
    """The conditions of Theorem 1 that fail, in words; empty when it is a bound.

    With q = 1 nothing is sampled, the Gaussian mechanism's alpha / 2 sigma^2 is below
    3.5 alpha / sigma^2 anyway, and no condition is needed.
    """
    if sampling_ratio == 1:
        return []
    failed, square = [], noise_multiplier**2
    if epsilon >= 2 * math.log(1 / delta):
        failed.append(
            f"epsilon must be below 2 log(1/delta) = {2 * math.log(1 / delta):.4g}, "
            f"found {epsilon:.4g}"
        )
    if square < 0.7:
        failed.append(f"sigma^2 must be at least 0.7, found {square:.4g}")
    alpha = 1 + 2 * math.log(1 / delta) / epsilon if epsilon > 0 else math.inf
    limit = -math.inf
    if math.isfinite(alpha):
        log_term = -math.log(sampling_ratio * alpha * (1 + square))
        limit = 1 + (2 / 3) * square * log_term
    if alpha > limit:
        rule = f"must be at most {limit:.4g}, found {alpha:.4g}"
        failed.append(f"alpha = 1 + 2 log(1/delta)/epsilon {rule}")
    return failed


def failed_conditions(
    history: History, delta: float, relation: Relation | str
) -> list[str]:
    """The conditions that fail at the accountant's epsilon, which is no bound where any does."""
    relation = checked_relation(relation)
    epsilon = ClosedFormAccountant().epsilon(history, delta, relation).upper
    if epsilon == 0 or math.isinf(epsilon):
        return []
    failed: dict[str, None] = {}
    for release, _ in history:
        if release.sampling_ratio > 0 and math.isfinite(release.noise_multiplier):
            sigma = effective_noise(release, relation)
            failed.update(
                dict.fromkeys(conditions(epsilon, delta, release.sampling_ratio, sigma))
            )
    return list(failed)


ACCOUNTANTS.register(ClosedFormAccountant.name, ClosedFormAccountant())
