"""What a forecast assumes of the classes that each group holds, where nothing says so.

Groups are alike where there is one, or where the spec says that they are: no floor
under any weight, or a heterogeneity of 0. Elsewhere they may be alike, or the strictest
group alone may hold as many of the classes as its share of the clients; which ones
decides by how much they are learnt, so each choice of neighbours is tried. The interval
then covers all of these, and the forecast itself is that of groups alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privplan.forecast.coverage import Coverage, client_shares, even_coverage
from privplan.plan import Forecast, GroupForecast
from privplan.spec.spec import Spec

STATED = "the classes that --coverage states for each group"
ALIKE = "groups that hold all classes alike, as the spec says"
ONE_GROUP = "clients who hold all classes alike"


def may_differ(spec: Spec) -> bool:
    """Whether groups may hold other classes, as far as a spec says."""
    planning = spec.planning
    says_alike = planning.least_share == 0 or planning.heterogeneity == 0
    return len(spec.groups) > 1 and not says_alike


def possible_coverages(spec: Spec, classes: int, skew: float) -> list[Coverage]:
    """The even coverage first, then those in which the strictest group stands apart.

    Clients of a group differ by the skew of the proxy's in all of them.
    """
    coverages = [even_coverage(spec, classes, skew)]
    if not may_differ(spec) or classes < 2:
        return coverages
    clients = client_shares(spec)
    epsilons = [group.epsilon for group in spec.groups]
    strictest = epsilons.index(min(epsilons))
    exclusive = min(max(round(clients[strictest] * classes), 1), classes - 1)
    for start in range(classes):
        is_exclusive = np.zeros(classes, dtype=bool)
        is_exclusive[np.arange(start, start + exclusive) % classes] = True
        shares = np.tile(np.where(is_exclusive, 0.0, 1.0), (len(clients), 1))
        shares[strictest] = is_exclusive
        shares /= shares.sum(axis=1, keepdims=True)
        rows = tuple(map(tuple, shares.tolist()))
        coverages.append(Coverage(shares=rows, clients=clients, skew=skew))
    return coverages


def assumption_of(spec: Spec) -> str:
    """What is assumed where nothing says which classes each group holds."""
    if len(spec.groups) == 1:
        return ONE_GROUP
    if not may_differ(spec):
        return ALIKE
    epsilons = [group.epsilon for group in spec.groups]
    strictest = spec.groups[epsilons.index(min(epsilons))].name
    return (
        f"groups that hold all classes alike; the interval also covers that {strictest} "
        "alone holds some, --coverage narrows it"
    )


def covering(forecasts: Sequence[Forecast]) -> Forecast:
    """The first of several forecasts, with intervals that cover those of all."""
    first_forecast = forecasts[0]
    groups: list[GroupForecast] = []
    for index, group in enumerate(first_forecast.groups):
        lower = min(forecast.groups[index].lower for forecast in forecasts)
        upper = max(forecast.groups[index].upper for forecast in forecasts)
        groups.append(group.model_copy(update={"lower": lower, "upper": upper}))
    return first_forecast.model_copy(
        update={
            "lower": min(forecast.lower for forecast in forecasts),
            "upper": max(forecast.upper for forecast in forecasts),
            "groups": tuple(groups),
        }
    )
