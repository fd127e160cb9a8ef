"""Local descent on flat vectors along a direction of its own: what SAM and penalties build on.

Sharpness-aware minimisation on flat vectors.

P. Foret, A. Kleiner, H. Mobahi, B. Neyshabur, Sharpness-Aware Minimization for Efficiently
Improving Generalization, ICLR 2021.

Local steps that penalise the norm of the global gradient (DP-FedPGN, Algorithm 1).

Bounded local update regularisation (BLUR): a price on an update's norm beyond a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from simulate.components import ClientBatch, Local, LocalResult
from simulate.local.sgd import PADDING, gradients_at, pixels
from simulate.parallel.threads import over_chunks
from simulate.server import carried

Gradient = Callable[[Tensor], Tensor]
"""Parameters [K, d] to the gradient of each client's mini-batch there [K, d]."""

Direction = Callable[[Tensor, Tensor, Gradient], Tensor]
"""(parameters [K, d], where the clients started [K, d], gradient) to what a step goes against."""


def descend(
    work: ClientBatch, start: Tensor, direction: Direction, drift: Tensor | None = None
) -> Tensor:
    """Updates of clients who step against a direction that is made of gradients.

    Momentum is PyTorch's, on the direction. A step in which a client has no record leaves it
    where it is, but for the drift.

    Args:
        work: what the clients are given.
        start: start of every client [d], or one start a client [K, d].
        direction: the rule; on a CPU it sees some of the clients at a time.
        drift: what is added after every step, known to everybody [d].

    Returns:
        Updates [K, d]: parameters after minus parameters before.
    """
    starts = start.detach().expand(len(work.y), -1)

    def follow(rows: slice) -> Tensor:
        return _follow(work, rows, starts[rows], direction, drift)

    if start.device.type != "cpu":
        return follow(slice(None))
    size = work.model.together(work.y.shape[2])
    return over_chunks(follow, len(work.y), size, work.workers)


def _follow(
    work: ClientBatch, rows: slice, starts: Tensor, direction: Direction, drift: Tensor | None
) -> Tensor:
    """Updates of the clients of some rows."""
    x, y = work.x[rows], work.y[rows]
    thetas, speed = starts.clone(), torch.zeros_like(starts)
    for step in range(y.shape[1]):
        gradient = partial(gradients_at, work.model, x=pixels(x[:, step]), y=y[:, step])
        active = (y[:, step] != PADDING).any(1, keepdim=True)
        found = work.momentum * speed + direction(thetas, starts, gradient)
        speed = torch.where(active, found, speed)
        thetas.sub_(work.learning_rate * speed * active)
        if drift is not None:
            thetas.add_(drift)
    return thetas.sub_(starts)


def sharpness_aware(rho: float) -> Direction:
    """The gradient at the worst near-by point: theta + rho g / ||g||, g the gradient at theta.

    Args:
        rho: how far away, in the units of the parameters. Where the gradient is zero, or rho is,
            the point is theta itself.
    """

    def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        slope = gradient(thetas)
        norm = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        return gradient(thetas + rho * slope / torch.where(norm > 0, norm, 1.0))

    return direction


def sam(rho: float) -> Local:
    """SAM from the global model, both gradients on the same mini-batch.

    Args:
        rho: radius of the ascent.
    """

    def train(work: ClientBatch) -> LocalResult:
        return LocalResult(descend(work, work.theta, sharpness_aware(rho)))

    return Local("sam", train)


def pgn(rho: float, beta: float, decay: float) -> Local:
    """Each step goes against beta grad F_i(theta + rho g / ||g||) + (1 - beta) g.

    g is the global pseudo-gradient, the same for every client and step of a round; where it is
    zero, the gradient is taken at theta. Momentum acts on the client's own part alone, so that
    what g moves in K steps is what everybody knows.

    Args:
        rho: how far along g the gradient is taken, in the units of the parameters.
        beta: share of the client's own gradient, in [0, 1].
        decay: factor on the local learning rate from a round to the next.
    """

    def train(work: ClientBatch) -> LocalResult:
        ahead = carried(work.server, decay)
        norm = torch.linalg.vector_norm(ahead)
        shifted = -rho * ahead / torch.where(norm > 0, norm, 1.0)

        def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
            return beta * gradient(thetas + shifted)

        drift = (1 - beta) / work.y.shape[1] * ahead
        return LocalResult(descend(work, work.theta, direction, drift))

    return Local("pgn", train)


def blur(price: float, radius: float) -> Local:
    """SGD on the loss plus (price / 2) max(0, ||theta - start||^2 - radius^2).

    Args:
        price: weight of the penalty; its slope price (theta - start) pulls back outside the
            radius and is zero within.
        radius: norm of an update that costs nothing.
    """

    def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        moved = thetas - starts
        far = torch.linalg.vector_norm(moved, dim=1, keepdim=True) > radius
        return gradient(thetas) + price * far * moved

    def train(work: ClientBatch) -> LocalResult:
        return LocalResult(descend(work, work.theta, direction))

    return Local("blur", train)
