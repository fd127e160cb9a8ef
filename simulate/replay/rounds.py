"""One round of a run, executed again: local training by autograd, clipping, sums, noise, step.

Server optimisers in float64, one branch each, from the papers: FedAvgM (Hsu, Qi, Brown, 2019) and
Algorithm 2 of Adaptive Federated Optimization (Reddi et al., ICLR 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, product
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from privplan.discrete_gaussian import discrete_gaussian
from privplan.plan import Plan
from privplan.record import ReleaseRecord, Residual
from privplan.spec.training import BETA1, BETA2
from simulate.data.dataset import augmented
from simulate.replay.lines import (
    AUGMENTATION,
    CLIENT,
    INITIAL,
    Line,
    Part,
    World,
    epochs,
    mixture,
    planned_lines,
    poisson_batches,
    stream,
)

AVERAGE, ROUNDS = "averaged_model", "averaging_rounds"
"""Names of the average of the models and of its count in the evidence."""
LAST_STEP, LAST_STEPS = "last_step", "last_steps"
"""Names of the last step and of the last solved steps there."""
Vectors = dict[str, Tensor]  # vectors of the server's state [d] by name in the evidence
SECOND_MOMENTS: dict[str, Any] = {
    "adagrad": lambda v, new, beta: v + new,
    "adam": lambda v, new, beta: beta * v + (1 - beta) * new,
    "yogi": lambda v, new, beta: v - (1 - beta) * new * torch.sign(v - new),
}
"""(second moment, squares of the mean update, beta2) to the second moment, by optimiser."""
NORM = "clipping_norm"  # name of the adaptive clipping norm among the scalars of the server's state
Finish = Callable[[Tensor, bool], Tensor]
"""(clipped update, whether it exceeded the norm) to what enters the sum."""
# Where one direction keeps to a side of a kink, the opposite one crosses it. A first kink of little
# weight leaves more than rounding does.
ROUNDINGS = (1e-7, -1e-7, 1e-6, -1e-6, 2e-6, -2e-6, 3e-6, -3e-6, 5e-6, -5e-6, 1e-5, -1e-5)
"""Relative changes of a model, for each client and size along a random vector of its own."""
KEPT = 2**26  # most values of updates that are kept in memory for another look: 256 MB
EXPLAINED = 0.95  # part of a gap that another update may leave at most, to take its place
KINKS = 5e-5  # largest relative L2 deviation that agrees: training decides at kinks
NEAR = 1e-5  # relative distance from a threshold within which rounding may decide a comparison


def deviations(run: ArrayLike, replay: ArrayLike, slack: ArrayLike = 0.0) -> tuple[float, float]:
    """Deviation relative to the largest coordinate, and in L2 norm relative to the run's."""
    one, other = np.asarray(run, np.float64), np.asarray(replay, np.float64)
    if one.shape != other.shape:
        return math.inf, math.inf
    beyond = np.maximum(np.abs(one - other) - np.asarray(slack), 0.0)
    largest = max(float(np.abs(one).max()), float(np.abs(other).max()), 1e-300)
    norm = max(float(np.linalg.norm(one)), 1e-300)
    return float(beyond.max()) / largest, float(np.linalg.norm(beyond)) / norm


@dataclass(frozen=True)
class Release:
    """A release: its vector, its ledger line, and its updates whose clipping rounding decides."""

    vector: Tensor
    record: ReleaseRecord
    near: int
    sums: Sequence[Any] = ()  # the sum of each group, before they are mixed


@dataclass(frozen=True)
class Round:
    """A round executed again."""

    releases: list[Release]  # the releases in the order of the ledger
    theta: Tensor  # the model after the round [d]
    slack: Tensor  # how far rounding may move the model where it decides a top-k selection [d]
    state: dict[str, float]  # scalars of the server's state after the round
    vectors: Vectors  # vectors of the server's state after the round [d], by name
    # sums of the round and of those before it, the latest first: by release, then by group
    past: Sequence[Sequence[Any]] = ()
    # what clients have kept for themselves so far, by number of the client
    personal: dict[int, Tensor] = field(default_factory=dict)


class Clipped:
    """The sum [d] of vectors, each clipped, and the evidence of clipping for a ledger share.

    Args:
        bound: the largest norm.
        then: changes a clipped vector, given whether it exceeded the bound.
    """

    def __init__(self, bound: float, then: Finish = lambda sent, exceeds: sent) -> None:
        self.bound, self.then, self.near = bound, then, 0
        self.total: Any = 0.0
        self.found: dict[str, float] = {"clipped": 0, "excluded": 0, "largest_norm": 0.0}

    def add(self, vector: Tensor) -> Any:
        """Add a vector [d]; returns the sum."""
        length = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
        self.found["excluded"] += not math.isfinite(length)
        if math.isfinite(length):
            exceeds, near = length > self.bound, abs(length / self.bound - 1) < NEAR
            sent = self.then(vector.double() * min(1.0, self.bound / max(length, 1e-300)), exceeds)
            self.found["clipped"], self.near = self.found["clipped"] + exceeds, self.near + near
            self.found["largest_norm"] = max(self.found["largest_norm"], float(sent.norm()))
            self.total = self.total + sent
        return self.total


def first_round(world: World) -> Round:
    """The model and the server's state before the first round."""
    source, plan, vectors = torch.Generator(), world.plan, Vectors()
    source.manual_seed(int(stream(world.seed, INITIAL).integers(2**63 - 1)))
    theta = world.run.model.initial(source)
    optimizer = plan.spec.server.optimizer if plan.spec.server else ""
    if optimizer == "momentum":
        vectors = {"velocity": theta * 0}
    elif plan.spec.server is not None and optimizer in SECOND_MOMENTS:
        vectors = {"mean": theta * 0, "squares": theta * 0 + (plan.spec.server.epsilon or 0) ** 2}
    if plan.spec.averaging is not None:
        vectors[AVERAGE] = theta
    if world.method.local == "pgn":
        vectors[LAST_STEP] = theta * 0
    vectors |= {f"{LAST_STEPS} {at}": theta * 0 for at in range(len(mixture(plan)) - 1)}
    state = {} if plan.clipping is None else {NORM: plan.spec.clipping_norm}
    return Round([], theta, theta * 0, state, vectors)


def replay_round(world: World, round_: int, before: Round, workers: int, run: Any) -> Round:
    """Execute a round again; the state after it follows from what was released, where stored."""
    lines, personal = planned_lines(world, round_, run[0]), dict(before.personal)
    known = [*run[1], *[None] * len(lines)]
    if world.method.release == "per_client":
        releases = list(_each(lambda line: _client(world, line, before, personal), lines, workers))
    else:
        pairs = enumerate(zip(lines, known, strict=False))
        releases = [_sum(world, at, one, before, workers, personal) for at, one in pairs]
    taken = [
        one if other is None or len(other) != len(one.vector) else replace(one, vector=other)
        for one, other in zip(releases, known, strict=False)
    ]
    return replace(_after(world, round_, taken, before, personal), releases=releases)


def _records(world: World, round_: int, clients: Sequence[int], batches: Any) -> Iterator[Any]:
    """Mini-batches by step: records [K, B, ...], labels [K, B] and sizes [K].

    ``batches`` has the rows of each mini-batch by client and step; they are filled up to equal
    sizes by records that enter no loss.
    """
    data, rule = world.run.data, world.plan.spec.local.augmentation
    sizes = np.array([[len(one) for one in own] for own in batches])
    full = [[np.resize(one, sizes.max()) for one in own] for own in batches]
    rows, streams = torch.from_numpy(np.array(full)), partial(stream, world.seed)
    sources = (streams(AUGMENTATION, round_, client) for client in clients)
    x = augmented(data.inputs(data.train_x[rows]), rule, sources)
    return zip(x.unbind(1), data.train_y[rows].unbind(1), sizes.T.tolist(), strict=True)


def _gradients(world: World, theta: Tensor, batch: Any) -> Tensor:
    """Gradients [K, d] of the mean losses of K mini-batches at parameters [K, d]."""
    model, (x, y, sizes) = world.run.model, batch
    theta = theta.detach().requires_grad_()
    logits = model.logits_each(theta, x) if len(x) > 1 else model.logits(theta[0], x[0])[None]
    each = [model.objective(z[:n], c[:n]) for z, c, n in zip(logits, y, sizes, strict=True)]
    return torch.autograd.grad(torch.stack(each).sum(), theta)[0]


def _train(
    plan: Plan, round_: int, theta: Tensor, steps: Any, of: Any, factors: list[Any], drift: Any = 0
) -> Tensor:
    """Updates [..., d] after SGD with momentum; coordinates with a factor of 0 rest in a step."""
    now, speed = theta, torch.zeros_like(theta)
    for step, factor in zip(steps, factors, strict=True):
        speed = of(now, step, factor != 0).add_(speed, alpha=plan.spec.local.momentum)
        now = now.sub(speed * factor, alpha=_rate(plan, round_)) + drift
    return now - theta


def _rate(plan: Plan, round_: int) -> float:
    """Local learning rate of a round."""
    return plan.spec.local.learning_rate * plan.spec.local.learning_rate_decay ** (round_ - 1)


def _updates(world: World, line: Line, before: Round, chunk: Any, scale: float = 0) -> Any:
    """What clients send [K, k] and keep [K, d], from starts that are changed by a scale."""
    local, round_, starts, batches = world.plan.spec.local, line.record.round, [], []
    for _, client in chunk:
        source = stream(world.seed, CLIENT, round_, client)
        own = world.run.partition.records(client)
        batches.append(epochs(own, local.steps, local.batch_size, source))
        theta = _own_start(world, before, client)
        source = stream(world.seed, CLIENT, round_, client, round(1 / abs(scale or 1)))
        change = scale * source.standard_normal(len(theta)) if scale else np.zeros(1)
        starts.append(theta * torch.from_numpy(1 + change).float())
    steps = [*_records(world, round_, [client for _, client in chunk], batches)]
    start, (_, share) = torch.stack(starts), _parts(world, 1)
    moved = _trained(world, round_, start, steps, before)
    sent = (moved * share)[:, torch.from_numpy(world.released(round_))]
    kept = start - before.theta + moved * (1 - share) if world.method.personal else sent
    if world.method.local == "pgn":  # what all clients know is no part of what they send
        sent = sent - (1 - world.method.numbers["beta"]) * _known(world, before)
    return zip(sent, kept, strict=True)


def _own_start(world: World, before: Round, client: int) -> Tensor:
    """The parameters from which a client trains [d]: shared ones and what it has kept."""
    own = before.personal.get(client)
    return before.theta if own is None else before.theta + own


def _known(world: World, before: Round) -> Tensor:
    """The movement along the last step, which all clients know (DP-FedPGN) [d]."""
    return before.vectors[LAST_STEP] * world.plan.spec.local.learning_rate_decay


def _parts(world: World, steps: int) -> tuple[list[Any], Any]:
    """Factors on the learning rate in each step, and the share of a movement that is sent [d].

    A client keeps the rest: its head, which the first half of the steps trains, or its offset.
    """
    numbers, size = world.method.numbers, world.run.model.parameters
    if world.method.local == "head":
        sent = torch.zeros(size).index_fill(0, torch.from_numpy(world.released(1)), 1)
        kept, half = (1 - sent) * numbers["head_rate"], steps // 2
        return [kept] * half + [sent] * (steps - half), sent
    if world.method.local == "offset":
        alpha = numbers["alpha"]
        whole = min(1.0, alpha) + (min(1.0, 1 / alpha) if alpha else 1.0)
        return [whole] * steps, min(1.0, alpha) / whole
    return [1.0] * steps, 1.0


def _trained(world: World, round_: int, starts: Tensor, steps: list[Any], before: Round) -> Any:
    """Movements [K, d] of clients by the method's local rule."""
    method, number, drift = world.method, world.method.numbers, torch.zeros(())
    if method.local == "head":  # then the body, on the same mini-batches
        steps = steps * 2
    factors, _ = _parts(world, len(steps))
    ascends = [(method.local != "head" or at >= len(steps) // 2) for at in range(len(steps))]
    away, scale = torch.zeros_like(before.theta), 1.0
    if method.local == "pgn":
        known, scale = _known(world, before), number["beta"]
        away = -number["rho"] * known / (known.norm() or 1.0)
        drift = (1 - scale) / len(steps) * known

    def slope(now: Tensor, step: Any, part: Any) -> Any:
        batch, ascend = step
        found = scale * _gradients(world, now + away, batch) * part
        if ascend and method.local in ("sam", "head") and (rho := number.get("rho")):
            norm = found.norm(dim=1, keepdim=True)
            found = _gradients(world, now + rho * found / norm.where(norm > 0, 1), batch) * part
        if method.local == "blur":
            free = number["radius"] * before.state.get(NORM, world.plan.spec.clipping_norm)
            outside = (now - starts).norm(dim=1, keepdim=True) > free
            found = found + number["price"] * outside * (now - starts)
        return found

    pairs = zip(steps, ascends, strict=True)
    return _train(world.plan, round_, starts, pairs, slope, factors, drift)


def _sum(
    world: World, at: int, run: Any, before: Round, workers: int, personal: dict[int, Tensor]
) -> Release:
    """A noisy sum of clipped updates; the noise is drawn again, or, without the key, not known.

    Two float32 kernels may fall on different sides of a rectifier or a maximum whose arguments
    differ by rounding, and then give other updates. Where the release is off by that, a client's
    update is replaced by one from a start that differs by rounding, if that explains a part of the
    gap, until the gap is small.
    """
    plan, (line, released) = world.plan, run
    size = len(world.released(line.record.round))
    noise, factors = np.zeros(size + (plan.clipping is not None)), mixture(plan, line.record.round)
    if world.method.noisy and not world.secret:
        noise = _noise(world, line, len(noise))
    norm = before.state.get(NORM, plan.spec.clipping_norm) if world.method.clips else math.inf
    own = [norm * plan.clip_factor(part.group) for part in line.parts]
    pairs = zip(line.parts, own, strict=True)
    empty = [partial(Clipped, most, _finish(world, line, part, most)) for part, most in pairs]
    owned = tuple((at, one) for at, part in enumerate(line.parts) for one in part.clients.tolist())
    many, changed = world.run.model.clients_per_chunk(plan.spec.local.batch_size), dict[Any, Any]()
    chunks = [owned[at : at + many] for at in range(0, len(owned), many)]
    train = lru_cache(KEPT // (many * size))(lambda *of: [*_updates(world, line, before, *of)])

    def summed() -> tuple[list[Clipped], Tensor, Tensor]:
        sums, updates = [one() for one in empty], chain.from_iterable(_each(train, chunks, workers))
        for one, update in zip(owned, updates, strict=True):
            sent, kept = changed.get(one, update)
            sums[one[0]].add(sent)
            if world.method.personal:
                personal[one[1]] = kept
        total = torch.zeros(len(noise), dtype=torch.float64)
        mixed = [[one.total for one in sums], *(past[at] for past in before.past)]
        for factor, own in zip(factors, mixed, strict=False):
            total = total + factor * sum(own)
        return sums, total, (total + torch.from_numpy(noise)).float()

    sums, total, vector = summed()
    if released is not None and len(released) != len(vector):
        released = None  # another length is a difference
    if released is not None and world.secret and world.method.noisy:
        vector = released
    elif released is not None and KINKS < deviations(released, vector)[1] < 100 * KINKS:
        gap, enough = released.double() - vector.double(), KINKS / 2 * float(released.norm())
        for scale, chunk in product(ROUNDINGS, chunks):
            if gap.norm() <= enough:
                break
            for one, now, other in zip(chunk, train(chunk), train(chunk, scale), strict=True):
                summand = factors[0] * empty[one[0]]().add(changed.get(one, now)[0])
                rest = gap + summand - factors[0] * empty[one[0]]().add(other[0])
                if rest.norm() < EXPLAINED * gap.norm():
                    changed[one], gap = other, rest
        sums, total, vector = summed()
    each = zip(line.parts, sums, strict=True)
    shares = tuple(one.share.model_copy(update=of.found) for one, of in each)
    changes: dict[str, Any] = {"shares": shares}
    if world.method.noisy:
        rest, length = vector.double() - total, float(total.norm())
        along = float(rest @ total) / length if length else None
        changes["noise_sum_squares"] = float(np.square(noise).sum())
        changes["residual"] = Residual(sum_squares=float(rest @ rest), along_sum=along)
    near, totals = sum(one.near for one in sums), [one.total for one in sums]
    return Release(vector, line.record.model_copy(update=changes), near, totals)


def _finish(world: World, line: Line, part: Part, norm: float) -> Finish:
    """What follows clipping: the count for an adaptive norm, the group's scale, the grid."""
    rule, grid = world.plan.clipping, line.record.grid
    most = (part.share.clip_bound or 0.0) * (1 - 2.0**-30)

    def finish(sent: Tensor, exceeds: bool) -> Tensor:
        if rule is not None:
            half = rule.update_noise_multiplier / rule.count_noise_multiplier / 2
            sent = torch.cat([sent / norm, sent.new_tensor([-half if exceeds else half])])
            sent = sent * world.plan.clip_factor(part.group)
        sent = sent * (part.group.scale if world.method.scaled else 1.0)
        if grid is None:
            return sent
        return (sent * min(1.0, most / max(float(sent.norm()), 1e-300)) / grid).trunc() * grid

    return finish


def _noise(world: World, line: Line, size: int) -> np.ndarray:
    """The noise of a line [size], drawn again."""
    source, grid, std = world.source(*line.stream), line.record.grid, line.record.noise_std
    if grid is not None:
        return discrete_gaussian(source, std / grid, size) * grid
    return np.asarray(source.standard_normal(size) * std)


def _client(world: World, line: Line, before: Round, personal: dict[int, Tensor]) -> Release:
    """The release of one client by DP-SGD, record by record (Abadi et al. 2016, Algorithm 1)."""
    [part], [client], plan = line.parts, line.parts[0].clients.tolist(), world.plan
    theta = _own_start(world, before, client)
    sent = torch.from_numpy(world.released(line.record.round))
    steps, size, round_ = line.record.steps, part.group.record_batch or 1.0, line.record.round
    source, own = world.source(CLIENT, round_, client), world.run.partition.records(client)
    batches = poisson_batches(own, steps, part.share.sampling_ratio, source)
    generator, sums = world.source(*line.stream), Clipped(plan.spec.clipping_norm)
    noise = [generator.standard_normal(len(theta)) * line.record.noise_std for _ in range(steps)]

    def gradient(now: Tensor, step: Any, part: Any) -> Any:
        (x, y, [taken]), drawn = step
        sums.total = torch.from_numpy(drawn)
        for at in range(taken):
            sums.add(_gradients(world, now[None], (x[:, [at]], y[:, [at]], (1,)))[0])
        return (sums.total / size).float() * part

    records = _records(world, round_, [client], [batches])
    factors, share = _parts(world, steps)
    moved = _train(plan, round_, theta, zip(records, noise, strict=True), gradient, factors)
    if world.method.personal:
        personal[client] = theta - before.theta + moved * (1 - share)
    update = (moved * share)[sent]
    vector = update if update.isfinite().all() else torch.zeros_like(update)
    drawn, zero = map(torch.tensor, noise), theta.double() * 0
    of_noise = _train(plan, round_, zero, drawn, lambda _, one, part: one * part, factors) * share
    rest = (of_noise[sent] - vector.double() * size) / _rate(plan, round_)
    excluded = sums.found["excluded"] + (vector is not update)
    found = {**sums.found, "cohort": sum(map(len, batches)), "excluded": excluded}
    squares = Residual(sum_squares=float(rest @ rest), along_sum=None)
    changes = {
        "noise_sum_squares": float(sum(np.square(one[sent.numpy()]).sum() for one in noise)),
        "residual": squares if vector.any() else None,
        "shares": (part.share.model_copy(update=found),),
    }
    return Release(vector, line.record.model_copy(update=changes), sums.near)


def _after(
    world: World, round_: int, releases: list[Release], before: Round, personal: dict[int, Tensor]
) -> Round:
    """The model and the state after a round."""
    plan, kept = world.plan, {one.name: one.kept_fraction for one in world.plan.groups}
    factors = [one.record.shares[0].factor for one in releases]
    sent = torch.from_numpy(world.released(round_))
    dimension, vectors = len(sent), [one.vector.double() for one in releases]
    if world.method.release == "per_client":
        factors = _of_clients(world, factors, vectors)
    step = torch.zeros(dimension + (plan.clipping is not None), dtype=torch.float64)
    slack, state = torch.zeros_like(step), dict(before.state)
    for one, factor in zip(releases if world.method.by_norm else (), factors, strict=False):
        name = f"weight of {one.record.shares[0].group}"
        state[name] = state.get(name, 0.0) + factor
    for one, vector, factor in zip(releases, vectors, factors, strict=True):
        size = vector.abs()
        fraction = kept[one.record.shares[0].group] if world.method.top_k else 1.0
        dropped = dimension - max(1, round(fraction * dimension))
        if dropped > 0:
            least, largest = size[:dimension].kthvalue(dropped).values, size[:dimension].max()
            size[dimension:] = math.inf  # a count is no coordinate of the model
            slack += factor * torch.where((size - least).abs() <= NEAR * largest, size, 0.0)
            vector = vector * (size > least)
        step += factor * vector
    if plan.clipping is not None:
        rule, norm = plan.clipping, state[NORM]
        cohort = {one.name: one.scale * one.expected_cohort for one in plan.groups}
        counted = float(step[-1]) * rule.count_noise_multiplier / rule.update_noise_multiplier
        pairs = zip(releases, factors, strict=True)
        expected = sum(f * cohort[share.group] for one, f in pairs for share in one.record.shares)
        excess = 0.5 + counted / expected - rule.quantile
        state[NORM] = norm * math.exp(-rule.learning_rate * excess)
        step, slack = step[:-1] * norm, slack[:-1]
    whole = torch.zeros_like(before.theta, dtype=torch.float64)
    step, slack = whole.index_copy(0, sent, step), whole.index_copy(0, sent, slack)
    if world.method.local == "pgn":
        step = step + (1 - world.method.numbers["beta"]) * _known(world, before).double()
    step, past = _solved(mixture(plan, round_), step, before)
    if strength := world.method.numbers.get("smoothing"):
        step = _smoothed(step, strength)
    last = {LAST_STEP: step.float()} if world.method.local == "pgn" else {}
    after, moved = _moved(plan, round_, before, step)
    if plan.spec.averaging is not None:
        state[ROUNDS] = float(round_)
    sums = [[one.sums for one in releases], *before.past][: len(past)]
    return Round(releases, after, slack, state, {**moved, **past, **last}, sums, personal)


def _solved(factors: Sequence[float], mixed: Tensor, before: Round) -> tuple[Tensor, Vectors]:
    """The step u_t of a mixture c_0 u_t + c_1 u_{t-1} + ..., and the last B - 1 steps."""
    last = [before.vectors[f"{LAST_STEPS} {at}"] for at in range(len(factors) - 1)]
    rest = sum((c * one.double() for c, one in zip(factors[1:], last, strict=True)), 0 * mixed)
    step = (mixed - rest) / factors[0] if last else mixed
    return step, {f"{LAST_STEPS} {at}": one for at, one in enumerate([step.float(), *last][:-1])}


def _smoothed(step: Tensor, strength: float) -> Any:
    """The solution x of (I - s L) x = step, L the periodic Laplacian in one dimension."""
    kernel = torch.zeros_like(step)
    kernel[0], kernel[1], kernel[-1] = 1 + 2 * strength, -strength, -strength
    return torch.fft.ifft(torch.fft.fft(step) / torch.fft.fft(kernel)).real


def _of_clients(world: World, planned: list[float], updates: list[Tensor]) -> list[float]:
    """Weights of clients, which add up to 1; an update of zero has weight 0."""
    squares = [float(one @ one) for one in updates]
    own = [1 / max(one, 1e-300) for one in squares] if world.method.by_norm else planned
    found = [weight * (square > 0) for weight, square in zip(own, squares, strict=True)]
    return [weight / (sum(found) or 1.0) for weight in found]


def _each(function: Callable[[Any], Any], items: list[Any], workers: int) -> Iterator[Any]:
    """Results of a function on each item, in order, by threads."""
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(function, items)


def unsupported(plan: Plan) -> str:
    """The plan's server optimiser that cannot be executed again; else empty."""
    name = plan.spec.server.optimizer if plan.spec.server else "sgd"
    return "" if name in ("sgd", "momentum", *SECOND_MOMENTS) else f"server optimiser {name}"


def _moved(plan: Plan, round_: int, start: Round, mean: Tensor) -> tuple[Tensor, Vectors]:
    """The model and the server's vectors after a round with a mean update [d], float64."""
    before, after = {name: one.double() for name, one in start.vectors.items()}, Vectors()
    if plan.spec.server is not None:
        mean, after = _step(plan.spec.server, mean, before)
    model = start.theta.double() + mean
    if plan.spec.averaging is not None:
        share = _share(plan.spec.averaging, round_, plan.spec.rounds)
        after[AVERAGE] = (1 - share) * before[AVERAGE] + share * model
    return model.float(), {name: one.float() for name, one in after.items()}


def _step(of: Any, mean: Tensor, before: Vectors) -> tuple[Tensor, Vectors]:
    """The step of an optimiser and its vectors; ``of`` has its hyperparameters."""
    if of.optimizer == "sgd":
        return of.learning_rate * mean, {}
    if of.optimizer == "momentum":
        velocity = before["velocity"] * of.momentum + mean
        return of.learning_rate * velocity, {"velocity": velocity}
    first = BETA1 * before["mean"] + (1 - BETA1) * mean
    second = SECOND_MOMENTS[of.optimizer](before["squares"], mean.square(), BETA2)
    mean = of.learning_rate * first / (second.sqrt() + of.epsilon)
    return mean, {"mean": first, "squares": second}


def _share(averaging: Any, round_: int, total: int) -> float:
    """Weight of the model of a round in the average."""
    if averaging.method == "ema":
        return 1 / sum((averaging.decay or 0.0) ** age for age in range(round_))
    averaged = max(1, math.ceil((averaging.fraction or 1.0) * total - 1e-9))
    return 1.0 if round_ <= total - averaged else 1 / (round_ - (total - averaged))
