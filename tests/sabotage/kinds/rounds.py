"""Faults of a round: its step, its mixture, its cohort and whose data it used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simulate.components import GroupSum, Received, TransformContext
from simulate.engine import cohort
from simulate.engine.experiment import Experiment
from simulate.norms import add_sum
from simulate.transforms import clip
from tests.sabotage.contributions import Apply, Clipped, clipped_by
from tests.sabotage.fault import Break, Fault, with_components
from tests.sabotage.kinds.distribution import standard

ROUND = importlib.import_module("simulate.engine.round")
Clear = dict[int, list[Tensor]]  # sum of each release without its noise, by round
Step = Callable[[Sequence[Received], Clear, int], Sequence[Received]]
WHY = "each release is its sum and its noise; what the server makes of it shows in the model alone"


def stepping(change: Step) -> Break:
    """Change what the server steps by, given the sums that it should never see."""

    def breaks(experiment: Experiment) -> Experiment:
        clear: Clear = {}
        mechanism = experiment.algorithm.mechanism
        aggregator = experiment.algorithm.aggregator

        def release(round_, sums, weights, noise):
            releases = mechanism.release(round_, sums, weights, noise)
            totals = {group_sum.group.name: group_sum.total for group_sum in sums}
            clear[round_] = []
            for noisy in releases:
                shares = [totals[share.group] for share in noisy.record.shares]
                clear[round_].append(torch.stack(shares).sum(0))
            return releases

        def combine(releases, theta, state):
            changed = change(releases, clear, releases[0].round)
            return aggregator.combine(changed, theta, state)

        return with_components(
            experiment,
            mechanism=replace(mechanism, release=release),
            aggregator=replace(aggregator, combine=combine),
        )

    return breaks


def _moved(change: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """Replace each release by a function of it and of its clear sum."""
    return lambda releases, clear, round_: [
        replace(noisy, vector=change(noisy.vector, total.float()))
        for noisy, total in zip(releases, clear[round_], strict=True)
    ]


def _late(
    releases: Sequence[Received], clear: Clear, round_: int
) -> Sequence[Received]:
    before = clear.get(
        round_ - 1, [torch.zeros_like(noisy.vector) for noisy in releases]
    )
    return [
        replace(noisy, vector=noisy.vector + 0.5 * total.float())
        for noisy, total in zip(releases, before, strict=True)
    ]


def _swapped(
    releases: Sequence[Received], clear: Clear, round_: int
) -> Sequence[Received]:
    pairs = zip(releases, reversed(releases), strict=True)
    return [replace(noisy, vector=exchanged.vector) for noisy, exchanged in pairs]


def _where_large(released: Tensor, clear: Tensor) -> Tensor:
    return released * (clear.abs() >= clear.abs().median())


def mixed_by(
    change: Callable[[Sequence[GroupSum], Sequence[GroupSum], int], Any],
) -> Break:
    """Change the mixture, by the round's sums, what is released of them, the round."""

    def breaks(experiment: Experiment) -> Experiment:
        mechanism = experiment.algorithm.mechanism
        turn = iter(range(1, 10**6))

        def mix(
            round_: int, sums: Sequence[GroupSum], past: Tensor
        ) -> tuple[GroupSum, ...]:
            return tuple(change(sums, mechanism.mix(round_, sums, past), next(turn)))

        return with_components(experiment, mechanism=replace(mechanism, mix=mix))

    return breaks


def _scaled(factor: float, only: int = 0) -> Any:
    return lambda sums, mixed, round_: [
        replace(mixture, total=factor * mixture.total)
        if only in (0, round_)
        else mixture
        for mixture in mixed
    ]


def _once_at_twice(
    honest: Apply, updates: Tensor, context: TransformContext
) -> Clipped:
    return (
        clip(1.0).apply(updates, context)
        if context.round == 7
        else honest(updates, context)
    )


def _of_the_round(honest: Apply, updates: Tensor, context: TransformContext) -> Clipped:
    norms = updates.norm(dim=1)
    return clip(0.5 * float(norms.min() / norms.max())).apply(updates, context)


def _one_draw(experiment: Experiment) -> Experiment:
    """The cohorts of all groups of a round are of one generator."""
    sampler = experiment.algorithm.sampler
    words = dict[int, int]()

    def draw(
        source: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        word = words.setdefault(round_, int(source.integers(2**31)))
        return sampler.draw(np.random.default_rng(word), clients, ratio, round_)

    return with_components(experiment, sampler=replace(sampler, draw=draw))


def _of_another(
    change: Callable[[np.ndarray], np.ndarray],
) -> tuple[tuple[Any, str, Any], ...]:
    """Clients train on the records of others."""
    honest = ROUND.batches

    def batches(data, partition, clients, **settings):
        return honest(data, partition, change(clients), **settings)

    return ((ROUND, "batches", batches),)


def _removed(clients: np.ndarray) -> np.ndarray:
    return np.where(clients == clients.min(), 0, clients)


class _Late:
    """The first update of a chunk is also in the next sum."""

    def __init__(self) -> None:
        self.last_update: Tensor | None = None

    def __call__(self, total: Tensor, updates: Tensor) -> None:
        if self.last_update is None:
            add_sum(total, updates)
        else:
            add_sum(total, torch.cat([updates, self.last_update]))
        self.last_update = updates[:1].clone()


def _without_largest(total: Tensor, updates: Tensor) -> None:
    keep = torch.ones(len(updates), 1)
    keep[updates[:, 0].argmax()] = 0
    add_sum(total, updates * keep)


TURNS = "cyclic_poisson:2"
SEED = "noise regenerated"
CLEAR = _moved(lambda released, clear: clear)

FAULTS = (
    Fault(
        "clipped at twice the bound in one round",
        "Round 7 clips at twice the bound.",
        check="clipping",
        words="exceeds its bound",
        breaks=clipped_by(_once_at_twice),
    ),
    Fault(
        "clipped at a bound of the round",
        "The threshold follows the least norm of the round.",
        check="clipping",
        words="the threshold was another one",
        breaks=clipped_by(_of_the_round),
    ),
    Fault(
        "noise halved for one group",
        "The strict group's noise has half of its deviation.",
        check=SEED,
        words="the seed's",
        breaks=standard(
            lambda z, noisy, part: z / 2 if part.group.name == "strict" else z
        ),
    ),
    Fault(
        "one draw for the cohorts of all groups",
        "A generator draws the cohorts of all groups.",
        check="cohorts regenerated",
        words="the seed draws",
        breaks=_one_draw,
    ),
    Fault(
        "mixture doubled",
        "What is released of B sums is twice the plan's mixture.",
        check=SEED,
        words="the seed's",
        breaks=mixed_by(_scaled(2.0)),
        sampling=TURNS,
    ),
    Fault(
        "mixture left out",
        "The sum of the round is released, the noise is correlated.",
        check=SEED,
        words="the seed's",
        breaks=mixed_by(lambda sums, mixed, round_: sums),
        sampling=TURNS,
    ),
    Fault(
        "mixture tripled in one round",
        "Round 5 releases three times the mixture.",
        check=SEED,
        words="the seed's",
        breaks=mixed_by(_scaled(3.0, 5)),
        sampling=TURNS,
    ),
    *(
        Fault(
            f"step by clear sums, {name}",
            "The server steps by the sums without their noise.",
            breaks=stepping(CLEAR),
            algorithm=name,
            level="replayed",
            why=WHY,
        )
        for name in ("planned", "GDPFed+", "DP-FedSAM", "DP2-FedSAM", "PPSGD")
    ),
    Fault(
        "step by a smaller noise",
        "The server steps by the mean of release and clear sum.",
        breaks=stepping(_moved(lambda released, clear: (released + clear) / 2)),
        level="replayed",
        why=WHY,
    ),
    Fault(
        "momentum from clear sums",
        "Half of the clear sum of the round before joins each step.",
        breaks=stepping(_late),
        level="replayed",
        why=WHY,
    ),
    Fault(
        "step of the length of the clear sum",
        "Releases are shortened to the clear sum's norm.",
        breaks=stepping(
            _moved(lambda released, clear: released * clear.norm() / released.norm())
        ),
        level="replayed",
        why=WHY,
    ),
    Fault(
        "coordinates chosen by the data",
        "Released coordinates are kept where the sum is large.",
        breaks=stepping(_moved(_where_large)),
        level="replayed",
        why=WHY,
    ),
    Fault(
        "groups swapped in the step",
        "The factor of one group is on the sum of another.",
        weakens=False,
        breaks=stepping(_swapped),
        level="replayed",
        why=WHY,
    ),
    Fault(
        "data of a removed client",
        "A participant trains on the records of client 0.",
        patches=_of_another(_removed),
        level="replayed",
        why="the ledger names who takes part, not whose records are trained on",
    ),
    Fault(
        "an update in two sums",
        "The first update of a chunk is in the next sum as well.",
        patches=((cohort, "add_sum", _Late()),),
        level="replayed",
        why="the loop measures each update before the sum, and not what the sum adds",
    ),
    Fault(
        "an update dropped by its content",
        "The update with the largest first coordinate is left out.",
        patches=((cohort, "add_sum", _without_largest),),
        level="replayed",
        why="the loop measures each update before the sum, and not what the sum adds",
    ),
)
