"""What a run draws from its seed or key, and the ledger lines that it should have."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from privplan.accounting.release import SamplingLaw
from privplan.discrete_gaussian import grid_of, scale_for
from privplan.plan import GroupPlan, Plan
from privplan.planning.error import rule_of
from privplan.record import GroupShare, ReleaseRecord, RunRecord
from privplan.streams import NoiseKey, SecureStream, mask_digest
from simulate.own_parts import RunParts


@dataclass(frozen=True)
class Method:
    """An algorithm that can be replayed."""

    release: str  # ``joint`` (one sum of all groups), ``per_group`` or ``per_client``
    weight: str = "mean"  # rule of the factor on each release
    noisy: bool = True  # whether noise is added
    scaled: bool = False  # whether updates are multiplied by the group's scale
    top_k: bool = False  # whether each released sum is sparsified
    local: str = "sgd"  # ``sgd``, ``sam``, ``pgn``, ``blur``, ``head`` (then body) or ``offset``
    masked: bool = False  # whether a public mask selects the coordinates of a release
    by_norm: bool = False  # whether clients weigh as the inverse squared norm of their updates
    fine_tuned: bool = False  # whether clients change the final model
    numbers: Mapping[str, float] = field(default_factory=dict)  # hyperparameters

    @property
    def clips(self) -> bool:
        """Whether updates are clipped."""
        return self.noisy or bool(self.numbers.get("clipped"))

    @property
    def personal(self) -> bool:
        """Whether clients keep parameters, which no run stores."""
        return self.local in ("head", "offset")


NOT_EXECUTED = {
    **dict.fromkeys(("HyperFL", "HyperFL-LPM", "pFedHN", "pFedHN-PC"), "its releases are exact"),
    "Local-only": "nothing leaves its clients",
    **dict.fromkeys(("Robust-HDP", "PFA"), "its server decomposes what clients send"),
    "DP-FedAvg-BLUR+LUS": "rounding decides which coordinates its clients select",
}
"""Registered algorithms that no replay executes, and why."""


def method_of(plan: Plan, record: RunRecord) -> Method | None:
    """The method of a run's algorithm under the executed plan; None when it is not supported."""
    rule = "literal" if record.configuration.get("aggregation") == "paper" else "normalised"
    joint, groups, of_records = Method("joint"), Method("per_group", rule), plan.unit == "record"
    clients = Method("per_client", "by records")
    plus, either = replace(groups, top_k=True), clients if of_records else joint
    planned = replace(plus, weight="normalised") if plan.release == "per_group" else joint
    sam, pgn, blur = (replace(joint, local=name) for name in ("sam", "pgn", "blur"))
    by_epsilon = clients if of_records else replace(groups, weight="by epsilon")
    found = {
        **dict.fromkeys(("DP-FedAvg", "DP-FedAvg-LS", "Time-adaptive HDPFL"), joint),
        **dict.fromkeys(("IDP-FedAvg-Scale", "IDP-FedAvg-Sample"), joint),
        **dict.fromkeys(("DPFedAvg", "Robust-HDP-oracle", "minimum-epsilon"), clients),
        **dict.fromkeys(("GDPFed", "GDPFed-op"), groups), "GDPFed+": plus, "WeiAvg": by_epsilon,
        **dict.fromkeys(("DP-FedPGN", "DP-FedPGN-LS"), pgn), "DP-FedAvg-BLUR": blur,
        "FedAvg": replace(joint, noisy=False), "planned": replace(planned, scaled=True),
        "DP-FedAvg-FT": replace(joint, fine_tuned=True), "Fed-SMP": replace(joint, masked=True),
        "DP-FedSAM": sam, "DP-FedSAM-FT": replace(sam, fine_tuned=True),
        "P-FedSAM": replace(joint, local="head", noisy=False),
        "DP2-FedSAM": replace(joint, local="head"), "CENTAUR": replace(either, local="head"),
        "PPSGD": replace(either, local="offset"),
        "Robust-HDP-norms": replace(clients, by_norm=True),
    }.get(record.algorithm)  # fmt: skip
    return found and replace(found, numbers=record.configuration.get("numbers") or {})


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
    scheme: object = 3  # how cohorts and noise follow from the seed: 1 is from it alone

    def source(self, purpose: int, *at: int) -> Any:
        """The generator of a private stream, from its start."""
        if self.key:
            return self.key.stream(purpose, *at)
        name = self.plan.groups[at[1]].name if purpose == SAMPLING else ""
        return stream(self.seed if self.scheme == 1 else self._private[name], purpose, *at)

    @cached_property
    def _private(self) -> dict[str, int]:
        """Seeds of cohorts by group, and of noise: 128 bits of a hash of seed, spec and name."""
        text = f"privplan private seed v3\n{self.seed}\n{self.plan.spec_digest}\n"
        names = ("", *(one.name for one in self.plan.groups))
        hashes = {name: hashlib.sha256(f"{text}{name}".encode()).hexdigest() for name in names}
        return {name: int(found[:32], 16) for name, found in hashes.items()}

    def released(self, round_: int) -> np.ndarray:
        """The coordinates that leave clients in a round, sorted."""
        size, head = self.run.model.parameters, self.run.model.head
        if self.method.masked:
            count = max(1, round(self.method.numbers["kept"] * size))
            drawn = stream(self.seed, MASK, round_, 0)
            return np.sort(drawn.choice(size, size=count, replace=False, shuffle=False))
        shared = np.arange(size)
        return np.delete(shared, shared[head]) if self.method.local == "head" else shared

    @property
    def before(self) -> int:
        """How many earlier rounds a round depends on beside the model and the server's state."""
        rounds = self.plan.spec.rounds
        return rounds if self.method.personal else len(mixture(self.plan)) - 1


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
    released, whole = world.released(round_), world.run.model.parameters
    size = len(released) + (world.plan.clipping is not None)
    parts, lines = list(_parts(world, round_, recorded)), []
    releases = [parts] if world.method.release == "joint" else [[part] for part in parts]
    for index, of_release in enumerate(releases):
        first, at = of_release[0], (NOISE, round_, index)
        if by_client:
            at = (RECORD_NOISE, round_, int(first.clients[0]))
        steps, source = first.group.steps or 1, world.source(*at)
        state = source.fingerprint() if isinstance(source, SecureStream) else hashed(source)
        partly = len(released) < whole or world.method.masked
        support = mask_digest(released) if partly and noisy and not by_client else ""
        stds = [one.group.noise_multiplier * (one.share.clip_bound or 0) for one in of_release]
        std, grid, family = max(stds) * noisy, None, "gaussian" if noisy else "none"
        if world.discrete:
            family, grid = "discrete_gaussian", grid_of(std)
            std = scale_for(std) * grid
        record = ReleaseRecord(
            round=round_, unit="record" if by_client else "client", family=family, steps=steps,
            noise_std=std, grid=grid, support=support, dimension=size * steps if noisy else 0,
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
        law: str = planned.sampling or plan.spec.sampling
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
            source = world.source(SAMPLING, SamplingLaw(law).law.stream_round(round_), index)
            chosen = [drawn_cohort(law, source, world.run.partition.seats[index], ratio, round_)]
        norm = plan.spec.clipping_norm if plan.clipping is None else plan.clipping.bound
        norm, rule = norm * plan.clip_factor(group), rule_of(method.weight, plan)
        for positions in chosen:
            clients = np.asarray(world.run.partition.members[index])[positions]
            owned = len(world.run.partition.records(int(clients[0]))) if group.records else None
            share = GroupShare(
                group=group.name, clients=size,
                sampling=SamplingLaw(law).of_person(group.contributions, plan.unit),
                factor=1.0 if rule is None else rule(group, plan),
                sampling_ratio=executed_ratio(law, size, ratio), cohort=len(positions),
                participants=tuple(positions.tolist()), records=owned, largest_norm=0.0, clipped=0,
                clip_bound=norm * (group.scale if method.scaled else 1) if method.clips else None,
            )  # fmt: skip
            yield Part(group, clients, share)


# --- Random draws of a run, generated again from its seed: cohorts, mini-batches and noise. ------
# A stream is a Philox generator keyed by ``SeedSequence(seed, spawn_key=(purpose, *indices))``.

Batches = list[np.ndarray]
INITIAL, SAMPLING, CLIENT, NOISE, MASK, RECORD_NOISE, AUGMENTATION = 0, 3, 4, 5, 6, 8, 13
"""Purposes of the streams: initial model, cohort (round, group), mini-batches (round, client),
noise (round, release), public mask (round, transform), noise of DP-SGD (round, client), changes of
images (round, client)."""


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


# Laws that are drawn here, and not by the code that the run used.
OWN_DRAWS = re.compile(r"full|poisson|fixed_size|cyclic_poisson:\d+")


def drawn_cohort(
    law: str, source: np.random.Generator, clients: int, ratio: float, round_: int
) -> np.ndarray:
    """Sorted positions: by poisson, cyclic_poisson, fixed_size, full, or another law's own draw."""
    if not OWN_DRAWS.fullmatch(law):
        return SamplingLaw(law).law.draw(source, clients, ratio, round_)
    sizes = tuple[int, ...](getattr(clients, "parts", (clients,)))
    part = (round_ - 1) % len(sizes)
    own, places = sizes[part], sum(sizes[:part]) + np.arange(sizes[part])
    if law == "full":
        return places
    size = round(own * ratio) if law == "fixed_size" else source.binomial(own, ratio)
    return places[np.sort(source.choice(own, size=int(size), replace=False, shuffle=False))]


def mixture(plan: Plan, round_: int = 1) -> tuple[float, ...]:
    """Factors on the last B sums: the plan's, if those on one sum have norm 1 at most."""
    own, norms = _mixtures(plan.spec.sampling, plan.spec.server_momentum, plan.spec.rounds)
    at = min(round_, len(own)) - 1
    return tuple(one / norms[max(0, at - k)] for k, one in enumerate(own[at]))


@lru_cache
def _mixtures(law: SamplingLaw, momentum: float, rounds: int) -> tuple[list[Any], list[float]]:
    own = [law.law.mixture(momentum, rounds, at + 1) for at in range(rounds)]
    columns = ([row[k] for k, row in enumerate(own[u : u + len(own[0])])] for u in range(rounds))
    return own, [max(1.0, math.hypot(*one)) for one in columns]


def executed_ratio(law: str, clients: int, ratio: float) -> float:
    """The sampling ratio of a law; a cohort of fixed size has a whole number of clients."""
    whole = round(clients * ratio) / clients
    changed = law == "fixed_size" and not math.isclose(whole, ratio, rel_tol=1e-9)
    return whole if changed else 1.0 if law == "full" else ratio


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
