"""How well a whole group is heard in a model: N mu, whatever weight it has.

A client whose budget is (epsilon, delta) is protected as by a mu-GDP mechanism (Dong,
Roth and Su 2022), and a group of N such clients as a whole as by an (N mu)-GDP one. So
N mu bounds the ratio of the group's own signal to the noise over all rounds, for every
weight, cohort and sampling law. In one sum of all groups it is reached: with weight w =
f N / n the noise of a round is at least f sqrt(T) / (mu n) clipping norms, a signal of
T w stands in a noise of f T / (mu n), and their ratio is N mu.

Where clients of one person share a budget, k of them count as one.
"""

from __future__ import annotations

from functools import lru_cache

from privplan.accounting.gdp import mu_of

# The least of the measured levels at which a floor is seen to teach the model a class
# that only the group has (docs/evidence/fairness.md): at half of it the class gains 11
# +- 6 points, and each other class loses 15. At N mu = 1 not even the group's presence
# can be told.
AUDIBLE = 10.0
# Below it a group teaches little of what only its clients have: there.
CLEAR = 50.0


def audibility(
    clients: int, epsilon: float, delta: float, contributions: int = 1
) -> float:
    """N mu / k of a group: how well it is heard as a whole, at any weight.

    Args:
        clients: of the group (N).
        epsilon: budget of a person over all rounds.
        delta: failure probability of that budget.
        contributions: the most clients of one person (k).
    """
    return clients * _mu(epsilon, delta) / contributions


@lru_cache(maxsize=1024)
def _mu(epsilon: float, delta: float) -> float:
    return mu_of(epsilon, delta)


def audibility_in_words(name: str, clients: int, heard: float) -> str:
    """What a group that is hidden or faint cannot expect of any weight; else empty."""
    if clients > 1:
        together = f"all {clients:,} together"
    else:
        together = "its only client"
    if heard < AUDIBLE:
        hidden = "hidden" if heard <= 1 else "nearly hidden"
        return (
            f"{name}: {together} are {hidden} (N mu {heard:.2g}, below {AUDIBLE:g}): no "
            "weight can make the model learn what only they have"
        )
    if heard < CLEAR:
        return (
            f"{name}: {together} are faint (N mu {heard:.2g}, below {CLEAR:g}): the model "
            "learns little of what only they have, at any weight"
        )
    return ""
