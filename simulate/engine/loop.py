"""The training loop: one round after another, each booked in the ledger before it is used."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.evidence.measurement import measure_noise
from privplan.evidence.rounds import vector_digest
from privplan.ledger import Witness
from privplan.record import Executed, Mask, Residual, RoundMetrics
from privplan.streams import Purpose, mask_digest, stream
from simulate import audit as traces
from simulate import postprocessing
from simulate.algorithm import extra_coordinates, weights
from simulate.components import GroupSum, Released, State
from simulate.engine.cohort import client_updates, group_sums
from simulate.engine.evaluation import AccuracyMeasures, evaluate_personal, measure
from simulate.engine.experiment import Experiment, exact_products
from simulate.engine.round import (
    PersonalState,
    RoundContext,
    positions,
    released_coordinates,
)
from simulate.parallel import broadcast_state
from simulate.parallel import one_core as one_core
from simulate.postprocessing import ModelState, RoundReleases, Sender
from simulate.runs.ledger_writer import LedgerWriter
from simulate.tasks import EVALUATED_RECORDS, evaluated_rows, finite_or_none
from simulate.tasks import evaluation_schedule as schedule_of

_log = logging.getLogger(__name__)
EVALUATED_CLIENTS = (
    100  # most clients whose personal models are evaluated during training
)


@dataclass(frozen=True)
class Progress:
    """State of training after a round: everything that the next round depends on."""

    round: int  # completed rounds
    theta: Tensor  # global vector [d]
    server: State
    personal: PersonalState
    metrics: tuple[RoundMetrics, ...]  # evaluations so far
    chain: str  # hash of the last ledger line whose release is used in ``theta``
    canary_scores: np.ndarray | None = (
        None  # log-likelihood ratios [M, canaries per group]
    )
    mechanism: State = field(default_factory=dict)
    # What the round released, in the order of the ledger, and the evaluation on all test records;
    # the next round depends on neither.
    releases: tuple[Tensor, ...] = ()
    measures: AccuracyMeasures | None = None


def initial_state(experiment: Experiment) -> Progress:
    """State of training before the first round."""
    theta, algorithm = experiment.start.to(experiment.device), experiment.algorithm
    server = postprocessing.initial_state(algorithm, theta).server
    scores = (
        None if experiment.canary is None else traces.initial_scores(experiment.canary)
    )
    groups, bands = len(algorithm.plan.groups), len(algorithm.plan.spec.mixture)
    past = theta.new_zeros(groups, bands - 1, len(theta), dtype=torch.float64)
    state = {PAST: past} if bands > 1 else {}
    return Progress(0, theta, server, {}, (), algorithm.plan.digest, scores, state)


def run_round(
    experiment: Experiment,
    progress: Progress,
    ledger: LedgerWriter,
    witness: Witness | None = None,
) -> Progress:
    """Run one round: sample, train, sum, release, write to the ledger, then take the step."""
    round_, algorithm = progress.round + 1, experiment.algorithm
    coordinates = released_coordinates(experiment, round_)
    context = RoundContext(
        round_, progress.theta, progress.server, coordinates, progress.personal
    )
    if witness is not None:
        names = [group.name for group in algorithm.plan.groups]
        drawn = [found.tolist() for found in positions(experiment, round_)]
        witness.cohort(
            round_, dict(zip(names, drawn, strict=True)), _digest(progress.theta)
        )
    releases, personal, score_changes, state = _release(
        experiment, context, progress.mechanism
    )
    measured = [release.noise for release in releases if release.noise is not None]
    ledger.append([release.record for release in releases], measured)
    if witness is not None:
        witness.release(round_, [_digest(one.vector) for one in releases], ledger.chain)
    scores = (
        None
        if progress.canary_scores is None
        else progress.canary_scores + score_changes
    )
    before = ModelState(progress.round, progress.theta, progress.server)
    after = postprocessing.step(
        algorithm, before, _for_server(round_, releases), coordinates
    )
    theta, server = broadcast_state(experiment.ranks, after.theta, after.server)
    all_personal = {**progress.personal, **personal}
    return Progress(
        round_, theta, server, all_personal, progress.metrics, ledger.chain, scores, state,
        tuple(release.vector for release in releases),
    )  # fmt: skip


def _for_server(round_: int, releases: Sequence[Released]) -> RoundReleases:
    """The released vectors of a round, and who sent those of single clients."""
    senders = [
        Sender(release.groups[0].name, release.client)
        for release in releases
        if release.client is not None
    ]
    return RoundReleases(round_, [release.vector for release in releases], senders)


def _digest(vector: Tensor) -> str:
    return vector_digest(vector.detach().cpu().numpy())


def _release(
    experiment: Experiment, context: RoundContext, state: State
) -> tuple[tuple[Released, ...], PersonalState, np.ndarray | float, State]:
    """A round's releases, personal vectors, canary score changes, and mechanism state."""
    algorithm, factors = (
        experiment.algorithm,
        weights(experiment.algorithm, context.round),
    )
    release_client = algorithm.mechanism.release_client
    if release_client is not None:
        updates, personal = client_updates(experiment, context)
        sent = (
            release_client(context.round, one, factors[one.group.name])
            for one in updates
        )
        measured = measure_client_releases(experiment, context.round, tuple(sent))
        return measured, personal, 0.0, state
    sums, personal = group_sums(experiment, context)

    def noise(index: int) -> np.random.Generator:
        return experiment.private_stream(Purpose.NOISE, context.round, index)

    mechanism, totals = algorithm.mechanism, [part.total for part in sums]
    if (past := state.get(PAST)) is not None:
        given = algorithm.plan.spec.mixture_of(context.round)
        mixed = [
            _mixture(given, now, *old) for now, old in zip(totals, past, strict=True)
        ]
        kept = torch.cat([torch.stack(totals)[:, None], past[:, :-1].to(totals[0])], 1)
        sums, totals = mechanism.mix(context.round, sums, past), mixed
        state = {PAST: kept}
    releases = mechanism.release(context.round, sums, factors, noise)
    coordinates = context.released_coordinates
    score_changes = traces.score_changes(
        experiment.canary, algorithm.plan, sums, releases, coordinates
    )
    planned = [
        replace(part, total=total) for part, total in zip(sums, totals, strict=True)
    ]
    measured = measure_releases(
        releases, planned, coordinates, experiment.layer_lengths
    )
    return measured, personal, score_changes, state


PAST = "past_sums"  # key of the last sums [groups, B - 1, d] in the mechanism's state


def _mixture(factors: Sequence[float], *sums: Tensor) -> Tensor:
    """What the plan releases of a group, without noise, from its sums, the latest first."""
    pairs = zip(factors, sums, strict=True)
    return torch.stack([factor * total.to(sums[0]) for factor, total in pairs]).sum(0)


def evaluate_if_due(
    experiment: Experiment,
    progress: Progress,
    every: int,
    records: int = EVALUATED_RECORDS,
) -> Progress:
    """Add an evaluation to the metrics every ``every`` rounds and after the last round.

    Of many clients or test records the same ones, drawn by the run's seed, are evaluated each time
    but the last. Only the main rank evaluates, because it alone writes the metrics.
    """
    last = progress.round == experiment.rounds
    if not ((progress.round % every == 0 or last) and experiment.ranks.is_main):
        return progress
    rows = None if last else evaluation_rows(experiment, records)
    measures = evaluate(experiment, progress, EVALUATED_CLIENTS, rows)
    score = finite_or_none(measures.accuracy)
    point = RoundMetrics(round=progress.round, accuracy=score, loss=measures.loss)
    _log.info("round %d of %d: score %s", progress.round, experiment.rounds, score)
    own = experiment.algorithm.personalisation.per_client
    complete = experiment.clients <= EVALUATED_CLIENTS if own else rows is None
    metrics = (*progress.metrics, point)
    return replace(progress, metrics=metrics, measures=measures if complete else None)


def evaluation_rows(
    experiment: Experiment, records: int = EVALUATED_RECORDS
) -> Tensor | None:
    """Indices of ``records`` test records, sorted; None for all if there are no more."""
    rows = evaluated_rows(experiment.seed, len(experiment.data.test_y), records)
    return None if rows is None else torch.from_numpy(rows)


def evaluate(
    experiment: Experiment, progress: Progress, most: int, rows: Tensor | None = None
) -> AccuracyMeasures:
    """Accuracy of the global model, or the clients' mean accuracy of their personal models."""
    round_ = max(progress.round, 1)
    released = experiment.algorithm.server.released(progress.theta, progress.server)
    context = RoundContext(round_, released, progress.server, None, progress.personal)
    if experiment.algorithm.personalisation.per_client:
        return evaluate_personal(experiment, context, most)
    model = experiment.model
    theta = experiment.algorithm.split.use(model, released, None, np.arange(0))
    return measure(
        model, theta, experiment.data, experiment.workers, rows, experiment.metric
    )


def train(
    experiment: Experiment,
    ledger: LedgerWriter,
    progress: Progress | None = None,
    after: Callable[[Progress], None] = lambda progress: None,
    witness: Witness | None = None,
) -> Progress:
    """Train until the plan's last round; ``after`` is called after each."""
    progress = progress or initial_state(experiment)
    every, records = evaluation_schedule(experiment)
    with one_core(), exact_products():
        while progress.round < experiment.rounds:
            progress = run_round(experiment, progress, ledger, witness)
            _log.debug("round %d: %d releases", progress.round, len(progress.releases))
            progress = evaluate_if_due(experiment, progress, every, records)
            after(progress)
    return progress


def evaluation_schedule(experiment: Experiment) -> tuple[int, int]:
    """Number of rounds between two evaluations of a run, and of test records in each."""
    plan, total = experiment.algorithm.plan, len(experiment.data.test_y)
    return schedule_of(plan, experiment.partition, total, EVALUATED_RECORDS)


# --- Measurements of releases, independent of the algorithm's components. ------------------------


def executed(experiment: Experiment) -> Executed:
    """Properties that the algorithm declares before it has access to any data."""
    algorithm, dimension = experiment.algorithm, experiment.dimension
    shared, extra = (
        algorithm.split.shared(experiment.model),
        extra_coordinates(algorithm),
    )
    masks = []
    for index, transform in enumerate(algorithm.transforms):
        if transform.public_mask is not None:
            generator = stream(experiment.seed, Purpose.SUPPORT, 1, index)
            size = len(transform.public_mask(generator, dimension))
            masks.append(Mask(index=index, name=transform.name, size=size))
    return Executed(
        aggregator=algorithm.aggregator.name,
        coordinates=dimension + extra,
        shared=(dimension if shared is None else len(shared)) + extra,
        masks=tuple(masks),
        appended=extra if masks else 0,
    )


def measure_releases(
    releases: Sequence[Released],
    sums: Sequence[GroupSum],
    coordinates: Tensor | None,
    layers: Sequence[int] = (),
) -> tuple[Released, ...]:
    """Releases with the residual and the noise that the loop measured.

    All numbers of a round come from the device in one copy, and all vectors in another.
    """
    digest = "" if coordinates is None else mask_digest(coordinates.cpu().numpy())
    totals = {part.group.name: part.total for part in sums}
    noisy = [
        index for index, release in enumerate(releases) if release.record.noise.noisy
    ]
    if not noisy:
        return tuple(releases)
    differences, numbers = list[Tensor](), list[Tensor]()
    for index in noisy:
        record = releases[index].record
        total = torch.stack([totals[share.group] for share in record.shares]).sum(0)
        difference = releases[index].vector.double() - total
        differences.append(difference)
        numbers += [difference.square().sum(), total.norm(), difference @ total]
    measures = torch.stack(numbers).view(-1, 3).tolist()
    if differences[0].device.type != "cpu":
        differences = list(torch.stack(differences).cpu())
    result = list(releases)
    each = zip(noisy, differences, measures, strict=True)
    for index, difference, (squares, length, product) in each:
        record = releases[index].record
        if not math.isfinite(squares):
            rule = f"must release finite numbers, as round {record.round} did not"
            groups = ", ".join(share.group for share in record.shares)
            raise InputError.one("mechanism", rule, groups)
        along = product / length if length > 0 else None
        changes = {
            "support": digest,
            "residual": Residual(sum_squares=squares, along_sum=along),
        }
        measured = None
        if record.noise.normal and record.noise_std > 0:
            measured = measure_noise(
                difference.numpy(),
                record.noise_std,
                round_=record.round,
                index=index,
                sum_norm=length,
                layers=layers if sum(layers) == len(difference) else (),
            )
        changed = record.model_copy(update=changes)
        result[index] = replace(releases[index], record=changed, noise=measured)
    return tuple(result)


def measure_client_releases(
    experiment: Experiment, round_: int, releases: tuple[Released, ...]
) -> tuple[Released, ...]:
    """Clients' releases with residuals after subtracting their noise, which is generated again.

    The numbers of all clients come from the device in one copy.
    """
    rests = [
        _squares_without_noise(experiment, round_, release) for release in releases
    ]
    if not (known := [rest for rest in rests if rest is not None]):
        return releases
    found, result = iter(torch.stack(known).tolist()), []
    for release, rest in zip(releases, rests, strict=True):
        sent, squares = (0.0, 0.0) if rest is None else next(found)
        if sent:  # else the update was not finite, so the client sent zero
            residual = Residual(sum_squares=squares, along_sum=None)
            record = release.record.model_copy(update={"residual": residual})
            release = replace(release, record=record)
        result.append(release)
    return tuple(result)


def _squares_without_noise(
    experiment: Experiment, round_: int, release: Released
) -> Tensor | None:
    """Whether a client's release is not zero, and its sum of squares without its noise [2]."""
    [group], client = release.groups, release.client
    batch = group.record_batch
    if release.record.unit != "record" or batch is None or client is None:
        return None
    steps = release.vector.double() * -(batch / experiment.learning_rate(round_))
    # The planned noise of the client's steps, as its momentum sends it, all together [d].
    std = group.noise_multiplier * experiment.algorithm.plan.spec.clipping_norm
    source = experiment.private_stream(Purpose.RECORD_NOISE, round_, client)
    speed = total = np.zeros(experiment.dimension)
    taken, sent = group.steps or 0, experiment.algorithm.local.sent_noise
    for factor in [1.0] * taken if sent is None else sent(taken):
        drawn = std * source.standard_normal(experiment.dimension)
        speed = experiment.local.momentum * speed + drawn * (factor != 0)
        total = total + factor * speed
    again = torch.from_numpy(total)
    shared = experiment.algorithm.split.shared(experiment.model)
    difference = steps - (again if shared is None else again[shared]).to(steps)
    return torch.stack([release.vector.any().double(), difference.square().sum()])
