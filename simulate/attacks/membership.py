"""Membership of the plan's unit, by runs with and without it, against the certificate.

In every run a fair coin decides for each target whether it is in. The targets are
clients under a plan for clients and single records under a plan for records, never
another unit, because the certificate bounds nothing else. Two scores of the final
model: ``loss``: minus the mean cross-entropy on the target's records (Yeom et al.
2018); ``lira``: the log ratio of Gaussians fitted to the scaled confidence in the other
runs with and without the target (Carlini et al. 2022, Algorithm 1), each run once the
target run and all others its shadow runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privplan.accounting.release import Relation, SamplingLaw
from privplan.accounting.tradeoff import TradeOff, profile_of, tradeoff
from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan
from privplan.processes import in_jobs
from privplan.streams import Purpose, stream
from privplan.sweeps import Journal, finish, key_of, resumable
from privplan.values import digest
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.attacks.guarantees import guarantee, with_noise
from simulate.attacks.measures import clopper_pearson
from simulate.components import Sampler
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition, Partition
from simulate.data.partition.schemes import partition, scheme
from simulate.engine.experiment import Experiment
from simulate.local.sgd import pixels
from simulate.models.registry import model
from simulate.runs.study import to_the_end

JOURNAL = "membership.jsonl"
# False-positive rates at which the true-positive rate is reported.
LEVELS = (0.001, 0.01)
LEAST_SHADOWS = 64
# Log odds beyond this are those of probabilities that double precision rounds.
LARGEST_LOG_ODDS = 20.0
LARGEST_LOSS = 1e6  # stands for a loss that is not finite
_LEAST_DEVIATION = 1e-6  # of a fitted Gaussian, where all odds are equal


@dataclass(frozen=True)
class Membership:
    """A membership attack on the runs of one algorithm under a plan.

    Attributes:
        plan: the solved plan.
        algorithm: its name.
        data: that has the records.
        shadows: shadow runs of each target run, at least 64; there is one run more.
        targets: per run, in the group with the largest epsilon.
        seed: of the first run and of the targets.
        hyperparameters: of the algorithm.
        partition: of the records over clients.
        noise_factor: on the executed noise multipliers; other values than 1 are
            sabotage, while the certificate stays that of the plan.
    """

    plan: Plan
    algorithm: str
    data: Dataset
    shadows: int = LEAST_SHADOWS
    targets: int = 10
    seed: int = 0
    hyperparameters: Hyperparameters = field(default_factory=Hyperparameters)
    partition: str = "iid"
    noise_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.shadows < LEAST_SHADOWS:
            rule = f"must be at least {LEAST_SHADOWS}"
            raise InputError.one("shadows", rule, self.shadows)
        half = self.group.clients // 2
        if not 1 <= self.targets <= half:
            rule = f"must be in [1, {half}], half of the clients of the group"
            raise InputError.one("targets", rule, self.targets)

    @property
    def group(self) -> GroupPlan:
        """The attacked group: the one with the largest epsilon."""
        return max(self.plan.groups, key=lambda group: group.epsilon)

    @property
    def runs(self) -> int:
        """Number of runs."""
        return self.shadows + 1

    @cached_property
    def executed(self) -> Algorithm:
        """The algorithm with the plan that it executes, noise as planned."""
        by_group = zip(self.plan.groups, self._assigned.members, strict=True)
        sizes = {
            group.name: int(self._assigned.sizes(members).min())
            for group, members in by_group
        }
        return algorithm(self.algorithm, self.plan, self.hyperparameters, sizes)

    @cached_property
    def _assigned(self) -> ClientPartition:
        """Who holds which records."""
        return partition(
            scheme(self.partition),
            self.data.train_y.numpy(),
            self.plan.groups,
            self.seed,
            self.data.train_people,
        )

    @property
    def _index(self) -> int:
        """The number of the attacked group."""
        return [group.name for group in self.plan.groups].index(self.group.name)

    @cached_property
    def _target_positions(self) -> np.ndarray:
        """Positions of the target clients in their group, sorted [targets]."""
        source = stream(self.seed, Purpose.OWN_TEST, 19)
        return np.sort(source.choice(self.group.clients, self.targets, replace=False))

    def _client(self, target: int) -> int:
        """The client that is a target, or that holds it."""
        members = self._assigned.members[self._index]
        return int(members[self._target_positions[target]])

    def _records(self, target: int) -> np.ndarray:
        """Training records of a target: those of the client, or one record of it."""
        records = self._assigned.records(self._client(target))
        if self.plan.unit == "client":
            return records
        return records[:1]

    def included(self, run: int) -> np.ndarray:
        """Fair coins of a run [targets]."""
        return stream(self.seed, Purpose.OWN_TEST, 20, run).random(self.targets) < 0.5

    def experiment(self, run: int) -> Experiment:
        """The run's experiment, without the targets whose coin says so."""
        absent = np.flatnonzero(~self.included(run))
        plan = self.executed.plan
        groups = []
        for group in plan.groups:
            noisy = with_noise(group, self.noise_factor)
            if group.records is not None:
                # The public minimum, with one record less.
                fewer = {"records": max(1, group.records - 1)}
                noisy = noisy.model_copy(update=fewer)
            groups.append(noisy)
        entry = ALGORITHMS.get(self.algorithm)
        changed = plan.model_copy(update={"groups": tuple(groups)})
        built = entry.build(changed, entry.complete(self.hyperparameters))
        assigned = self._assigned
        replaced = self.plan.spec.relation == Relation.REPLACE_ONE
        if self.plan.unit == "record" or replaced:
            assigned = self._without_records(absent, replaced)
        else:
            built = replace(built, sampler=self._without_clients(built.sampler, absent))
        seed = int(stream(self.seed, Purpose.CANARY, 20, run).integers(2**62))
        network = model(built.plan.spec.model.name)
        cpu = torch.device("cpu")
        return Experiment(built, network, self.data, assigned, seed, cpu, workers=1)

    def _without_clients(self, planned: Sampler, absent: np.ndarray) -> Sampler:
        """Draws by the planned law among the clients that are not absent."""
        absent_clients = self._target_positions[absent]

        def draw(
            generator: np.random.Generator, clients: int, ratio: float, round_: int
        ) -> np.ndarray:
            sequence = generator.bit_generator.seed_seq
            if sequence.spawn_key[-1] != self._index:  # type: ignore[attr-defined]
                return planned.draw(generator, clients, ratio, round_)
            if planned.law != SamplingLaw.FIXED_SIZE:
                drawn = planned.draw(generator, clients, ratio, round_)
                return np.setdiff1d(drawn, absent_clients)
            # As many as planned, among those who are left.
            present = np.setdiff1d(np.arange(clients), absent_clients)
            scaled = min(1.0, ratio * clients / len(present))
            drawn = planned.draw(generator, len(present), scaled, round_)
            return np.asarray(present[drawn])

        return replace(planned, draw=draw)

    def _without_records(self, absent: np.ndarray, replaced: bool) -> Partition:
        """The partition without absent targets' records, or with public ones."""
        members = self._assigned.members
        clients = range(sum(map(len, members)))
        records = {client: self._assigned.records(client) for client in clients}
        used = np.concatenate(list(records.values()))
        spare = np.setdiff1d(np.arange(len(self.data.train_y)), used)
        source = stream(self.seed, Purpose.OWN_TEST, 21)
        for target in absent:
            removed = self._records(int(target))
            client = self._client(int(target))
            remaining = records[client][~np.isin(records[client], removed)]
            if replaced:
                is_enough = len(spare) >= len(removed)
                if is_enough:
                    pool = spare
                else:
                    pool = np.setdiff1d(used, removed)
                drawn = source.choice(pool, len(removed), replace=False)
                remaining = np.concatenate([drawn, remaining])
            records[client] = remaining
        starts = np.cumsum([0, *map(len, records.values())])
        return Partition(np.concatenate(list(records.values())), starts, members)


def scores_of_run(attack: Membership, run: int) -> dict[str, list[float]]:
    """Train a run; the targets' scores under its final model, and their coins."""
    world = attack.experiment(run)
    theta = _final_model(world, to_the_end(world).theta)
    losses = []
    odds = []
    for target in range(attack.targets):
        rows = torch.from_numpy(attack._records(target))
        x = pixels(world.data.inputs(world.data.train_x[rows]))
        with torch.no_grad():
            logits = world.model.logits(theta, x).double()
        labels = world.data.train_y[rows]
        loss = functional.cross_entropy(logits, labels, reduction="none")
        loss = loss.nan_to_num(nan=LARGEST_LOSS, posinf=LARGEST_LOSS)
        loss = loss.clamp(max=LARGEST_LOSS)
        losses.append(float(-loss.mean()))
        # log(p / (1 - p)) of the probability p of the true label.
        limited = loss.clamp(min=math.exp(-LARGEST_LOG_ODDS))
        scaled = -limited - torch.log(-torch.expm1(-limited))
        odds.append(float(scaled.clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS).mean()))
    coins = attack.included(run).astype(float).tolist()
    return {"included": coins, "loss": losses, "odds": odds}


def _final_model(world: Experiment, theta: Tensor) -> Tensor:
    """The released model [d], with the initial personal part where there is one."""
    start = world.personal_start
    personal = None
    if start is not None:
        personal = start[None]
    client = np.arange(0 if start is None else 1)
    used = world.algorithm.split.use(world.model, theta, personal, client)
    if used.dim() == 1:
        return used
    return used[0]


def lira(odds: np.ndarray, included: np.ndarray) -> np.ndarray:
    """Log likelihood ratios of in to out, by all other runs [runs, targets]."""
    ratios = np.zeros_like(odds)
    for run in range(len(odds)):
        is_shadow = np.arange(len(odds)) != run
        for target in range(odds.shape[1]):
            values = odds[is_shadow, target]
            coins = included[is_shadow, target]
            # Two values at least have a deviation.
            if coins.sum() < 2 or (~coins).sum() < 2:
                continue
            inside = _log_density(odds[run, target], values[coins])
            outside = _log_density(odds[run, target], values[~coins])
            ratios[run, target] = inside - outside
    return ratios


def _log_density(value: float, sample: np.ndarray) -> float:
    """Log density of a Gaussian that is fitted to a sample, but for a constant."""
    std = max(float(sample.std(ddof=1)), _LEAST_DEVIATION)
    return -0.5 * ((value - float(sample.mean())) / std) ** 2 - math.log(std)


def rates(
    scores: np.ndarray, included: np.ndarray, curve: TradeOff
) -> list[dict[str, Any]]:
    """True-positive rates at the levels of ``LEVELS`` against the certificate's curve.

    The threshold leaves at most the level's share of the targets that are out.
    ``crosses``: the lower end of the true-positive rate's interval is above the curve
    at the upper end of the false-positive rate's interval.
    """
    inside = scores[included]
    outside = np.sort(scores[~included])[::-1]
    lines = []
    for level in LEVELS:
        if len(outside):
            threshold = outside[int(level * len(outside))]
        else:
            threshold = -math.inf
        hits = int((inside > threshold).sum())
        false_positives = int((outside > threshold).sum())
        low, high = clopper_pearson(hits, len(inside))
        _, highest_rate = clopper_pearson(false_positives, len(outside))
        bound_at_interval = _bound(curve, highest_rate)
        lines.append(
            {
                "fpr": level,
                "tpr": [hits / max(1, len(inside)), low, high],
                "false_positives": false_positives,
                "out": len(outside),
                "in": len(inside),
                "bound": _bound(curve, level),
                "bound_at_fpr_interval": bound_at_interval,
                "crosses": bool(low > bound_at_interval),
            }
        )
    return lines


def _bound(curve: TradeOff, level: float) -> float:
    """Largest true-positive rate at a false-positive rate."""
    if curve.advantage >= 1.0:
        return 1.0
    return float(np.interp(level, curve.false_positive_axis, curve.true_positive_axis))


def certified_curve(attack: Membership) -> TradeOff:
    """The certificate's trade-off curve of the attacked group; trivial without any."""
    plan = attack.executed.plan
    if ALGORITHMS.get(attack.algorithm).unit_under(plan) != attack.plan.unit:
        return tradeoff(np.zeros_like, 0.5, math.inf)
    group = plan.group(attack.group.name)
    profile = profile_of(plan.history(group), plan.spec.relation)
    bound = guarantee(attack.algorithm, plan, group)["epsilon"]
    epsilon = math.inf if isinstance(bound, str) else float(bound)
    return tradeoff(profile, group.delta, epsilon)


def membership(
    attack: Membership,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Run the attack: one row per score, as plain data.

    Args:
        attack: that is run.
        folder: holds the journal of finished runs, which are not trained again.
        progress: told of finished runs.
        jobs: processes.
    """
    plan = attack.executed.plan
    chosen = attack.hyperparameters
    identity = {
        "plan": plan.digest,
        "data": attack.data.digest,
        "seed": attack.seed,
        "targets": attack.targets,
        "shadows": attack.shadows,
        "partition": attack.partition,
        "choices": [chosen.aggregation, dict(chosen.values)],
    }
    items = {}
    for run in range(attack.runs):
        point = {
            "algorithm": attack.algorithm,
            "run": run,
            "noise": attack.noise_factor,
        }
        items[key_of(point)] = run
    with resumable(folder):
        journal: Journal[dict[str, list[float]]] | None = None
        if folder is not None:
            journal = Journal(folder / JOURNAL, digest(identity), _check)
        results = finish(
            items,
            partial(scores_of_run, attack),
            spread=in_jobs(jobs),
            journal=journal,
            progress=progress,
        )
    included = _column(results, items, "included") > 0.5
    odds = _column(results, items, "odds")
    by_score = {
        "loss": _column(results, items, "loss"),
        "lira": lira(odds, included),
    }
    curve = certified_curve(attack)
    return {
        "algorithm": attack.algorithm,
        "unit": attack.plan.unit,
        "runs": attack.runs,
        "targets": attack.targets,
        "group": attack.group.name,
        "noise_factor": attack.noise_factor,
        **guarantee(attack.algorithm, plan, plan.group(attack.group.name)),
        "scores": {
            score: rates(values.ravel(), included.ravel(), curve)
            for score, values in by_score.items()
        },
    }


def _column(
    results: Mapping[str, dict[str, list[float]]], keys: Iterable[str], name: str
) -> np.ndarray:
    """What the runs say of their targets, in order [runs, targets]."""
    return np.array([results[key][name] for key in keys])


def _check(point: Any, result: Any) -> None:
    """Raise where a line of the journal cannot be a run's."""
    if not isinstance(point, dict) or len(result["odds"]) != len(result["included"]):
        raise TypeError("no run of a membership attack")
