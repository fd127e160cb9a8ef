"""DP2-FedSAM: client-level privacy with a private head and flat minima."""

from __future__ import annotations

import math
from typing import Any

from privplan.accounting import closed_form
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_RUN,
    REPRODUCED,
    UNDECIDED,
    Outcome,
    Result,
)
from privplan.contrib.reproduction.privacy import epsilons, noises
from privplan.contrib.reproduction.tables import (
    PAPERS,
    Computed,
    Method,
    Setting,
    data_of,
    paper_of,
    printed_rows,
)

DATA = data_of("dp2_fedsam")
ROUNDS = 200
RATIO = 0.05
CLIP = 0.1
DIMENSION = 667402
METHODS = {name: Method(name) for name in printed_rows(DATA, "dp2-fedsam-table-2")}
# Clients, and classes of each.
SPLITS = ((500, 5), (1000, 2), (1000, 5))
_SMALL_SPLITS = ((100, 2), (100, 5))
BUDGETS = (1.0, 2.0)


def spec_of(clients: int, epsilon: float, **changes: Any) -> dict[str, Any]:
    """The paper's setting on CIFAR-10, with changes.

    Poisson sampling: the paper samples without replacement, and accounts by a bound for
    it.
    """
    records = 50_000 // clients
    batch = min(50, records)
    return {
        "name": "dp2-fedsam-cifar10",
        "groups": [{"name": "all", "clients": clients, "epsilon": epsilon}],
        "delta": 1 / clients,
        "rounds": ROUNDS,
        "cohort": round(RATIO * clients),
        "clipping_norm": CLIP,
        "local": _local(2 * math.ceil(records / batch), batch),
        "model": {"name": "cnn-dp2-fedsam", "parameters": DIMENSION},
        **changes,
    }


def _local(steps: int, batch: int) -> dict[str, Any]:
    rates = {"learning_rate": 0.1, "learning_rate_decay": 0.99, "momentum": 0.7}
    return {"steps": steps, "batch_size": batch, **rates}


def _small(epsilon: float) -> dict[str, Any]:
    model = {"name": "cnn-3", "parameters": 62346}
    return spec_of(100, epsilon, cohort=25, rounds=10, local=_local(4, 20), model=model)


def by_split(*, small: bool = False) -> list[Setting]:
    """Table II; small: 100 clients with two or five classes each."""
    return [
        Setting(
            f"({clients}, {classes})",
            _small(1.0) if small else spec_of(clients, 1.0),
            "cifar-10",
            METHODS,
            f"pathological:{classes}",
        )
        for clients, classes in (_SMALL_SPLITS if small else SPLITS)
    ]


def by_budget(*, small: bool = False) -> list[Setting]:
    """Table III."""
    return [
        Setting(
            f"epsilon = {epsilon:g}",
            _small(epsilon) if small else spec_of(1000, epsilon),
            "cifar-10",
            METHODS,
            "pathological:2",
        )
        for epsilon in BUDGETS
    ]


def by_writer() -> list[Setting]:
    """Table II's FEMNIST, reduced: MNIST by 500 of its writers."""
    rates = {"learning_rate": 0.1, "learning_rate_decay": 0.99, "momentum": 0.3}
    spec = {
        **spec_of(500, 1.0, cohort=100, rounds=20, clipping_norm=0.2),
        "name": "dp2-fedsam-femnist",
        "local": {"steps": 9, "batch_size": 20, **rates},
        "model": {"name": "mlp-digits:1x28x28", "parameters": 25450},
    }
    return [Setting("FEMNIST", spec, "mnist-writers", METHODS, "natural")]


def theorem_2(epsilon: float, clients: int) -> float:
    """Noise multiplier of Theorem 2.

    sigma^2 = 7 r^2 T (epsilon + 2 log(1/delta)) / epsilon^2
    """
    return closed_form.noise_multiplier(epsilon, 1 / clients, RATIO, ROUNDS)


def privacy() -> Computed:
    """Epsilon of Theorem 2's noise, the needed noise, and its norm over the clip."""
    for clients in (500, 1000):
        for epsilon in BUDGETS:
            column = f"N = {clients}, epsilon = {epsilon:g}"
            noise = theorem_2(epsilon, clients)
            setting = (RATIO, ROUNDS, 1 / clients)
            yield "noise multiplier of Theorem 2", column, noise
            for row, bound in epsilons(noise, *setting):
                yield f"epsilon of it, {row}", column, bound.upper
            for row, value in noises(epsilon, *setting):
                yield row, column, value
            norm = noise * math.sqrt(DIMENSION) / (RATIO * clients)
            yield (
                "norm of the noise of the mean update over the clipping norm",
                column,
                norm,
            )


def keeps_budget(result: Result) -> Outcome:
    """Whether Theorem 2's noise keeps the budget with cohorts of fixed size."""
    worst = ""
    largest_share = 0.0
    for column in result.columns:
        for relation in ("add/remove", "replace one"):
            cell = result.cell_at(
                f"epsilon of it, cohorts of fixed size, {relation}", column
            )
            if cell is None or cell.published is None:
                return Outcome(NOT_RUN, "no such rows")
            if cell.mean / cell.published > largest_share:
                largest_share = cell.mean / cell.published
                worst = f"{relation}, {column}: {cell.mean:.3f}"
    # An upper bound excludes nothing.
    verdict = REPRODUCED if largest_share <= 1 else UNDECIDED
    words = f"largest share of the budget: {largest_share:.2f} ({worst})"
    return Outcome(verdict, words)


def conditions(result: Result) -> Outcome:
    """Whether the conditions of Lemma 4 hold at the noise of each column."""
    failed = []
    for clients in (500, 1000):
        for epsilon in BUDGETS:
            column = f"N = {clients}, epsilon = {epsilon:g}"
            noise = result.cell_at("noise multiplier of Theorem 2", column)
            if noise is None:
                return Outcome(NOT_RUN, "no such rows")
            history = History.repeated(
                Release(noise.mean, RATIO, SamplingLaw.POISSON), ROUNDS
            )
            if closed_form.failed_conditions(history, 1 / clients, "add_remove"):
                failed.append(column)
    if failed:
        words = f"fail at {', '.join(failed)}"
    else:
        words = "hold at all four settings"
    return Outcome(CONTRADICTED if failed else REPRODUCED, words)


PAPERS.register("dp2-fedsam", paper_of(DATA, globals()))
