"""The closed schema of ``record.configuration``: every key, and what each value may be.

A record keeps it as plain data, because records of earlier versions have fewer entries.
No entry is free text: names have few letters and a pattern, numbers have bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from privplan.errors import Fault, InputError
from privplan.values import Count, Hash, Label, Natural, Real, Title, Value, parse

PROCESSES = 2**16  # more processes than any run has
HYPERPARAMETERS = 32  # more than any algorithm has
FIELD = "record.configuration"


def _few(numbers: dict[str, Any]) -> dict[str, Any]:
    if len(numbers) > HYPERPARAMETERS:
        raise ValueError(f"must be at most {HYPERPARAMETERS} numbers")
    return numbers


class Configuration(Value):
    """What a run was given, besides its record's fields; None for what is absent."""

    # How sums are scaled in the step, and values of hyperparameters by name.
    aggregation: Literal["paper", "mean"] | None = None
    numbers: Annotated[dict[Label, Real], AfterValidator(_few)] | None = None
    data: Hash | None = None  # digest of the data set
    clients: Count | None = None
    rounds: Count | None = None
    processes: Annotated[Count, Field(le=PROCESSES)] | None = None
    canaries: Natural | None = None  # per group
    streams: Natural | None = None  # how cohorts and noise follow from the seed
    metric: Title | None = None  # of the scores; accuracy when absent
    # Whether metric and loss are the task's, so that neither needs be named again.
    task_metric: Literal[True] | None = None
    task: Label | None = None  # that the data are labelled for; multi-class when absent
    noise: Literal["secure", "secure-discrete"] | None = None  # seeded when absent
    noise_commitment: Hash | None = None  # of the secret key of cohorts and noise
    own_data: Literal[True] | None = None
    # Whose the test records of own data are: of people who are no clients, as the user
    # says.
    test: Literal["others"] | None = None
    # Whether hyperparameters were chosen by scores on clients' records, which no
    # epsilon counts.
    tuned: Literal[True] | None = None
    own_model: Hash | None = None  # digest of the module's code and parameters
    own_loss: Literal[True] | None = None  # whether the loss is a function of the user
    # What a deployment records of each round beside the release.
    evidence: Literal["internal", "public"] | None = None


def configuration_faults(configuration: dict[str, Any]) -> Iterator[Fault]:
    """Unknown entries of a configuration, and values that an entry cannot have."""
    for name, value in configuration.items():
        if value is None:
            yield Fault(f"{FIELD}.{name}", "must be left out where it is absent", None)
    try:
        parse(Configuration, configuration)
    except InputError as error:
        for fault in error.faults:
            yield Fault(f"{FIELD}.{fault.field}", fault.rule, fault.found)
