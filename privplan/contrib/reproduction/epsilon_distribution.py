"""Budgets of individual clients drawn from a distribution, as the groups of a spec.

Dist1 to Dist9 are those of S. Malekmohammadi, Y. Yu, Y. Cao, Noise-Aware Algorithm for
Heterogeneous Differentially Private Federated Learning, ICML 2024 (Robust-HDP), Table 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privplan.errors import Fault, InputError
from privplan.values import Checked, Count, Fraction, Natural, Positive, Value, parse, rule

Floats = NDArray[np.float64]


class Part(Value):
    """A component of a mixture: a normal or a uniform law.

    Attributes:
        weight: chance of the component.
        normal: mean and standard deviation.
        uniform: least and largest value.
    """

    weight: Fraction = 1.0
    normal: tuple[Positive, Positive] | None = None
    uniform: tuple[Positive, Positive] | None = None


def _normal(weight: float, mean: float, deviation: float) -> Part:
    return Part(weight=weight, normal=(mean, deviation))


TABLE_7: dict[str, tuple[Part, ...]] = {
    "Dist1": (_normal(1, 2.0, 1.0),),
    "Dist2": (_normal(0.2, 0.2, 0.01), _normal(0.6, 1.0, 0.1), _normal(0.2, 5.0, 1.0)),
    "Dist3": (Part(uniform=(0.2, 5.0)),),
    "Dist4": (_normal(0.2, 0.2, 0.01), _normal(0.6, 0.5, 0.1), _normal(0.2, 2.0, 1.0)),
    "Dist5": (Part(uniform=(0.2, 2.0)),),
    "Dist6": (_normal(0.3, 0.2, 0.01), _normal(0.5, 0.5, 0.1), _normal(0.2, 1.0, 0.1)),
    "Dist7": (Part(uniform=(0.2, 1.0)),),
    "Dist8": (_normal(0.6, 0.2, 0.01), _normal(0.4, 0.5, 0.1)),
    "Dist9": (Part(uniform=(0.2, 0.5)),),
}
"""Mixtures by name, as printed in Table 7 of Robust-HDP."""


class EpsilonDistribution(Checked):
    """A distribution of which each client draws its epsilon."""

    name: str | None = Field(None, description="Dist1 to Dist9 of Robust-HDP, Table 7.")
    mixture: tuple[Part, ...] = Field(
        (), description="Components with weight and normal [mean, sd] or uniform [low, high]."
    )
    clients: Count = Field(description="Number of clients, each with a budget of its own.")
    seed: Natural = Field(0, description="Seed of the draws.")
    scale: Positive = Field(
        1.0, description="Factor on all draws; Robust-HDP takes 10 for CIFAR-100."
    )
    least: Positive = Field(
        0.1,
        description="Draws below, before scaling, are repeated: a normal law has negative ones, of "
        "which the paper says nothing.",
    )
    records: Count | None = Field(None, description="Records of each client.")
    batch_sizes: Annotated[tuple[Count, ...], Field(max_length=100)] = Field(
        (), description="Batch sizes, one of which each client draws."
    )

    @rule
    def _one_law(self) -> Iterator[Fault]:
        if (self.name is None) == (not self.mixture):
            found = self.name or "nothing"
            yield Fault("name", f"must be one of {', '.join(TABLE_7)}, or give a mixture", found)
        elif self.name is not None and self.name not in TABLE_7:
            yield Fault("name", f"must be one of {', '.join(TABLE_7)}", self.name)

    @rule
    def _components(self) -> Iterator[Fault]:
        for index, part in enumerate(self.mixture):
            where = f"mixture.{index}"
            if (part.normal is None) == (part.uniform is None):
                yield Fault(where, "must have one of normal and uniform", part.model_dump())
                continue
            low, high = part.uniform or (0.0, 1.0)
            if low >= high:
                yield Fault(f"{where}.uniform", "must be [low, high] with low < high", [low, high])
            top = high if part.uniform else part.normal[0] if part.normal else 0.0
            if top < self.least:
                rule_text = f"must reach the least epsilon, {self.least:g}"
                yield Fault(where, rule_text, top)
        weights = [part.weight for part in self.mixture]
        if weights and abs(sum(weights) - 1) > 1e-9:
            yield Fault("mixture", "must have weights that sum to 1", sum(weights))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The components."""
        return self.mixture or TABLE_7[self.name or ""]

    def draw(self) -> Floats:
        """Epsilon of each client, ascending, shape (clients,)."""
        source = np.random.default_rng(self.seed)
        chosen = source.choice(
            len(self.parts), size=self.clients, p=[one.weight for one in self.parts]
        )
        values = [self._one(source, self.parts[index]) for index in chosen]
        return np.sort(np.array(values)) * self.scale

    def _one(self, source: np.random.Generator, part: Part) -> float:
        while True:
            value = source.uniform(*part.uniform) if part.uniform else source.normal(*part.normal)  # type: ignore[misc]
            if value >= self.least:
                return float(value)


def with_distribution(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a spec with groups in the place of an ``epsilon_distribution``.

    Each client is a group with a budget for each of its records.
    """
    where = "epsilon_distribution"
    given = data.get(where)
    if given is None:
        return data
    data = {key: value for key, value in data.items() if key != where}
    try:
        law = parse(EpsilonDistribution, given)
    except InputError as error:
        faults = [Fault(f"{where}.{one.field}", one.rule, one.found) for one in error.faults]
        raise InputError(faults) from None
    return {**data, "groups": _clients(law)}


def _clients(law: EpsilonDistribution) -> list[dict[str, Any]]:
    """One group per client, with a budget for each of its records."""
    if law.records is None:
        raise InputError.one("epsilon_distribution.records", "is required", "nothing")
    epsilons, width = law.draw(), len(str(law.clients))
    source = np.random.default_rng([law.seed, 1])
    sizes = source.choice(law.batch_sizes, law.clients) if law.batch_sizes else [None] * law.clients
    return [
        {
            "name": f"c{number:0{width}d}",
            "clients": 1,
            "epsilon": round(float(epsilon), 4),
            "records": law.records,
            **({} if size is None else {"batch_size": int(size)}),
        }
        for number, (epsilon, size) in enumerate(zip(epsilons, sizes, strict=True), start=1)
    ]
