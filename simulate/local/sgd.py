"""Mini-batch SGD of all clients of a cohort at once, and the gradients of their mini-batches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from privplan.errors import Fault, InputError
from simulate.components import ClientBatch
from simulate.models.network import Model
from simulate.models.objective import CROSS_ENTROPY
from simulate.parallel.threads import over_chunks

PADDING = -1
"""Label of a padding row (a client with fewer records than the batch)."""


def pixels(x: Tensor) -> Tensor:
    """Bytes divided by 255 as float32; token numbers and float32 values unchanged."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x


def check_shapes(model: Model, theta: Tensor, x: Tensor, y: Tensor, dimensions: int) -> None:
    """Raises if shapes do not match; the error names every such tensor.

    Args:
        model: the network.
        theta: parameters, [d] or [K, d].
        x: records [*labels, *input_shape].
        y: labels with `dimensions` dimensions, of which the first is clients.
        dimensions: expected number of dimensions of y.

    Raises:
        InputError: a shape does not match.
    """
    faults, d = [], model.parameters
    if theta.shape not in ((d,), (len(y), d)):
        rule = f"must have shape [{d}] or [{len(y)}, {d}]"
        faults.append(Fault("theta", rule, tuple(theta.shape)))
    if y.dim() != dimensions:
        rule = f"must have {dimensions} dimensions (clients, steps if any, rows)"
        faults.append(Fault("y", rule, tuple(y.shape)))
    if x.shape != (*y.shape, *model.input_shape):
        rule = f"must have shape {(*y.shape, *model.input_shape)}"
        faults.append(Fault("x", rule, tuple(x.shape)))
    if faults:
        raise InputError(faults)


def gradients(
    model: Model, thetas: Tensor, x: Tensor, y: Tensor, *, workers: int | None = None
) -> Tensor:
    """Gradient of each client's mean cross-entropy over the unpadded rows of its mini-batch.

    Args:
        model: the network.
        thetas: parameters [K, d].
        x: records [K, B, *input_shape], float32, integers for token models, or uint8
            (divided by 255).
        y: labels [K, B], int64, -1 for a padding row.
        workers: number of threads on a CPU; PyTorch's number of threads when None.

    Returns:
        Gradients [K, d]; zero for a client whose rows are all padding.

    Raises:
        InputError: a shape does not match.
    """
    check_shapes(model, thetas, x, y, dimensions=2)
    thetas = thetas.detach()
    if len(y) == 0:
        return thetas.clone()
    if thetas.device.type != "cpu":
        return gradients_at(model, thetas, pixels(x), y)

    def of_chunk(rows: slice) -> Tensor:
        return gradients_at(model, thetas[rows], pixels(x[rows]), y[rows])

    return over_chunks(of_chunk, len(y), model.clients_per_chunk(y.shape[1]), workers)


def gradients_at(model: Model, thetas: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """As ``gradients``, without checks, for the clients of one chunk.

    Args:
        model: the network.
        thetas: parameters [K, d].
        x: records [K, B, *input_shape], as ``pixels`` returns them.
        y: labels [K, B].
    """
    if thetas.device.type != "cpu":
        return _gradients_whole(model, thetas, x, y)
    packed = model.packed_gradients(model.pack(thetas), x, y)
    return model.unpack(packed, len(y))


def local_sgd(
    model: Model,
    theta: Tensor,
    x: Tensor,
    y: Tensor,
    *,
    learning_rate: float,
    momentum: float = 0.0,
    workers: int | None = None,
) -> Tensor:
    """Returns the updates of a cohort after local stochastic gradient descent.

    A step in which a client has no record (all rows padding) does not change that client. On a
    CPU the result is the same to the bit whatever the number of threads.

    Args:
        model: the network.
        theta: start of every client [d], or one start per client [K, d].
        x: records [K, steps, B, *input_shape], float32 (normalised), integers for
            token models, or uint8 (divided by 255).
        y: labels [K, steps, B], int64, -1 for padding rows.
        learning_rate: step size, at least 0.
        momentum: PyTorch's momentum, in [0, 1); each client starts from a zero buffer.
        workers: number of threads on a CPU; PyTorch's number of threads when None.

    Returns:
        Updates [K, d], float32: parameters after minus parameters before; K may be 0.

    Raises:
        InputError: a shape does not match, or a number is out of range.
    """
    check_shapes(model, theta, x, y, dimensions=3)
    _check_rates(learning_rate, momentum)
    starts = theta.detach().expand(len(y), -1)
    if len(y) == 0:
        return starts.clone()
    if theta.device.type != "cpu":
        return _descend_whole(model, starts, x, y, learning_rate, momentum)

    def of_chunk(rows: slice) -> Tensor:
        return _descend_chunk(model, starts[rows], x[rows], y[rows], learning_rate, momentum)

    return over_chunks(of_chunk, len(y), model.clients_per_chunk(y.shape[2]), workers)


def batch_sgd(batch: ClientBatch, start: Tensor, rate_factor: float = 1.0) -> Tensor:
    """Returns the updates [K, d] of ``local_sgd`` on a round's mini-batches.

    Args:
        batch: input of the local rule.
        start: start of every client [d], or one start per client [K, d].
        rate_factor: factor on the round's learning rate.
    """
    return local_sgd(
        batch.model,
        start,
        batch.x,
        batch.y,
        learning_rate=rate_factor * batch.learning_rate,
        momentum=batch.momentum,
        workers=batch.workers,
    )


def _descend_chunk(
    model: Model, starts: Tensor, x: Tensor, y: Tensor, learning_rate: float, momentum: float
) -> Tensor:
    """Updates [K, d] of the clients of one chunk, on one core."""
    clients, steps = y.shape[:2]
    packed = model.pack(starts)
    values = [tensor for part in packed for tensor in part]
    speeds = [torch.zeros_like(value) for value in values] if momentum else []
    for step in range(steps):
        gradient = model.packed_gradients(packed, pixels(x[:, step]), y[:, step])
        slopes = [tensor for part in gradient for tensor in part]
        if momentum:
            idle = (y[:, step] == PADDING).all(1)
            pairs = zip(speeds, slopes, strict=True)
            slopes = [_accelerate(speed, slope, momentum, idle) for speed, slope in pairs]
        for value, slope in zip(values, slopes, strict=True):
            value.add_(slope, alpha=-learning_rate)
    return model.unpack(packed, clients).sub_(starts)


def _accelerate(speed: Tensor, slope: Tensor, momentum: float, idle: Tensor) -> Tensor:
    """Advance the momentum buffer of one packed tensor in place; returns the step to take.

    Idle clients keep their buffer and take no step.
    """
    if not idle.any():
        return speed.mul_(momentum).add_(slope)
    resting = idle.repeat_interleave(len(speed) // len(idle))
    resting = resting.view(-1, *[1] * (speed.dim() - 1))
    speed.copy_(torch.where(resting, speed, momentum * speed + slope))
    return speed.masked_fill(resting, 0.0)


def _descend_whole(
    model: Model, starts: Tensor, x: Tensor, y: Tensor, learning_rate: float, momentum: float
) -> Tensor:
    """Updates [K, d] of the whole cohort in one batch, without synchronising with the device."""
    thetas, speed = starts.clone(), torch.zeros_like(starts)
    for step in range(y.shape[1]):
        slope = _gradients_whole(model, thetas, pixels(x[:, step]), y[:, step])
        active = (y[:, step] != PADDING).any(1, keepdim=True)
        speed = torch.where(active, momentum * speed + slope, speed)
        thetas.sub_(learning_rate * speed * active)
    return thetas.sub_(starts)


def _gradients_whole(model: Model, thetas: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradients [K, d] of the whole cohort in one batch, by autograd."""
    thetas = thetas.detach().requires_grad_()
    with torch.enable_grad():
        logits = model.logits_each(thetas, x)
        if model.objective is not CROSS_ENTROPY:
            parts = zip(logits, y, y != PADDING, strict=True)
            loss = sum(
                (
                    model.objective(own[rows], labels[rows])
                    for own, labels, rows in parts
                    if rows.any()
                ),
                logits.new_zeros(()) + 0 * logits.sum(),
            )
            return torch.autograd.grad(loss, thetas)[0]
        losses = functional.cross_entropy(
            logits.flatten(0, 1), y.flatten(), ignore_index=PADDING, reduction="none"
        )
        counts = (y != PADDING).sum(1).clamp(min=1)
        loss = (losses.view(y.shape).sum(1) / counts).sum()
    return torch.autograd.grad(loss, thetas)[0]


def _check_rates(learning_rate: float, momentum: float) -> None:
    """Raises if the step size or the momentum is out of range."""
    faults = []
    if not learning_rate >= 0:
        faults.append(Fault("learning_rate", "must be at least 0", learning_rate))
    if not 0 <= momentum < 1:
        faults.append(Fault("momentum", "must be in [0, 1)", momentum))
    if faults:
        raise InputError(faults)
