"""One round of a run, executed again: training, clipping, sums, noise, step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.discrete_gaussian import discrete_gaussian
from privplan.plan import Plan
from privplan.record import ReleaseRecord, Residual
from simulate.replay import randomness as draw
from simulate.replay.lines import Line, World, planned_lines
from simulate.replay.server import ROUNDS, Vectors, moved
from simulate.replay.training import NEAR, dp_sgd, learning_rate, sgd

NORM = "clipping_norm"
"""Name of the adaptive clipping norm among the scalars of the server's state."""


Known = tuple[Sequence[ReleaseRecord], Sequence[Tensor]]
"""Lines and releases of a round as the run stores them."""


@dataclass(frozen=True)
class Release:
    """A release: its vector, its ledger line, and its updates whose clipping rounding decides."""

    vector: Tensor
    record: ReleaseRecord
    near: int


@dataclass(frozen=True)
class Round:
    """A round executed again.

    Attributes:
        releases: the releases in the order of the ledger.
        theta: the model after the round [d].
        slack: how far rounding may move the model where it decides a top-k selection [d].
        state: scalars of the server's state after the round.
        vectors: vectors of the server's state after the round [d], by name.
    """

    releases: tuple[Release, ...]
    theta: Tensor
    slack: Tensor
    state: dict[str, float]
    vectors: Vectors = field(default_factory=dict)


def first_model(world: World) -> Tensor:
    """The model before the first round [d]."""
    source = torch.Generator()
    source.manual_seed(int(draw.stream(world.seed, draw.INITIAL).integers(2**63 - 1)))
    return world.model.initial(source)


def replay_round(
    world: World, round_: int, before: Round, workers: int = 1, known: Known = ((), ())
) -> Round:
    """Execute a round again.

    Args:
        world: what the run starts from.
        round_: the round, from 1.
        before: model and server's state before the round.
        workers: threads, each of which trains one client at a time.
        known: lines and releases of the run, for a run whose key is not known.
    """
    theta, state = before.theta, before.state
    lines, rate = planned_lines(world, round_, known[0]), learning_rate(world.plan, round_)
    vectors = dict(zip([line.stream for line in lines], known[1], strict=False))

    def one_sum(line: Line) -> Release:
        norm = state.get(NORM, world.plan.spec.clipping_norm)
        return _sum(world, line, theta, norm, workers, vectors.get(line.stream))

    def one_client(line: Line) -> Release:
        return _client(world, line, theta, rate)

    if world.method.release == "per_client":
        releases = tuple(_each(one_client, lines, workers))
    else:
        releases = tuple(map(one_sum, lines))
    return _after(world, round_, releases, before)


def _sum(
    world: World,
    line: Line,
    theta: Tensor,
    norm: float,
    workers: int,
    released: Tensor | None,
) -> Release:
    """A noisy sum of clipped updates; its noise is that of a given release, or drawn again."""
    plan, near, shares = world.plan, 0, []
    total = torch.zeros(len(theta) + (plan.clipping is not None), dtype=torch.float64)
    rate = learning_rate(plan, line.record.round)

    def train(client: int) -> Tensor:
        source = draw.stream(world.seed, draw.CLIENT, line.record.round, client)
        own, local = world.partition.records(client), plan.spec.local
        batches = draw.epochs(own, local.steps, local.batch_size, source)
        return sgd(world.model, world.data, theta, batches, plan, rate).double()

    for part in line.parts:
        clipped, excluded, largest = 0, 0, 0.0
        for sent in _each(train, part.clients.tolist(), workers):
            length = float(sent.norm())
            if not np.isfinite(length):
                excluded += 1
                continue
            if world.method.noisy:
                clipped, near = clipped + (length > norm), near + (abs(length / norm - 1) < NEAR)
                sent = _clipped(plan, sent, length, norm)
                sent = sent * (part.group.scale if world.method.scaled else 1.0)
                sent = _on_grid(sent, line, part.share.clip_bound or 0.0)
            total, largest = total + sent, max(largest, float(sent.norm()))
        found = {"clipped": clipped, "excluded": excluded, "largest_norm": largest}
        shares.append(part.share.model_copy(update=found))
    changes: dict[str, Any] = {"shares": tuple(shares)}
    vector, length = total.float(), float(total.norm())
    if world.method.noisy:
        drawn = _noise(world, line, len(total)) if released is None else np.zeros(0)
        vector = (total + torch.from_numpy(drawn)).float() if released is None else released
        rest = vector.double() - total
        along = float(rest @ total) / length if length else None
        changes["noise_sum_squares"] = float(np.square(drawn).sum())
        changes["residual"] = Residual(sum_squares=float(rest @ rest), along_sum=along)
    return Release(vector, line.record.model_copy(update=changes), near)


def _on_grid(update: Tensor, line: Line, bound: float) -> Tensor:
    """An update rounded towards zero to the line's grid, if any."""
    grid = line.record.grid
    if grid is None:
        return update
    most, length = bound * (1 - 2.0**-30), float(update.norm())
    return (update * min(1.0, most / length if length else 1.0) / grid).trunc() * grid


def _noise(world: World, line: Line, size: int) -> np.ndarray:
    """The noise of a line [size], drawn again."""
    source, grid, std = line.noise(world), line.record.grid, line.record.noise_std
    if grid is None:
        noise: np.ndarray = source.standard_normal(size) * std
        return noise
    return discrete_gaussian(source, std / grid, size) * grid


def _clipped(plan: Plan, update: Tensor, length: float, norm: float) -> Tensor:
    """An update scaled to the clipping norm; if that is adaptive, divided by it and counted."""
    if plan.clipping is None:
        return update * (norm / max(norm, length))
    counted = plan.clipping.update_noise_multiplier / plan.clipping.count_noise_multiplier / 2
    count = update.new_tensor([-counted if length > norm else counted])
    return torch.cat([update / max(norm, length), count])


def _client(world: World, line: Line, theta: Tensor, rate: float) -> Release:
    """The release of one client, who adds noise to each local step."""
    [part], [client] = line.parts, line.parts[0].clients.tolist()
    steps, size = line.record.steps, part.group.record_batch or 1.0
    source = world.source(draw.CLIENT, line.record.round, client)
    own = world.partition.records(client)
    batches = draw.poisson_batches(own, steps, part.share.sampling_ratio, source)
    generator, std = line.noise(world), line.record.noise_std
    noise = [generator.standard_normal(len(theta)) * std for _ in range(steps)]
    update, found, near = dp_sgd(
        world.model, world.data, theta, batches, world.plan, rate, noise, size
    )
    speed, added = np.zeros(len(theta)), np.zeros(len(theta))
    for drawn in noise:
        speed = world.plan.spec.local.momentum * speed + drawn
        added += speed
    vector = update if update.isfinite().all() else torch.zeros_like(theta)
    rest = vector.double().numpy() * -(size / rate) - added
    found |= {"cohort": sum(map(len, batches))}
    found["excluded"] += vector is not update
    residual = Residual(sum_squares=float(rest @ rest), along_sum=None)
    changes = {
        "noise_sum_squares": float(sum(np.square(drawn).sum() for drawn in noise)),
        "residual": residual if vector.any() else None,
        "shares": (part.share.model_copy(update=found),),
    }
    return Release(vector, line.record.model_copy(update=changes), near)


def _after(world: World, round_: int, releases: tuple[Release, ...], before: Round) -> Round:
    """The model and the state after a round."""
    theta = before.theta
    plan, kept = world.plan, {one.name: one.kept_fraction for one in world.plan.groups}
    factors = [one.record.shares[0].weight for one in releases]
    if world.method.release == "per_client":  # an update of zero has weight 0
        pairs = zip(factors, releases, strict=True)
        factors = [factor if one.vector.any() else 0.0 for factor, one in pairs]
        factors = [factor / (sum(factors) or 1.0) for factor in factors]
    step = torch.zeros(len(theta) + (plan.clipping is not None), dtype=torch.float64)
    slack, state = torch.zeros_like(step), dict(before.state)
    for one, factor in zip(releases, factors, strict=True):
        vector, size = one.vector.double(), one.vector.double().abs()
        fraction = kept[one.record.shares[0].group] if world.method.top_k else 1.0
        dropped = len(theta) - max(1, round(fraction * len(theta)))
        if dropped > 0:
            size[len(theta) :] = torch.inf  # a count is no coordinate of the model
            least = size.kthvalue(dropped).values
            largest = size[: len(theta)].max()
            undecided = (size - least).abs() <= NEAR * largest
            slack += factor * torch.where(undecided, size, 0.0)
            vector = vector * (size > least)
        step += factor * vector
    if plan.clipping is not None:
        rule, norm = plan.clipping, state[NORM]
        scale = rule.update_noise_multiplier / rule.count_noise_multiplier
        parts = [
            (factor, plan.group(share.group))
            for one, factor in zip(releases, factors, strict=True)
            for share in one.record.shares
        ]
        expected = sum(factor * one.scale * one.expected_cohort for factor, one in parts)
        excess = 0.5 + float(step[-1]) / scale / expected - rule.quantile
        state[NORM] = norm * float(np.exp(-rule.learning_rate * excess))
        step, slack = step[:-1] * norm, slack[:-1]
    after, vectors = moved(plan, round_, theta, step, before.vectors)
    if plan.spec.averaging is not None:
        state[ROUNDS] = float(round_)
    return Round(releases, after, slack, state, vectors)


def _each(function: Callable[[Any], Any], items: list[Any], workers: int) -> Iterator[Any]:
    """Results of a function on each item, in order, by threads."""
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(function, items)
