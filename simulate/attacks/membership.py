"""Membership of the plan's unit, by runs with and without it, against the certificate's curve.

In every run a fair coin decides for each target whether it is in. The targets are clients under a
plan for clients and single records under a plan for records, never another unit, because the
certificate bounds nothing else. Two scores of the final model:
``loss``: minus the mean cross-entropy on the target's records (Yeom et al. 2018);
``lira``: the log ratio of Gaussians fitted to the scaled confidence in the other runs with and
without the target (Carlini et al. 2022, Algorithm 1), each run once the target run and all others
its shadow runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from privplan.accounting.release import Relation, SamplingLaw
from privplan.accounting.tradeoff import TradeOff, profile_of, tradeoff
from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan
from privplan.processes import Journal, finish, in_jobs, key_of, resumable
from privplan.streams import Purpose, stream
from privplan.values import digest
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, algorithm
from simulate.attacks.measures import clopper_pearson, guarantee, with_noise
from simulate.components import Sampler
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import ClientPartition, Partition
from simulate.data.partition.schemes import partition, scheme
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, one_core, run_round
from simulate.local.sgd import pixels
from simulate.models.registry import model
from simulate.runs.ledger_writer import MemoryLedger

JOURNAL = "membership.jsonl"
LEVELS = (
    0.001,
    0.01,
)  # false-positive rates at which the true-positive rate is reported
LEAST_SHADOWS = 64
LARGEST_LOG_ODDS = 20.0


@dataclass(frozen=True)
class Membership:
    """A membership attack on the runs of one algorithm under a plan."""

    plan: Plan  # the solved plan
    algorithm: str  # name of the algorithm
    data: Dataset  # the data set
    # shadow runs of each target run, at least 64; there is one run more
    shadows: int = LEAST_SHADOWS
    targets: int = 10  # targets per run, in the group with the largest epsilon
    seed: int = 0  # seed of the first run and of the targets
    hyperparameters: Hyperparameters = field(
        default_factory=Hyperparameters
    )  # of the algorithm
    partition: str = "iid"  # partition of the records over clients
    # factor on the executed noise multipliers; other values than 1 are sabotage, while the
    # certificate stays that of the plan
    noise_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.shadows < LEAST_SHADOWS:
            raise InputError.one(
                "shadows", f"must be at least {LEAST_SHADOWS}", self.shadows
            )
        if not 1 <= self.targets <= self.group.clients // 2:
            rule = f"must be in [1, {self.group.clients // 2}], half of the clients of the group"
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
        sizes = {
            group.name: int(self._assigned.sizes(members).min())
            for group, members in zip(
                self.plan.groups, self._assigned.members, strict=True
            )
        }
        return algorithm(self.algorithm, self.plan, self.hyperparameters, sizes)

    @cached_property
    def _assigned(self) -> ClientPartition:
        labels, people = self.data.train_y.numpy(), self.data.train_people
        return partition(
            scheme(self.partition), labels, self.plan.groups, self.seed, people
        )

    @property
    def _index(self) -> int:
        return [group.name for group in self.plan.groups].index(self.group.name)

    @cached_property
    def _target_positions(self) -> np.ndarray:
        """Positions of the target clients in their group, sorted [targets]."""
        source = stream(self.seed, Purpose.OWN_TEST, 19)
        return np.sort(source.choice(self.group.clients, self.targets, replace=False))

    def _records(self, target: int) -> np.ndarray:
        """Training records of a target: those of the client, or one record of it."""
        client = int(
            self._assigned.members[self._index][self._target_positions[target]]
        )
        owned = self._assigned.records(client)
        return owned if self.plan.unit == "client" else owned[:1]

    def included(self, run: int) -> np.ndarray:
        """Fair coins of a run [targets]."""
        return stream(self.seed, Purpose.OWN_TEST, 20, run).random(self.targets) < 0.5

    def experiment(self, run: int) -> Experiment:
        """The run's experiment, without the targets whose coin says so."""
        absent = np.flatnonzero(~self.included(run))
        plan, groups = self.executed.plan, []
        for group in plan.groups:
            changed_group = with_noise(group, self.noise_factor)
            if group.records is not None:  # the public minimum, with one record less
                less = {"records": max(1, group.records - 1)}
                changed_group = changed_group.model_copy(update=less)
            groups.append(changed_group)
        entry = ALGORITHMS.get(self.algorithm)
        changed = plan.model_copy(update={"groups": tuple(groups)})
        built = entry.build(changed, entry.complete(self.hyperparameters))
        held = self._assigned
        replaced = self.plan.spec.relation == Relation.REPLACE_ONE
        if self.plan.unit == "record" or replaced:
            held = self._without_records(absent, replaced)
        else:
            built = replace(built, sampler=self._without_clients(built.sampler, absent))
        seed = int(stream(self.seed, Purpose.CANARY, 20, run).integers(2**62))
        network = model(built.plan.spec.model.name)
        return Experiment(
            built, network, self.data, held, seed, torch.device("cpu"), workers=1
        )

    def _without_clients(self, planned: Sampler, absent: np.ndarray) -> Sampler:
        """Draws by the planned law among the clients that are not absent."""
        gone = self._target_positions[absent]
        fixed = planned.law == SamplingLaw.FIXED_SIZE

        def draw(
            generator: np.random.Generator, clients: int, ratio: float, round_: int
        ) -> np.ndarray:
            sequence = generator.bit_generator.seed_seq
            if sequence.spawn_key[-1] != self._index:  # type: ignore[attr-defined]
                return planned.draw(generator, clients, ratio, round_)
            if not fixed:
                return np.setdiff1d(
                    planned.draw(generator, clients, ratio, round_), gone
                )
            present = np.setdiff1d(np.arange(clients), gone)
            scaled = min(1.0, ratio * clients / len(present))
            chosen: np.ndarray = present[
                planned.draw(generator, len(present), scaled, round_)
            ]
            return chosen

        return replace(planned, draw=draw)

    def _without_records(self, absent: np.ndarray, replaced: bool) -> Partition:
        """The partition without absent targets' records, or with public ones in their place."""
        members = self._assigned.members
        clients = np.concatenate(members)
        owned = {int(client): self._assigned.records(int(client)) for client in clients}
        used = np.concatenate(list(owned.values()))
        spare = np.setdiff1d(np.arange(len(self.data.train_y)), used)
        source = stream(self.seed, Purpose.OWN_TEST, 21)
        for target in absent:
            client = int(members[self._index][self._target_positions[target]])
            rows, gone = owned[client], self._records(int(target))
            rest = rows[~np.isin(rows, gone)]
            if replaced:
                pool = spare if len(spare) >= len(gone) else np.setdiff1d(used, gone)
                rest = np.concatenate(
                    [source.choice(pool, len(gone), replace=False), rest]
                )
            owned[client] = rest
        ordered = [owned[client] for client in range(len(clients))]
        starts = np.cumsum([0, *(len(rows) for rows in ordered)])
        return Partition(np.concatenate(ordered), starts, members)


def scores_of_run(attack: Membership, run: int) -> dict[str, list[float]]:
    """Train one run and return the targets' scores under its final model, and their coins."""
    world = attack.experiment(run)
    with one_core():
        state, ledger = initial_state(world), MemoryLedger(world.algorithm.plan.digest)
        while state.round < world.rounds:
            state = run_round(world, state, ledger)
    # The released model, with the initial personal part where there is one.
    own = world.personal_start
    personal = None if own is None else own[None]
    client = np.arange(0 if own is None else 1)
    used = world.algorithm.split.use(world.model, state.theta, personal, client)
    theta = used if used.dim() == 1 else used[0]
    losses, odds = [], []
    for target in range(attack.targets):
        rows = torch.from_numpy(attack._records(target))
        x = pixels(world.data.inputs(world.data.train_x[rows]))
        with torch.no_grad():
            logits = world.model.logits(theta, x).double()
        loss = functional.cross_entropy(
            logits, world.data.train_y[rows], reduction="none"
        )
        loss = loss.nan_to_num(nan=1e6, posinf=1e6).clamp(max=1e6)
        losses.append(float(-loss.mean()))
        # log(p / (1 - p)) of the probability p of the true label.
        limited = loss.clamp(min=math.exp(-LARGEST_LOG_ODDS))
        scaled = -limited - torch.log(-torch.expm1(-limited))
        odds.append(float(scaled.clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS).mean()))
    coins = [float(coin) for coin in attack.included(run)]
    return {"included": coins, "loss": losses, "odds": odds}


def lira(odds: np.ndarray, included: np.ndarray) -> np.ndarray:
    """Log likelihood ratios of in to out, leaving out the run itself [runs, targets]."""
    ratios = np.zeros_like(odds)
    for run in range(len(odds)):
        others = np.arange(len(odds)) != run
        for target in range(odds.shape[1]):
            values, coins = odds[others, target], included[others, target]
            if coins.sum() < 2 or (~coins).sum() < 2:
                continue
            inside, outside = values[coins], values[~coins]
            value = odds[run, target]
            ratios[run, target] = _log_density(value, inside) - _log_density(
                value, outside
            )
    return ratios


def _log_density(value: float, sample: np.ndarray) -> float:
    std = max(float(sample.std(ddof=1)), 1e-6)
    return -0.5 * ((value - float(sample.mean())) / std) ** 2 - math.log(std)


def rates(
    scores: np.ndarray, included: np.ndarray, curve: TradeOff
) -> list[dict[str, Any]]:
    """True-positive rates at the levels of ``LEVELS`` against the certificate's curve.

    The threshold leaves at most the level's share of the targets that are out. ``crosses``: the
    lower end of the true-positive rate's interval is above the curve at the upper end of the
    false-positive rate's interval.
    """
    inside, outside = scores[included], np.sort(scores[~included])[::-1]
    lines = []
    for level in LEVELS:
        threshold = outside[int(level * len(outside))] if len(outside) else -math.inf
        hits, false = int((inside > threshold).sum()), int((outside > threshold).sum())
        low, high = clopper_pearson(hits, len(inside))
        _, most = clopper_pearson(false, len(outside))
        counted = {"false_positives": false, "out": len(outside), "in": len(inside)}
        bounds = {
            "bound": _bound(curve, level),
            "bound_at_fpr_interval": _bound(curve, most),
        }
        rate = [hits / max(1, len(inside)), low, high]
        crosses = bool(low > _bound(curve, most))
        lines.append(
            {"fpr": level, "tpr": rate, **counted, **bounds, "crosses": crosses}
        )
    return lines


def _bound(curve: TradeOff, level: float) -> float:
    if curve.advantage >= 1.0:
        return 1.0
    return float(np.interp(level, curve.false_positive_axis, curve.true_positive_axis))


def certified_curve(attack: Membership) -> TradeOff:
    """The certificate's trade-off curve of the attacked group; trivial without a guarantee."""
    plan = attack.executed.plan
    if ALGORITHMS.get(attack.algorithm).unit_under(plan) != attack.plan.unit:
        return tradeoff(np.zeros_like, 0.5, math.inf)
    group = plan.group(attack.group.name)
    history, relation = plan.history(group), plan.spec.relation
    bound = guarantee(attack.algorithm, plan, group)["epsilon"]
    epsilon = math.inf if isinstance(bound, str) else float(bound)
    return tradeoff(profile_of(history, relation), group.delta, epsilon)


def membership(
    attack: Membership,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Run the attack: one row per score as plain data; finished runs are not trained again."""
    plan = attack.executed.plan
    name = digest(
        {
            "plan": plan.digest,
            "data": attack.data.digest,
            "seed": attack.seed,
            "targets": attack.targets,
            "shadows": attack.shadows,
            "partition": attack.partition,
            "choices": [
                attack.hyperparameters.aggregation,
                dict(attack.hyperparameters.values),
            ],
        }
    )
    items = {
        key_of(
            {"algorithm": attack.algorithm, "run": run, "noise": attack.noise_factor}
        ): run
        for run in range(attack.runs)
    }
    with resumable(folder):
        path = None if folder is None else folder / JOURNAL
        journal = (
            None
            if path is None
            else Journal[dict[str, list[float]]](path, name, _check)
        )
        work = partial(scores_of_run, attack)
        found = finish(
            items, work, spread=in_jobs(jobs), journal=journal, progress=progress
        )
    rows = [found[key] for key in items]
    included = np.array([one["included"] for one in rows]) > 0.5
    curve = certified_curve(attack)
    odds = np.array([one["odds"] for one in rows])
    by_score = {
        "loss": np.array([one["loss"] for one in rows]),
        "lira": lira(odds, included),
    }
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


def _check(point: Any, result: Any) -> None:
    if not isinstance(point, dict) or len(result["odds"]) != len(result["included"]):
        raise TypeError("no run of a membership attack")
