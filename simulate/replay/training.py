"""Local training, executed again: mini-batches, gradients by autograd, local rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from privplan.plan import Plan
from simulate.data.augmentation import augmented
from simulate.replay.draws import AUGMENTATION, CLIENT, Batches, epochs, stream
from simulate.replay.tolerance import FLOAT32
from simulate.replay.world import World

# Names of the last step and of the adaptive clipping norm in the server's state.
LAST_STEP = "last_step"
NORM = "clipping_norm"

Sums = Sequence[Tensor]
"""The sum of each group of a release, without noise."""


class Nudge(NamedTuple):
    """A change of what clients start from and of every step, as rounding makes it."""

    seed: int  # of its directions, by the verifier
    roundings: float  # its size in each coordinate, in relative float32 roundings


class Rounding:
    """What rounding does in the training of clients: nothing without a nudge.

    Every step rounds. Parameters are rounded relative to where the step leads, so that
    those that begin at zero are rounded as soon as they move. The slopes of a loss by
    a model's outputs are rounded relative to one: where a softmax is saturated, they
    are differences of numbers near one.

    Args:
        nudge: by the verifier; None for none.
        clients: their numbers.
    """

    def __init__(self, nudge: Nudge | None, clients: Sequence[int]) -> None:
        self._size = 0.0
        self._sources: list[np.random.Generator] = []
        if nudge is not None:
            self._size = FLOAT32 * nudge.roundings
            self._sources = [stream(nudge.seed, CLIENT, client) for client in clients]

    def of_parameters(self, theta: Tensor) -> Tensor:
        """Parameters [K, d], or of one client [d], as rounding makes them."""
        if not self._sources:
            return theta
        size = theta.shape[-1]
        directions = [source.standard_normal(size) for source in self._sources]
        changes = torch.from_numpy(np.concatenate(directions)).view_as(theta)
        return (theta * (1 + self._size * changes)).float()

    def of_loss(self, place: int, outputs: Tensor) -> Tensor | float:
        """What changes the slopes of a mean loss by the outputs of a client.

        Args:
            place: of the client.
            outputs: of its records [B, ..., classes].
        """
        if not self._sources:
            return 0.0
        drawn = self._sources[place].standard_normal(outputs.shape)
        directions = torch.from_numpy(drawn).to(outputs.dtype)
        means = max(1, outputs.shape[:-1].numel())
        return self._size / means * (directions * outputs).sum()


EXACT = Rounding(None, ())


@dataclass(frozen=True)
class Start:
    """What the clients of a round start from.

    Attributes:
        theta: the global model [d].
        clipping_norm: the norm that follows a quantile; None for the plan's.
        last_step: the server's last step [d] (DP-FedPGN).
        past: sums of the rounds before, the latest first: by release, then by group.
        personal: what clients have kept for themselves so far, by number.
        nudge: changes what each client trains; None for no change.
    """

    theta: Tensor
    clipping_norm: float | None = None
    last_step: Tensor | None = None
    past: Sequence[Sequence[Sums]] = ()
    personal: Mapping[int, Tensor] = field(default_factory=dict)
    nudge: Nudge | None = None

    def of_client(self, client: int) -> Tensor:
        """The parameters from which a client trains [d]: shared ones and its own."""
        personal = self.personal.get(client)
        if personal is None:
            return self.theta
        return self.theta + personal

    def rounding(self, clients: Sequence[int]) -> Rounding:
        """What rounding does in the training of these clients."""
        return Rounding(self.nudge, clients)


@dataclass(frozen=True)
class Batch:
    """A mini-batch of each of K clients."""

    x: Tensor  # records [K, B, ...]
    y: Tensor  # labels [K, B]
    sizes: Sequence[int]  # how many of the B records count, by client


Factor = float | Tensor
"""On the learning rate: a number, or one for each coordinate [d]."""


def mini_batches(
    world: World, round_: int, clients: Sequence[int], batches: Sequence[Batches]
) -> Iterator[Batch]:
    """The mini-batches of each step; ``batches`` has their records by client and step.

    They are filled up to equal sizes by records that enter no loss.
    """
    sizes = np.array([list(map(len, of_client)) for of_client in batches])
    width = sizes.max()
    filled = []
    for of_client in batches:
        filled.append([np.resize(records, width) for records in of_client])
    rows = torch.from_numpy(np.array(filled))

    data = world.parts.data
    augmentation = world.plan.spec.local.augmentation
    keys = stream_keys(world, clients)
    sources = (stream(world.seed, AUGMENTATION, round_, key) for key in keys)
    x = augmented(data.inputs(data.train_x[rows]), augmentation, sources)
    y = data.train_y[rows]
    steps = zip(x.unbind(1), y.unbind(1), sizes.T.tolist(), strict=True)
    return (Batch(*step) for step in steps)


def stream_keys(world: World, clients: Sequence[int]) -> list[int]:
    """What stands for clients in their random streams."""
    keys: list[int] = world.parts.partition.stream_keys(np.asarray(clients)).tolist()
    return keys


def gradients(
    world: World, theta: Tensor, batch: Batch, rounding: Rounding = EXACT
) -> Tensor:
    """Gradients [K, d] of the mean losses of K mini-batches at parameters [K, d]."""
    model = world.parts.model
    theta = theta.detach().requires_grad_()
    if len(batch.x) > 1:
        logits = model.logits_each(theta, batch.x)
    else:
        logits = model.logits(theta[0], batch.x[0])[None]
    losses = []
    for place, size in enumerate(batch.sizes):
        outputs = logits[place, :size]
        loss = model.objective(outputs, batch.y[place, :size])
        losses.append(loss + rounding.of_loss(place, outputs))
    return torch.autograd.grad(torch.stack(losses).sum(), theta)[0]


def learning_rate(plan: Plan, round_: int) -> float:
    """Local learning rate of a round."""
    decay = plan.spec.local.learning_rate_decay ** (round_ - 1)
    return plan.spec.local.learning_rate * decay


Slope = Callable[[Tensor, int, Tensor | bool], Tensor]
"""(parameters, step from 0, whether each coordinate moves) to the descent direction."""


def descended(
    plan: Plan,
    round_: int,
    theta: Tensor,
    slope: Slope,
    factors: Sequence[Factor],
    drift: Tensor | float = 0.0,
    rounding: Rounding = EXACT,
    *,
    movement_apart: bool = False,
) -> Tensor:
    """Movement [..., d] by SGD with momentum.

    A coordinate with a factor of 0 does not move in that step.

    Args:
        plan: names momentum and learning rate.
        round_: from 1, which the learning rate follows.
        theta: the first parameters [..., d].
        slope: the direction of each step.
        factors: on the learning rate, one for each step.
        drift: added to the parameters in each step.
        rounding: in each step.
        movement_apart: whether the movement is kept apart from the parameters, whose
            rounding is no part of it then.
    """
    momentum = plan.spec.local.momentum
    rate = learning_rate(plan, round_)
    position = theta
    movement = torch.zeros_like(theta)
    speed = torch.zeros_like(theta)
    for step, factor in enumerate(factors):
        speed = slope(position, step, factor != 0).add_(speed, alpha=momentum)
        if movement_apart:
            movement = movement - rate * factor * speed
            position = rounding.of_parameters(theta + movement)
        else:
            moved = position.sub(speed * factor, alpha=rate) + drift
            position = rounding.of_parameters(moved)
            movement = position - theta
    return movement


def step_factors(world: World, steps: int) -> tuple[list[Factor], Factor]:
    """Factors on the learning rate in each step, and the share of a movement to send.

    A client keeps the remaining movement: that of its head, which the first half of the
    steps trains, or that of its offset.

    Args:
        world: the run.
        steps: number of local steps.

    Returns:
        The factors, and the share: a number, or one for each coordinate [d].
    """
    if world.recipe.local == "head":
        body = torch.from_numpy(world.released(1))
        sent = torch.zeros(world.parts.model.parameters).index_fill(0, body, 1)
        head = (1 - sent) * world.numbers["head_rate"]
        half = steps // 2
        factors: list[Factor] = [head] * half
        factors += [sent] * (steps - half)
        return factors, sent

    if world.recipe.local == "offset":
        # The gradient moves the shared part by min(1, alpha), and the offset by
        # min(1, 1 / alpha): both at once, since the model is their sum.
        alpha = world.numbers["alpha"]
        shared = min(1.0, alpha)
        offset = min(1.0, 1 / alpha) if alpha else 1.0
        total = shared + offset
        return [total] * steps, shared / total

    return [1.0] * steps, 1.0


def known_movement(world: World, start: Start) -> Tensor:
    """The movement along the last step, which all clients know (DP-FedPGN) [d]."""
    assert start.last_step is not None  # the server of the method keeps it
    return start.last_step * world.plan.spec.local.learning_rate_decay


def moved(
    world: World,
    round_: int,
    starts: Tensor,
    steps: list[Batch],
    start: Start,
    rounding: Rounding,
) -> Tensor:
    """Movements of clients from their parameters, by the method's local rule.

    Args:
        world: the run.
        round_: from 1.
        starts: parameters of each client [K, d].
        steps: the mini-batches of each step.
        start: what the clients start from.
        rounding: in each step.

    Returns:
        Movements [K, d].
    """
    local = world.recipe.local
    numbers = world.numbers

    # SAM ascends in all steps. With a personal head, the head is trained first, then
    # the body with SAM, on the same mini-batches.
    rho = numbers.get("rho", 0.0) if local in ("sam", "head") else 0.0
    first_ascent = 0
    if local == "head":
        first_ascent = len(steps)
        steps = steps * 2
    factors, _ = step_factors(world, len(steps))

    # DP-FedPGN takes gradients at a distance rho along the last step (Algorithm 1).
    offset = torch.zeros_like(start.theta)
    scale = 1.0
    drift = torch.zeros(())
    if local == "pgn":
        along = known_movement(world, start)
        scale = numbers["beta"]
        offset = -numbers["rho"] * along / (along.norm() or 1.0)
        drift = (1 - scale) / len(steps) * along

    def slope(thetas: Tensor, step: int, moves: Tensor | bool) -> Tensor:
        """The gradient where SAM or DP-FedPGN take it, with BLUR's penalty [K, d]."""
        direction = (
            scale * gradients(world, thetas + offset, steps[step], rounding) * moves
        )
        if rho and step >= first_ascent:
            norm = direction.norm(dim=1, keepdim=True)
            ascended = thetas + rho * direction / norm.where(norm > 0, 1)
            direction = gradients(world, ascended, steps[step], rounding) * moves
        if local == "blur":
            return direction + _penalty(world, start, thetas - starts)
        return direction

    return descended(world.plan, round_, starts, slope, factors, drift, rounding)


def _penalty(world: World, start: Start, change: Tensor) -> Tensor:
    """Slope of BLUR's penalty on changes [K, d] beyond a part of the clipping norm."""
    bound = start.clipping_norm or world.plan.spec.clipping_norm
    norms = change.norm(dim=1, keepdim=True)
    is_outside = norms > world.numbers["radius"] * bound
    penalty: Tensor = world.numbers["price"] * is_outside * change
    return penalty


def updates(
    world: World, round_: int, start: Start, clients: Sequence[int]
) -> Iterable[tuple[Tensor, Tensor]]:
    """What each client sends [k] and keeps [d].

    Args:
        world: the run.
        round_: from 1.
        start: what the clients start from.
        clients: their numbers.
    """
    local = world.plan.spec.local
    starts: list[Tensor] = []
    batches: list[Batches] = []
    for client in clients:
        source = stream(world.seed, CLIENT, round_, *stream_keys(world, [client]))
        records = world.parts.partition.records(client)
        batches.append(epochs(records, local.steps, local.batch_size, source))
        starts.append(start.of_client(client))

    steps = list(mini_batches(world, round_, clients, batches))
    start_thetas = torch.stack(starts)
    rounding = start.rounding(clients)
    begin = rounding.of_parameters(start_thetas)
    # What rounding adds to parameters in training is a part of their movement.
    movements = moved(world, round_, begin, steps, start, rounding) + (
        begin - start_thetas
    )
    _, share = step_factors(world, 1)
    sent = (movements * share)[:, torch.from_numpy(world.released(round_))]
    remains = sent  # nobody reads what clients keep, where they keep nothing
    if world.recipe.personal:
        remains = start_thetas - start.theta + movements * (1 - share)
    if world.recipe.local == "pgn":
        # What all clients know is no part of what they send.
        sent = sent - (1 - world.numbers["beta"]) * known_movement(world, start)
    return zip(sent, remains, strict=True)
