"""Tables 1, 3 and 5 and Figure 2 of GDPFed+, and the cohorts that its Table 8 mentions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privplan.accounting.calibrate import noise_multiplier_by_bisection
from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    ORDER,
    REPRODUCED,
    Cell,
    Outcome,
    Result,
)
from privplan.files import load_yaml
from privplan.planning.error import participation
from privplan.planning.problem import Problem, problem_of
from privplan.planning.published import closed_form_value, solve_published
from privplan.spec.presets import preset
from privplan.spec.spec import Spec

# --- Numbers of GDPFed+ (J. Xu, R. Hu, O. Kotevska), as printed. ---------------------------------

DATASETS = ("FMNIST", "SVHN", "CIFAR-10", "Shakespeare")
RATIOS = {
    "FMNIST": (0.69, 1.89, 3.42),
    "SVHN": (1.66, 4.67, 8.68),
    "CIFAR-10": (3.61, 9.62, 16.77),
    "Shakespeare": (4.79, 9.83, 15.21),
}
"""Table 1: sampling ratios in percent."""
UNIFORM_NOISE = {
    "FMNIST": (2.26, 0.90, 0.53),
    "SVHN": (13.20, 2.50, 1.16),
    "CIFAR-10": (3.52, 0.95, 0.49),
    "Shakespeare": (17.14, 3.26, 1.41),
}
"""Table 5: sigma^2 of GDPFed; the first is DP-FedAvg's."""
OPTIMISED_NOISE = {
    "FMNIST": (1.42, 0.87, 0.70),
    "SVHN": (2.38, 2.29, 2.23),
    "CIFAR-10": (0.98, 0.91, 0.83),
    "Shakespeare": (4.45, 3.18, 2.46),
}
"""Table 5: sigma^2 of GDPFed-op and GDPFed+."""
TOTAL_NOISE = {
    "FMNIST": (5.09, 2.77, 0.57, 0.49),
    "SVHN": (13.20, 5.62, 0.75, 0.65),
    "CIFAR-10": (7.91, 3.72, 0.64, 0.56),
    "Shakespeare": (17.14, 7.27, 0.93, 0.79),
}
"""Table 5: Lambda of DP-FedAvg, GDPFed, GDPFed-op and GDPFed+."""
SEEDS = 3
"""Seeds of the paper's runs."""
LEVELS = {
    "(1.0, 1.0, 1.0)": 75.65,
    "(0.9, 0.9, 0.9)": 75.89,
    "(0.7, 0.7, 0.7)": 75.79,
    "(0.5, 0.5, 0.5)": 75.37,
    "(0.3, 0.3, 0.3)": 74.92,
    "(0.1, 0.1, 0.1)": 72.37,
    "(0.7, 0.8, 0.9)": 75.83,
    "(0.5, 0.7, 0.9)": 75.79,
    "(0.3, 0.5, 0.7)": 75.62,
    "(0.1, 0.3, 0.5)": 75.52,
}
"""Table 6, Fashion-MNIST."""
LEVEL_ERRORS = (0.53, 0.53, 0.44, 0.41, 0.02, 0.35, 0.47, 0.49, 0.43, 0.27)
ALPHAS = (0.3, 0.5, 0.7, 0.9)
PARTS = {"1:4:1": (1, 4, 1), "2:2:2": (2, 2, 2), "3:2:1": (3, 2, 1), "1:2:3": (1, 2, 3)}
BUDGETS = {"0.5x": 0.5, "0.75x": 0.75, "1.0x": 1.0, "1.25x": 1.25, "1.5x": 1.5}
CLIPS = {"1.0x": 1.0, "1.25x": 1.25, "1.5x": 1.5}

Printed = dict[tuple[str, str], tuple[float, float | None]]


def printed(rows: Mapping[str, Sequence[tuple[float, float]]], columns: Sequence[str]) -> Printed:
    """Printed numbers with the standard errors of three seeds."""
    return {
        (row, column): (mean, deviation / SEEDS**0.5)
        for row, values in rows.items()
        for column, (mean, deviation) in zip(columns, values, strict=True)
    }


TABLE_2 = printed(
    {
        "P-FedAvg": ((78.96, 0.90), (84.13, 0.18), (56.40, 0.34), (60.62, 0.76)),
        "DP-FedAvg": ((71.88, 0.15), (40.80, 1.73), (32.10, 0.34), (34.97, 0.76)),
        "GDPFed": ((73.97, 0.21), (59.11, 1.72), (34.00, 0.44), (37.63, 0.29)),
        "PFA": ((73.67, 0.28), (67.51, 0.84), (37.17, 0.98), (36.69, 0.21)),
        "IDP-FedAvg": ((74.80, 0.19), (66.46, 0.98), (37.49, 0.761), (37.26, 0.55)),
        "GDPFed+": ((75.83, 0.47), (71.10, 0.58), (38.78, 0.36), (42.00, 0.45)),
    },
    list(DATASETS),
)
TABLE_6: Printed = {
    (row, "FMNIST"): (value, error / SEEDS**0.5)
    for (row, value), error in zip(LEVELS.items(), LEVEL_ERRORS, strict=True)
}
TABLE_7 = printed(
    {
        "P-FedAvg": ((49.17, 0.58), (51.14, 0.45), (52.55, 0.29), (53.35, 0.55)),
        "DP-FedAvg": ((26.18, 1.18), (28.66, 1.80), (29.43, 0.92), (31.21, 0.23)),
        "IDP-FedAvg": ((27.23, 1.78), (29.93, 1.27), (31.22, 0.46), (33.21, 0.43)),
        "GDPFed+": ((28.59, 0.71), (32.02, 0.57), (34.43, 0.94), (35.58, 0.78)),
    },
    [f"alpha = {alpha:g}" for alpha in ALPHAS],
)
TABLE_8 = printed(
    {
        "DP-FedAvg": ((71.59, 0.46), (71.88, 0.15), (71.75, 0.58), (71.89, 0.51)),
        "GDPFed+": ((76.06, 0.38), (75.83, 0.47), (74.50, 0.34), (76.77, 0.42)),
    },
    list(PARTS),
)
TABLE_9 = printed(
    {
        "DP-FedAvg": (
            (57.72, 1.83), (68.87, 0.55), (71.88, 0.15), (73.76, 0.39), (74.99, 0.29)
        ),
        "GDPFed+": ((74.87, 0.63), (75.55, 0.41), (75.83, 0.47), (75.97, 0.42), (76.01, 0.30)),
    },
    list(BUDGETS),
)  # fmt: skip
TABLE_10 = printed(
    {
        "DP-FedAvg": ((71.88, 0.15), (68.35, 0.60), (63.62, 1.23)),
        "GDPFed+": ((75.83, 0.47), (75.58, 0.60), (74.49, 0.81)),
    },
    list(CLIPS),
)


# --- Tables 1, 3 and 5 and Figure 2 of GDPFed+, and the cohorts that its Table 8 mentions. -------

KEPT = (0.7, 0.8, 0.9)
GROUPS = ("1", "2", "3")


def spec_of(column: str) -> dict[str, Any]:
    """Plain data of the preset of a data set."""
    name = {"CIFAR-10": "cifar10"}.get(column, column.lower())
    data: dict[str, Any] = load_yaml(preset(f"gdpfed-{name}"), "preset")
    return data


def groups_of(
    column: str, factor: float = 1.0, parts: Sequence[int] = (2, 2, 2), clients: int = 0
) -> list[dict[str, Any]]:
    """Groups of a data set with scaled budgets, and clients in the proportions of the parts."""
    given = spec_of(column)["groups"]
    total = clients or sum(group["clients"] for group in given)
    return [
        {**one, "epsilon": factor * one["epsilon"], "clients": total * part // sum(parts)}
        for one, part in zip(given, parts, strict=True)
    ]


def problem(column: str, **changes: Any) -> Problem:
    """The planning problem of a data set, with changed fields of its spec."""
    return problem_of(Spec.parse({**spec_of(column), **changes}))


def solved_percent(given: Problem) -> list[float]:
    """Ratios in percent that minimise Problem 1 with Theorem 1's closed form inserted."""
    found = solve_published(given, sparsified=True)
    return [100 * float(one) for one in found.cohorts / np.array(given.clients)]


def squared_noise(given: Problem, percent: Sequence[float]) -> list[float]:
    """sigma^2 per group by RDP, searched as the paper's library does (to 0.01 of epsilon)."""
    return [
        noise_multiplier_by_bisection(epsilon, delta, sampling_ratio=q / 100, rounds=given.rounds)
        ** 2
        for epsilon, delta, q in zip(given.epsilons, given.deltas, percent, strict=True)
    ]


def total_noise(column: str, noise: Sequence[float], kept: Sequence[float] | None) -> float:
    """Lambda of Table 5: C^2/3 sum sigma^2 for GDPFed, C^2/3 sum (k/d) w sigma^2 for the others."""
    scale = spec_of(column)["clipping_norm"] ** 2 / 3
    if kept is None:
        return float(scale * sum(noise))
    cohorts = np.array(RATIOS[column]) * np.array(problem(column).clients)
    return float(scale * np.sum(np.array(kept) * participation(cohorts, noise) * np.array(noise)))


def table_1() -> list[Cell]:
    """Ratios of each group, and how much of the gain over uniform ratios the printed ones reach."""
    cells = []
    for column, printed in RATIOS.items():
        given = problem(column)
        for group, percent, known in zip(GROUPS, solved_percent(given), printed, strict=True):
            cells.append(Cell(row=f"q{group}", column=column, published=known, values=(percent,)))
        uniform = closed_form_value(given, np.full(3, given.cohort / 3), sparsified=True)
        ours = solve_published(given, sparsified=True).value
        theirs = closed_form_value(
            given, np.array(printed) / 100 * np.array(given.clients), sparsified=True
        )
        share = 100 * (uniform - theirs) / (uniform - ours)
        cells.append(Cell(row="gain of the printed ratios", column=column, values=(share,)))
    return cells


def noise_table(columns: Sequence[str]) -> list[Cell]:
    """Noise multipliers, squared, and total noise Lambda of each method."""
    cells = []
    for column in columns:
        given = problem(column)
        even = squared_noise(given, [100 * given.cohort / given.population] * 3)
        best = squared_noise(given, RATIOS[column])
        clip = spec_of(column)["clipping_norm"]
        rows: dict[str, tuple[float, float]] = {}
        for group, ours, known in zip(GROUPS, even, UNIFORM_NOISE[column], strict=True):
            rows[f"GDPFed, sigma^2 of group {group}"] = (ours, known)
        for group, ours, known in zip(GROUPS, best, OPTIMISED_NOISE[column], strict=True):
            rows[f"GDPFed+, sigma^2 of group {group}"] = (ours, known)
        totals = (
            clip**2 * even[0],
            total_noise(column, even, None),
            total_noise(column, best, (1.0, 1.0, 1.0)),
            total_noise(column, best, KEPT),
        )
        names = ("DP-FedAvg", "GDPFed", "GDPFed-op", "GDPFed+")
        for name, ours, known in zip(names, totals, TOTAL_NOISE[column], strict=True):
            rows[f"{name}, Lambda"] = (ours, known)
        cells += [
            Cell(row=row, column=column, published=known, values=(ours,))
            for row, (ours, known) in rows.items()
        ]
        one_scale = total_noise_of_uniform(column, even)
        cells.append(Cell(row="GDPFed, Lambda with weights", column=column, values=(one_scale,)))
    return cells


def total_noise_of_uniform(column: str, noise: Sequence[float]) -> float:
    """GDPFed's noise on the scale of GDPFed-op: C^2/3 sum w sigma^2 with its weights of 1/3."""
    return float(spec_of(column)["clipping_norm"] ** 2 / 3 * np.mean(noise))


def scales(result: Result) -> Outcome:
    """Whether Lambda falls by as much as printed where both methods are on one scale."""
    parts, smaller = [], True
    for column in result.columns:
        weighted = result.at("GDPFed, Lambda with weights", column)
        best, raw = result.at("GDPFed-op, Lambda", column), result.at("GDPFed, Lambda", column)
        if weighted is None or best is None or raw is None:
            return Outcome(NOT_RUN, "no such rows")
        parts.append(
            f"{column}: {raw.mean:.2f} is {weighted.mean:.2f} with the weights that "
            f"{best.mean:.2f} has"
        )
        smaller &= best.mean < weighted.mean
    end = "" if smaller else "; not smaller everywhere"
    return Outcome(CONTRADICTED, "; ".join(parts) + end)


def _with(column: str, epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Groups of a data set with other budgets."""
    return [
        {**group, "epsilon": epsilon}
        for group, epsilon in zip(spec_of(column)["groups"], epsilons, strict=True)
    ]


STRICT = {
    "FMNIST": ((0.25, 0.5, 0.75, 1.0, 1.25, 1.5), (1.5, 3.0)),
    "CIFAR-10": ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (6.0, 12.0)),
}
"""Figure 2: epsilon_1, and the other budgets, by data set."""


def figure_2_columns(column: str) -> list[str]:
    """Heads of the columns of a data set."""
    return [f"epsilon_1 = {first:g}" for first in STRICT[column][0]]


def figure_2() -> list[Cell]:
    """Ratios in percent of all groups, by the strict group's budget."""
    cells = []
    for column, (values, others) in STRICT.items():
        for first in values:
            ratios = solved_percent(problem(column, groups=_with(column, (first, *others))))
            cells += [
                Cell(row=f"q{group}, {column}", column=f"epsilon_1 = {first:g}", values=(ratio,))
                for group, ratio in zip(GROUPS, ratios, strict=True)
            ]
    return cells


def equal_ratios(result: Result) -> Outcome:
    """Whether q_1 = q_2 where both groups have one budget."""
    parts, equal = [], True
    for name, column in (("FMNIST", "epsilon_1 = 1.5"), ("CIFAR-10", "epsilon_1 = 6")):
        one, two = (result.at(f"q{group}, {name}", column) for group in "12")
        if one is None or two is None:
            return Outcome(NOT_RUN, "no such columns")
        equal &= abs(one.mean - two.mean) < 1e-3
        parts.append(f"{name}: {one.mean:.3f}% and {two.mean:.3f}%")
    return Outcome(REPRODUCED if equal else CONTRADICTED, "; ".join(parts))


def gain(result: Result) -> Outcome:
    """How good the printed ratios are in the problem that they are said to minimise."""
    gains = {
        column: cell.mean
        for column in result.columns
        if (cell := result.at("gain of the printed ratios", column)) is not None
    }
    evidence = ", ".join(f"{column} {gain:.1f}%" for column, gain in gains.items())
    words = f"share of the best gain over uniform ratios that the printed ones reach: {evidence}"
    rising = all(
        one.mean < two.mean < three.mean
        for column in result.columns
        if (one := result.at("q1", column))
        and (two := result.at("q2", column))
        and (three := result.at("q3", column))
    )
    return Outcome(ORDER if rising and gains else NOT_REPRODUCED, words)


def cohorts_of_table_8() -> list[Cell]:
    """Expected clients of the strict group per round, CIFAR-10, by proportions of the groups."""
    cells = []
    for name, parts in PARTS.items():
        given = problem("CIFAR-10", groups=groups_of("CIFAR-10", parts=parts))
        strict = solve_published(given, sparsified=True).cohorts[0]
        known = {"3:2:1": 14.0}.get(name)
        cells.append(Cell(row="strict", column=name, published=known, values=(float(strict),)))
    return cells


def _leads(result: Result) -> list[float]:
    """GDPFed+'s lead over DP-FedAvg by column, in points."""
    pairs = [(result.at("GDPFed+", one), result.at("DP-FedAvg", one)) for one in result.columns]
    return [high.mean - low.mean for high, low in pairs if high and low]


def lead_rises(result: Result) -> Outcome:
    """Whether GDPFed+'s lead over DP-FedAvg grows from the first column to the last."""
    leads = _leads(result)
    if len(leads) < 2:
        return Outcome(NOT_RUN, "fewer than two columns")
    words = f"leads: {', '.join(f'{lead:.2f}' for lead in leads)} points"
    return Outcome(ORDER if leads[-1] > leads[0] else NOT_REPRODUCED, words)


def lead_falls(result: Result) -> Outcome:
    """Whether GDPFed+'s lead over DP-FedAvg shrinks from the first column to the last."""
    found, leads = lead_rises(result), _leads(result)
    if found.verdict == NOT_RUN:
        return found
    return Outcome(ORDER if leads[-1] < leads[0] else NOT_REPRODUCED, found.evidence)
