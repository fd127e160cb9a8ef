"""Runs of plans around a spec's on proxy data: the table that forecasts are made from; resumable.

Plans differ in budgets, rounds, cohort, training recipe and partition, drawn at random by a seed.
Each is trained for all its rounds with its noise and a share of its cohort, as in tuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import PrivplanError
from privplan.forecast.features import Coverage, client_shares, plan_features
from privplan.forecast.table import ProxyRun, ProxyTable
from privplan.io.resume import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.turns import refuse_turns
from privplan.values import Count, Fraction, Positive, Value, digest, parse
from simulate.engine.evaluation import by_group
from simulate.engine.experiment import Experiment
from simulate.tuning.candidates import DECAYS, Candidate, default_candidate
from simulate.tuning.trials import Setting, trained

JOURNAL = "proxy.jsonl"
DRAWN = "random"
"""Instead of a partition: every run draws its own, so that forecasts know all kinds of coverage."""
_ALPHAS = (0.15, 3.0)
"""Range of the parameter of Dirichlet partitions that are drawn."""
_IID, _DIRICHLET = 0.2, 0.2
"""Shares of IID and Dirichlet among drawn partitions; in the others a group alone holds classes."""


class Variation(Value):
    """A plan around a spec's.

    Attributes:
        epsilons: factor on the epsilon of each group.
        rounds: number of rounds.
        cohort: factor on the clients per round.
        clip: factor on the clipping norm.
        step: factor on the length of the server's step.
        decay: decay of the average of the models; None for the plan's own recipe.
        partition: partition of the records over the clients.
        seed: seed of the run.
        share: share of the plan's cohort that takes part.
    """

    epsilons: tuple[Positive, ...]
    rounds: Count
    cohort: Positive = 1.0
    clip: Positive = 1.0
    step: Positive = 1.0
    decay: float | None = None
    partition: str
    seed: int
    share: Fraction


def variations(
    spec: Spec, partitions: Sequence[str], count: int, seed: int, share: float, classes: int = 10
) -> list[Variation]:
    """Random plans around a spec's; every second one has a recipe of its own.

    Args:
        spec: the spec.
        partitions: partitions to go through, or DRAWN.
        count: how many.
        seed: seed of the draw; the runs have the seeds from ``seed`` on.
        share: share of the plans' cohorts that takes part.
        classes: classes of the data, for partitions that are drawn.

    Raises:
        InputError: for a spec whose clients take turns.
    """
    refuse_turns(spec.sampling, "sampling", "forecasts")
    source, drawn = np.random.default_rng([seed, 13]), []

    def factor(most: float) -> float:
        return float(f"{most ** source.uniform(-1, 1):.4g}")

    for number in range(count):
        common = factor(5.0)
        epsilons = tuple(float(f"{common * factor(2.5):.4g}") for _ in spec.groups)
        recipe: dict[str, Any] = {"clip": factor(4.0), "step": factor(2.5)}
        recipe["decay"] = float(source.choice(DECAYS))
        rounds, cohort = max(2, round(spec.rounds * factor(3.0))), factor(2.0)
        own, held = source.random() < 0.5, drawn_partition(source, spec, classes)
        named = partitions[number % len(partitions)]
        drawn.append(
            Variation(
                epsilons=epsilons,
                rounds=rounds,
                cohort=cohort if _cohort_is_free(spec) else 1.0,
                partition=held if named == DRAWN else named,
                seed=seed + number,
                share=share,
                **(recipe if own else {}),
            )
        )
    return drawn


def drawn_partition(source: np.random.Generator, spec: Spec, classes: int) -> str:
    """A random partition: IID, Dirichlet, or one group alone holds up to half of the classes."""
    kind, alpha = source.random(), float(np.exp(source.uniform(*np.log(_ALPHAS))))
    group = spec.groups[int(source.integers(len(spec.groups)))].name
    number = int(source.integers(1, max(2, classes // 2 + 1)))
    labels = ",".join(map(str, sorted(source.permutation(classes)[:number].tolist())))
    if kind < _IID or (kind >= _IID + _DIRICHLET and len(spec.groups) == 1):
        return "iid"
    return f"dirichlet:{alpha:.2g}" if kind < _IID + _DIRICHLET else f"by-class:{group}={labels}"


def _cohort_is_free(spec: Spec) -> bool:
    """Whether plans of other cohorts can be around a spec's."""
    law = spec.sampling.law
    return spec.cohort is not None and not law.everyone and spec.planning.ratios != "given"


def varied(data: dict[str, Any], one: Variation) -> Plan:
    """The plan of a variation of a spec's plain data."""
    groups = [
        {**group, "epsilon": float(f"{group['epsilon'] * factor:.6g}")}
        for group, factor in zip(data["groups"], one.epsilons, strict=True)
    ]
    changed = {**data, "groups": groups, "rounds": one.rounds}
    if one.cohort != 1:
        population = sum(group["clients"] for group in groups)
        cohort = min(max(round(data["cohort"] * one.cohort), len(groups)), population)
        changed["cohort"] = float(cohort)
    plan = solve(Spec.parse(changed), second_opinion=False)
    if one.decay is None:
        return plan
    known = default_candidate(plan)
    own: dict[str, Any] = {
        **known.model_dump(),
        "clipping_norm": known.clipping_norm * one.clip,
        "step": known.step * one.step,
        "decay": one.decay,
    }
    return solve(Spec.parse(Candidate(**own).applied(changed)), second_opinion=False)


def proxy_run(task: tuple[Setting, Variation]) -> dict[str, Any]:
    """Trains one variation; returns the plain data of its ``ProxyRun``.

    Raises:
        PrivplanError: when the spec does not fit the data.
    """
    setting, one = task
    plan = varied(setting.spec, one)
    held = setting.model_copy(update={"partition": one.partition})
    experiment, measured = trained(held, plan, one.share, one.seed)
    shares = experiment.label_shares()
    accuracies = by_group(measured, shares)
    features = plan_features(plan)
    if features.clients is not None:
        features = features.model_copy(update={"clients": features.clients * one.share})
    by_class = measured.by_class
    return ProxyRun(
        plan=features,
        coverage=Coverage(
            shares=tuple(tuple(shares[group.name].tolist()) for group in plan.groups),
            clients=client_shares(plan.spec),
            skew=label_skew(experiment),
            frequency=tuple(label_frequency(experiment).tolist()),
        ),
        partition=one.partition,
        seed=one.seed,
        accuracy=measured.accuracy,
        accuracy_by_group=tuple(accuracies[group.name] for group in plan.groups),
        accuracy_by_class=None if np.isnan(by_class).any() else tuple(by_class.tolist()),
    ).model_dump(mode="json")


def label_frequency(experiment: Experiment) -> np.ndarray:
    """Share of each class among all training records [classes]."""
    labels = experiment.data.train_labels.numpy()
    counts = np.bincount(labels, minlength=len(experiment.data.classes))
    shares: np.ndarray = counts / counts.sum()
    return shares


def label_skew(experiment: Experiment) -> float:
    """Skew of the clients' labels within their groups, as in ``Coverage``; at least 0.

    From pairs of different records of a client, so that few records per client add no bias.
    """
    labels, partition = experiment.data.train_labels.numpy(), experiment.partition
    classes, excess, pairs = len(experiment.data.classes), 0.0, 0.0
    for members in partition.members:
        alike = float((partition.label_distribution(members, labels, classes) ** 2).sum())
        for client in members:
            counts = np.bincount(labels[partition.records(int(client))], minlength=classes)
            number = counts.sum()
            if number > 1 and alike < 1:
                same = float((counts * (counts - 1)).sum() / (number * (number - 1)))
                excess += (same - alike) / (1 - alike)
                pairs += 1
    return min(max(excess / pairs, 0.0), 1.0) if pairs else 0.0


def proxy_table(
    setting: Setting,
    todo: Sequence[Variation],
    folder: Path | None = None,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> ProxyTable:
    """Trains all variations that are not in the folder's journal; returns their table.

    Args:
        setting: the spec, whose groups are listed, and the proxy data.
        todo: the plans to train.
        folder: where runs are journalled; None when they are not.
        jobs: processes.
        progress: called with the number of finished and of all runs.

    Raises:
        InterruptedSweepError: on Ctrl-C; the same call resumes.
        PrivplanError: when the spec does not fit the proxy data.
    """
    identity = setting.model_dump(mode="json", exclude={"data_dir"})
    journal: Journal[dict[str, Any]] | None = None
    if folder is not None:
        journal = Journal(folder / JOURNAL, digest(identity), _check)
        journal.load()  # another sweep is refused before the lock is created
    items = {key_of(one.model_dump(mode="json")): (setting, one) for one in todo}
    with resumable(folder):
        spread = in_jobs(min(jobs, len(items)))
        done = finish(items, proxy_run, spread=spread, journal=journal, progress=progress)
    runs = tuple(parse(ProxyRun, done[key]) for key in items)
    return ProxyTable(
        dataset=setting.dataset,
        model=str(setting.spec["model"]["name"]),
        classes=len(runs[0].coverage.shares[0]),
        share=todo[0].share,
        runs=runs,
    )


def _check(point: Any, result: Any) -> None:
    """Check that a line of a journal can be a run's.

    Raises:
        ValueError: when it cannot.
    """
    try:
        parse(ProxyRun, result)
    except PrivplanError:
        raise ValueError from None
    if set(point) != {*Variation.model_fields}:
        raise ValueError
