"""GDPFed+: optimal client sampling under heterogeneous client-level privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privplan.accounting.calibrate import noise_multiplier_by_bisection
from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    Outcome,
    Result,
)
from privplan.contrib.reproduction.tables import (
    PAPERS,
    Computed,
    Method,
    Setting,
    data_of,
    paper_of,
    printed_rows,
)
from privplan.planning.error import participation
from privplan.planning.problem import Problem, problem_of
from privplan.planning.published import closed_form_value, solve_published
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml

DATA = data_of("gdpfed_plus")
SETS = {
    "FMNIST": "fashion-mnist",
    "SVHN": "svhn",
    "CIFAR-10": "cifar-10",
    "Shakespeare": "shakespeare",
}
"""Data set by column."""
_PERCENT = printed_rows(DATA, "gdpfed-plus-table-1")
_PERCENT_BY_COLUMN = zip(*_PERCENT.values(), strict=True)
RATIOS = dict(zip(SETS, map(list, _PERCENT_BY_COLUMN), strict=True))
"""Table 1: sampling ratios in percent, by column."""
PARTS = {"1:4:1": (1, 4, 1), "2:2:2": (2, 2, 2), "3:2:1": (3, 2, 1), "1:2:3": (1, 2, 3)}
"""Table 8: proportions of the groups' clients."""
KEPT_FRACTIONS = (0.7, 0.8, 0.9)
GROUPS = ("1", "2", "3")
METHODS = {
    "P-FedAvg": Method("FedAvg"),
    "DP-FedAvg": Method("DP-FedAvg"),
    "GDPFed": Method("GDPFed"),
    "PFA": Method("PFA"),
    "IDP-FedAvg, Sample, joint sum": Method("IDP-FedAvg-Sample"),
    "IDP-FedAvg, Scale, joint sum": Method("IDP-FedAvg-Scale"),
    "Time-adaptive HDPFL": Method("Time-adaptive HDPFL"),
    "GDPFed+": Method("GDPFed+"),
}
PAIR = {name: METHODS[name] for name in ("DP-FedAvg", "GDPFed+")}


def spec_of(column: str) -> dict[str, Any]:
    """Plain data of the preset of a data set."""
    name = {"CIFAR-10": "cifar10"}.get(column, column.lower())
    data: dict[str, Any] = load_yaml(preset(f"gdpfed-{name}"), "preset")
    return data


def groups_of(
    column: str, factor: float = 1.0, parts: Sequence[int] = (2, 2, 2)
) -> list[dict[str, Any]]:
    """Groups of a data set with scaled budgets, and clients by the parts."""
    groups = spec_of(column)["groups"]
    total = sum(group["clients"] for group in groups)
    changed: list[dict[str, Any]] = []
    for group, part in zip(groups, parts, strict=True):
        clients = total * part // sum(parts)
        epsilon = factor * group["epsilon"]
        changed.append({**group, "epsilon": epsilon, "clients": clients})
    return changed


# Tables of runs.


def base(valid: bool) -> dict[str, Any]:
    """FMNIST's spec, or with the network without padding.

    The accuracy of that network is nearer the paper's.
    """
    data = spec_of("FMNIST")
    if not valid:
        return data
    model = {"name": "cnn-2-valid", "parameters": 18378}
    return {**data, "groups": groups_of("FMNIST"), "delta": 6000**-1.1, "model": model}


def _sample(spec: Mapping[str, Any], percent: Sequence[float]) -> Method:
    """IDP-FedAvg (Sample) as Appendix B.2 has it.

    With the printed ratios, omega, and noise per group.
    """
    groups = [
        {**group, "sampling_ratio": ratio / 100}
        for group, ratio in zip(spec["groups"], percent, strict=True)
    ]
    cohort = sum(group["sampling_ratio"] * group["clients"] for group in groups)
    planning = {**spec["planning"], "ratios": "given", "sparsification": "none"}
    changes = {"groups": groups, "planning": planning, "cohort": round(cohort, 9)}
    return Method("GDPFed+", changes=changes)


def by_method(*, valid: bool = False) -> list[Setting]:
    """Table 2: all four data sets with the paper's settings, or Fashion-MNIST only."""
    names = ["FMNIST"] if valid else list(SETS)
    settings: list[Setting] = []
    for name in names:
        spec = base(valid) if valid else spec_of(name)
        methods = {**METHODS, "IDP-FedAvg": _sample(spec, DATA["idp_ratios"][name])}
        partition = "natural" if name == "Shakespeare" else "iid"
        settings.append(Setting(name, spec, SETS[name], methods, partition))
    return settings


def by_level(levels: Sequence[str] = (), *, valid: bool = False) -> list[Setting]:
    """Table 6: kept fractions of the groups, as the heads of the rows state them."""
    methods = {}
    for name in levels or printed_rows(DATA, "gdpfed-plus-table-6"):
        fractions = [float(word) for word in name.strip("()").split(",")]
        planning = {**spec_of("FMNIST")["planning"], "sparsification": fractions}
        methods[name] = Method("GDPFed+", changes={"planning": planning})
    return [Setting("FMNIST", base(valid), SETS["FMNIST"], methods)]


def by_alpha(alphas: Sequence[float], *, valid: bool = False) -> list[Setting]:
    """Table 7: Dirichlet splits of CIFAR-10, or of Fashion-MNIST."""
    names = ("P-FedAvg", "DP-FedAvg", "IDP-FedAvg, Sample, joint sum", "GDPFed+")
    column = "FMNIST" if valid else "CIFAR-10"
    spec = base(valid) if valid else spec_of(column)
    dataset = SETS[column]
    methods = {name: METHODS[name] for name in names}
    methods["IDP-FedAvg"] = _sample(spec, DATA["idp_ratios"][column])
    return [
        Setting(f"alpha = {alpha:g}", spec, dataset, methods, f"dirichlet:{alpha:g}")
        for alpha in alphas
    ]


def _column(name: str, valid: bool, **changes: Any) -> Setting:
    """A column of Fashion-MNIST, with changed fields of its spec."""
    return Setting(name, {**base(valid), **changes}, SETS["FMNIST"], PAIR)


def by_parts(
    names: Sequence[str] = tuple(PARTS), *, valid: bool = False
) -> list[Setting]:
    """Table 8: proportions of the groups."""
    return [
        _column(name, valid, groups=groups_of("FMNIST", parts=PARTS[name]))
        for name in names
    ]


def by_budget(factors: Sequence[float], *, valid: bool = False) -> list[Setting]:
    """Table 9: scales of the budgets."""
    return [
        _column(f"{factor}x", valid, groups=groups_of("FMNIST", factor))
        for factor in factors
    ]


def by_clip(factors: Sequence[float], *, valid: bool = False) -> list[Setting]:
    """Table 10: clipping norms."""
    norm = base(valid)["clipping_norm"]
    return [
        _column(f"{factor}x", valid, clipping_norm=factor * norm) for factor in factors
    ]


# Tables 1, 3 and 5 and Figure 2, and the cohorts that Table 8 mentions.


def problem(column: str, **changes: Any) -> Problem:
    """The planning problem of a data set, with changed fields of its spec."""
    return problem_of(Spec.parse({**spec_of(column), **changes}))


def solved_percent(problem: Problem) -> list[float]:
    """Ratios in percent that minimise Problem 1 by Theorem 1's closed form."""
    cohorts = solve_published(problem, sparsified=True).cohorts
    return [100 * float(ratio) for ratio in cohorts / np.array(problem.clients)]


def squared_noise(problem: Problem, percent: Sequence[float]) -> list[float]:
    """sigma^2 per group by RDP, searched as the paper's library does.

    That is to 0.01 of epsilon.
    """
    squares: list[float] = []
    budgets = zip(problem.epsilons, problem.deltas, percent, strict=True)
    for epsilon, delta, ratio in budgets:
        noise = noise_multiplier_by_bisection(
            epsilon, delta, sampling_ratio=ratio / 100, rounds=problem.rounds
        )
        squares.append(noise**2)
    return squares


def total_noise(
    column: str, noise: Sequence[float], fractions: Sequence[float]
) -> float:
    """Lambda of Table 5 with weights: C^2/3 sum (k/d) w sigma^2."""
    scale = spec_of(column)["clipping_norm"] ** 2 / 3
    cohorts = np.array(RATIOS[column]) * np.array(problem(column).clients)
    weights = participation(cohorts, noise)
    return float(scale * np.sum(np.array(fractions) * weights * np.array(noise)))


def table_1() -> Computed:
    """Ratios of each group, and the gain over uniform ratios of the printed ones.

    The gain is in percent of what ours reach.
    """
    for column, printed in RATIOS.items():
        planned = problem(column)
        for group, percent in zip(GROUPS, solved_percent(planned), strict=True):
            yield f"q{group}", column, percent
        even_cohorts = np.full(3, planned.cohort / 3)
        printed_cohorts = np.array(printed) / 100 * np.array(planned.clients)
        uniform = closed_form_value(planned, even_cohorts, sparsified=True)
        best = solve_published(planned, sparsified=True).value
        value = closed_form_value(planned, printed_cohorts, sparsified=True)
        share = 100 * (uniform - value) / (uniform - best)
        yield "gain of the printed ratios", column, share


def noise_table(columns: Sequence[str] = tuple(SETS)) -> Computed:
    """Noise multipliers, squared, and total noise Lambda of each method.

    The last rows have GDPFed's weights of 1/3, as those of GDPFed-op, or both methods'
    squared.
    """
    for column in columns:
        planned = problem(column)
        uniform_percent = 100 * planned.cohort / planned.population
        even = squared_noise(planned, [uniform_percent] * 3)
        best = squared_noise(planned, RATIOS[column])
        square = spec_of(column)["clipping_norm"] ** 2
        for method, noises in (("GDPFed", even), ("GDPFed+", best)):
            for group, noise in zip(GROUPS, noises, strict=True):
                yield f"{method}, sigma^2 of group {group}", column, noise
        yield "DP-FedAvg, Lambda", column, square * even[0]
        yield "GDPFed, Lambda", column, square / 3 * sum(even)
        yield "GDPFed-op, Lambda", column, total_noise(column, best, (1.0, 1.0, 1.0))
        yield "GDPFed+, Lambda", column, total_noise(column, best, KEPT_FRACTIONS)

        # With weights of 1/3 and the same ones squared, sum w^2 sigma^2 is their mean /
        # 3.
        even_mean = float(square / 3 * np.mean(even))
        yield "GDPFed, Lambda with weights", column, even_mean
        cohorts = np.array(RATIOS[column]) * np.array(planned.clients)
        weights = participation(cohorts, best)
        best_sum = square * float(weights**2 @ best)
        yield "GDPFed, Lambda with squared weights", column, even_mean
        yield "GDPFed-op, Lambda with squared weights", column, best_sum


STRICT = {
    "FMNIST": ((0.25, 0.5, 0.75, 1.0, 1.25, 1.5), (1.5, 3.0)),
    "CIFAR-10": ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (6.0, 12.0)),
}
"""Figure 2: epsilon_1, and the other budgets, by data set."""


def figure_2() -> Computed:
    """Ratios in percent of all groups, by the strict budget over the next one."""
    for column, (strict_budgets, next_budgets) in STRICT.items():
        for strict_budget in strict_budgets:
            budgets = (strict_budget, *next_budgets)
            groups = [
                {**group, "epsilon": epsilon}
                for group, epsilon in zip(
                    spec_of(column)["groups"], budgets, strict=True
                )
            ]
            ratios = solved_percent(problem(column, groups=groups))
            head = f"epsilon_1 = {strict_budget / next_budgets[0]:.3g} epsilon_2"
            for group, ratio in zip(GROUPS, ratios, strict=True):
                yield f"q{group}, {column}", head, ratio


def cohorts_of_table_8() -> Computed:
    """Expected clients of the strict group per round, by proportions; CIFAR-10."""
    for name, parts in PARTS.items():
        groups = groups_of("CIFAR-10", parts=parts)
        planned = problem("CIFAR-10", groups=groups)
        strict_cohort = solve_published(planned, sparsified=True).cohorts[0]
        yield "strict", name, float(strict_cohort)


# Verdicts on computed numbers.


def scales(result: Result) -> Outcome:
    """Whether Lambda falls as printed where both methods are on one scale."""
    savings: list[str] = []
    squared_savings: list[str] = []
    gaps: list[float] = []
    for column in result.columns:
        weighted = result.cell_at("GDPFed, Lambda with weights", column)
        best = result.cell_at("GDPFed-op, Lambda", column)
        raw = result.cell_at("GDPFed, Lambda", column)
        if weighted is None or best is None or raw is None:
            return Outcome(NOT_RUN, "no such rows")
        printed = 1 - (best.published or best.mean) / (raw.published or raw.mean)
        saved = 1 - best.mean / weighted.mean
        gaps.append(printed - saved)
        savings.append(f"{column} {100 * saved:.0f}% (printed {100 * printed:.0f}%)")
        before = _squared(result, "GDPFed", column)
        after = _squared(result, "GDPFed-op", column)
        squared_savings.append(f"{column} {100 * (1 - after / before):.0f}%")
    evidence = (
        f"saved with each method's own weights, GDPFed's 1/3: {', '.join(savings)}; with "
        "weights squared, as they are in the noise of an update: "
        f"{', '.join(squared_savings)}; so that "
        '"significantly decreases" fails on FMNIST'
    )
    if max(map(abs, gaps)) <= 0.01:
        return Outcome(REPRODUCED, evidence)
    if min(gaps) > 0.01:
        return Outcome(CONTRADICTED, evidence)
    return Outcome(NOT_REPRODUCED, evidence)


def _squared(result: Result, method: str, column: str) -> float:
    """Lambda of a method with squared weights; not a number where it is missing."""
    cell = result.cell_at(f"{method}, Lambda with squared weights", column)
    if cell is None:
        return math.nan
    return cell.mean


PAPERS.register("gdpfed-plus", paper_of(DATA, globals()))
