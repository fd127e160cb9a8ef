"""Tables of proxy runs whose accuracy follows a known curve, for tests."""

import numpy as np

from privplan.forecast.coverage import Coverage
from privplan.forecast.curve import PARAMETERS, Curve, Point, from_log_odds, log_odds
from privplan.forecast.features import PlanFeatures
from privplan.forecast.proxy_table import ProxyRun, ProxyTable

_CURVE_VALUES = {
    "sigma": 1.0,
    "far": 0.05,
    "near": 0.1,
    "rho": 0.4,
    "gradient": 1.5,
    "kappa": 0.5,
}
_VALUES = [_CURVE_VALUES.get(name, centre) for name, (centre, _) in PARAMETERS.items()]
# The curve that the runs follow.
TRUTH = Curve(np.log([*_VALUES, 1.2, 0.8, 1.0, 1.0]), (20.0, 1.0))


def runs(count, seed, noise=0.1, shift=0.0):
    """Random plans of two groups on four classes, with errors in log odds."""
    source = np.random.default_rng(seed)
    proxy_runs = []
    for number in range(count):
        weight = source.uniform(0.1, 0.5)
        plan = PlanFeatures(
            rounds=int(source.integers(20, 80)),
            noise=float(4 ** source.uniform(-1, 1)),
            clipping_norm=0.1,
            travel=0.2,
            rate=float(8 * 2 ** source.uniform(-1, 1)),
            averaged=float(source.choice([1.0, 5.0])),
            parameters=1000,
            weights=(weight, 1 - weight),
        )
        # Groups hold the classes alike in every other run.
        shares = ((0.25,) * 4,) * 2
        if number % 2:
            shares = ((0.7, 0.1, 0.1, 0.1), (0.1, 0.3, 0.3, 0.3))
        coverage = Coverage(shares=shares, clients=(0.5, 0.5))
        odds = (
            log_odds(TRUTH(Point(plan, coverage)))
            + noise * source.standard_normal(3)
            + shift
        )
        overall, *groups = from_log_odds(odds).tolist()
        proxy_runs.append(
            ProxyRun(
                plan=plan,
                coverage=coverage,
                seed=number,
                accuracy=overall,
                accuracy_by_group=groups,
            )
        )
    return tuple(proxy_runs)


def table(count=30, seed=0, noise=0.1):
    """A table of such runs."""
    return ProxyTable(
        dataset="made", model="none", classes=4, runs=runs(count, seed, noise)
    )
