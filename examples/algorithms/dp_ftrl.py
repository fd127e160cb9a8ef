"""DP-FTRL: turns instead of sampling, and noise from a tree over the rounds, correlated in time.

P. Kairouz, B. McMahan, S. Song, O. Thakkar, A. Thakurta, Z. Xu, Practical and Private (Deep)
Learning without Sampling or Shuffling, ICML 2021 (DP-FTRL with a tree restart per epoch).
``python dp_ftrl.py RUN_FOLDER`` trains it on the digits.

**Participation.** With sampling ratio 1 / B, B whole, the place of a client in its group fixes, in
public and independently of all others, the one round of every B rounds (an epoch) in which it takes
part. A client that is removed leaves its place empty. The number of rounds is a multiple of B.

**Accounting.** A tree over the B rounds of an epoch has a node for each aligned block of 2^j
rounds; the released prefix sums are functions of the noisy sums of those nodes. A round lies in at
most h = floor(log2 B) + 1 of them, and a client adds at most C to each, so an epoch is a Gaussian
mechanism of L2 sensitivity sqrt(h) C under noise of standard deviation s C per node, also where
updates depend on earlier releases (Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem
2.1). E epochs compose to mu = sqrt(E h) / s of Gaussian differential privacy, an upper bound. The
ledger has a line per round, and each line counts for 1 / B of its epoch. That is exact at the end
of each epoch; before it, a client of the first round has spent more than its share, so the check
``whole epochs`` fails a run that stops within one: charge it with the whole epoch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from privplan import Spec, judge, load_run, solve
from privplan.accounting.families import NOISE_FAMILIES, NoiseFamily, noise_p_value
from privplan.accounting.release import Release
from privplan.errors import Fault
from privplan.files import load_yaml
from privplan.laws.law import LAWS, DominatingPairs, Law, Relation, RenyiBound
from privplan.plan import Plan
from privplan.planning.baselines import strictest
from privplan.record import ReleaseRecord
from privplan.spec.presets import preset
from privplan.streams import fingerprint
from privplan.verification.checks.check import Check, Run, first
from privplan.verification.checks.check import register as register_check
from simulate.algorithm import Algorithm, compose
from simulate.algorithms.registry import Hyperparameters, from_spec, register
from simulate.components import GroupSum, Mechanism, Noise, Released, State
from simulate.mechanisms import share
from simulate.runs.request import Request
from simulate.runs.run import execute
from simulate.transforms import clip

MOST_LEVELS = 20


def epoch_of(ratio: float) -> int:
    """B, rounds of an epoch."""
    return round(1 / ratio)


def levels_of(epoch: int) -> int:
    """h, nodes of the tree that a round lies in at most."""
    return epoch.bit_length()


class Turns(Law):
    """Each client takes part in one round of every 1 / ratio rounds, by a public schedule."""

    name = "turns"
    title = "turns"
    whole_cohorts = True

    def dominating_pairs(self, relation: Relation, shift: float, ratio: float) -> DominatingPairs:
        """A 1 / B of the epoch's one release to the client; nothing is amplified."""
        return LAWS.get("full").dominating_pairs(relation, shift * math.sqrt(ratio), 1.0)

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...] | None:
        """That of the same Gaussian."""
        return LAWS.get("full").renyi(relation, noise_multiplier / math.sqrt(ratio), 1.0)

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """The places of the round's turn."""
        size, turn = round(clients * ratio), (round_ - 1) % epoch_of(ratio)
        return np.arange(turn * size, (turn + 1) * size)

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """Every cohort has the size of a turn."""
        for count in counts:
            if count != round(clients * ratio):
                yield f"a cohort of {count} where a turn has {round(clients * ratio)}"

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        """Exactly once per epoch."""
        times = sum(math.ceil(count * ratio - 1e-9) for ratio, count in rounds.items())
        return np.eye(1 + sum(rounds.values()))[times]


class Tree(NoiseFamily):
    """Increments of the noise of a tree; the ledger has the standard deviation of a node.

    Args:
        levels: h; the plan's noise multiplier is that of a node over sqrt(h).
    """

    def __init__(self, levels: int) -> None:
        self.name, self.levels = f"tree of {levels} levels", levels

    def noise_multiplier(self, noise_std: float, bound: float | None) -> float:
        """S / sqrt(h): one epoch is as private as one sum with it."""
        if bound is None:
            return 0.0
        return float(f"{noise_std / (bound * math.sqrt(self.levels)):.12g}")

    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """The pairs of the law at shift 1 / multiplier."""
        shift = 1 / release.noise_multiplier
        return release.sampling.law.dominating_pairs(relation, shift, release.sampling_ratio)

    def p_value(self, sum_squares: float, std: float, coordinates: int) -> float:
        """An increment is the sum of 1 to h nodes' noise."""
        return max(
            noise_p_value(sum_squares / nodes, std, coordinates)
            for nodes in range(1, self.levels + 1)
        )


def tree_increment(turn: int, nodes: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """The change of a prefix's noise in a round, and the nodes after it.

    The prefix of t rounds is the sum of the nodes at the one bits of t. Round t completes the node
    at its lowest one bit, which replaces all nodes below.

    Args:
        turn: t, position of the round in its epoch, from 1.
        nodes: noise of the current nodes by level [h, d], float64; zero at the zero bits of t - 1.
        fresh: noise of the new node [d], float64.
    """
    before = nodes if turn > 1 else torch.zeros_like(nodes)
    level = (turn & -turn).bit_length() - 1
    after = before.clone()
    after[:level] = 0
    after[level] = fresh
    return after.sum(0) - before.sum(0), after


def tree_sum(epoch: int) -> Mechanism:
    """One sum of all groups per round, whose noise is the increment of a tree's.

    Args:
        epoch: B, rounds of an epoch.
    """
    levels = levels_of(epoch)

    def stateful(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
        state: State,
    ) -> tuple[tuple[Released, ...], State]:
        total = torch.stack([part.total for part in sums]).sum(0)
        sigma = max(part.group.noise_multiplier * (part.bound or math.inf) for part in sums)
        std, generator = sigma * math.sqrt(levels), noise(0)
        stream = fingerprint(generator)
        drawn = torch.from_numpy(generator.standard_normal(total.numel()) * std).to(total)
        moved, nodes = tree_increment((round_ - 1) % epoch + 1, state["nodes"].to(total), drawn)
        record = ReleaseRecord(
            round=round_,
            family=Tree(levels).name,
            noise_std=std,
            dimension=total.numel(),
            noise_sum_squares=float(drawn.square().sum()),
            noise_state=stream,
            shares=tuple(share(part, weights) for part in sums),
        )
        groups = tuple(part.group for part in sums)
        return (Released((total + moved).float(), record, groups),), {"nodes": nodes}

    def start(theta: Tensor) -> State:
        return {"nodes": theta.new_zeros(levels, len(theta), dtype=torch.float64)}

    def release(*arguments: object) -> tuple[Released, ...]:
        raise TypeError("the noise of a tree needs its state")

    return Mechanism("secure sum, noise of a tree", True, True, release, None, start, stateful)


def in_turns(plan: Plan) -> Fault | None:
    """Requires turns, whole epochs, and one fixed clipping norm."""
    spec, ratio = plan.spec, plan.spec.expected_cohort / plan.spec.population
    epoch = epoch_of(ratio)
    if spec.sampling != Turns.name:
        return Fault("plan.sampling", f"must be {Turns.name}", str(spec.sampling))
    if not math.isclose(epoch * ratio, 1.0) or any(one.clients % epoch for one in spec.groups):
        rule = "must be a whole part of all clients, and of those of each group"
        return Fault("plan.cohort", rule, spec.expected_cohort)
    if levels_of(epoch) > MOST_LEVELS:
        return Fault("plan.cohort", f"must give epochs below 2^{MOST_LEVELS} rounds", epoch)
    if spec.rounds % epoch:
        return Fault("plan.rounds", f"must be a multiple of the {epoch} turns", spec.rounds)
    if spec.planning.clipping is not None:
        return Fault("plan.clipping", "must be left out", spec.planning.clipping.quantile)
    return None


@register(
    "DP-FTRL",
    plan=from_spec(strictest),
    unit="client",
    released="one sum of clipped updates per round, with the noise of a tree over the rounds",
    source="Kairouz, McMahan, Song, Thakkar, Thakurta, Xu, ICML 2021",
    requires=(in_turns,),
)
def dp_ftrl(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm:
    """DP-FedAvg in turns, with the noise of a tree that starts anew with each epoch.

    Unit of privacy: client. The module states participation and accounting.
    Deviations: no momentum; the model is the first one plus the noisy prefix sum over the cohort,
        as with the regulariser ||theta - theta_0||^2; the tree of Honaker's variance reduction is
        not used.
    """
    cohort = sum(group.expected_cohort for group in plan.groups)
    return compose(
        "DP-FTRL",
        plan,
        transforms=(clip(plan.spec.clipping_norm),),
        mechanism=tree_sum(epoch_of(cohort / plan.spec.population)),
    )


def of_tree(run: Run) -> bool:
    """Whether the run's noise is that of a tree."""
    return any(one.family.startswith("tree of ") for one in run.ledger.records)


def whole_epochs(run: Run) -> Check:
    """Every epoch of a tree was finished, at whose end the ledger's lines count in full."""

    def problems() -> Iterator[str]:
        lines = len(run.ledger.records)
        for group in run.plan.groups:
            epoch = epoch_of(group.sampling_ratio)
            if lines % epoch:
                yield f"{group.name}: {lines} rounds of epochs of {epoch}"

    return first(problems(), "whole epochs", "every epoch is finished")


LAWS.register(Turns.name, Turns())
for _levels in range(1, MOST_LEVELS + 1):
    NOISE_FAMILIES.register(Tree(_levels).name, Tree(_levels))
register_check("whole epochs", order=105, applies=of_tree)(whole_epochs)


def main(folder: Path) -> None:
    """Train on the digits in turns of four rounds and verify the run."""
    changes = {"sampling": Turns.name, "cohort": 75, "clipping_norm": 0.3}
    changes["planning"] = {"ratios": "uniform", "accountant": "pld"}
    spec = Spec.parse({**load_yaml(preset("digits"), "digits"), **changes})
    done = execute(Request(solve(spec), "DP-FTRL", "digits", folder, seed=1))
    verdict = judge(load_run(folder))
    print(f"accuracy {done.record.accuracy:.3f}, verdict {verdict.outcome}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
