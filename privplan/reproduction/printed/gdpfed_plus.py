"""Numbers of GDPFed+ (J. Xu, R. Hu, O. Kotevska), as printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
