"""Delta of many equal rounds by a quadrature of its inverse Laplace transform.

Shares nothing with the accountant. For t > 0

    delta(epsilon) = 1 / (2 pi i) integral of M(z)^T exp(-z epsilon) / (z (1 + z))

over the line Re z = t, where M(z) is the moment E_P[exp(z loss)] of a round. Both
integrals are trapezoidal sums, which converge faster than any power of their steps.
Not where clients take part in fewer than some 20 rounds: the integrand does not fade.
"""

from typing import NamedTuple

import numpy as np

# Outcomes beyond 14 deviations have a mass below 1e-44.
REACH = 14.0
OUTCOMES = 6_001
FREQUENCIES = 4_001
# Frequencies in units of the inverse deviation of the composed loss: e^(-40^2 / 8) of
# a normal law is left beyond.
HIGHEST_FREQUENCY = 20.0


class Round(NamedTuple):
    """Losses of one round at outcomes, and their masses under P."""

    losses: np.ndarray
    masses: np.ndarray

    def log_moment(self, tilt):
        """log E_P[exp(tilt loss)]."""
        exponents = tilt * self.losses
        top = exponents.max()
        return top + np.log((self.masses * np.exp(exponents - top)).sum())


def round_of(noise, ratio, *, swap):
    """A round of Poisson sampling, at outcomes in deviations of its noise."""
    shift = 1 / noise
    outcomes = np.linspace(-REACH - shift, REACH + shift, OUTCOMES)

    def growth(sign):
        shifted = np.exp(sign * shift * outcomes - shift**2 / 2)
        return 1 + ratio * (shifted - 1)

    masses = np.exp(-(outcomes**2) / 2) * growth(1)
    losses = np.log(growth(1))
    if swap:
        losses -= np.log(growth(-1))
    return Round(losses, masses / masses.sum())


def delta(noise, ratio, rounds, epsilon, *, swap=False):
    """Delta at an epsilon, within some 1e-7 of itself.

    Args:
        noise: noise multiplier of a client's contribution.
        ratio: chance that the client takes part in a round.
        rounds: number of equal rounds.
        epsilon: where delta is asked for.
        swap: whether the contribution is replaced by its opposite, not removed.
    """
    sampled = round_of(noise, ratio, swap=swap)

    # The line through the saddle point, where the integrand fades fastest.
    tilts = np.geomspace(1e-2, 1e3, 400)
    logs = [rounds * sampled.log_moment(tilt) - tilt * epsilon for tilt in tilts]
    tilt = tilts[np.argmin(logs)]

    log_weights = tilt * sampled.losses - sampled.log_moment(tilt)
    weights = sampled.masses * np.exp(log_weights)
    mean = (weights * sampled.losses).sum()
    centred = sampled.losses - mean
    variance = rounds * (weights * centred**2).sum()

    step = HIGHEST_FREQUENCY / np.sqrt(variance) / FREQUENCIES
    total = 0.0
    for index in range(FREQUENCIES):
        frequency = index * step
        power = np.exp(
            rounds * np.log((weights * np.exp(1j * frequency * centred)).sum())
        )
        power *= np.exp(1j * frequency * (rounds * mean - epsilon))
        power /= complex(tilt, frequency) * complex(1 + tilt, frequency)
        total += power.real / 2 if index == 0 else power.real
    return float(np.exp(min(logs)) * total * step / np.pi)
