"""The training loop. There is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from privplan.record import RoundMetrics
from simulate.algorithm import weights
from simulate.audit import traces
from simulate.components import Released, State
from simulate.engine.client_state import PersonalState
from simulate.engine.cohort import client_updates, group_sums
from simulate.engine.evaluation import AccuracyMeasures, evaluate_personal, interval, measure
from simulate.engine.experiment import Experiment
from simulate.engine.measurements import measure_client_release, measure_releases
from simulate.engine.round import RoundContext, public_mask
from simulate.engine.seeds import Purpose, stream
from simulate.parallel.distributed import led
from simulate.runs.ledger_writer import LedgerWriter

SAMPLED = 100
"""Clients with models of their own that are looked at while training goes on."""
LOOKED = 10_000
"""Most test records that the one model is measured on while training goes on."""


@dataclass(frozen=True)
class Progress:
    """Where training stands after a round; all that the next round depends on.

    Attributes:
        round: rounds done.
        theta: global vector [d].
        server: the server's state.
        personal: what clients keep.
        metrics: what was measured so far.
        chain: hash of the last ledger line whose result is in ``theta``.
        audit: what the releases told of the canaries [M, each]; None without canaries.
    """

    round: int
    theta: Tensor
    server: State
    personal: PersonalState
    metrics: tuple[RoundMetrics, ...]
    chain: str
    audit: np.ndarray | None = None


def initial_state(setting: Experiment) -> Progress:
    """Before the first round."""
    theta, algorithm = setting.start.to(setting.device), setting.algorithm
    server = {**algorithm.server.start(theta), **algorithm.aggregator.start(theta)}
    seen = None if setting.canary is None else traces.canary_scores(setting.canary)
    return Progress(0, theta, server, {}, (), algorithm.plan.digest, seen)


def run_round(setting: Experiment, progress: Progress, journal: LedgerWriter) -> Progress:
    """One round: sample, train, sum, release, write down, and only then step.

    Args:
        setting: the run.
        progress: where training stands.
        journal: where the releases are written before they are used.

    Returns:
        Where training stands after the round, not yet measured.
    """
    round_, algorithm = progress.round + 1, setting.algorithm
    kept = public_mask(setting, round_)
    told = RoundContext(round_, progress.theta, progress.server, kept, progress.personal)
    releases, personal, heard = _released(setting, told)
    journal.append([release.record for release in releases])
    seen = None if progress.audit is None else progress.audit + heard
    step, server = algorithm.aggregator.combine(releases, progress.theta, progress.server)
    if kept is not None:
        step = torch.zeros_like(progress.theta).index_copy(0, kept, step)
    theta, server = algorithm.server.step(progress.theta, step, server)
    theta, server = led(setting.ranks, theta, server)
    everybody = {**progress.personal, **personal}
    return Progress(round_, theta, server, everybody, progress.metrics, journal.chain, seen)


def _released(
    setting: Experiment, told: RoundContext
) -> tuple[tuple[Released, ...], PersonalState, np.ndarray | float]:
    """What leaves the clients in a round, what they keep, and what it tells of canaries."""
    algorithm, factors = setting.algorithm, weights(setting.algorithm, told.number)
    alone = algorithm.mechanism.alone
    if alone is not None:
        updates, personal = client_updates(setting, told)
        sent = (alone(told.number, one, factors[one.group.name]) for one in updates)
        found = tuple(measure_client_release(setting, told.number, one) for one in sent)
        return found, personal, 0.0
    sums, personal = group_sums(setting, told)

    def noise(index: int) -> np.random.Generator:
        return stream(setting.seed, Purpose.NOISE, told.number, index)

    releases = algorithm.mechanism.release(told.number, sums, factors, noise)
    heard = traces.observed(setting.canary, algorithm.plan, sums, releases, told.kept)
    return measure_releases(releases, sums, told.kept), personal, heard


def measured(setting: Experiment, progress: Progress, every: int) -> Progress:
    """The same, with a measurement when one is due: each ``every`` rounds and after the last.

    Looked at are the same clients or test records in every round, which the run's seed draws
    where there are more than SAMPLED or LOOKED; the final accuracy of a run is of all of them.
    Only the process that leads measures, because it alone writes down what it finds.
    """
    due = progress.round % every == 0 or progress.round == setting.rounds
    if not (due and setting.ranks.leads):
        return progress
    found = evaluate(setting, progress, SAMPLED, looked_at(setting))
    point = RoundMetrics(round=progress.round, accuracy=found.accuracy, loss=found.loss)
    return replace(progress, metrics=(*progress.metrics, point))


def looked_at(setting: Experiment) -> Tensor | None:
    """Test records that are looked at while training goes on [LOOKED], in order; None for all."""
    total = len(setting.data.test_y)
    if total <= LOOKED:
        return None
    drawn = stream(setting.seed, Purpose.EVALUATION, 1).permutation(total)[:LOOKED]
    return torch.from_numpy(np.sort(drawn))


def evaluate(
    setting: Experiment, progress: Progress, most: int, rows: Tensor | None = None
) -> AccuracyMeasures:
    """Accuracy of what clients use now: of the one model, or the mean over clients of their own.

    Args:
        setting: the run.
        progress: where training stands.
        most: most clients that are looked at, where each has a model of its own.
        rows: test records that the one model is measured on; all when None.
    """
    round_ = max(progress.round, 1)
    told = RoundContext(round_, progress.theta, progress.server, None, progress.personal)
    if setting.algorithm.personalise.own:
        return evaluate_personal(setting, told, most)
    thetas = setting.algorithm.split.use(setting.model, progress.theta, None, np.arange(0))
    return measure(setting.model, thetas, setting.data, setting.workers, rows)


def train(
    setting: Experiment,
    journal: LedgerWriter,
    progress: Progress | None = None,
    after: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Train until the plan's last round.

    Args:
        setting: the run.
        journal: where releases are written.
        progress: where to go on; from the beginning when None.
        after: called after each round.

    Returns:
        Where training stands after the last round.
    """
    progress = progress or initial_state(setting)
    every = evaluation_interval(setting)
    with one_core():
        while progress.round < setting.rounds:
            progress = measured(setting, run_round(setting, progress, journal), every)
            after(progress)
    return progress


@contextmanager
def one_core() -> Iterator[None]:
    """Single operations use one core: threads go over clients, and idle ones would only spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def evaluation_interval(setting: Experiment) -> int:
    """Rounds between two measurements of a run."""
    local = setting.local
    held = setting.held.sizes(np.concatenate(setting.held.members)).mean()
    images = round(local.steps * min(local.batch_size, held))
    cohort = sum(group.expected_cohort for group in setting.algorithm.plan.groups)
    looked = min(len(setting.data.test_y), LOOKED)
    return interval(setting.rounds, cohort, images, looked)
