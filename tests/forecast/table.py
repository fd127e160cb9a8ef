"""Tables of proxy runs whose accuracy follows a known curve, for tests."""

import numpy as np

from privplan.forecast.coverage import Coverage
from privplan.forecast.curve import PARAMETERS, Curve, Point, from_log_odds, log_odds
from privplan.forecast.features import PlanFeatures
from privplan.forecast.proxy_table import ProxyRun, ProxyTable

_OWN = {
    "sigma": 1.0,
    "far": 0.05,
    "near": 0.1,
    "rho": 0.4,
    "gradient": 1.5,
    "kappa": 0.5,
}
_VALUES = [_OWN.get(name, centre) for name, (centre, _) in PARAMETERS.items()]
TRUTH = Curve(
    np.log([*_VALUES, 1.2, 0.8, 1.0, 1.0]), (20.0, 1.0)
)  # the curve that the runs follow


def runs(count, seed, noise=0.1, shift=0.0):
    """Random plans of two groups on four classes, with errors in log odds."""
    source = np.random.default_rng(seed)
    found = []
    for number in range(count):
        weight = source.uniform(0.1, 0.5)
        plan = PlanFeatures(
            rounds=int(source.integers(20, 80)), noise=float(4 ** source.uniform(-1, 1)),
            clipping_norm=0.1, travel=0.2, rate=float(8 * 2 ** source.uniform(-1, 1)),
            averaged=float(source.choice([1.0, 5.0])), parameters=1000,
            weights=(weight, 1 - weight),
        )  # fmt: skip
        apart = ((0.7, 0.1, 0.1, 0.1), (0.1, 0.3, 0.3, 0.3))
        shares = apart if number % 2 else ((0.25,) * 4,) * 2
        held = Coverage(shares=shares, clients=(0.5, 0.5))
        odds = (
            log_odds(TRUTH(Point(plan, held)))
            + noise * source.standard_normal(3)
            + shift
        )
        overall, *groups = from_log_odds(odds).tolist()
        found.append(
            ProxyRun(
                plan=plan,
                coverage=held,
                seed=number,
                accuracy=overall,
                accuracy_by_group=groups,
            )
        )
    return tuple(found)


def table(count=30, seed=0, noise=0.1):
    """A table of such runs."""
    return ProxyTable(
        dataset="made", model="none", classes=4, runs=runs(count, seed, noise)
    )
