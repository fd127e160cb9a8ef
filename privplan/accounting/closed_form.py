"""Theorem 1 of GDPFed+ as printed, the conditions of its proof, and what it covers.

The theorem: T rounds at sampling ratio q are (epsilon, delta)-private when ``sigma^2 >=
7 q^2 T (epsilon + 2 log(1/delta)) / epsilon^2`` and ``epsilon < 2 log(1/delta)``. Its
proof (Appendix C) takes ``3.5 q^2 alpha / sigma^2`` for the Rényi divergence of one
round at ``alpha = 1 + 2 log(1/delta) / epsilon``, from Lemma 7 (Wang, Balle and
Kasiviswanathan 2019), and needs two conditions that the theorem does not
repeat: ``sigma^2 >= 0.7`` and
``alpha <= 1 + (2/3) sigma^2 psi^2 log(1 / (q alpha (1 + sigma^2)))``. The proof prints
C^2 where the lemma has psi^2. Here sigma is a multiplier of the sensitivity, so psi =
1.

What it covers. Lemma 7 is about cohorts drawn without replacement and neighbours that
differ by replacing one client, whose sensitivity is 2C; the paper adds noise C sigma
and speaks of adding or removing a client. Its right-hand side dominates the exact
moments of Poisson sampling under add/remove term by term (Mironov et al. 2019, Section
3.3), so under Poisson the printed formula holds where its conditions do. For a
fixed-size cohort the noise multiplier must be halved before it is inserted, under
either relation. The lemma is for whole alpha; ``(alpha - 1)`` times a Rényi divergence
is convex in alpha, which carries the bound to other alpha up to a relative ``1 / (4
alpha (alpha - 1))``.
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

# The theorem's constant, twice the 3.5 of its proof.
_FACTOR = 7
# Least sigma^2 under which the proof's lemma holds.
_LEAST_VARIANCE = 0.7
# Below it 1 / sigma^2 is not a floating-point number.
_LEAST_SIGMA = 1e-100


class ClosedFormAccountant:
    """Theorem 1 solved for epsilon; a bound only without ``failed_conditions``."""

    name = "closed_form"
    version = "GDPFed+ Theorem 1"
    kind = "published formula"
    guarantee = False

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Refused: Poisson sampling under replace-one, and zero-out of a cohort."""
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
    """The epsilon at which Theorem 1 holds with equality.

    It is the positive root of ``eps^2 - 7 S eps - 14 S log(1/delta)``, with S the sum
    of ``q^2 / sigma^2`` over all rounds.
    """
    total = 0.0
    for release, count in history:
        sigma = effective_noise(release, relation)
        if release.sampling_ratio == 0 or math.isinf(sigma):
            continue
        if sigma < _LEAST_SIGMA:
            return math.inf
        total += count * (release.sampling_ratio / sigma) ** 2
    linear = _FACTOR * total
    return (linear + math.sqrt(linear * linear + 8 * linear * math.log(1 / delta))) / 2


def effective_noise(release: Release, relation: Relation | str) -> float:
    """The sigma to insert in the theorem: half of it where neighbours are 2C apart."""
    sensitivity = release.sampling.law.sensitivity(checked_relation(relation))
    return release.noise_multiplier / sensitivity


def noise_multiplier(
    epsilon: float, delta: float, sampling_ratio: float, rounds: int
) -> float:
    """The smallest sigma that Theorem 1 allows, whether or not its conditions hold.

    ``sigma = q sqrt(7 T (epsilon + 2 log(1/delta))) / epsilon``.

    Args:
        epsilon: the budget, positive and finite.
        delta: the budget, in (0, 1).
        sampling_ratio: q, in (0, 1].
        rounds: T, 1 or more.

    Raises:
        InputError: for a value out of range.
    """
    checked_delta(delta)
    if not 0 < epsilon < math.inf:
        raise InputError.one("epsilon", "must be positive and finite", epsilon)
    if not 0 < sampling_ratio <= 1:
        raise InputError.one("sampling_ratio", "must be in (0, 1]", sampling_ratio)
    if not rounds >= 1:
        raise InputError.one("rounds", "must be 1 or more", rounds)
    return sampling_ratio * math.sqrt(squared_noise_factor(epsilon, delta, rounds))


def squared_noise_factor(epsilon: float, delta: float, rounds: int) -> float:
    """The c of sigma^2 = c q^2: 7 T (epsilon + 2 log(1/delta)) / epsilon^2."""
    return _FACTOR * rounds * (epsilon + 2 * math.log(1 / delta)) / epsilon**2


def conditions(
    epsilon: float, delta: float, sampling_ratio: float, noise_multiplier: float
) -> list[str]:
    """The conditions of Theorem 1 that fail, in words; empty when it is a bound.

    With q = 1 nothing is sampled, the Gaussian mechanism's alpha / 2 sigma^2 is below
    3.5 alpha / sigma^2 anyway, and no condition is needed.
    """
    if sampling_ratio == 1:
        return []
    failed = []
    variance = noise_multiplier**2
    log_term = 2 * math.log(1 / delta)
    if epsilon >= log_term:
        rule = f"must be below 2 log(1/delta) = {log_term:.4g}"
        failed.append(f"epsilon {rule}, found {epsilon:.4g}")
    if variance < _LEAST_VARIANCE:
        rule = f"must be at least {_LEAST_VARIANCE:g}"
        failed.append(f"sigma^2 {rule}, found {variance:.4g}")

    # The order at which the proof takes the Rényi divergence, and its limit in Lemma 7.
    alpha = math.inf
    limit = -math.inf
    if epsilon > 0:
        alpha = 1 + log_term / epsilon
    if math.isfinite(alpha):
        log_ratio = -math.log(sampling_ratio * alpha * (1 + variance))
        limit = 1 + (2 / 3) * variance * log_ratio
    if alpha > limit:
        rule = f"must be at most {limit:.4g}, found {alpha:.4g}"
        failed.append(f"alpha = 1 + 2 log(1/delta)/epsilon {rule}")
    return failed


def failed_conditions(
    history: History, delta: float, relation: Relation | str
) -> list[str]:
    """The conditions that fail at the accountant's epsilon; no bound where any does."""
    relation = checked_relation(relation)
    epsilon = ClosedFormAccountant().epsilon(history, delta, relation).upper
    if epsilon == 0 or math.isinf(epsilon):
        return []
    failed: dict[str, None] = {}
    for release, _ in history:
        if release.sampling_ratio > 0 and math.isfinite(release.noise_multiplier):
            sigma = effective_noise(release, relation)
            lines = conditions(epsilon, delta, release.sampling_ratio, sigma)
            failed.update(dict.fromkeys(lines))
    return list(failed)


ACCOUNTANTS.register(ClosedFormAccountant.name, ClosedFormAccountant())
