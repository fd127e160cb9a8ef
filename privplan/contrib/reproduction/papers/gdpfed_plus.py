"""GDPFed+: optimal client sampling with client-level heterogeneous differential privacy."""

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
RATIOS = {
    column: [_PERCENT[row][at] for row in _PERCENT] for at, column in enumerate(SETS)
}
"""Table 1: sampling ratios in percent, by column."""
PARTS = {"1:4:1": (1, 4, 1), "2:2:2": (2, 2, 2), "3:2:1": (3, 2, 1), "1:2:3": (1, 2, 3)}
KEPT = (0.7, 0.8, 0.9)
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
    """Groups of a data set with scaled budgets, and clients in the proportions of the parts."""
    given = spec_of(column)["groups"]
    total = sum(group["clients"] for group in given)
    return [
        {
            **one,
            "epsilon": factor * one["epsilon"],
            "clients": total * part // sum(parts),
        }
        for one, part in zip(given, parts, strict=True)
    ]


# Tables of runs.


def base(valid: bool) -> dict[str, Any]:
    """FMNIST's spec; or with the network without padding, whose accuracy is nearer the paper's."""
    data = spec_of("FMNIST")
    if not valid:
        return data
    model = {"name": "cnn-2-valid", "parameters": 18378}
    return {**data, "groups": groups_of("FMNIST"), "delta": 6000**-1.1, "model": model}


def _sample(spec: Mapping[str, Any], percent: Sequence[float]) -> Method:
    """IDP-FedAvg (Sample) as Appendix B.2 has it: the printed ratios, omega, noise per group."""
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
    found = []
    for name, data in list(SETS.items())[: 1 if valid else None]:
        spec = base(valid) if valid else spec_of(name)
        methods = {**METHODS, "IDP-FedAvg": _sample(spec, DATA["idp_ratios"][name])}
        partition = "natural" if name == "Shakespeare" else "iid"
        found.append(Setting(name, spec, data, methods, partition))
    return found


def by_level(levels: Sequence[str] = (), *, valid: bool = False) -> list[Setting]:
    """Table 6: kept fractions of the groups, as the heads of the rows state them."""
    methods = {}
    for name in levels or printed_rows(DATA, "gdpfed-plus-table-6"):
        kept = [float(word) for word in name.strip("()").split(",")]
        planning = {**spec_of("FMNIST")["planning"], "sparsification": kept}
        methods[name] = Method("GDPFed+", changes={"planning": planning})
    return [Setting("FMNIST", base(valid), SETS["FMNIST"], methods)]


def by_alpha(alphas: Sequence[float], *, valid: bool = False) -> list[Setting]:
    """Table 7: Dirichlet splits of CIFAR-10, or of Fashion-MNIST."""
    names = ("P-FedAvg", "DP-FedAvg", "IDP-FedAvg, Sample, joint sum", "GDPFed+")
    column = "FMNIST" if valid else "CIFAR-10"
    spec, dataset = base(valid) if valid else spec_of(column), SETS[column]
    methods = {name: METHODS[name] for name in names}
    methods["IDP-FedAvg"] = _sample(spec, DATA["idp_ratios"][column])
    return [
        Setting(f"alpha = {alpha:g}", spec, dataset, methods, f"dirichlet:{alpha:g}")
        for alpha in alphas
    ]


def _column(name: str, valid: bool, **changes: Any) -> Setting:
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


def solved_percent(given: Problem) -> list[float]:
    """Ratios in percent that minimise Problem 1 with Theorem 1's closed form inserted."""
    found = solve_published(given, sparsified=True)
    return [100 * float(one) for one in found.cohorts / np.array(given.clients)]


def squared_noise(given: Problem, percent: Sequence[float]) -> list[float]:
    """sigma^2 per group by RDP, searched as the paper's library does (to 0.01 of epsilon)."""
    return [
        noise_multiplier_by_bisection(
            epsilon, delta, sampling_ratio=q / 100, rounds=given.rounds
        )
        ** 2
        for epsilon, delta, q in zip(given.epsilons, given.deltas, percent, strict=True)
    ]


def total_noise(column: str, noise: Sequence[float], kept: Sequence[float]) -> float:
    """Lambda of Table 5 with weights: C^2/3 sum (k/d) w sigma^2."""
    scale = spec_of(column)["clipping_norm"] ** 2 / 3
    cohorts = np.array(RATIOS[column]) * np.array(problem(column).clients)
    return float(
        scale * np.sum(np.array(kept) * participation(cohorts, noise) * np.array(noise))
    )


def table_1() -> Computed:
    """Ratios of each group, and how much of the gain over uniform ratios the printed ones reach."""
    for column, printed in RATIOS.items():
        given = problem(column)
        for group, percent in zip(GROUPS, solved_percent(given), strict=True):
            yield f"q{group}", column, percent
        uniform = closed_form_value(
            given, np.full(3, given.cohort / 3), sparsified=True
        )
        ours = solve_published(given, sparsified=True).value
        cohorts = np.array(printed) / 100 * np.array(given.clients)
        theirs = closed_form_value(given, cohorts, sparsified=True)
        share = 100 * (uniform - theirs) / (uniform - ours)
        yield "gain of the printed ratios", column, share


def noise_table(columns: Sequence[str] = tuple(SETS)) -> Computed:
    """Noise multipliers, squared, and total noise Lambda of each method.

    The last rows have GDPFed's weights of 1/3, as those of GDPFed-op, or both methods'
    squared.
    """
    for column in columns:
        given = problem(column)
        even = squared_noise(given, [100 * given.cohort / given.population] * 3)
        best = squared_noise(given, RATIOS[column])
        square = spec_of(column)["clipping_norm"] ** 2
        for method, noises in (("GDPFed", even), ("GDPFed+", best)):
            for group, noise in zip(GROUPS, noises, strict=True):
                yield f"{method}, sigma^2 of group {group}", column, noise
        yield "DP-FedAvg, Lambda", column, square * even[0]
        yield "GDPFed, Lambda", column, square / 3 * sum(even)
        yield "GDPFed-op, Lambda", column, total_noise(column, best, (1.0, 1.0, 1.0))
        yield "GDPFed+, Lambda", column, total_noise(column, best, KEPT)
        yield "GDPFed, Lambda with weights", column, float(square / 3 * np.mean(even))
        weights = participation(
            np.array(RATIOS[column]) * np.array(given.clients), best
        )
        yield (
            "GDPFed, Lambda with squared weights",
            column,
            float(square / 3 * np.mean(even)),
        )
        yield (
            "GDPFed-op, Lambda with squared weights",
            column,
            square * float(weights**2 @ best),
        )


STRICT = {
    "FMNIST": ((0.25, 0.5, 0.75, 1.0, 1.25, 1.5), (1.5, 3.0)),
    "CIFAR-10": ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (6.0, 12.0)),
}
"""Figure 2: epsilon_1, and the other budgets, by data set."""


def figure_2() -> Computed:
    """Ratios in percent of all groups, by the strict group's budget over the next one."""
    for column, (values, others) in STRICT.items():
        for first in values:
            budgets = zip(spec_of(column)["groups"], (first, *others), strict=True)
            groups = [{**group, "epsilon": epsilon} for group, epsilon in budgets]
            ratios = solved_percent(problem(column, groups=groups))
            for group, ratio in zip(GROUPS, ratios, strict=True):
                head = f"epsilon_1 = {first / others[0]:.3g} epsilon_2"
                yield f"q{group}, {column}", head, ratio


def cohorts_of_table_8() -> Computed:
    """Expected clients of the strict group per round, CIFAR-10, by proportions of the groups."""
    for name, parts in PARTS.items():
        given = problem("CIFAR-10", groups=groups_of("CIFAR-10", parts=parts))
        strict = solve_published(given, sparsified=True).cohorts[0]
        yield "strict", name, float(strict)


# Verdicts on computed numbers.


_ON_ONE_SCALE = ("GDPFed", "GDPFed-op")


def scales(result: Result) -> Outcome:
    """Whether Lambda falls by as much as printed where both methods are on one scale."""
    parts, gaps, squared = [], [], []
    for column in result.columns:
        weighted = result.at("GDPFed, Lambda with weights", column)
        best, raw = (
            result.at("GDPFed-op, Lambda", column),
            result.at("GDPFed, Lambda", column),
        )
        if weighted is None or best is None or raw is None:
            return Outcome(NOT_RUN, "no such rows")
        printed = 1 - (best.published or best.mean) / (raw.published or raw.mean)
        saved = 1 - best.mean / weighted.mean
        gaps.append(printed - saved)
        parts.append(f"{column} {100 * saved:.0f}% (printed {100 * printed:.0f}%)")
        known = (
            result.at(f"{name}, Lambda with squared weights", column)
            for name in _ON_ONE_SCALE
        )
        before, after = (cell.mean if cell else math.nan for cell in known)
        squared.append(f"{column} {100 * (1 - after / before):.0f}%")
    words = (
        f"saved with each method's own weights, GDPFed's 1/3: {', '.join(parts)}; with weights "
        f"squared, as they are in the noise of an update: {', '.join(squared)}; so that "
        '"significantly decreases" fails on FMNIST'
    )
    if max(map(abs, gaps)) <= 0.01:
        return Outcome(REPRODUCED, words)
    return Outcome(CONTRADICTED if min(gaps) > 0.01 else NOT_REPRODUCED, words)


PAPERS.register("gdpfed-plus", paper_of(DATA, globals()))
