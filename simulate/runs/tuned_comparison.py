"""A comparison in which each method trains with values that were tuned for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from privplan.io.files import write_text
from privplan.io.resume import Progress
from privplan.verification.verify import load_run
from simulate.runs.compare import compare, request_for
from simulate.runs.comparison import ComparisonRow
from simulate.runs.request import Request
from simulate.runs.scores import clipped_share, scores_of
from simulate.runs.tune import same_accountant, tune, tuned_request
from simulate.runs.tuned_table import TunedRow, tuned_csv

TUNED_TABLE = "tuned.csv"


def tuned_plan(base: Request) -> Request:
    """The request with a plan that is calibrated as all methods of the comparison are."""
    return replace(base, plan=same_accountant(base.plan))


def tuned_comparison(
    base: Request,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    trials: int,
    validation_share: float,
    jobs: int | None,
    progress: Progress,
    cluster: str | None = None,
    finished: Callable[[ComparisonRow], None] = lambda row: None,
) -> list[TunedRow]:
    """Tune each method, train all with their own values, and write the table.

    Args:
        base: plan (of ``tuned_plan``), data and device.
        algorithms: names of the catalogue.
        seeds: seeds of the runs that are compared.
        trials: runs per method to tune it.
        validation_share: share of the training records held out for tuning.
        jobs: runs at the same time; None for one.
        progress: called with the number of finished and of all runs of each part.
        cluster: address of a Ray cluster for the runs that are compared.
        finished: called with the row of each method as soon as all its runs are finished.

    Returns:
        One row per method, in the order given. ``tuned.csv`` and the files of ``compare`` are
        written.

    Raises:
        PrivplanError: as ``tune`` and ``compare``.
    """
    found = tune(
        base,
        algorithms,
        trials=trials,
        validation_share=validation_share,
        jobs=jobs or 1,
        progress=progress,
    )
    requests = {name: tuned_request(base, one) for name, one in found.items()}
    rows = compare(base, algorithms, seeds, jobs, progress, cluster, requests, finished)
    shown = []
    for row in rows:
        runs = [request_for(requests[row.algorithm], row.algorithm, seed) for seed in seeds]
        ledgers = [load_run(one.folder).ledger.records for one in runs]
        spec = requests[row.algorithm].plan.spec
        shown.append(
            TunedRow(
                row=row,
                tuned=found[row.algorithm],
                scores=tuple(scores_of(one) for one in runs),
                clipped=clipped_share(record for ledger in ledgers for record in ledger),
                norm=spec.clipping_norm,
                rate=spec.local.learning_rate,
            )
        )
    write_text(base.folder / TUNED_TABLE, tuned_csv(shown))
    return shown
