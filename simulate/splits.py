"""A model's parameters as a head, its last dense layer, and the body, all the rest.

Every parameter is shared, and clients keep nothing.

The last linear layer is personal, the body before it is shared.

Every parameter is personal: nothing ever leaves a client.

Each client uses the sum of the shared parameters and parameters of its own.

Clients share a hypernetwork that makes their body; embedding and head are their own.

The server keeps a hypernetwork and an embedding of every client, and makes their models.

Which parameters are shared and which never leave a client.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from simulate.components import Split
from simulate.models.hypernetwork import (
    EMBEDDING,
    Hypernetwork,
    embedding,
    initial,
    made,
    of_body,
    spreads,
)
from simulate.models.network import Model, join_head, split_head


def whole() -> Split:
    """The neutral split: the global vector is the model's parameters."""
    return Split(
        name="whole",
        dimension=lambda model: model.parameters,
        start=lambda model, generator: model.initial(generator),
        shared=lambda model: None,
        personal=lambda model, theta: None,
        use=lambda model, theta, personal, clients: theta,
    )


def head() -> Split:
    """Each client keeps a classifier head of its own; only the body leaves it.

    The global vector holds all parameters; its head is the one that every client starts from.
    """

    def body(model: Model) -> Tensor:
        kept = torch.ones(model.parameters, dtype=torch.bool)
        kept[model.head] = False
        return kept.nonzero().flatten()

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
    """Each client keeps parameters of its own, which start from the same initialisation."""
    return Split(
        name="private",
        dimension=lambda model: model.parameters,
        start=lambda model, generator: model.initial(generator),
        shared=lambda model: torch.empty(0, dtype=torch.int64),
        personal=lambda model, theta: theta,
        use=lambda model, theta, personal, clients: theta if personal is None else personal,
    )


def additive() -> Split:
    """Personal offsets of the whole model, zero at first; only the shared part leaves a client.

    A client who took part keeps as many numbers as the model has parameters.
    """

    def first(model: object, theta: Tensor) -> Tensor:
        return torch.zeros_like(theta)

    return Split(
        name="additive",
        dimension=lambda model: model.parameters,
        start=lambda model, generator: model.initial(generator),
        shared=lambda model: None,
        personal=first,
        use=lambda model, theta, personal, clients: theta if personal is None else theta + personal,
    )


def client_hypernetwork(hidden: int) -> Split:
    """Only the hypernetwork leaves a client.

    The global vector is (hypernetwork, embedding, head); the last two are what every client
    starts from, and they stay as they are.

    Args:
        hidden: units of the hypernetwork's hidden layer.
    """

    def dimension(model: Model) -> int:
        its = of_body(model, hidden)
        return its.parameters + EMBEDDING + model.parameters - its.made

    def start(model: Model, generator: torch.Generator) -> Tensor:
        usual = model.initial(generator)
        body, head = split_head(model, usual)
        spread, _ = split_head(model, spreads(model.shapes, usual))
        weights = initial(of_body(model, hidden), body, spread, generator)
        return torch.cat([weights, embedding(generator), head])

    def use(model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray) -> Tensor:
        its = of_body(model, hidden)
        own = theta[its.parameters :].expand(1, -1) if personal is None else personal
        weights = theta[: its.parameters].expand(1, -1)
        bodies = made(its, weights, own[None, :, :EMBEDDING])[0]
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
    """What a client is sent is made of its embedding; hypernetwork and embeddings stay.

    The global vector is (hypernetwork, embeddings of all clients, first head), without the head
    when it is made as well. Clients send changes of what they were sent, which are shorter.

    Args:
        population: clients in all groups.
        hidden: units of the hypernetwork's hidden layer.
        personal_head: whether clients keep a head of their own, and are sent the body alone.
    """

    def start(model: Model, generator: torch.Generator) -> Tensor:
        usual = model.initial(generator)
        spread = spreads(model.shapes, usual)
        values, head = split_head(model, usual) if personal_head else (usual, usual[:0])
        spread = split_head(model, spread)[0] if personal_head else spread
        weights = initial(Hypernetwork(len(values), hidden), values, spread, generator)
        return torch.cat([weights, embedding(generator).repeat(population), head])

    def use(model: Model, theta: Tensor, personal: Tensor | None, clients: np.ndarray) -> Tensor:
        its = sizes(model)
        chosen = torch.from_numpy(clients).to(theta.device)
        embeddings = theta[its.parameters :][: population * EMBEDDING].view(population, -1)
        sent = made(its, theta[None, : its.parameters], embeddings[None, chosen])[0]
        return sent if personal is None else join_head(model, sent, personal)

    def sizes(model: Model) -> Hypernetwork:
        head = model.head.stop - model.head.start
        return Hypernetwork(model.parameters - head * personal_head, hidden)

    def dimension(model: Model) -> int:
        its = sizes(model)
        return its.parameters + population * EMBEDDING + model.parameters - its.made

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
