"""GDPFed+: optimal client sampling with client-level heterogeneous differential privacy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from privplan.contrib.reproduction import gdpfed_plus as plans
from privplan.contrib.reproduction import gdpfed_plus as printed
from privplan.contrib.reproduction.claims import ahead, every, monotone, printed_within
from privplan.contrib.reproduction.gdpfed_plus import GROUPS, groups_of, spec_of
from privplan.contrib.reproduction.tables import PAPERS, Claim, Method, Paper, Setting, Table

DATA = {
    "FMNIST": "fashion-mnist",
    "SVHN": "svhn",
    "CIFAR-10": "cifar-10",
    "Shakespeare": "shakespeare",
}
"""Data set by column."""
METHODS = {
    "P-FedAvg": Method("FedAvg"),
    "DP-FedAvg": Method("DP-FedAvg"),
    "GDPFed": Method("GDPFed"),
    "PFA": Method("PFA"),
    "IDP-FedAvg": Method("IDP-FedAvg-Sample"),
    "IDP-FedAvg, Scale": Method("IDP-FedAvg-Scale"),
    "Time-adaptive HDPFL": Method("Time-adaptive HDPFL"),
    "GDPFed+": Method("GDPFed+"),
}
BEHIND = [name for name in METHODS if name != "P-FedAvg"]
PAIR = {name: METHODS[name] for name in ("DP-FedAvg", "GDPFed+")}


def smaller(clients: int) -> dict[str, Any]:
    """FMNIST's spec with fewer clients and equal privacy and noise per coordinate of the mean.

    The ratios, rounds, budgets and delta are the paper's; the clipping norm shrinks with the
    cohort, so that clipping norm over cohort, and with it the noise of the mean update, stay.
    Updates have norms of about a third of the paper's clipping norm.
    """
    data = spec_of("FMNIST")
    share = clients / sum(group["clients"] for group in data["groups"])
    groups = [{**group, "clients": clients // 3} for group in data["groups"]]
    return {
        **data,
        "groups": groups,
        "cohort": round(data["cohort"] * share),
        "clipping_norm": data["clipping_norm"] * share,
        "delta": 6000**-1.1,
        "model": {"name": "cnn-2-valid", "parameters": 18378},
    }


def one_setting(
    column: str, changes: Mapping[str, Any], methods: Mapping[str, Method] = PAIR, clients: int = 0
) -> Setting:
    """A column on Fashion-MNIST: of the paper's size, or with fewer clients."""
    spec = smaller(clients) if clients else spec_of("FMNIST")
    return Setting(column, {**spec, **changes}, "fashion-mnist", methods)


def _table_2_full() -> list[Setting]:
    """All four data sets with the paper's settings."""
    return [
        Setting(column, spec_of(column), dataset, METHODS, _partition(column))
        for column, dataset in DATA.items()
    ]


def _partition(column: str) -> str:
    return "natural" if column == "Shakespeare" else "iid"


def _kept(levels: Sequence[float]) -> Method:
    planning = {**spec_of("FMNIST")["planning"], "sparsification": list(levels)}
    return Method("GDPFed+", changes={"planning": planning})


REDUCED_LEVELS = ("(1.0, 1.0, 1.0)", "(0.7, 0.8, 0.9)", "(0.1, 0.1, 0.1)")
SMALL = 3000
"""Clients at the reduced size."""


def _level_settings(names: Sequence[str], clients: int) -> list[Setting]:
    methods = {name: _kept([float(word) for word in name.strip("()").split(",")]) for name in names}
    return [one_setting("FMNIST", {}, methods, clients)]


def _alpha_settings(alphas: Sequence[float], full: bool) -> list[Setting]:
    names = ("P-FedAvg", "DP-FedAvg", "IDP-FedAvg", "GDPFed+")
    methods = {name: METHODS[name] for name in names}
    spec, dataset = smaller(SMALL), "fashion-mnist"
    if full:
        spec, dataset = spec_of("CIFAR-10"), "cifar-10"
    return [
        Setting(f"alpha = {alpha:g}", spec, dataset, methods, f"dirichlet:{alpha:g}")
        for alpha in alphas
    ]


def _part_settings(names: Sequence[str], clients: int) -> list[Setting]:
    return [
        one_setting(
            name,
            {"groups": groups_of("FMNIST", parts=printed.PARTS[name], clients=clients)},
            PAIR,
            clients,
        )
        for name in names
    ]


def _budget_settings(names: Sequence[str], clients: int) -> list[Setting]:
    return [
        one_setting(
            name,
            {"groups": groups_of("FMNIST", printed.BUDGETS[name], clients=clients)},
            PAIR,
            clients,
        )
        for name in names
    ]


def _clip_settings(names: Sequence[str], clients: int) -> list[Setting]:
    norm = smaller(clients)["clipping_norm"] if clients else spec_of("FMNIST")["clipping_norm"]
    return [
        one_setting(name, {"clipping_norm": printed.CLIPS[name] * norm}, PAIR, clients)
        for name in names
    ]


def _accuracy(
    number: int,
    title: str,
    claims: Sequence[Claim],
    full: Callable[[], list[Setting]],
    reduced: Callable[[], list[Setting]],
    known: printed.Printed,
    words: str,
    minutes: Mapping[str, float],
) -> Table:
    return Table(
        f"gdpfed-plus-table-{number}",
        f"Table {number}: {title}",
        tuple(claims),
        trained={"full": full, "reduced": reduced},
        printed=known,
        sizes={"reduced": f"{SMALLER}; {words}" if words else SMALLER},
        minutes=minutes,
    )


SMALLER = (
    "Fashion-MNIST, cnn-2-valid, 3,000 clients of 10 images in place of 6,000, cohort 60, C 0.75, "
    "50 rounds: the privacy and the noise of the mean update are the paper's"
)
SOLVED_RATIOS = (
    "IDP-FedAvg has ratios that are solved here: no single noise meets the budgets at the printed "
    "ones (docs/paper-audit.md), and the solved ones hardly sample the strict group"
)
LEAD = "GDPFed+ is above DP-FedAvg"

PAPERS.register(
    "gdpfed-plus",
    Paper(
        "GDPFed+ (J. Xu, R. Hu, O. Kotevska: Optimal Client Sampling in Federated Learning with "
        "Client-Level Heterogeneous Differential Privacy)",
        (
            Table(
                "gdpfed-plus-table-1",
                "Table 1: sampling ratios in percent",
                (
                    Claim(
                        "the printed ratios solve Problem 1",
                        printed_within(0.005),
                        "the problem is flat: the printed ratios reach 97.5% of the gain or more",
                    ),
                    Claim("stricter groups are sampled less", plans.gain),
                ),
                planned=plans.table_1,
            ),
            _accuracy(
                2,
                "test accuracy",
                (
                    Claim(
                        "GDPFed is above DP-FedAvg",
                        ahead("GDPFed", "DP-FedAvg"),
                        "tried at full size: above in two of nine readings of initialisation and "
                        "pixels, below on this page",
                    ),
                    Claim(LEAD, ahead("GDPFed+", "DP-FedAvg")),
                    Claim("GDPFed+ is above GDPFed", ahead("GDPFed+", "GDPFed")),
                    Claim(
                        "GDPFed+ is above PFA and IDP-FedAvg",
                        ahead("GDPFed+", "PFA", "IDP-FedAvg"),
                        SOLVED_RATIOS,
                    ),
                    Claim(
                        "IDP-FedAvg is above PFA", ahead("IDP-FedAvg", "PFA", columns=("FMNIST",))
                    ),
                    Claim("FedAvg without privacy is above all", ahead("P-FedAvg", *BEHIND)),
                ),
                _table_2_full,
                lambda: [one_setting("FMNIST", {}, METHODS, SMALL)],
                printed.TABLE_2,
                "",
                {"reduced": 8},
            ),
            Table(
                "gdpfed-plus-table-3",
                "Table 3: noise on Fashion-MNIST",
                (Claim("the printed noise multipliers and Lambda", printed_within(0.006)),),
                planned=lambda: plans.noise_table(("FMNIST",)),
            ),
            Table(
                "gdpfed-plus-table-4",
                "Table 4: notation",
                left_out="it has no results",
                has_results=False,
            ),
            Table(
                "gdpfed-plus-table-5",
                "Table 5: noise multipliers and total noise",
                (
                    Claim("the printed noise multipliers and Lambda", printed_within(0.006)),
                    Claim("optimal ratios shrink GDPFed's total noise by as much", plans.scales),
                ),
                planned=lambda: plans.noise_table(printed.DATASETS),
            ),
            _accuracy(
                6,
                "accuracy by sparsification level",
                (
                    Claim(
                        "(0.7, 0.8, 0.9) is above no sparsification",
                        ahead("(0.7, 0.8, 0.9)", "(1.0, 1.0, 1.0)"),
                    ),
                    Claim(
                        "(0.1, 0.1, 0.1) is below the others",
                        every(*(ahead(level, "(0.1, 0.1, 0.1)") for level in REDUCED_LEVELS[:2])),
                    ),
                ),
                lambda: _level_settings(list(printed.LEVELS), 0),
                lambda: _level_settings(REDUCED_LEVELS, SMALL),
                printed.TABLE_6,
                "3 of 10 levels",
                {"full": 33, "reduced": 3},
            ),
            _accuracy(
                7,
                "accuracy on Dirichlet CIFAR-10",
                (
                    Claim(
                        "GDPFed+ is above DP-FedAvg and IDP-FedAvg",
                        ahead("GDPFed+", "DP-FedAvg", "IDP-FedAvg"),
                        SOLVED_RATIOS,
                    ),
                ),
                lambda: _alpha_settings(printed.ALPHAS, full=True),
                lambda: _alpha_settings((0.3,), full=False),
                printed.TABLE_7,
                "in place of CIFAR-10; alpha 0.3",
                {"reduced": 6},
            ),
            _accuracy(
                8,
                "accuracy by proportions of the groups",
                (
                    Claim(LEAD, ahead("GDPFed+", "DP-FedAvg")),
                    Claim(
                        "GDPFed+ is best with most clients in the loosest group",
                        monotone("GDPFed+", rising=True, columns=("3:2:1", "1:2:3")),
                    ),
                ),
                lambda: _part_settings(list(printed.PARTS), 0),
                lambda: _part_settings(("3:2:1", "1:2:3"), SMALL),
                printed.TABLE_8,
                "two of four proportions",
                {"full": 26, "reduced": 4},
            ),
            Table(
                "gdpfed-plus-table-8-cohorts",
                "Table 8: clients of the strict group per round, CIFAR-10",
                (Claim("14 clients at 3:2:1", printed_within(0.5)),),
                planned=plans.cohorts_of_table_8,
            ),
            _accuracy(
                9,
                "accuracy by scale of the budgets",
                (
                    Claim(LEAD, ahead("GDPFed+", "DP-FedAvg")),
                    Claim("the lead is larger with small budgets", plans.lead_falls),
                ),
                lambda: _budget_settings(list(printed.BUDGETS), 0),
                lambda: _budget_settings(("0.5x", "1.5x"), SMALL),
                printed.TABLE_9,
                "two of five scales",
                {"full": 33, "reduced": 4},
            ),
            _accuracy(
                10,
                "accuracy by clipping norm",
                (
                    Claim(LEAD, ahead("GDPFed+", "DP-FedAvg")),
                    Claim("DP-FedAvg loses more than GDPFed+", plans.lead_rises),
                ),
                lambda: _clip_settings(list(printed.CLIPS), 0),
                lambda: _clip_settings(("1.0x", "1.5x"), SMALL),
                printed.TABLE_10,
                "two of three norms",
                {"full": 20, "reduced": 4},
            ),
            Table(
                "gdpfed-plus-figure-2",
                "Figure 2: ratios by the strict group's budget",
                (
                    Claim(
                        "q1 rises with epsilon_1, q2 and q3 fall",
                        every(
                            *(
                                monotone(
                                    f"q{group}, {name}",
                                    rising=group == "1",
                                    columns=plans.figure_2_columns(name),
                                )
                                for name in ("FMNIST", "CIFAR-10")
                                for group in GROUPS
                            )
                        ),
                    ),
                    Claim("q1 = q2 where epsilon_1 = epsilon_2", plans.equal_ratios),
                ),
                planned=plans.figure_2,
            ),
        ),
    ),
)
