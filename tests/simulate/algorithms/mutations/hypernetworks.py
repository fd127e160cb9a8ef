"""Further mutations of methods with hypernetworks, against their references."""

from __future__ import annotations

from dataclasses import replace

from simulate.aggregators import through_hypernetwork
from tests.simulate.algorithms.mutations.sums import backwards, slower, without_momentum
from tests.simulate.algorithms.references.hypernetworks import (
    CLIENT,
    HIDDEN,
    POPULATION,
    RATE,
    SERVER,
)
from tests.simulate.case import Case

CASES: tuple[Case, ...] = tuple(
    replace(
        case,
        mutations={
            "half of the learning rate": slower,
            "no momentum": without_momentum,
            "a step backwards": backwards,
            **(
                {
                    "another rate": lambda one: replace(
                        one, aggregator=through_hypernetwork(POPULATION, HIDDEN, RATE / 2)
                    )
                }
                if case in SERVER
                else {}
            ),
        },
    )
    for case in (*SERVER, *CLIENT)
)
