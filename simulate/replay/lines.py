"""What a run draws from its seed or key, and the ledger lines that it should have."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privplan.accounting.release import SamplingLaw
from privplan.discrete_gaussian import grid_of, scale_for
from privplan.plan import GroupPlan, Plan
from privplan.planning.error import RULES
from privplan.record import GroupShare, ReleaseRecord, RunRecord
from privplan.streams import NoiseKey, SecureStream
from simulate.own_parts import RunParts


@dataclass(frozen=True)
class Method:
    """An algorithm that can be replayed."""

    release: str  # ``joint`` (one sum of all groups), ``per_group`` or ``per_client``
    weight: str = "mean"  # rule of the factor on each release
    noisy: bool = True  # whether updates are clipped and noise is added
    scaled: bool = False  # whether updates are multiplied by the group's scale
    top_k: bool = False  # whether each released sum is sparsified


def method_of(plan: Plan, record: RunRecord) -> Method | None:
    """The method of a run's algorithm under the executed plan; None when it is not supported."""
    rule = "literal" if record.configuration.get("aggregation") == "paper" else "normalised"
    return {
        "FedAvg": Method("joint", noisy=False),
        "DP-FedAvg": Method("joint"),
        "GDPFed": Method("per_group", rule),
        "GDPFed-op": Method("per_group", rule),
        "GDPFed+": Method("per_group", rule, top_k=True),
        "planned": Method("per_group", "normalised", scaled=True, top_k=True)
        if plan.release == "per_group"
        else Method("joint", scaled=True),
        "DPFedAvg": Method("per_client", "client"),
    }.get(record.algorithm)


@dataclass(frozen=True)
class World:
    """What a run starts from."""

    plan: Plan
    method: Method
    run: RunParts
    seed: int
    # secret of cohorts, noise and Poisson batches; None for those of the seed
    key: NoiseKey | None = None
    secret: bool = False  # whether there is such a key, which is not known
    discrete: bool = False  # whether sums and noise are on a grid

    def source(self, purpose: int, *at: int) -> Any:
        """The generator of a private stream, from its start."""
        return self.key.stream(purpose, *at) if self.key else stream(self.seed, purpose, *at)


@dataclass(frozen=True)
class Part:
    """The participants of one group in one release: the group, their numbers, a ledger share."""

    group: GroupPlan
    clients: np.ndarray
    share: GroupShare


@dataclass(frozen=True)
class Line:
    """A ledger line, the parts of its release, and the stream of its noise."""

    record: ReleaseRecord
    parts: list[Part]
    stream: tuple[int, ...]


def planned_lines(world: World, round_: int, recorded: Sequence[ReleaseRecord] = ()) -> list[Line]:
    """The lines of a round; fields that depend on training are zero."""
    by_client, noisy = world.method.release == "per_client", world.method.noisy
    size = world.run.model.parameters + (world.plan.clipping is not None)
    parts, lines = list(_parts(world, round_, recorded)), []
    releases = [parts] if world.method.release == "joint" else [[part] for part in parts]
    for index, of_release in enumerate(releases):
        first, at = of_release[0], (NOISE, round_, index)
        if by_client:
            at = (RECORD_NOISE, round_, int(first.clients[0]))
        steps, source = first.group.steps or 1, world.source(*at)
        state = source.fingerprint() if isinstance(source, SecureStream) else hashed(source)
        stds = [one.group.noise_multiplier * (one.share.clip_bound or 0) for one in of_release]
        std, grid, family = max(stds), None, "gaussian" if noisy else "none"
        if world.discrete:
            family, grid = "discrete_gaussian", grid_of(std)
            std = scale_for(std) * grid
        record = ReleaseRecord(
            round=round_, unit="record" if by_client else "client", family=family, steps=steps,
            noise_std=std, grid=grid, dimension=size * steps if noisy else 0,
            noise_sum_squares=0.0, noise_state=state if noisy and not world.secret else "",
            shares=tuple(part.share for part in of_release),
        )  # fmt: skip
        lines.append(Line(record, of_release, at))
    return lines


def _parts(world: World, round_: int, recorded: Sequence[ReleaseRecord]) -> Iterator[Part]:
    """Participants of each group, or of each release of one client, in the order of the ledger."""
    named = {one.group: one.participants for line in recorded for one in line.shares}
    plan, method = world.plan, world.method
    for index, planned in enumerate(plan.groups):
        (ratio, sigma), size = plan.at_round(planned, round_), planned.clients
        law: str = plan.spec.sampling
        cohort = planned.expected_cohort if planned.segments is None else ratio * size
        changes = {"sampling_ratio": ratio, "expected_cohort": cohort, "noise_multiplier": sigma}
        group = planned.model_copy(update=changes)
        if method.release == "per_client":
            law, ratio = "poisson", group.record_sampling_ratio or 1.0
            chosen = list(turn(size, group.sampling_ratio, round_)[:, None])
        elif world.secret:
            within = [one for one in named.get(group.name) or () if one < size]
            chosen = [np.array(within, np.int64)]
        else:
            chosen = [drawn_cohort(law, world.source(SAMPLING, round_, index), size, ratio)]
        norm = plan.spec.clipping_norm if plan.clipping is None else plan.clipping.bound
        of_client, rule = group.weight / size, RULES.get(method.weight)
        for positions in chosen:
            clients = np.asarray(world.run.partition.members[index])[positions]
            owned = len(world.run.partition.records(int(clients[0]))) if group.records else None
            share = GroupShare(
                group=group.name, clients=size, sampling=SamplingLaw(law),
                factor=of_client if rule is None else rule(group, plan),
                sampling_ratio=executed_ratio(law, size, ratio), cohort=len(positions),
                participants=tuple(positions.tolist()), records=owned, largest_norm=0.0, clipped=0,
                clip_bound=norm * (group.scale if method.scaled else 1) if method.noisy else None,
            )  # fmt: skip
            yield Part(group, clients, share)


# --- Random draws of a run, generated again from its seed: cohorts, mini-batches and noise. ------
#
# A stream is a Philox generator keyed by ``SeedSequence(seed, spawn_key=(purpose, *indices))``.

Batches = list[np.ndarray]
INITIAL, SAMPLING, CLIENT, NOISE, RECORD_NOISE, AUGMENTATION = 0, 3, 4, 5, 8, 13
"""Purposes of the streams: initial model, cohort (round, group), mini-batches (round, client),
noise (round, release), noise of DP-SGD (round, client), changes of images (round, client)."""


def stream(seed: int, purpose: int, *indices: int) -> np.random.Generator:
    """The generator of one stream, from its start."""
    words = np.random.SeedSequence(entropy=seed, spawn_key=(purpose, *indices))
    return np.random.Generator(np.random.Philox(words))


def hashed(generator: np.random.Generator) -> str:
    """The hash of a Philox state, as in the ledger's ``noise_state``."""
    state = generator.bit_generator.state
    counter, key = (np.asarray(state["state"][name]).tolist() for name in ("counter", "key"))
    text = f"Philox|{counter}|{key}|{state['buffer_pos']}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def drawn_cohort(law: str, source: np.random.Generator, clients: int, ratio: float) -> np.ndarray:
    """Sorted positions of a group's participants by a law: poisson, fixed_size or full."""
    if law == "full":
        return np.arange(clients)
    size = source.binomial(clients, ratio) if law == "poisson" else round(clients * ratio)
    return np.sort(source.choice(clients, size=int(size), replace=False, shuffle=False))


def executed_ratio(law: str, clients: int, ratio: float) -> float:
    """The sampling ratio of a law; a cohort of fixed size has a whole number of clients."""
    whole = round(clients * ratio) / clients
    if law == "fixed_size" and not math.isclose(whole, ratio, rel_tol=1e-9):
        return whole
    return 1.0 if law == "full" else ratio


def turn(clients: int, ratio: float, round_: int) -> np.ndarray:
    """Sorted positions of the participants when clients take turns, clients * ratio per round."""
    first, last = (math.floor(clients * ratio * number + 1e-9) for number in (round_ - 1, round_))
    return np.sort(np.arange(first, last) % clients)


def epochs(records: np.ndarray, steps: int, size: int, source: np.random.Generator) -> Batches:
    """Records of each of ``steps`` mini-batches: shuffled epochs, cut into batches of ``size``."""
    batches: Batches = []
    while len(batches) < steps:
        order = source.permutation(records)
        batches += [order[start : start + size] for start in range(0, len(order), size)]
    return batches[:steps]


def poisson_batches(
    records: np.ndarray, steps: int, ratio: float, source: np.random.Generator
) -> Batches:
    """Records of each of ``steps`` mini-batches: each record with probability ``ratio``."""
    return [records[source.random(len(records)) < ratio] for _ in range(steps)]
