"""Faults of other outputs: what reaches model or reader beside booked releases."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from privplan.record import RunRecord
from simulate.components import GroupSum
from tests.sabotage.fault import EXTERNAL, Fault, released, with_components

WHY = "the releases are honest; that the model uses something else shows in the model only"
HEAD = slice(2080, 2410)


def aggregated(change):
    """Change what the aggregator receives, not what the ledger books."""

    def breaks(experiment):
        aggregator = experiment.algorithm.aggregator
        clear_sums = list[Sequence[GroupSum]]()

        def release(honest, round_, sums, weights, noise):
            clear_sums[:] = [sums]
            return honest.release(round_, sums, weights, noise)

        def combine(releases, theta, state):
            pairs = zip(releases, clear_sums[0], strict=True)
            changed = [
                replace(noisy, vector=change(noisy, group_sum))
                for noisy, group_sum in pairs
            ]
            return aggregator.combine(changed, theta, state)

        noted = released(release)(experiment)
        return with_components(noted, aggregator=replace(aggregator, combine=combine))

    return breaks


def stepped(change):
    """Change the global vector after a step: (experiment, before, after, round)."""

    def breaks(experiment):
        server = experiment.algorithm.server
        rounds = iter(range(1, 10_000))

        def step(theta, move, state):
            after, state = server.step(theta, move, state)
            return change(experiment, theta, after, next(rounds)), state

        return with_components(experiment, server=replace(server, step=step))

    return breaks


def _losses(experiment, theta):
    """Losses of the strict group's first twenty clients on their own records [20]."""
    losses = []
    for client in experiment.partition.members[0][:20]:
        rows = experiment.partition.records(int(client))
        x = experiment.data.inputs(experiment.data.train_x[rows])
        logits = experiment.model.logits(theta, x)
        labels = experiment.data.train_y[rows]
        losses.append(torch.nn.functional.cross_entropy(logits, labels))
    return torch.stack(losses)


def _head_in_clear(released_sum, group_sum):
    vector = released_sum.vector.clone()
    vector[HEAD] = group_sum.total[HEAD].float()
    return vector


def _best_loss(experiment, before, after, round_):
    worse = _losses(experiment, after) > _losses(experiment, before)
    return before if bool(worse.any()) else after


def _statistics(experiment, before, after, round_):
    changed = after.clone()
    changed[2048:2080] = float(experiment.data.train_x.float().mean())
    return changed


def _one_more(experiment, before, after, round_):
    return 2 * after - before if round_ == experiment.rounds else after


def _second_try(honest, round_, sums, weights, noise):
    """Each release is made twice from one generator, and the second is used."""
    sources = [noise(index) for index in range(len(sums))]
    early_releases, late_releases = (
        honest.release(round_, sums, weights, sources.__getitem__) for _ in range(2)
    )
    states = [{"noise_state": early.record.noise_state} for early in early_releases]
    return tuple(
        replace(late, record=late.record.model_copy(update=state))
        for late, state in zip(late_releases, states, strict=True)
    )


def _better_figures(folder):
    RunRecord.load(folder).model_copy(update={"accuracy": 0.999}).save(folder)


FAULTS = (
    Fault(
        "model steps by unnoised sums",
        "Noisy sums are booked, and the model steps by the sums.",
        breaks=aggregated(lambda noisy, group_sum: group_sum.total.float()),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "head sent in clear",
        "The head of the model steps by its sum without noise.",
        breaks=aggregated(_head_in_clear),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "statistics sent in clear",
        "The mean of the private images is written into a bias of the model.",
        breaks=stepped(_statistics),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "checkpoints selected by private loss",
        "A step that increases the loss of one of twenty clients is undone.",
        breaks=stepped(_best_loss),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "a round T+1",
        "The last round's step is made a second time.",
        breaks=stepped(_one_more),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "a repeated release",
        "Each release is made twice, and the second one is used and booked as the first.",
        check="noise regenerated",
        words="the seed's",
        breaks=released(_second_try),
        author=EXTERNAL,
    ),
    Fault(
        "accuracy invented",
        "The record names an accuracy that was not measured.",
        weakens=False,
        tampers=_better_figures,
        check="record",
        words="of the last evaluation",
    ),
)
