"""The commands with which a reader makes again what a report page is about."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from privplan.record import ACCURACY, METRIC, RunRecord

SOLVE = "privplan solve spec.yaml -o plan.json"
_TABLES = (
    ".csv",
    ".parquet",
)  # endings of own data in tables, whose columns are named by options

_SECURE = (
    "Secure noise is drawn anew: trained again, the run has other noise of the same law. To check "
    "this run's own noise, give its key to verify (--noise-key)."
)


def of_plan() -> list[str]:
    """Commands that make a plan and its page."""
    return [SOLVE, "privplan report plan.json -o report.html"]


def of_comparison(records: Sequence[RunRecord], algorithms: Sequence[str]) -> list[str]:
    """Commands that make a comparison and its page.

    Args:
        records: of the runs of one method, one for each seed.
        algorithms: names of the methods, in the order of the table.
    """
    record = records[0]
    names = shlex.quote(",".join(algorithms))
    source = f"--data {shlex.quote(record.dataset)}"
    if not is_own_data(record):
        source = f"--dataset {shlex.quote(record.dataset)}"
    compare = f"privplan compare plan.json --algorithms {names} --seeds {len(records)} {source}"
    return [SOLVE, f"{compare} -o results", "privplan report results -o report.html"]


def of_run(record: RunRecord) -> list[str]:
    """Commands that make a run again, judge and report it; none makes a deployment."""
    if record.seed is None:
        judging = "privplan verify run --plan plan.json"
        return [SOLVE, judging, "privplan report run --plan plan.json -o report.html"]
    own_options = _options_of_own_parts(record)
    return [
        SOLVE,
        " ".join(
            ["privplan simulate plan.json", *_simulated(record, own_options), "-o run"]
        ),
        " ".join(["privplan verify run --plan plan.json --rounds all", *own_options]),
        " ".join(
            ["privplan report run --plan plan.json", *own_options, "-o report.html"]
        ),
    ]


def is_own_data(record: RunRecord) -> bool:
    """Whether the run's data are no registered public ones."""
    return record.is_on_own_data


def has_own_model(record: RunRecord) -> bool:
    """Whether the run trained a module of its user."""
    return "own_model" in record.configuration


def notes_of(record: RunRecord) -> list[str]:
    """What the commands of a run leave open, one sentence or two each."""
    notes = []
    if record.seed is not None and (is_own_data(record) or has_own_model(record)):
        words = ["The record holds no names of columns, files or code:"]
        if is_own_data(record) and record.dataset.endswith(_TABLES):
            words.append(
                "LABEL, CLIENT and GROUP are columns of the data, STATISTICS is the file of public "
                "statistics (or the word none);"
            )
        if has_own_model(record):
            words.append("MODULE:CLASS is the model;")
        words.append(
            "repeat --label, --client, --group, --groups, --features, --test, --test-share, "
            "--model-args, --fix and --loss where the run had them."
        )
        notes.append(" ".join(words))
    if record.noise == "secure" and record.seed is not None:
        notes.append(_SECURE)
    return notes


def _options_of_own_parts(record: RunRecord) -> list[str]:
    """Options that simulate, verify and report share: own data, model and metric."""
    options = []
    if is_own_data(record):
        options.append(f"--data {shlex.quote(record.dataset)}")
        if record.dataset.endswith(_TABLES):
            options.append("--label LABEL")
            if record.partition == "clients":
                options.append("--client CLIENT --group GROUP")
            options.append("--statistics STATISTICS")
    if "task" in record.configuration:
        options.append(f"--task {shlex.quote(str(record.configuration['task']))}")
    if has_own_model(record):
        options.append("--model MODULE:CLASS")
    metric = str(record.configuration.get(METRIC, ACCURACY))
    if metric != ACCURACY:
        options.append(f"--metric {shlex.quote(metric)}")
    return options


def _simulated(record: RunRecord, own_options: Sequence[str]) -> list[str]:
    """Options of ``simulate``; ``own_options`` are those of own data and model."""
    configuration = record.configuration
    options = [f"--algorithm {shlex.quote(record.algorithm)}", *own_options]
    if not is_own_data(record):
        options.append(f"--dataset {shlex.quote(record.dataset)}")
    if record.partition not in ("", "clients"):
        options.append(f"--partition {shlex.quote(record.partition)}")
    options.append(f"--seed {record.seed}")
    numbers = configuration.get("numbers")
    if isinstance(numbers, dict):
        options += [
            f"--set {shlex.quote(f'{name}={value}')}" for name, value in numbers.items()
        ]
    if configuration.get("aggregation") == "mean":
        options.append("--aggregation mean")
    if configuration.get("canaries"):
        options.append(f"--canaries {shlex.quote(str(configuration['canaries']))}")
    if is_own_data(record) or configuration.get("noise"):
        options.append(
            f"--noise {shlex.quote(str(configuration.get('noise', 'seeded')))}"
        )
    return options
