"""Algorithms: eight components with neutral defaults, checked when they are composed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan
from simulate.aggregators import mean
from simulate.components import (
    Aggregator,
    LocalRule,
    Mechanism,
    Personalisation,
    Sampler,
    Server,
    Split,
    Transform,
)
from simulate.local.sgd import batch_sgd, plain_sgd
from simulate.mechanisms import unprotected
from simulate.models.hypernetwork import (
    EMBEDDING,
    Hypernetwork,
    fresh_embedding,
    spreads,
)
from simulate.models.network import Model, body_size, join_head, split_head
from simulate.server import add

# --- Who takes part in a round: by the plan's sampling law, or in turns. -------------------------
# The law itself (its draw and the ratio that it executes) is one file of ``privplan.laws``; a
# rotation is a public schedule, draws nothing and amplifies no privacy.


def by_law(law: SamplingLaw) -> Sampler:
    """The sampler that executes a law."""
    found = law.law
    return Sampler(law, found.draw, found.executed_ratio)


ROUNDING = 1e-9  # slack on a whole number of turns, for the rounding of the ratio


def rotation() -> Sampler:
    """The next clients in each round, around and around, n times ratio on average, none twice."""

    def draw(
        generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        first, last = (
            _places(clients, ratio, number) for number in (round_ - 1, round_)
        )
        return np.sort(np.arange(first, last) % clients)

    return Sampler(None, draw, lambda clients, ratio: ratio)


def _places(clients: int, ratio: float, rounds: int) -> int:
    """Places of the endless row that are taken after some rounds."""
    return math.floor(clients * ratio * rounds + ROUNDING)


# --- Splits of a model into shared parameters and personal ones, which never leave a client. -----


def whole() -> Split:
    """All parameters are shared; the neutral default, without personal vectors."""
    return Split(
        name="whole",
        dimension=lambda model: model.parameters,
        start=lambda model, generator: model.initial(generator),
        shared=lambda model: None,
        personal=lambda model, theta: None,
        use=lambda model, theta, personal, clients: theta,
    )


def head() -> Split:
    """Each client has a personal head (its last dense layer), first that of the global vector."""

    def body(model: Model) -> Tensor:
        in_body = torch.ones(model.parameters, dtype=torch.bool)
        in_body[model.head] = False
        return in_body.nonzero().flatten()

    def use(
        model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray
    ) -> Tensor:
        if personal is None:
            return theta
        thetas = theta.repeat(len(personal), 1)
        thetas[:, model.head] = personal
        return thetas

    return replace(
        whole(),
        name="personal head",
        shared=body,
        personal=lambda model, theta: theta[model.head].clone(),
        use=use,
    )


def private() -> Split:
    """All parameters are personal, with the same initialisation for all clients."""
    return replace(
        whole(),
        name="private",
        shared=lambda model: torch.empty(0, dtype=torch.int64),
        personal=lambda model, theta: theta,
        use=lambda model, theta, personal, clients: (
            theta if personal is None else personal
        ),
    )


def additive() -> Split:
    """Each client uses the shared parameters plus a personal offset, initially zero."""
    return replace(
        whole(),
        name="additive",
        personal=lambda model, theta: torch.zeros_like(theta),
        use=lambda model, theta, personal, clients: (
            theta if personal is None else theta + personal
        ),
    )


def client_hypernetwork(hidden: int) -> Split:
    """Clients share a hypernetwork that generates their body; embedding and head are personal.

    The global vector is (hypernetwork, embedding, head); the last two are the initial values of
    every client and are not trained globally.
    """

    def of_body(model: Model) -> Hypernetwork:
        return Hypernetwork(body_size(model), hidden)

    def dimension(model: Model) -> int:
        network = of_body(model)
        return (
            network.parameters + EMBEDDING + model.parameters - network.generated_size
        )

    def start(model: Model, generator: torch.Generator) -> Tensor:
        standard = model.initial(generator)
        body, head = split_head(model, standard)
        spread, _ = split_head(model, spreads(model.shapes, standard))
        weights = of_body(model).initial(body, spread, generator)
        return torch.cat([weights, fresh_embedding(generator), head])

    def use(
        model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray
    ) -> Tensor:
        network = of_body(model)
        own = (
            theta[network.parameters :].expand(1, -1) if personal is None else personal
        )
        weights = theta[: network.parameters].expand(1, -1)
        bodies = network.generated(weights, own[None, :, :EMBEDDING])[0]
        return join_head(model, bodies, own[:, EMBEDDING:])

    return Split(
        name="hypernetwork at the clients",
        dimension=dimension,
        start=start,
        shared=lambda model: torch.arange(of_body(model).parameters),
        personal=lambda model, theta: theta[of_body(model).parameters :].clone(),
        use=use,
    )


def server_hypernetwork(population: int, hidden: int, *, personal_head: bool) -> Split:
    """The server's hypernetwork generates each client's parameters from the client's embedding.

    The global vector is (hypernetwork, embeddings of all clients, initial head), without the head
    if it is generated as well. Clients receive generated parameters and send their changes, which
    are shorter than the global vector.
    """

    def start(model: Model, generator: torch.Generator) -> Tensor:
        standard = model.initial(generator)
        spread = spreads(model.shapes, standard)
        values, head = (
            split_head(model, standard) if personal_head else (standard, standard[:0])
        )
        spread = split_head(model, spread)[0] if personal_head else spread
        weights = Hypernetwork(len(values), hidden).initial(values, spread, generator)
        return torch.cat([weights, fresh_embedding(generator).repeat(population), head])

    def use(
        model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray
    ) -> Tensor:
        network = sizes(model)
        chosen = torch.from_numpy(clients).to(theta.device)
        embeddings = theta[network.parameters :][: population * EMBEDDING].view(
            population, -1
        )
        sent = network.generated(
            theta[None, : network.parameters], embeddings[None, chosen]
        )[0]
        return sent if personal is None else join_head(model, sent, personal)

    def sizes(model: Model) -> Hypernetwork:
        head = model.head.stop - model.head.start
        return Hypernetwork(model.parameters - head * personal_head, hidden)

    def dimension(model: Model) -> int:
        network = sizes(model)
        return (
            network.parameters
            + population * EMBEDDING
            + model.parameters
            - network.generated_size
        )

    return Split(
        name="hypernetwork at the server",
        dimension=dimension,
        start=start,
        shared=lambda model: None,
        personal=lambda model, theta: (
            theta[sizes(model).parameters + population * EMBEDDING :].clone()
            if personal_head
            else None
        ),
        use=use,
    )


# --- The model that a client uses once training is over. -----------------------------------------


def shared() -> Personalisation:
    """The neutral choice: all clients use the global model, evaluated on all test records."""
    return Personalisation("shared", False, lambda thetas, batch: thetas)


def own() -> Personalisation:
    """Each client uses the model of its personal parameters, evaluated on its own test records."""
    return Personalisation("own", True, lambda thetas, batch: thetas)


def fine_tuned(rate_factor: float = 1.0) -> Personalisation:
    """Each client fine-tunes the global model by one round of local SGD, which it never sends."""
    return Personalisation(
        "fine-tuned", True, lambda at, batch: at + batch_sgd(batch, at, rate_factor)
    )


# --- Algorithms: eight components with neutral defaults, checked when they are composed. ---------


@dataclass(frozen=True)
class Algorithm:
    """A plan and the components that execute it. Made by ``compose``."""

    name: str  # as in the registry
    plan: Plan  # the executed plan, as saved in the run folder
    sampler: Sampler  # selects the participants of a round
    split: Split  # divides the parameters into global and personal ones
    local: LocalRule  # trains clients on their own records
    transforms: tuple[Transform, ...]  # change each client's update, in order
    mechanism: Mechanism  # releases sums or single updates
    aggregator: Aggregator  # combines releases into one step
    server: Server  # applies the step to the global vector
    personalisation: Personalisation  # makes the models that clients use after training

    def sampler_of(self, group: GroupPlan) -> Sampler:
        """The sampler of a group: of its own law where it has one."""
        own = None if self.sampler.law is None else group.sampling
        return self.sampler if own is None else by_law(own)

    def __post_init__(self) -> None:
        kinds = (Mechanism, Aggregator, Server)
        made = zip(("mechanism", "aggregator", "server"), kinds, strict=True)
        for name, kind in made:
            if not isinstance(found := getattr(self, name), kind):
                rule = f"must be a {kind.__name__}; call the function that makes it"
                raise InputError.one(f"algorithm.{name}", rule, type(found).__name__)
        if not self.local.poisson and self.sampler.law != self.plan.spec.sampling:
            rule = f"must draw by the plan's law, {self.plan.spec.sampling}"
            raise InputError.one("algorithm.sampler", rule, str(self.sampler.law))
        names = [transform.name for transform in self.transforms]
        summed = self.mechanism.noisy and self.mechanism.release_client is None
        if summed and any(
            sensitivity_bound(self, group) is None for group in self.plan.groups
        ):
            rule = "must follow a transform that bounds each update, such as clip"
            raise InputError.one("algorithm.mechanism", rule, names)
        if summed and self.plan.clipping is not None and not extra_coordinates(self):
            rule = (
                "must have plan_clip where the plan's clipping norm follows a quantile"
            )
            raise InputError.one("algorithm.transforms", rule, names)
        factors = set(weights(self).values())
        if self.mechanism.joint and len(factors) > 1:
            rule = "must give all groups of a joint sum the same weight"
            raise InputError.one("algorithm.aggregator", rule, sorted(factors))


def compose(
    name: str,
    plan: Plan,
    *,
    sampler: Sampler | None = None,
    split: Split | None = None,
    local: LocalRule | None = None,
    transforms: tuple[Transform, ...] = (),
    mechanism: Mechanism | None = None,
    aggregator: Aggregator | None = None,
    server: Server | None = None,
    personalisation: Personalisation | None = None,
) -> Algorithm:
    """An algorithm from the given components, and neutral defaults for the others.

    The defaults are those of FedAvg: the plan's sampling law, plain SGD, no noise, and the mean
    over the expected cohort.

    Raises:
        InputError: as ``Algorithm``.
    """
    return Algorithm(
        name=name, plan=plan, sampler=sampler or by_law(plan.spec.sampling), split=split or whole(),
        local=local or plain_sgd(), transforms=transforms, mechanism=mechanism or unprotected(),
        aggregator=aggregator or mean(), server=server or add(),
        personalisation=personalisation or shared(),
    )  # fmt: skip


def sensitivity_bound(algorithm: Algorithm, group: GroupPlan) -> float | None:
    """The proven L2 sensitivity of a sum to one client of a group; None without a proof."""
    bound: float | None = None
    for transform in algorithm.transforms:
        bound = transform.bound(bound, group)
    return bound


def extra_coordinates(algorithm: Algorithm) -> int:
    """Number of coordinates that the transforms append to each update."""
    return sum(transform.extra for transform in algorithm.transforms)


def groups_in_round(algorithm: Algorithm, round_: int) -> tuple[GroupPlan, ...]:
    """The groups with the sampling ratio and noise multiplier of a round, from 1."""
    plan = algorithm.plan
    return tuple(
        g if g.segments is None else _in_round(plan, g, round_) for g in plan.groups
    )


def _in_round(plan: Plan, group: GroupPlan, round_: int) -> GroupPlan:
    ratio, sigma = plan.at_round(group, round_)
    changes = {
        "sampling_ratio": ratio,
        "expected_cohort": ratio * group.clients,
        "noise_multiplier": sigma,
    }
    return group.model_copy(update=changes)


def weights(algorithm: Algorithm, round_: int = 1) -> dict[str, float]:
    """The factor on the sum of each group in a round, by name of the group."""
    return {
        group.name: algorithm.aggregator.weight(group, algorithm.plan)
        for group in groups_in_round(algorithm, round_)
    }
