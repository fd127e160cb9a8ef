"""Robust-HDP: weights by estimated noise for budgets of records (ICML 2024)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from privplan.contrib.reproduction import robust_hdp as plans
from privplan.contrib.reproduction import robust_hdp as printed
from privplan.contrib.reproduction import robust_hdp as settings
from privplan.contrib.reproduction.claims import (
    NOT_REPRODUCED,
    ORDER,
    REPRODUCED,
    Cell,
    Outcome,
    Result,
    ahead,
    every,
    monotone,
)
from privplan.contrib.reproduction.tables import PAPERS, Claim, Paper, Table

Printed = dict[tuple[str, str], tuple[float, float | None]]


def _numbers(known: Mapping[str, Sequence[float]]) -> Printed:
    """A printed table by distribution, without standard errors."""
    return {
        (row, name): (value, None)
        for row, values in known.items()
        for name, value in zip(printed.DISTRIBUTIONS, values, strict=True)
    }


def _means(known: Mapping[str, Sequence[tuple[float, float]]], columns: Sequence[str]) -> Printed:
    """A printed table of means and deviations over three runs, with standard errors."""
    return {
        (row, column): (mean, deviation / 3**0.5)
        for row, values in known.items()
        for column, (mean, deviation) in zip(columns, values, strict=True)
    }


def _accuracy(number: int, dataset: str, known: Mapping[str, tuple[float, ...]]) -> Table:
    return Table(
        f"robust-hdp-table-{number}",
        f"Table {number}: accuracy on {'MNIST' if number == 12 else 'Fashion-MNIST'}",
        (
            Claim("Robust-HDP is above DPFedAvg", ahead("Robust-HDP", "DPFedAvg")),
            Claim("Robust-HDP is above minimum epsilon", ahead("Robust-HDP", "minimum epsilon")),
            Claim("Robust-HDP is above WeiAvg and PFA", ahead("Robust-HDP", "WeiAvg", "PFA")),
        ),
        trained={
            "full": lambda: settings.settings(dataset),
            "reduced": lambda: settings.smaller(dataset),
        },
        printed=_numbers(known),
        sizes={"reduced": REDUCED, "full": "the paper's learning rates (Tables 8 and 9)"},
        minutes={"reduced": 8},
    )


def _lead_columns(result: Result) -> tuple[int, int]:
    """Columns in which Robust-HDP is above all others, and all columns."""
    judge = ahead("Robust-HDP", "WeiAvg", "PFA", "DPFedAvg")
    parts = [result.model_copy(update={"cells": _column(result, one)}) for one in result.columns]
    return sum(judge(one).verdict in (REPRODUCED, ORDER) for one in parts), len(parts)


def _column(result: Result, column: str) -> tuple[Cell, ...]:
    return tuple(cell for cell in result.cells if cell.column == column)


def _mostly(result: Result) -> Outcome:
    """Whether Robust-HDP is above all others in more than half of the columns."""
    held, total = _lead_columns(result)
    return Outcome(ORDER if held > total / 2 else NOT_REPRODUCED, f"in {held} of {total} columns")


def _not_ahead(result: Result) -> Outcome:
    """Whether Robust-HDP is above all others in at most half of the columns."""
    held, total = _lead_columns(result)
    return Outcome(ORDER if held <= total / 2 else NOT_REPRODUCED, f"in {held} of {total} columns")


REDUCED = (
    "Dist4 of nine, 1,200 records of each client in place of 2,400, 10 rounds in place of 200 with "
    "the noise of 10 (a third to half of the paper's noise multipliers), a perceptron of 25,450 "
    "parameters in place of the CNN of 28,938; the paper's learning rates"
)
SHORT = (
    "24,000 records in place of 48,000, a perceptron of 25,450 parameters in place of the CNN of "
    "28,938, 10 rounds in place of 200 with the noise of 10, ten times the paper's learning rates"
)
UNTUNED = "learning rates are the paper's times ten, not tuned for ten rounds of a perceptron"
_RESNET = (
    "needs a GPU: 200 rounds of DP-SGD on ResNet-18 or ResNet-34, 11 and 21 million parameters"
)
_SETTING = "it states settings and no results"

PAPERS.register(
    "robust-hdp",
    Paper(
        "Robust-HDP (S. Malekmohammadi, Y. Yu, Y. Cao, ICML 2024)",
        (
            Table(
                "robust-hdp-table-1",
                "Table 1: features of algorithms",
                left_out=_SETTING,
                has_results=False,
            ),
            Table("robust-hdp-table-2", "Table 2: notation", left_out=_SETTING, has_results=False),
            Table(
                "robust-hdp-table-3",
                "Table 3: noise of the mean update by method and distribution",
                (
                    Claim("Robust-HDP has the least noise", plans.least_noise),
                    Claim(
                        "the noise rises from WeiAvg over DPFedAvg to minimum epsilon",
                        plans.order_of_others,
                    ),
                    Claim("the printed values", plans.within_draws),
                ),
                planned=plans.table_3,
                sizes={"full": f"{plans.DRAWS} draws of budgets and batch sizes"},
            ),
            Table(
                "robust-hdp-table-4",
                "Table 4: heterogeneous MNIST, 60 clients, batches of 128",
                (Claim("Robust-HDP is above the others in most columns", _mostly),),
                trained={
                    "full": partial(settings.skewed, (128,)),
                    "reduced": partial(settings.skewed, (128,), small=True),
                },
                printed=_numbers(printed.SKEWED),
                sizes={
                    "full": "needs a GPU: 108 runs of 200 rounds of DP-SGD on 48,000 records",
                    "reduced": f"Dist2 and Dist6 of nine; {SHORT}",
                },
                minutes={"reduced": 13},
            ),
            *(
                Table(
                    f"robust-hdp-table-{number}",
                    f"Table {number}: {what}",
                    left_out=_SETTING,
                    has_results=False,
                )
                for number, what in (
                    (5, "the CNN, cnn-2 here"),
                    (6, "data sets"),
                    (7, "Dist1 to Dist9, epsilon_distribution here"),
                    (8, "learning rates, MNIST"),
                    (9, "learning rates, Fashion-MNIST"),
                    (10, "learning rates, CIFAR-10"),
                    (11, "learning rates, CIFAR-100"),
                )
            ),
            _accuracy(12, "mnist", printed.MNIST),
            _accuracy(13, "fashion-mnist", printed.FMNIST),
            *(
                Table(f"robust-hdp-table-{number}", f"Table {number}: {what}", left_out=_RESNET)
                for number, what in ((14, "accuracy on CIFAR-10"), (15, "accuracy on CIFAR-100"))
            ),
            Table(
                "robust-hdp-table-16",
                "Table 16: MNIST by level of privacy, over three runs",
                (
                    Claim(
                        "Robust-HDP is above the others",
                        ahead("Robust-HDP", "WeiAvg", "PFA", "DPFedAvg"),
                        tried=UNTUNED,
                    ),
                    Claim(
                        "accuracy falls with stricter budgets",
                        every(*(monotone(row, rising=False) for row in printed.LEVEL)),
                    ),
                ),
                trained={
                    "full": settings.by_level,
                    "reduced": partial(settings.by_level, small=True),
                },
                printed=_means(printed.LEVEL, printed.LEVELS),
                sizes={
                    "full": "needs a GPU: 48 runs of 200 rounds of DP-SGD on 48,000 records",
                    "reduced": f"Dist2 and Dist8 of four; {SHORT}",
                },
                minutes={"reduced": 13},
            ),
            Table(
                "robust-hdp-table-17",
                "Table 17: MNIST by number of clients",
                (
                    Claim(
                        "Robust-HDP is above the others",
                        ahead("Robust-HDP", "WeiAvg", "PFA", "DPFedAvg"),
                        tried=UNTUNED,
                    ),
                ),
                trained={
                    "full": settings.by_clients,
                    "reduced": partial(settings.by_clients, small=True),
                },
                printed=_means(printed.CLIENTS, [f"{clients} clients" for clients in (20, 40, 60)]),
                sizes={
                    "full": "needs a GPU: 36 runs of 200 rounds of DP-SGD on 48,000 records",
                    "reduced": f"20 and 60 clients of 20, 40 and 60; {SHORT}",
                },
                minutes={"reduced": 13},
            ),
            *(
                Table(f"robust-hdp-table-{number}", f"Table {number}: {what}", left_out=_RESNET)
                for number, what in (
                    (18, "CIFAR-10, equal batch sizes"),
                    (19, "CIFAR-10, equal budgets"),
                    (20, "CIFAR-10, equal budgets and batch sizes"),
                    (21, "spread of the clients' accuracy"),
                )
            ),
            Table(
                "robust-hdp-table-22",
                "Table 22: heterogeneous MNIST, 60 clients, several batch sizes",
                (Claim("Robust-HDP is no longer above the others", _not_ahead),),
                trained={
                    "full": partial(settings.skewed, plans.BATCHES),
                    "reduced": partial(settings.skewed, plans.BATCHES, small=True),
                },
                printed=_numbers(printed.SKEWED_MIXED),
                sizes={
                    "full": "needs a GPU: 108 runs of 200 rounds of DP-SGD on 48,000 records",
                    "reduced": f"Dist2 and Dist6 of nine; {SHORT}",
                },
                minutes={"reduced": 13},
            ),
            Table(
                "robust-hdp-figure-2",
                "Figure 2: noise of an update by budget and batch size",
                (
                    Claim("it falls with epsilon and batch size", plans.falls_with_both),
                    Claim("most clients have much less noise than the noisiest one", plans.sparse),
                ),
                planned=plans.figure_2,
            ),
            Table(
                "robust-hdp-figure-8",
                "Figure 8: noise multiplier by sampling ratio",
                (Claim("z rises sublinearly with q", plans.sublinear),),
                planned=plans.figure_8,
            ),
            Table(
                "robust-hdp-figure-11",
                "Figure 11: 1/H by number of records",
                (Claim("1/H rises slowly where N falls", plans.slowly),),
                planned=plans.figure_11,
            ),
        ),
    ),
)
