"""A third party's package: a component of each of four kinds, for entry points."""

from __future__ import annotations

import numpy as np

from privplan.accounting.accountant import Interval, accountant
from privplan.laws.law import Kind, Law, Pair, exact
from privplan.laws.participation import total_p_value
from privplan.planning.bounds import Bound, symbols
from privplan.planning.error import Coefficients
from privplan.planning.objectives import Noise


class Coins(Law):
    """Poisson sampling, drawn by one coin per client; only its pairs are stated."""

    name = "coins"
    title = "coins"
    independent_clients = True

    def dominating_pairs(self, relation, shift, ratio):
        """The pairs of Poisson sampling under add/remove."""
        return exact(Pair(Kind.REMOVE, shift, ratio), Pair(Kind.ADD, shift, ratio))

    def draw(self, generator, clients, ratio, round_):
        """Positions whose coin shows heads."""
        return np.flatnonzero(generator.random(clients) < ratio)

    def cohort_faults(self, counts, clients, ratio, level):
        """The total is binomial."""
        if total_p_value(counts, clients, ratio) < level:
            yield f"{sum(counts)} participations are not those of coins"


class Doubled:
    """Twice the Rényi bound: an upper bound that is easy to recognise."""

    name = "doubled"
    version = "toy 1"
    kind = "upper bound"
    guarantee = False

    def why_not(self, history, relation):
        """As rdp."""
        return accountant("rdp").why_not(history, relation)

    def epsilon(self, history, delta, relation):
        """Twice the upper bound of rdp."""
        return Interval(
            0.0, 2 * accountant("rdp").epsilon(history, delta, relation).upper
        )


FACTOR = 1e6


class NearPopulation(Noise):
    """Noise, with a bias so expensive that the weights are the population's."""

    unit = "near-population error"
    default_release = "per_group"
    required = ("constants",)

    def coefficients(self, spec, problem):
        """Those of the noise, and the bias."""
        noise = super().coefficients(spec, problem)
        return Coefficients(noise.noise, 0.0, FACTOR * noise.noise, noise.shares)

    def bound(self, groups, joint):
        """A bound with a symbol of its own."""
        (factor,) = symbols("toy_factor")
        return Bound("near_population", "nowhere", "no unit", {"twice": 2 * factor})

    def symbols(self, spec):
        """The value of its symbol."""
        return {"toy_factor": FACTOR}


def sign(options):
    """A server that moves each parameter by the rate along the sign of its step."""
    from simulate.components import Server

    rate = options.learning_rate or 0.01
    return Server(
        "sign",
        lambda theta: {},
        lambda theta, step, state: (theta + rate * step.sign(), state),
    )
