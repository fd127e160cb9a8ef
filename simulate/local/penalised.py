"""Local descent along a modified gradient: SAM, DP-FedPGN's penalty and BLUR.

P. Foret, A. Kleiner, H. Mobahi, B. Neyshabur, Sharpness-Aware Minimization for Efficiently
Improving Generalization, ICLR 2021; DP-FedPGN, Algorithm 1, whose local steps penalise the norm of
the global gradient; bounded local update regularisation (BLUR), a penalty on an update's norm
beyond a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from simulate.components import ClientBatch, LocalResult, LocalRule
from simulate.local.sgd import PADDING, gradients_at, pixels
from simulate.parallel.threads import over_chunks
from simulate.server import pseudo_gradient_step
from simulate.transforms import NORM

Gradient = Callable[[Tensor], Tensor]
"""Parameters [K, d] to the gradient of each client's mini-batch there [K, d]."""

Direction = Callable[[Tensor, Tensor, Gradient], Tensor]
"""(parameters [K, d], starts [K, d], gradient) to the direction that a step subtracts [K, d]."""


def descend(
    batch: ClientBatch, start: Tensor, direction: Direction, drift: Tensor | None = None
) -> Tensor:
    """Returns the updates of clients that step against a direction computed from gradients.

    Momentum is PyTorch's, applied to the direction. A step in which a client has no record adds
    only the drift.

    Args:
        batch: input of the local rule.
        start: start of every client [d], or one start per client [K, d].
        direction: the rule; on a CPU it receives one chunk of clients at a time.
        drift: vector that is added after every step, equal for all clients [d].

    Returns:
        Updates [K, d]: parameters after minus parameters before.
    """
    starts = start.detach().expand(len(batch.y), -1)

    def chunk_updates(rows: slice) -> Tensor:
        return _chunk_updates(batch, rows, starts[rows], direction, drift)

    if start.device.type != "cpu":
        return chunk_updates(slice(None))
    size = batch.model.clients_per_chunk(batch.y.shape[2])
    return over_chunks(chunk_updates, len(batch.y), size, batch.workers)


def _chunk_updates(
    batch: ClientBatch, rows: slice, starts: Tensor, direction: Direction, drift: Tensor | None
) -> Tensor:
    """Updates of the clients of one chunk."""
    x, y = batch.x[rows], batch.y[rows]
    thetas, speed = starts.clone(), torch.zeros_like(starts)
    for step in range(y.shape[1]):
        gradient = partial(gradients_at, batch.model, x=pixels(x[:, step]), y=y[:, step])
        active = (y[:, step] != PADDING).any(1, keepdim=True)
        momentum_step = batch.momentum * speed + direction(thetas, starts, gradient)
        speed = torch.where(active, momentum_step, speed)
        thetas.sub_(batch.learning_rate * speed * active)
        if drift is not None:
            thetas.add_(drift)
    return thetas.sub_(starts)


def sharpness_aware(rho: float) -> Direction:
    """The gradient at theta + rho g / ||g||, with g the gradient at theta.

    Args:
        rho: radius in the units of the parameters. If the gradient or rho is zero, the point is
            theta itself.
    """

    def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        slope = gradient(thetas)
        norm = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        return gradient(thetas + rho * slope / torch.where(norm > 0, norm, 1.0))

    return direction


def sam(rho: float) -> LocalRule:
    """SAM from the global model, both gradients on the same mini-batch.

    Args:
        rho: radius of the ascent.
    """

    def train(batch: ClientBatch) -> LocalResult:
        return LocalResult(descend(batch, batch.theta, sharpness_aware(rho)))

    return LocalRule("sam", train, across_groups=True)


def pgn(rho: float, beta: float, decay: float) -> LocalRule:
    """Each step subtracts beta grad F_i(theta + rho g / ||g||) + (1 - beta) g.

    g is the global pseudo-gradient, equal for all clients and steps of a round; if it is zero, the
    gradient is taken at theta. Momentum acts only on the client's gradient, so that the movement
    along g in K steps is public.

    Args:
        rho: distance along g at which the gradient is taken, in the units of the parameters.
        beta: share of the client's own gradient, in [0, 1].
        decay: factor on the local learning rate per round.
    """

    def train(batch: ClientBatch) -> LocalResult:
        public_step = pseudo_gradient_step(batch.server, decay)
        norm = torch.linalg.vector_norm(public_step)
        shifted = -rho * public_step / torch.where(norm > 0, norm, 1.0)

        def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
            return beta * gradient(thetas + shifted)

        drift = (1 - beta) / batch.y.shape[1] * public_step
        return LocalResult(descend(batch, batch.theta, direction, drift))

    return LocalRule("pgn", train, across_groups=True)


def blur(price: float, radius: float, norm: float | None = 1.0) -> LocalRule:
    """SGD on the loss plus (price / 2) max(0, ||theta - start||^2 - (radius norm)^2).

    Args:
        price: weight of the penalty; its gradient price (theta - start) applies only outside
            the radius.
        radius: norm up to which an update has no penalty, over ``norm``.
        norm: the clipping norm; None for that of the round, where it follows a quantile.
    """

    def train(batch: ClientBatch) -> LocalResult:
        free = radius * (float(batch.server[NORM]) if norm is None else norm)

        def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
            moved = thetas - starts
            outside = torch.linalg.vector_norm(moved, dim=1, keepdim=True) > free
            penalised: Tensor = gradient(thetas) + price * outside * moved
            return penalised

        return LocalResult(descend(batch, batch.theta, direction))

    return LocalRule("blur", train, across_groups=True)
