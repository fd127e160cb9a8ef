"""Runs of plans around a spec's on proxy data: the table that forecasts are made from.

Each plan is trained for all its rounds with its noise and a share of its cohort, as in
tuning. A sweep that was interrupted is resumed from its journal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import PrivplanError
from privplan.forecast.coverage import Coverage, client_shares
from privplan.forecast.features import plan_features
from privplan.forecast.proxy_table import ProxyRun, ProxyTable
from privplan.processes import in_jobs
from privplan.spec.spec import Spec
from privplan.sweeps import Journal, Progress, finish, key_of, resumable
from privplan.values import digest, parse
from simulate.data.dataset import Dataset
from simulate.engine.evaluation import by_group
from simulate.proxy.training import Setting, trained
from simulate.proxy.variations import Variation, varied

PROXY_JOURNAL = "proxy.jsonl"


def proxy_run(task: tuple[Setting, Variation]) -> dict[str, Any]:
    """Train one variation; the plain data of its ``ProxyRun``."""
    setting, variation = task
    plan = varied(setting.spec, variation)
    of_run = setting.model_copy(update={"partition": variation.partition})
    experiment, measures = trained(of_run, plan, variation.share, variation.seed)
    label_shares = experiment.label_shares()
    accuracies = by_group(measures, label_shares)
    features = plan_features(plan)
    if features.clients is not None:
        fewer = {"clients": features.clients * variation.share}
        features = features.model_copy(update=fewer)
    by_class = measures.by_class.tolist()
    names = [group.name for group in plan.groups]
    return ProxyRun(
        plan=features,
        coverage=Coverage(
            shares=tuple(tuple(label_shares[name].tolist()) for name in names),
            clients=client_shares(plan.spec),
            skew=experiment.label_skew(),
            frequency=_frequency(experiment.data),
        ),
        partition=variation.partition,
        seed=variation.seed,
        accuracy=measures.accuracy,
        accuracy_by_group=tuple(accuracies[name] for name in names),
        accuracy_by_class=None if any(map(math.isnan, by_class)) else tuple(by_class),
    ).model_dump(mode="json")


def _frequency(data: Dataset) -> tuple[float, ...]:
    """Share of each class among the training records."""
    counts = np.bincount(data.train_labels.numpy(), minlength=len(data.classes))
    return tuple((counts / counts.sum()).tolist())


def proxy_table(
    setting: Setting,
    variants: Sequence[Variation],
    folder: Path,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> ProxyTable:
    """Train all variations that are not in the folder's journal; their table.

    Args:
        setting: data and spec.
        variants: of the spec; all with the same share.
        folder: holds the journal.
        jobs: processes.
        progress: told of finished runs.

    Raises:
        InputError: for the journal of another sweep, or missing data.
    """
    identity = setting.model_dump(mode="json", exclude={"data_dir"})
    if setting.own_parts is not None:
        data, _ = setting.own_parts.data.prepared(Spec.parse(setting.spec).groups)
        identity["own"] = data.digest
    journal = Journal[dict[str, Any]](
        folder / PROXY_JOURNAL, digest(identity), _check_line
    )
    journal.load()  # another sweep is refused before the lock is created
    items = {
        key_of(variation.model_dump(mode="json")): (setting, variation)
        for variation in variants
    }
    with resumable(folder):
        spread = in_jobs(min(jobs, len(items)))
        results = finish(
            items, proxy_run, spread=spread, journal=journal, progress=progress
        )
    runs = tuple(parse(ProxyRun, results[key]) for key in items)
    return ProxyTable(
        dataset=setting.dataset,
        model=str(setting.spec["model"]["name"]),
        classes=len(runs[0].coverage.shares[0]),
        share=variants[0].share,
        runs=runs,
    )


def _check_line(point: Any, result: Any) -> None:
    """Raise where a line of the journal cannot be a run's."""
    try:
        parse(ProxyRun, result)
    except PrivplanError:
        raise ValueError from None
    if set(point) != {*Variation.model_fields}:
        raise ValueError
