"""Splits of a model into shared parameters and personal ones, which never leave a client."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from simulate.components import Split
from simulate.models.hypernetwork import (
    EMBEDDING,
    Hypernetwork,
    embedding,
    generated,
    initial,
    of_body,
    spreads,
)
from simulate.models.network import Model, join_head, split_head


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
    """Each client has a personal classifier head (its last dense layer); the body is shared.

    The global vector holds all parameters; its head is the initial head of every client.
    """

    def body(model: Model) -> Tensor:
        in_body = torch.ones(model.parameters, dtype=torch.bool)
        in_body[model.head] = False
        return in_body.nonzero().flatten()

    def use(model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray) -> Tensor:
        if personal is None:
            return theta
        thetas = theta.repeat(len(personal), 1)
        thetas[:, model.head] = personal
        return thetas

    return Split(
        name="personal head",
        dimension=lambda model: model.parameters,
        start=lambda model, generator: model.initial(generator),
        shared=body,
        personal=lambda model, theta: theta[model.head].clone(),
        use=use,
    )


def private() -> Split:
    """All parameters are personal, with the same initialisation for all clients."""
    return Split(
        name="private",
        dimension=lambda model: model.parameters,
        start=lambda model, generator: model.initial(generator),
        shared=lambda model: torch.empty(0, dtype=torch.int64),
        personal=lambda model, theta: theta,
        use=lambda model, theta, personal, clients: theta if personal is None else personal,
    )


def additive() -> Split:
    """Each client uses the sum of the shared parameters and a personal offset, initially zero.

    A client that took part stores as many numbers as the model has parameters.
    """

    def zero_offset(model: object, theta: Tensor) -> Tensor:
        return torch.zeros_like(theta)

    return Split(
        name="additive",
        dimension=lambda model: model.parameters,
        start=lambda model, generator: model.initial(generator),
        shared=lambda model: None,
        personal=zero_offset,
        use=lambda model, theta, personal, clients: theta if personal is None else theta + personal,
    )


def client_hypernetwork(hidden: int) -> Split:
    """Clients share a hypernetwork that generates their body; embedding and head are personal.

    The global vector is (hypernetwork, embedding, head); the last two are the initial values of
    every client and are not trained globally.
    """

    def dimension(model: Model) -> int:
        network = of_body(model, hidden)
        return network.parameters + EMBEDDING + model.parameters - network.made

    def start(model: Model, generator: torch.Generator) -> Tensor:
        standard = model.initial(generator)
        body, head = split_head(model, standard)
        spread, _ = split_head(model, spreads(model.shapes, standard))
        weights = initial(of_body(model, hidden), body, spread, generator)
        return torch.cat([weights, embedding(generator), head])

    def use(model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray) -> Tensor:
        network = of_body(model, hidden)
        own = theta[network.parameters :].expand(1, -1) if personal is None else personal
        weights = theta[: network.parameters].expand(1, -1)
        bodies = generated(network, weights, own[None, :, :EMBEDDING])[0]
        return join_head(model, bodies, own[:, EMBEDDING:])

    return Split(
        name="hypernetwork at the clients",
        dimension=dimension,
        start=start,
        shared=lambda model: torch.arange(of_body(model, hidden).parameters),
        personal=lambda model, theta: theta[of_body(model, hidden).parameters :].clone(),
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
        values, head = split_head(model, standard) if personal_head else (standard, standard[:0])
        spread = split_head(model, spread)[0] if personal_head else spread
        weights = initial(Hypernetwork(len(values), hidden), values, spread, generator)
        return torch.cat([weights, embedding(generator).repeat(population), head])

    def use(model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray) -> Tensor:
        network = sizes(model)
        chosen = torch.from_numpy(clients).to(theta.device)
        embeddings = theta[network.parameters :][: population * EMBEDDING].view(population, -1)
        sent = generated(network, theta[None, : network.parameters], embeddings[None, chosen])[0]
        return sent if personal is None else join_head(model, sent, personal)

    def sizes(model: Model) -> Hypernetwork:
        head = model.head.stop - model.head.start
        return Hypernetwork(model.parameters - head * personal_head, hidden)

    def dimension(model: Model) -> int:
        network = sizes(model)
        return network.parameters + population * EMBEDDING + model.parameters - network.made

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
