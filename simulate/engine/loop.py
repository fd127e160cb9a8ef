"""The training loop: each round is booked in the ledger before it is used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from privplan.evidence.rounds import vector_digest
from privplan.record import RoundMetrics
from privplan.streams import Purpose
from privplan.witness import Witness
from simulate import audit as traces
from simulate import postprocessing
from simulate.algorithm import weights
from simulate.components import GroupSum, Released, State
from simulate.engine.cohort import client_updates, group_sums
from simulate.engine.evaluation import AccuracyMeasures, evaluate_personal, measure
from simulate.engine.experiment import Experiment, exact_products
from simulate.engine.measurements import measure_client_releases, measure_releases
from simulate.engine.round import (
    PersonalState,
    RoundContext,
    positions,
    released_coordinates,
)
from simulate.parallel import broadcast_state, one_core
from simulate.postprocessing import ModelState, RoundReleases, Sender
from simulate.runs.ledger_writer import LedgerWriter
from simulate.tasks import evaluations, finite_or_none

_log = logging.getLogger(__name__)
# Most clients whose personal models are evaluated during training.
EVALUATED_CLIENTS = 100
# Key of the last sums [groups, B - 1, d] in the mechanism's state, the latest first.
PAST = "past_sums"


@dataclass(frozen=True)
class Progress:
    """State of training after a round: everything that the next round depends on.

    Attributes:
        round: completed rounds.
        theta: the global vector [d].
        server: the state of aggregator and server.
        personal: personal vectors by number of the client.
        metrics: evaluations so far.
        chain: hash of the last ledger line whose release is used in ``theta``.
        canary_scores: log-likelihood ratios [M, canaries per group].
        mechanism: the state of the mechanism.
        releases: what the round released, in the order of the ledger; the next round
            does not depend on it.
        measures: the evaluation on all test records; the next round does not depend on
            it.
    """

    round: int
    theta: Tensor
    server: State
    personal: PersonalState
    metrics: tuple[RoundMetrics, ...]
    chain: str
    canary_scores: np.ndarray | None = None
    mechanism: State = field(default_factory=dict)
    releases: tuple[Tensor, ...] = ()
    measures: AccuracyMeasures | None = None


def initial_state(experiment: Experiment) -> Progress:
    """State of training before the first round."""
    algorithm = experiment.algorithm
    plan = algorithm.plan
    theta = experiment.start.to(experiment.device)
    canary_scores = None
    if experiment.canary is not None:
        canary_scores = traces.initial_scores(experiment.canary)

    # Correlated noise needs the sums of the rounds before: zero before the first one.
    mechanism: State = {}
    bands = len(plan.spec.mixture)
    if bands > 1:
        shape = (len(plan.groups), bands - 1, len(theta))
        mechanism = {PAST: theta.new_zeros(shape, dtype=torch.float64)}

    return Progress(
        round=0,
        theta=theta,
        server=postprocessing.initial_state(algorithm, theta).server,
        personal={},
        metrics=(),
        chain=plan.digest,
        canary_scores=canary_scores,
        mechanism=mechanism,
    )


def run_round(
    experiment: Experiment,
    progress: Progress,
    ledger: LedgerWriter,
    witness: Witness | None = None,
) -> Progress:
    """Run one round: sample, train, sum, release, book it, then take the step."""
    round_ = progress.round + 1
    algorithm = experiment.algorithm
    coordinates = released_coordinates(experiment, round_)
    context = RoundContext(
        round_, progress.theta, progress.server, coordinates, progress.personal
    )
    if witness is not None:
        _show_cohort(witness, experiment, progress, round_)
    released = _release(experiment, context, progress.mechanism)

    # The ledger has the release before anything is computed from it.
    vectors = _booked(released.releases, round_, ledger, witness)
    canary_scores = progress.canary_scores
    if canary_scores is not None:
        canary_scores = canary_scores + released.score_changes
    before = ModelState(progress.round, progress.theta, progress.server)
    for_server = _for_server(round_, released.releases)
    after = postprocessing.step(algorithm, before, for_server, coordinates)
    theta, server = broadcast_state(experiment.ranks, after.theta, after.server)
    return Progress(
        round=round_,
        theta=theta,
        server=server,
        personal={**progress.personal, **released.personal},
        metrics=progress.metrics,
        chain=ledger.chain,
        canary_scores=canary_scores,
        mechanism=released.mechanism,
        releases=vectors,
    )


def _show_cohort(
    witness: Witness, experiment: Experiment, progress: Progress, round_: int
) -> None:
    """Show the witness who takes part in a round, and the model before it."""
    groups = experiment.algorithm.plan.groups
    cohort = {
        group.name: chosen.tolist()
        for group, chosen in zip(groups, positions(experiment, round_), strict=True)
    }
    witness.cohort(round_, cohort, _digest(progress.theta))


def _booked(
    releases: Sequence[Released],
    round_: int,
    ledger: LedgerWriter,
    witness: Witness | None,
) -> tuple[Tensor, ...]:
    """The released vectors of a round, once the ledger and the witness have them."""
    noise = [release.noise for release in releases if release.noise is not None]
    ledger.append([release.record for release in releases], noise)
    vectors = tuple(release.vector for release in releases)
    if witness is not None:
        witness.release(round_, [_digest(vector) for vector in vectors], ledger.chain)
    return vectors


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


@dataclass(frozen=True)
class _ReleasedRound:
    """What a round releases, and what it leaves for the next one."""

    releases: tuple[Released, ...]
    personal: PersonalState  # of the participants
    score_changes: np.ndarray | float  # of the canaries [M, canaries per group]
    mechanism: State


def _release(
    experiment: Experiment, context: RoundContext, state: State
) -> _ReleasedRound:
    """Train a round's cohort and release its sums, or the updates of its clients."""
    factors = weights(experiment.algorithm, context.round)
    release_client = experiment.algorithm.mechanism.release_client
    if release_client is None:
        return _release_sums(experiment, context, state, factors)
    updates, personal = client_updates(experiment, context)
    sent = tuple(
        release_client(context.round, update, factors[update.group.name])
        for update in updates
    )
    measured = measure_client_releases(experiment, context.round, sent)
    return _ReleasedRound(measured, personal, 0.0, state)


def _release_sums(
    experiment: Experiment,
    context: RoundContext,
    state: State,
    factors: Mapping[str, float],
) -> _ReleasedRound:
    """Train a round's cohort and release its sums, one for each group or for all."""
    algorithm = experiment.algorithm
    sums, personal = group_sums(experiment, context)

    # What the plan says that is released of each group, without noise.
    planned = list(sums)
    past = state.get(PAST)
    if past is not None:
        # The mechanism mixes the sums with earlier ones by its own factors; the release
        # is measured against the mixture that the plan names.
        planned = _planned_mixtures(experiment, context.round, sums, past)
        totals = torch.stack([group_sum.total for group_sum in sums])[:, None]
        state = {PAST: torch.cat([totals, past[:, :-1].to(totals)], 1)}
        sums = algorithm.mechanism.mix(context.round, sums, past)

    def noise(index: int) -> np.random.Generator:
        return experiment.private_stream(Purpose.NOISE, context.round, index)

    releases = algorithm.mechanism.release(context.round, sums, factors, noise)
    coordinates = context.released_coordinates
    score_changes = traces.score_changes(
        experiment.canary, algorithm.plan, sums, releases, coordinates
    )
    layers = experiment.layer_lengths
    measured = measure_releases(releases, planned, coordinates, layers)
    return _ReleasedRound(measured, personal, score_changes, state)


def _planned_mixtures(
    experiment: Experiment, round_: int, sums: Sequence[GroupSum], past: Tensor
) -> list[GroupSum]:
    """The plan's mixtures of groups' sums with their past ones [groups, B - 1, d]."""
    factors = experiment.algorithm.plan.spec.mixture_of(round_)
    return [
        replace(group_sum, total=_mixture(factors, group_sum.total, *earlier))
        for group_sum, earlier in zip(sums, past, strict=True)
    ]


def _mixture(factors: Sequence[float], *sums: Tensor) -> Tensor:
    """What the plan releases of a group, without noise.

    Args:
        factors: on the sums.
        sums: of the group [d], the latest first.
    """
    pairs = zip(factors, sums, strict=True)
    return torch.stack([factor * total.to(sums[0]) for factor, total in pairs]).sum(0)


def evaluate_if_due(
    experiment: Experiment, progress: Progress, due: Mapping[int, np.ndarray]
) -> Progress:
    """Add an evaluation to the metrics, if one is due after the round.

    Only the main rank evaluates, because it alone writes the metrics.

    Args:
        experiment: the run.
        progress: after a round.
        due: indices of the test records of each evaluation, by round.
    """
    rows = due.get(progress.round)
    if rows is None or not experiment.ranks.is_main:
        return progress
    is_whole = len(rows) == len(experiment.data.test_y)
    chosen = None if is_whole else torch.from_numpy(rows)
    measures = evaluate(experiment, progress, EVALUATED_CLIENTS, chosen)
    score = finite_or_none(measures.accuracy)
    point = RoundMetrics(round=progress.round, accuracy=score, loss=measures.loss)
    _log.info("round %d of %d: score %s", progress.round, experiment.rounds, score)
    if measures.loss is None:
        # The largest of outputs that are no numbers is the first: that looks like a
        # score.
        _log.warning(
            "round %d: the model's loss is not finite, so its score says nothing",
            progress.round,
        )

    # Only measures of all clients, or of all test records, serve as the final ones.
    is_complete = is_whole
    if experiment.algorithm.personalisation.per_client:
        is_complete = experiment.clients <= EVALUATED_CLIENTS
    return replace(
        progress,
        metrics=(*progress.metrics, point),
        measures=measures if is_complete else None,
    )


def evaluate(
    experiment: Experiment,
    progress: Progress,
    max_clients: int,
    rows: Tensor | None = None,
) -> AccuracyMeasures:
    """Accuracy of the global model, or the mean one of the clients' personal models.

    Args:
        experiment: the run.
        progress: after a round.
        max_clients: of personal models, how many are evaluated at most.
        rows: for a global model, indices of the test records; None for all.
    """
    round_ = max(progress.round, 1)
    released = experiment.algorithm.server.released(progress.theta, progress.server)
    context = RoundContext(round_, released, progress.server, None, progress.personal)
    if experiment.algorithm.personalisation.per_client:
        return evaluate_personal(experiment, context, max_clients)
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
    """Train until the plan's last round.

    Args:
        experiment: the run.
        ledger: takes the lines of each round.
        progress: where training goes on; None for its beginning.
        after: is called after each round.
        witness: sees each cohort and each release, if there is one.
    """
    progress = progress or initial_state(experiment)
    due = evaluations(
        experiment.algorithm.plan,
        experiment.partition,
        len(experiment.data.test_y),
        experiment.seed,
    )
    with one_core(), exact_products():
        while progress.round < experiment.rounds:
            progress = run_round(experiment, progress, ledger, witness)
            _log.debug("round %d: %d releases", progress.round, len(progress.releases))
            progress = evaluate_if_due(experiment, progress, due)
            after(progress)
    return progress
