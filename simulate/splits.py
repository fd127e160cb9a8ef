"""Splits of a model into shared parameters and personal ones.

Personal parameters never leave a client.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.components import Split
from simulate.models.hypernetwork import (
    EMBEDDING,
    Hypernetwork,
    fresh_embedding,
    spreads,
)
from simulate.models.network import Model, body_size, join_head, split_head


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
    """Each client has a personal head, its last dense layer.

    It is first that of the global vector.
    """

    def body(model: Model) -> Tensor:
        in_body = torch.ones(model.parameters, dtype=torch.bool)
        in_body[model.head] = False
        if not in_body.any():
            rule = "must have parameters beside its last dense layer, the personal head"
            raise InputError.one("model", rule, model.parameters)
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
    """Clients share a hypernetwork that generates their body.

    Embedding and head are personal. The global vector is (hypernetwork, embedding,
    head); the last two are the initial values of every client and are not trained
    globally.

    Args:
        hidden: width of the hypernetwork.
    """

    def network_of(model: Model) -> Hypernetwork:
        return Hypernetwork(body_size(model), hidden)

    def dimension(model: Model) -> int:
        network = network_of(model)
        head_size = model.parameters - network.generated_size
        return network.parameters + EMBEDDING + head_size

    def start(model: Model, generator: torch.Generator) -> Tensor:
        standard = model.initial(generator)
        body, head = split_head(model, standard)
        spread, _ = split_head(model, spreads(model.shapes, standard))
        weights = network_of(model).initial(body, spread, generator)
        return torch.cat([weights, fresh_embedding(generator), head])

    def use(
        model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray
    ) -> Tensor:
        end = network_of(model).parameters
        if personal is None:
            personal = theta[end:].expand(1, -1)
        weights = theta[:end].expand(1, -1)
        embeddings = personal[None, :, :EMBEDDING]
        bodies = network_of(model).generated(weights, embeddings)[0]
        return join_head(model, bodies, personal[:, EMBEDDING:])

    return Split(
        name="hypernetwork at the clients",
        dimension=dimension,
        start=start,
        shared=lambda model: torch.arange(network_of(model).parameters),
        personal=lambda model, theta: theta[network_of(model).parameters :].clone(),
        use=use,
    )


def server_hypernetwork(population: int, hidden: int, *, personal_head: bool) -> Split:
    """The server's hypernetwork generates each client's parameters from an embedding.

    The global vector is (hypernetwork, embeddings of all clients, initial head),
    without the head if it is generated as well. Clients receive generated parameters
    and send their changes, which are shorter than the global vector.

    Args:
        population: number of clients.
        hidden: width of the hypernetwork.
        personal_head: whether each client keeps its head, and the body is generated.
    """
    embeddings_size = population * EMBEDDING

    def network_of(model: Model) -> Hypernetwork:
        if personal_head:
            generated = body_size(model)
        else:
            generated = model.parameters
        return Hypernetwork(generated, hidden)

    def dimension(model: Model) -> int:
        network = network_of(model)
        head_size = model.parameters - network.generated_size
        return network.parameters + embeddings_size + head_size

    def start(model: Model, generator: torch.Generator) -> Tensor:
        values = model.initial(generator)
        spread = spreads(model.shapes, values)
        head = values[:0]
        if personal_head:
            values, head = split_head(model, values)
            spread, _ = split_head(model, spread)
        weights = Hypernetwork(len(values), hidden).initial(values, spread, generator)
        return torch.cat([weights, fresh_embedding(generator).repeat(population), head])

    def use(
        model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray
    ) -> Tensor:
        network = network_of(model)
        weights = theta[: network.parameters]
        of_all = theta[network.parameters :][:embeddings_size].view(population, -1)
        chosen = torch.from_numpy(clients).to(theta.device)
        sent = network.generated(weights[None], of_all[None, chosen])[0]
        if personal is None:
            return sent
        return join_head(model, sent, personal)

    def personal(model: Model, theta: Tensor) -> Tensor | None:
        if not personal_head:
            return None
        return theta[network_of(model).parameters + embeddings_size :].clone()

    return Split(
        name="hypernetwork at the server",
        dimension=dimension,
        start=start,
        shared=lambda model: None,
        personal=personal,
        use=use,
    )
