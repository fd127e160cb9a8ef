"""Mini-batch SGD of all clients of a cohort at once, and local rules made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from simulate.components import ClientBatch, LocalResult, LocalRule, Split
from simulate.models.basis import clients_at_once, logits_of_clients
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork
from simulate.models.network import Model, body_size, join_head, split_head
from simulate.models.objective import CROSS_ENTROPY
from simulate.parallel import by_chunk, over_chunks
from simulate.server import pseudo_gradient_step
from simulate.transforms import NORM

# Label of a padding row, where a client has fewer records than the batch.
PADDING = -1


def pixels(x: Tensor) -> Tensor:
    """Bytes divided by 255 as float32; token numbers and float32 values unchanged."""
    if x.dtype == torch.uint8:
        return x.float().div_(255)
    return x


def gradients(
    model: Model, thetas: Tensor, x: Tensor, y: Tensor, *, workers: int | None = None
) -> Tensor:
    """Gradient of each client's mean loss over the unpadded rows of its mini-batch.

    Args:
        model: of the parameters.
        thetas: parameters of each client [K, d].
        x: records [K, B, ...].
        y: labels [K, B], ``PADDING`` for a padding row.
        workers: number of threads, on which no result depends; those of PyTorch when
            None.

    Returns:
        Gradients [K, d].
    """
    thetas = thetas.detach()
    if len(y) == 0:
        return thetas.clone()

    def of_chunk(rows: slice) -> Tensor:
        return gradients_at(model, thetas[rows], pixels(x[rows]), y[rows])

    return _over_clients(of_chunk, model, thetas.device, y.shape, workers)


def _over_clients(
    function: Callable[[slice], Tensor],
    model: Model,
    device: torch.device,
    shape: Sequence[int],
    workers: int | None,
) -> Tensor:
    """The concatenated results of a function on the clients that train in one batch.

    Args:
        function: some clients to a result [K, ...].
        model: of the clients.
        device: where they are trained. Threads are for a CPU.
        shape: of the labels: clients first, rows of a mini-batch last.
        workers: number of threads.
    """
    size = clients_at_once(model, device, shape[0], shape[-1])
    return over_chunks(function, shape[0], size, workers if device.type == "cpu" else 1)


def gradients_at(
    model: Model,
    thetas: Tensor,
    x: Tensor,
    y: Tensor,
    rows: Sequence[int] | None = None,
) -> Tensor:
    """As ``gradients``, without checks, for the clients of one chunk.

    Args:
        model: of the parameters.
        thetas: parameters [K, d].
        x: records, as float32 [K, B, ...].
        y: labels [K, B].
        rows: how many rows of each mini-batch are no padding; counted when None.
    """
    if thetas.device.type != "cpu":
        return _gradients_whole(model, thetas, x, y, rows)
    return model.unpack(model.packed_gradients(model.pack(thetas), x, y), len(y))


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
    """Updates of local SGD; a step without records changes nothing.

    Args:
        model: of the parameters.
        theta: first parameters [d] or [K, d].
        x: mini-batches [K, steps, B, ...].
        y: labels [K, steps, B], ``PADDING`` for a padding row.
        learning_rate: of each step.
        momentum: of the steps that have records.
        workers: number of threads, on which no result depends; those of PyTorch when
            None.

    Returns:
        Movements from the first parameters [K, d].
    """
    starts = theta.detach().expand(len(y), -1)
    if len(y) == 0:
        return starts.clone()
    descent: Descent = _descend_whole
    if theta.device.type == "cpu":
        descent = _descend_chunk

    def of_chunk(rows: slice) -> Tensor:
        return descent(model, starts[rows], x[rows], y[rows], learning_rate, momentum)

    return _over_clients(of_chunk, model, theta.device, y.shape, workers)


Descent = Callable[[Model, Tensor, Tensor, Tensor, float, float], Tensor]
"""(model, starts, records, labels, learning rate, momentum) to updates [K, d]."""


def batch_sgd(batch: ClientBatch, start: Tensor, rate_factor: float = 1.0) -> Tensor:
    """The updates [K, d] of ``local_sgd`` on a round's mini-batches."""
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
    model: Model,
    starts: Tensor,
    x: Tensor,
    y: Tensor,
    learning_rate: float,
    momentum: float,
) -> Tensor:
    """Updates [K, d] of the clients of one chunk, on one core."""
    clients, steps = y.shape[:2]
    packed = model.pack(starts)
    values = list(chain.from_iterable(packed))
    speeds = [torch.zeros_like(value) for value in values] if momentum else []
    for step in range(steps):
        gradient = model.packed_gradients(packed, pixels(x[:, step]), y[:, step])
        slopes = list(chain.from_iterable(gradient))
        if momentum:
            idle = (y[:, step] == PADDING).all(1)
            slopes = [
                _accelerate(speed, slope, momentum, idle)
                for speed, slope in zip(speeds, slopes, strict=True)
            ]
        for value, slope in zip(values, slopes, strict=True):
            value.add_(slope, alpha=-learning_rate)
    return model.unpack(packed, clients).sub_(starts)


def _accelerate(speed: Tensor, slope: Tensor, momentum: float, idle: Tensor) -> Tensor:
    """Advance the momentum buffer in place; returns the step, 0 for idle clients."""
    if not idle.any():
        return speed.mul_(momentum).add_(slope)
    resting = idle.repeat_interleave(len(speed) // len(idle))
    resting = resting.view(-1, *[1] * (speed.dim() - 1))
    speed.copy_(torch.where(resting, speed, momentum * speed + slope))
    return speed.masked_fill(resting, 0.0)


def _gradients_whole(
    model: Model,
    thetas: Tensor,
    x: Tensor,
    y: Tensor,
    rows: Sequence[int] | None = None,
) -> Tensor:
    """Gradients [K, d] of the whole cohort in one batch, by autograd."""
    thetas = thetas.detach().requires_grad_()
    with torch.enable_grad():
        logits = logits_of_clients(model, thetas, x)
        if model.objective is not CROSS_ENTROPY:
            sizes = _unpadded(y) if rows is None else rows
            loss = 0 * logits.sum()  # has a gradient, also without records
            for outputs, labels, size in zip(logits, y, sizes, strict=True):
                if size:  # padding stands at the end
                    loss = loss + model.objective(outputs[:size], labels[:size])
            return torch.autograd.grad(loss, thetas)[0]
        losses = functional.cross_entropy(
            logits.flatten(0, 1), y.flatten(), ignore_index=PADDING, reduction="none"
        )
        counts = (y != PADDING).sum(1).clamp(min=1)
        loss = (losses.view(y.shape).sum(1) / counts).sum()
    return torch.autograd.grad(loss, thetas)[0]


def _unpadded(y: Tensor) -> list[Any]:
    """Rows of each mini-batch that are no padding, in one copy from the device."""
    counts: list[Any] = (y != PADDING).sum(-1).tolist()
    return counts


# --- Local descent along a modified gradient: SAM, DP-FedPGN's penalty and BLUR. ------
# P. Foret, A. Kleiner, H. Mobahi, B. Neyshabur, Sharpness-Aware Minimization for
# Efficiently Improving Generalization, ICLR 2021; DP-FedPGN, Algorithm 1, whose local
# steps penalise the norm of the global gradient; bounded local update regularisation
# (BLUR), a penalty on an update's norm beyond a bound.

Gradient = Callable[[Tensor], Tensor]
"""Parameters [K, d] to the clients' gradients [K, d]."""

Direction = Callable[[Tensor, Tensor, Gradient], Tensor]
"""(parameters, starts, gradient) to what a step subtracts, all [K, d]."""


def descend(
    batch: ClientBatch, start: Tensor, direction: Direction, drift: Tensor | None = None
) -> Tensor:
    """Updates [K, d] of steps against a direction, with PyTorch's momentum.

    Args:
        batch: models and mini-batches of the clients.
        start: first parameters [d] or [K, d].
        direction: of each step.
        drift: is added in each step [d], also in one without records.
    """
    starts = start.detach().expand(len(batch.y), -1)

    def chunk_updates(rows: slice) -> Tensor:
        return _descend_whole(
            batch.model,
            starts[rows],
            batch.x[rows],
            batch.y[rows],
            batch.learning_rate,
            batch.momentum,
            direction,
            drift,
        )

    return _over_clients(
        chunk_updates, batch.model, start.device, batch.y.shape, batch.workers
    )


def _descend_whole(
    model: Model,
    starts: Tensor,
    x: Tensor,
    y: Tensor,
    learning_rate: float,
    momentum: float,
    direction: Direction | None = None,
    drift: Tensor | None = None,
) -> Tensor:
    """Updates [K, d] in one batch, against a direction or the gradient.

    The host waits for a device once at most: to count rows for an own loss.
    """
    direction = direction or plain
    thetas = starts.clone()
    speed = torch.zeros_like(starts)
    rows_by_step: list[Any] | None = None
    if model.objective is not CROSS_ENTROPY:
        rows_by_step = _unpadded(y.transpose(0, 1))
    for step in range(y.shape[1]):
        rows = rows_by_step and rows_by_step[step]
        inputs = pixels(x[:, step])
        gradient = partial(gradients_at, model, x=inputs, y=y[:, step], rows=rows)
        slope = direction(thetas, starts, gradient)
        active = (y[:, step] != PADDING).any(1, keepdim=True)
        speed = torch.where(active, momentum * speed + slope, speed)
        thetas.sub_(learning_rate * speed * active)
        if drift is not None:
            thetas.add_(drift)
    return thetas.sub_(starts)


def sharpness_aware(rho: float) -> Direction:
    """The gradient at theta + rho g / ||g||, with g the gradient at theta."""

    def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        slope = gradient(thetas)
        norm = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        return gradient(thetas + rho * slope / torch.where(norm > 0, norm, 1.0))

    return direction


def sam(rho: float) -> LocalRule:
    """SAM from the global model, both gradients on the same mini-batch."""

    def train(batch: ClientBatch) -> LocalResult:
        return LocalResult(descend(batch, batch.theta, sharpness_aware(rho)))

    return LocalRule("sam", train, across_groups=True)


def pgn(rho: float, beta: float, decay: float) -> LocalRule:
    """Each step subtracts beta grad F_i(theta + rho g / ||g||) + (1 - beta) g.

    g is the global pseudo-gradient, equal for all clients and steps of a round; if it
    is zero, the gradient is taken at theta. Momentum acts only on the client's
    gradient, so that the movement along g in K steps is public.
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
    """SGD on the loss plus a penalty on a long change.

    The penalty is (price / 2) max(0, ||theta - start||^2 - (radius norm)^2).

    Args:
        price: of the penalty.
        radius: without penalty, in clipping norms.
        norm: the clipping norm; None for that of the server's state.
    """

    def train(batch: ClientBatch) -> LocalResult:
        if norm is None:
            clipping_norm = float(batch.server[NORM])
        else:
            clipping_norm = norm
        free = radius * clipping_norm

        def direction(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
            moved = thetas - starts
            outside = torch.linalg.vector_norm(moved, dim=1, keepdim=True) > free
            penalised: Tensor = gradient(thetas) + price * outside * moved
            return penalised

        return LocalResult(descend(batch, batch.theta, direction))

    return LocalRule("blur", train, across_groups=True)


# --- Local SGD: plain, and of clients with personal heads, offsets or models. ---------


def plain_sgd() -> LocalRule:
    """Plain mini-batch SGD from the global model."""

    def train(batch: ClientBatch) -> LocalResult:
        return LocalResult(batch_sgd(batch, batch.theta))

    return LocalRule("sgd", train, across_groups=True)


def private_sgd() -> LocalRule:
    """Plain mini-batch SGD from the client's own parameters; it sends nothing."""

    def train(batch: ClientBatch) -> LocalResult:
        start = batch.personal
        if start is None:
            start = batch.theta.expand(len(batch.clients), -1)
        updates = batch_sgd(batch, start)
        return LocalResult(updates, start + updates)

    return LocalRule("private sgd", train, across_groups=True)


def additive_sgd(alpha: float) -> LocalRule:
    """Each step moves the shared and the personal offset along the same gradient.

    The larger of the two step sizes is the learning rate; ``alpha`` is the step size of
    the shared part divided by that of the personal part: 0 trains only the personal
    part, infinity only the shared one.
    """
    shared = min(1.0, alpha)
    personal = min(1.0, 1 / alpha) if alpha else 1.0

    def train(batch: ClientBatch) -> LocalResult:
        offset = batch.personal
        if offset is None:
            offset = torch.zeros_like(batch.theta)
        start = (batch.theta + offset).expand(len(batch.clients), -1)
        moved = batch_sgd(batch, start, shared + personal)
        moved /= shared + personal
        return LocalResult(shared * moved, offset + personal * moved)

    return LocalRule("sgd at the sum", train, across_groups=True)


def alternating(split: Split, *, rho: float = 0.0, head_rate: float = 1.0) -> LocalRule:
    """DP2-FedSAM (lines 5 to 17): plain steps of the head, then SAM of the body.

    Args:
        split: with a personal head.
        rho: radius of SAM; 0 for plain steps.
        head_rate: factor on the learning rate of the head.
    """
    of_body = sharpness_aware(rho) if rho else plain

    def train(batch: ClientBatch) -> LocalResult:
        head = batch.model.head
        in_head = torch.zeros_like(batch.theta)
        in_head[head] = 1.0
        start = split.use(batch.model, batch.theta, batch.personal, batch.clients)
        for_head = replace(batch, learning_rate=head_rate * batch.learning_rate)
        with_new_head = start + descend(for_head, start, within(in_head, plain))
        updates = descend(batch, with_new_head, within(1 - in_head, of_body))
        return LocalResult(updates, with_new_head[:, head])

    name = "alternating, SAM" if rho else "alternating"
    return LocalRule(name, train, across_groups=True)


def plain(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
    """The gradient itself."""
    return gradient(thetas)


def within(mask: Tensor, direction: Direction) -> Direction:
    """A direction restricted to some coordinates."""

    def masked(thetas: Tensor, starts: Tensor, gradient: Gradient) -> Tensor:
        return direction(thetas, starts, lambda point: gradient(point) * mask)

    return masked


def generated_sgd(split: Split) -> LocalRule:
    """Plain SGD on the whole model that the server generated, and a personal head."""

    def train(batch: ClientBatch) -> LocalResult:
        start = split.use(batch.model, batch.theta, batch.personal, batch.clients)
        updates = batch_sgd(batch, start)
        if batch.personal is None:
            return LocalResult(updates)
        bodies, heads = split_head(batch.model, updates)
        return LocalResult(bodies, batch.personal + heads)

    return LocalRule("sgd from what was made", train, across_groups=True)


# --- HyperFL: a client trains its head first, then hypernetwork and embedding. --------

# Parameters of hypernetworks per chunk of one core: 4 MB.
CHUNK_VALUES = 2**20


def hypernetwork_sgd(split: Split, *, hidden: int, head_rate: float) -> LocalRule:
    """HyperFL (Equations 4 and 5): head for an epoch, then hypernetwork and embedding.

    Args:
        split: of the model.
        hidden: width of the hypernetwork.
        head_rate: factor on the learning rate of the head.
    """

    def train(batch: ClientBatch) -> LocalResult:
        network = Hypernetwork(body_size(batch.model), hidden)
        heads = _heads(batch, split, head_rate)
        personal = batch.personal
        if personal is None:
            personal = batch.theta[network.parameters :]
        embeddings = personal.expand(len(batch.clients), -1)[:, :EMBEDDING]

        def train_rows(rows: slice) -> tuple[Tensor, Tensor]:
            initial = embeddings[rows].clone()
            return _descended(batch, network, rows, initial, heads[rows])

        size = max(1, CHUNK_VALUES // network.parameters)
        chunks = by_chunk(train_rows, len(batch.clients), size, batch.workers)
        updates, embeddings = (torch.cat(rows) for rows in zip(*chunks, strict=True))
        return LocalResult(updates, torch.cat([embeddings, heads], 1))

    return LocalRule("alternating, hypernetwork", train)


def _heads(batch: ClientBatch, split: Split, head_rate: float) -> Tensor:
    """The clients' heads after one epoch over their records, the body fixed."""
    in_head = torch.zeros(batch.model.parameters, device=batch.theta.device)
    in_head[batch.model.head] = 1.0
    # Steps after the first epoch have padding only. Minus twice: rounded up.
    batches = -(-torch.from_numpy(batch.records) // batch.y.shape[2])
    later = torch.arange(batch.y.shape[1])[None, :, None] >= batches[:, None, None]
    first_epoch = replace(
        batch,
        y=batch.y.masked_fill(later.to(batch.y.device), PADDING),
        learning_rate=head_rate * batch.learning_rate,
    )
    start = split.use(batch.model, batch.theta, batch.personal, batch.clients)
    start = start.expand(len(batch.clients), -1)
    moved = start + descend(first_epoch, start, within(in_head, plain))
    _, heads = split_head(batch.model, moved)
    return heads


def _descended(
    batch: ClientBatch,
    network: Hypernetwork,
    rows: slice,
    embeddings: Tensor,
    heads: Tensor,
) -> tuple[Tensor, Tensor]:
    """SGD of hypernetwork and embedding through the generated bodies.

    Args:
        batch: of all clients.
        network: the hypernetwork.
        rows: the clients that are trained.
        embeddings: of these clients [K, E]; changed in place.
        heads: of these clients, fixed [K, head].

    Returns:
        Updates [K, d] and embeddings [K, E].
    """
    model = batch.model
    labels = batch.y[rows]
    ends = batch.theta.repeat(len(labels), 1)
    weights = ends[:, : network.parameters]  # a view: steps move ``ends``

    # ``pull_back`` adds the slope by the weights in place: to their momentum, or where
    # there is none to the weights, times minus the learning rate.
    speed = torch.zeros_like(weights) if batch.momentum else weights
    factor = 1.0 if batch.momentum else -batch.learning_rate
    embedding_speed = torch.zeros_like(embeddings)
    for step in range(labels.shape[1]):
        y = labels[:, step]
        active = (y != PADDING).any(1, keepdim=True)
        generated = network.generated(weights, embeddings[:, None])[:, 0]
        thetas = join_head(model, generated, heads)
        slopes = gradients_at(model, thetas, pixels(batch.x[rows][:, step]), y)
        slopes, _ = split_head(model, slopes)
        if batch.momentum:
            speed.mul_(torch.where(active, batch.momentum, 1.0))
        slope = network.pull_back(
            weights, embeddings[:, None], slopes[:, None], speed, factor
        )[:, 0]
        if batch.momentum:
            weights.addcmul_(speed, active.to(speed.dtype), value=-batch.learning_rate)
        embedding_speed = torch.where(
            active, batch.momentum * embedding_speed + slope, embedding_speed
        )
        embeddings.sub_(batch.learning_rate * embedding_speed * active)
    return ends.sub_(batch.theta), embeddings
