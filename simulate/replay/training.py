"""Local training, executed again: mini-batches, gradients by autograd, and the local rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from privplan.plan import Plan
from simulate.data.dataset import augmented
from simulate.replay.draws import AUGMENTATION, CLIENT, Batches, epochs, stream
from simulate.replay.world import World

LAST_STEP, NORM = "last_step", "clipping_norm"
"""Names of the last step and of the adaptive clipping norm in the server's state."""

Sums = Sequence[Tensor]  # the sum of each group of a release, without noise


@dataclass(frozen=True)
class Start:
    """What the clients of a round start from."""

    theta: Tensor  # the global model [d]
    clipping_norm: float | None = (
        None  # of a norm that follows a quantile; None for the plan's
    )
    last_step: Tensor | None = None  # the server's last step [d] (DP-FedPGN)
    # sums of the rounds before, the latest first: by release, then by group
    past: Sequence[Sequence[Sums]] = ()
    # what clients have kept for themselves so far, by number of the client
    personal: Mapping[int, Tensor] = field(default_factory=dict)

    def of_client(self, client: int) -> Tensor:
        """The parameters from which a client trains [d]: shared ones and what it has kept."""
        kept = self.personal.get(client)
        return self.theta if kept is None else self.theta + kept


@dataclass(frozen=True)
class Batch:
    """A mini-batch of each of K clients."""

    x: Tensor  # records [K, B, ...]
    y: Tensor  # labels [K, B]
    sizes: Sequence[int]  # how many of the B records count, by client


Factor = (
    float | Tensor
)  # on the learning rate: a number, or one for each coordinate [d]


def mini_batches(
    world: World, round_: int, clients: Sequence[int], batches: Sequence[Batches]
) -> Iterator[Batch]:
    """The mini-batches of each step; ``batches`` has their records by client and step.

    They are filled up to equal sizes by records that enter no loss.
    """
    data, rule = world.parts.data, world.plan.spec.local.augmentation
    sizes = np.array([[len(rows) for rows in of_client] for of_client in batches])
    width = sizes.max()
    filled = [[np.resize(rows, width) for rows in of_client] for of_client in batches]
    rows = torch.from_numpy(np.array(filled))
    sources = (stream(world.seed, AUGMENTATION, round_, client) for client in clients)
    x = augmented(data.inputs(data.train_x[rows]), rule, sources)
    steps = zip(
        x.unbind(1), data.train_y[rows].unbind(1), sizes.T.tolist(), strict=True
    )
    return (Batch(*step) for step in steps)


def gradients(world: World, theta: Tensor, batch: Batch) -> Tensor:
    """Gradients [K, d] of the mean losses of K mini-batches at parameters [K, d]."""
    model = world.parts.model
    theta = theta.detach().requires_grad_()
    if len(batch.x) > 1:
        logits = model.logits_each(theta, batch.x)
    else:
        logits = model.logits(theta[0], batch.x[0])[None]
    each = zip(logits, batch.y, batch.sizes, strict=True)
    losses = [model.objective(z[:size], labels[:size]) for z, labels, size in each]
    return torch.autograd.grad(torch.stack(losses).sum(), theta)[0]


def learning_rate(plan: Plan, round_: int) -> float:
    """Local learning rate of a round."""
    return plan.spec.local.learning_rate * plan.spec.local.learning_rate_decay ** (
        round_ - 1
    )


Slope = Callable[[Tensor, int, Tensor | bool], Tensor]
"""(parameters, step from 0, whether each coordinate moves in it) to the descent direction."""


def descended(
    plan: Plan,
    round_: int,
    theta: Tensor,
    slope: Slope,
    factors: Sequence[Factor],
    drift: Tensor | float = 0.0,
) -> Tensor:
    """Movement [..., d] by SGD with momentum; coordinates with a factor of 0 rest in a step.

    Args:
        plan: names momentum and learning rate.
        round_: from 1, which the learning rate follows.
        theta: the first parameters [..., d].
        slope: the direction of each step.
        factors: on the learning rate, one for each step.
        drift: added to the parameters in each step.
    """
    now, speed = theta, torch.zeros_like(theta)
    for step, factor in enumerate(factors):
        speed = slope(now, step, factor != 0).add_(
            speed, alpha=plan.spec.local.momentum
        )
        now = now.sub(speed * factor, alpha=learning_rate(plan, round_)) + drift
    return now - theta


def step_factors(world: World, steps: int) -> tuple[list[Factor], Factor]:
    """Factors on the learning rate in each step, and the share of a movement that is sent [d].

    A client keeps the rest: its head, which the first half of the steps trains, or its
    offset.
    """
    numbers, size = world.numbers, world.parts.model.parameters
    if world.recipe.local == "head":
        sent = torch.zeros(size).index_fill(0, torch.from_numpy(world.released(1)), 1)
        kept, half = (1 - sent) * numbers["head_rate"], steps // 2
        factors: list[Factor] = [kept] * half
        factors += [sent] * (steps - half)
        return factors, sent
    if world.recipe.local == "offset":
        alpha = numbers["alpha"]
        whole = min(1.0, alpha) + (min(1.0, 1 / alpha) if alpha else 1.0)
        return [whole] * steps, min(1.0, alpha) / whole
    return [1.0] * steps, 1.0


def known_movement(world: World, start: Start) -> Tensor:
    """The movement along the last step, which all clients know (DP-FedPGN) [d]."""
    assert start.last_step is not None  # the server of the method keeps it
    return start.last_step * world.plan.spec.local.learning_rate_decay


def moved(
    world: World, round_: int, starts: Tensor, steps: list[Batch], start: Start
) -> Tensor:
    """Movements [K, d] of clients from their parameters [K, d], by the method's local rule."""
    local, numbers = world.recipe.local, world.numbers
    first_ascent = 0
    if local == "head":  # the head, then the body with SAM, on the same mini-batches
        first_ascent = len(steps)
        steps = steps * 2
    factors, _ = step_factors(world, len(steps))
    away, scale = torch.zeros_like(start.theta), 1.0
    drift = torch.zeros(())
    if local == "pgn":  # gradients at a distance rho along the last step (Algorithm 1)
        known, scale = known_movement(world, start), numbers["beta"]
        away = -numbers["rho"] * known / (known.norm() or 1.0)
        drift = (1 - scale) / len(steps) * known
    rho = numbers.get("rho", 0.0) if local in ("sam", "head") else 0.0

    def slope(now: Tensor, step: int, part: Tensor | bool) -> Tensor:
        """The gradient, at the point that SAM or DP-FedPGN choose, and BLUR's penalty."""
        direction = scale * gradients(world, now + away, steps[step]) * part
        if rho and step >= first_ascent:
            norm = direction.norm(dim=1, keepdim=True)
            ascended = now + rho * direction / norm.where(norm > 0, 1)
            direction = gradients(world, ascended, steps[step]) * part
        if local == "blur":
            bound = start.clipping_norm or world.plan.spec.clipping_norm
            change = now - starts
            outside = change.norm(dim=1, keepdim=True) > numbers["radius"] * bound
            direction = direction + numbers["price"] * outside * change
        return direction

    return descended(world.plan, round_, starts, slope, factors, drift)


def updates(
    world: World, round_: int, start: Start, clients: Sequence[int], change: float = 0.0
) -> Iterable[tuple[Tensor, Tensor]]:
    """What each client sends [k] and keeps [d].

    Args:
        world: the run.
        round_: from 1.
        start: what the clients start from.
        clients: their numbers.
        change: relative size of a random change of each client's start, to see other
            roundings.
    """
    local = world.plan.spec.local
    starts, batches = list[Tensor](), list[Batches]()
    for client in clients:
        source = stream(world.seed, CLIENT, round_, client)
        records = world.parts.partition.records(client)
        batches.append(epochs(records, local.steps, local.batch_size, source))
        theta = start.of_client(client)
        if change:
            source = stream(world.seed, CLIENT, round_, client, round(1 / abs(change)))
            direction = torch.from_numpy(source.standard_normal(len(theta)))
            theta = theta * (1 + change * direction).float()
        starts.append(theta)
    steps = list(mini_batches(world, round_, clients, batches))
    first = torch.stack(starts)
    movements = moved(world, round_, first, steps, start)
    _, share = step_factors(world, 1)
    sent = (movements * share)[:, torch.from_numpy(world.released(round_))]
    kept = sent
    if world.recipe.personal:
        kept = first - start.theta + movements * (1 - share)
    if (
        world.recipe.local == "pgn"
    ):  # what all clients know is no part of what they send
        sent = sent - (1 - world.numbers["beta"]) * known_movement(world, start)
    return zip(sent, kept, strict=True)
