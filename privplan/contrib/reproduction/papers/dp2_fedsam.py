"""DP2-FedSAM: differentially private federated learning with a private head and flat minima."""

from __future__ import annotations

import math
from typing import Any

from privplan.accounting import closed_form
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_RUN,
    REPRODUCED,
    Cell,
    Outcome,
    Result,
    ahead,
)
from privplan.contrib.reproduction.privacy import LAWS, epsilons, noises
from privplan.contrib.reproduction.tables import PAPERS, Claim, Method, Paper, Setting, Table

ROUNDS, RATIO, CLIP, DIMENSION = 200, 0.05, 0.1, 667402
METHODS = {
    name: Method(name)
    for name in ("DP-FedAvg", "DP-FedAvg-FT", "DP-FedSAM", "DP-FedSAM-FT", "CENTAUR", "DP2-FedSAM")
}
TABLE_2 = {
    "DP-FedAvg": ((48.3, 0.8), (54.8, 0.5), (53.7, 0.4)),
    "DP-FedAvg-FT": ((56.7, 0.6), (79.2, 0.4), (60.7, 0.1)),
    "DP-FedSAM": ((51.0, 0.7), (58.0, 0.4), (55.9, 0.1)),
    "DP-FedSAM-FT": ((58.1, 0.2), (80.0, 0.5), (62.1, 0.1)),
    "CENTAUR": ((58.5, 0.4), (81.5, 0.6), (63.4, 0.3)),
    "DP2-FedSAM": ((61.2, 0.2), (84.1, 0.6), (65.3, 0.5)),
}
"""Table II, CIFAR-10, by ``SPLITS``; mean and standard deviation over three runs."""
SPLITS = ((500, 5), (1000, 2), (1000, 5))
TABLE_3 = {
    "DP-FedAvg": ((54.8, 0.5), (65.9, 0.6)),
    "DP-FedAvg-FT": ((79.2, 0.4), (82.8, 0.1)),
    "DP-FedSAM": ((58.0, 0.4), (67.2, 0.3)),
    "DP-FedSAM-FT": ((80.0, 0.5), (83.3, 0.2)),
    "CENTAUR": ((81.5, 0.6), (83.1, 0.5)),
    "DP2-FedSAM": ((84.1, 0.6), (85.3, 0.8)),
}
"""Table III, CIFAR-10, (1000, 2)."""
BUDGETS = (1.0, 2.0)


def spec_of(clients: int, epsilon: float, **changes: Any) -> dict[str, Any]:
    """The paper's setting on CIFAR-10, with changes.

    Poisson sampling: the paper samples without replacement, and accounts by a bound for it.
    """
    records = 50_000 // clients
    batch = 50 if records >= 50 else records
    return {
        "name": "dp2-fedsam-cifar10",
        "groups": [{"name": "all", "clients": clients, "epsilon": epsilon}],
        "delta": 1 / clients,
        "rounds": ROUNDS,
        "cohort": round(RATIO * clients),
        "clipping_norm": CLIP,
        "local": {
            "steps": 2 * math.ceil(records / batch),
            "batch_size": batch,
            "learning_rate": 0.1,
            "learning_rate_decay": 0.99,
            "momentum": 0.7,
        },
        "model": {"name": "cnn-dp2-fedsam", "parameters": DIMENSION},
        **changes,
    }


def _small(epsilon: float) -> dict[str, Any]:
    return spec_of(
        100,
        epsilon,
        cohort=25,
        rounds=10,
        local={
            "steps": 4,
            "batch_size": 20,
            "learning_rate": 0.1,
            "learning_rate_decay": 0.99,
            "momentum": 0.7,
        },
        model={"name": "cnn-3", "parameters": 62346},
    )


def _split(clients: int, classes: int) -> str:
    return f"({clients}, {classes})"


def _table_2() -> list[Setting]:
    return [
        Setting(_split(n, s), spec_of(n, 1.0), "cifar-10", METHODS, f"pathological:{s}")
        for n, s in SPLITS
    ]


def _table_2_reduced() -> list[Setting]:
    return [Setting("(100, 2)", _small(1.0), "cifar-10", METHODS, "pathological:2")]


def _table_3() -> list[Setting]:
    return [
        Setting(f"epsilon = {e:g}", spec_of(1000, e), "cifar-10", METHODS, "pathological:2")
        for e in BUDGETS
    ]


def _table_3_reduced() -> list[Setting]:
    return [
        Setting(f"epsilon = {e:g}", _small(e), "cifar-10", METHODS, "pathological:2")
        for e in BUDGETS
    ]


def theorem_2(epsilon: float, clients: int) -> float:
    """Noise multiplier of Theorem 2: sigma^2 = 7 r^2 T (epsilon + 2 log(1/delta)) / epsilon^2."""
    return closed_form.noise_multiplier(epsilon, 1 / clients, RATIO, ROUNDS)


def _privacy() -> list[Cell]:
    """Epsilon of Theorem 2's noise, the noise that is needed, and its norm over the clip."""
    cells = []
    for clients in (500, 1000):
        for epsilon in BUDGETS:
            column = f"N = {clients}, epsilon = {epsilon:g}"
            noise, setting = theorem_2(epsilon, clients), (RATIO, ROUNDS, 1 / clients)
            printed = dict.fromkeys(LAWS, epsilon)
            cells.append(Cell(row="noise multiplier of Theorem 2", column=column, values=(noise,)))
            cells += [
                cell.model_copy(update={"row": f"epsilon of it, {cell.row}"})
                for cell in epsilons(column, noise, *setting, printed)
            ]
            cells += [
                cell.model_copy(update={"row": f"noise multiplier needed, {cell.row}"})
                for cell in noises(column, epsilon, *setting)
            ]
            norm = noise * math.sqrt(DIMENSION) / (RATIO * clients)
            row = "norm of the noise of the mean update over the clipping norm"
            cells.append(Cell(row=row, column=column, values=(norm,)))
    return cells


def _keeps_budget(result: Result) -> Outcome:
    """Whether Theorem 2's noise keeps the budget with cohorts of fixed size."""
    worst, most = "", 0.0
    for column in result.columns:
        for relation in ("add/remove", "replace one"):
            cell = result.at(f"epsilon of it, cohorts of fixed size, {relation}", column)
            if cell is None or cell.published is None:
                return Outcome(NOT_RUN, "no such rows")
            if cell.mean / cell.published > most:
                most = cell.mean / cell.published
                worst = f"{relation}, {column}: {cell.mean:.3f}"
    verdict = REPRODUCED if most <= 1 else CONTRADICTED
    return Outcome(verdict, f"largest share of the budget: {most:.2f} ({worst})")


def _conditions(result: Result) -> Outcome:
    """Whether the conditions of Lemma 4 hold at the paper's settings."""
    failed = []
    for clients in (500, 1000):
        for epsilon in BUDGETS:
            noise = theorem_2(epsilon, clients)
            history = History.repeated(Release(noise, RATIO, SamplingLaw.POISSON), ROUNDS)
            if closed_form.failed_conditions(history, 1 / clients, "add_remove"):
                failed.append(f"N = {clients}, epsilon = {epsilon:g}")
    words = f"fail at {', '.join(failed)}" if failed else "hold at all four settings"
    return Outcome(CONTRADICTED if failed else REPRODUCED, words)


_FIRST = ("DP-FedAvg", "DP-FedAvg-FT", "DP-FedSAM", "DP-FedSAM-FT", "CENTAUR")
_CLAIMS = (
    Claim("DP2-FedSAM is above CENTAUR", ahead("DP2-FedSAM", "CENTAUR")),
    Claim("DP2-FedSAM is above DP-FedSAM-FT", ahead("DP2-FedSAM", "DP-FedSAM-FT")),
    Claim("DP2-FedSAM is above DP-FedAvg-FT", ahead("DP2-FedSAM", "DP-FedAvg-FT")),
    Claim(
        "CENTAUR is above the fine-tuned methods", ahead("CENTAUR", "DP-FedSAM-FT", "DP-FedAvg-FT")
    ),
    Claim("DP-FedSAM-FT is above DP-FedAvg-FT", ahead("DP-FedSAM-FT", "DP-FedAvg-FT")),
    Claim("DP-FedSAM is above DP-FedAvg", ahead("DP-FedSAM", "DP-FedAvg")),
)
_SMALL = (
    "CIFAR-10 only, cnn-3 (62,346 parameters) without pre-training, 100 clients with 2 classes "
    "each, cohort 25, 10 rounds (94% of the clients have trained their head), 4 steps of 20 images"
)
_FULL = "CIFAR-10 only, without the paper's pre-trained weights"

PAPERS.register(
    "dp2-fedsam",
    Paper(
        "DP2-FedSAM (Zhang, Guo, Gong)",
        (
            Table(
                "dp2-fedsam-table-1",
                "Table I: notation",
                left_out="it has no results",
                has_results=False,
            ),
            Table(
                "dp2-fedsam-table-2",
                "Table II: accuracy by split",
                _CLAIMS,
                trained={"full": _table_2, "reduced": _table_2_reduced},
                printed={
                    (row, _split(*split)): (mean, deviation / 3**0.5)
                    for row, values in TABLE_2.items()
                    for split, (mean, deviation) in zip(SPLITS, values, strict=True)
                },
                sizes={"reduced": _SMALL, "full": _FULL},
                minutes={"reduced": 10},
            ),
            Table(
                "dp2-fedsam-table-3",
                "Table III: accuracy by budget",
                (Claim("DP2-FedSAM is above all others", ahead("DP2-FedSAM", *_FIRST)),),
                trained={"full": _table_3, "reduced": _table_3_reduced},
                printed={
                    (row, f"epsilon = {epsilon:g}"): (mean, deviation / 3**0.5)
                    for row, values in TABLE_3.items()
                    for epsilon, (mean, deviation) in zip(BUDGETS, values, strict=True)
                },
                sizes={"reduced": _SMALL, "full": _FULL},
                minutes={"reduced": 20},
            ),
            Table(
                "dp2-fedsam-privacy",
                "Theorem 2: what its noise gives at the settings of Tables II and III",
                (
                    Claim("the noise keeps epsilon, sampling without replacement", _keeps_budget),
                    Claim("the conditions of Lemma 4 hold at the settings", _conditions),
                ),
                planned=_privacy,
            ),
        ),
    ),
)
