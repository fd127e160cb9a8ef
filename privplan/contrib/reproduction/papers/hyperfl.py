"""HyperFL: hypernetworks at the clients against gradient inversion (Guo et al., AAAI 2025)."""

from __future__ import annotations

import math
from functools import partial

from privplan.contrib.reproduction import hyperfl as printed
from privplan.contrib.reproduction import hyperfl as settings
from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_RUN,
    ORDER,
    REPRODUCED,
    Cell,
    Judge,
    Outcome,
    Result,
    ahead,
    every,
)
from privplan.contrib.reproduction.tables import PAPERS, Claim, Paper, Table

NOISE = 1e-5
"""Standard deviation of Appendix D."""


def _privacy() -> list[Cell]:
    """Zero-concentrated rho of the stated noise, and the epsilon that it is at least.

    With every client in every round the release is a Gaussian mechanism with mu = sqrt(T) /
    sigma, for which epsilon >= mu^2 / 2 at every delta below 1/2 (Dong, Roth, Su 2022, Cor. 2.13:
    delta(mu^2 / 2) = 1/2 - exp(mu^2 / 2) Phi(-mu), above 0.49 here).
    """
    mu = math.sqrt(settings.ROUNDS) / NOISE
    row = f"least epsilon of sigma = {NOISE:g}"
    return [Cell(row=row, column="20 clients", published=settings.EPSILON, values=(mu**2 / 2,))]


def _is_private(result: Result) -> Outcome:
    """Whether the stated noise gives the stated epsilon."""
    [cell] = result.cells
    return Outcome(CONTRADICTED, f"epsilon is at least {cell.mean:.3g} at every delta below 0.49")


def _inferior(result: Result) -> Outcome:
    """Whether every DP method is below FedAvg and Local-only."""
    found = [ahead(name, *settings.PRIVATE)(result) for name in ("FedAvg", "Local-only")]
    if any(one.verdict == NOT_RUN for one in found):
        return Outcome(NOT_RUN, "no such rows")
    return max(found, key=lambda one: one.verdict == "not reproduced")


def _hidden(result: Result) -> Outcome:
    """Whether images of HyperFL are no better reconstructed than those of the DP methods."""
    found = ahead("HyperFL", *settings.PRIVATE)(result)
    if found.verdict == NOT_RUN:
        return found
    verdict = CONTRADICTED if found.verdict in (ORDER, REPRODUCED) else ORDER
    return Outcome(verdict, found.evidence)


def _slower(*rows: str) -> Judge:
    """A judge of: these rows take longer than HyperFL."""
    return every(*(ahead(row, "HyperFL") for row in rows))


PAPERS.register(
    "hyperfl",
    Paper(
        "HyperFL (Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu)",
        (
            Table(
                "hyperfl-table-1",
                "Table 1: accuracy of personal models",
                (
                    Claim("DP methods are below FedAvg and Local-only", _inferior),
                    Claim(
                        "HyperFL is above the DP methods",
                        ahead("HyperFL", *settings.PRIVATE),
                    ),
                    Claim("HyperFL is above Local-only", ahead("HyperFL", "Local-only")),
                    Claim("HyperFL is above FedAvg", ahead("HyperFL", "FedAvg")),
                    Claim(
                        "CENTAUR and PPSGD are above DP-FedAvg",
                        every(ahead("CENTAUR", "DP-FedAvg"), ahead("PPSGD", "DP-FedAvg")),
                    ),
                ),
                trained={"full": settings.accuracies, "reduced": settings.accuracies_reduced},
                printed={
                    (row, column): (value, None)
                    for row, values in printed.ACCURACY.items()
                    for (column, _, _), value in zip(settings.COLUMNS, values, strict=True)
                },
                sizes={
                    "full": "Fashion-MNIST and CIFAR-10; DP methods protect each record of a "
                    "client (epsilon 4)",
                    "reduced": "Fashion-MNIST, cnn-2, 20 clients of 203 to 207 images, dominant "
                    "classes (20% of all), 10 rounds of 10 steps of 20 images, rate 0.02; DP "
                    "methods protect each record of a client (epsilon 4)",
                },
                minutes={"reduced": 6},
            ),
            Table(
                "hyperfl-table-2",
                "Table 2: HyperFL-LPM with pre-trained models",
                left_out="needs pre-trained ViT-S/16 and ResNet-18",
            ),
            Table(
                "hyperfl-table-3",
                "Table 3: reconstruction by inverted gradients (IG)",
                (
                    Claim("HyperFL hides images as DP methods do", _hidden),
                    Claim(
                        "FedAvg is easier to invert than DP methods",
                        ahead("FedAvg", *settings.PRIVATE),
                    ),
                ),
                trained={
                    "full": settings.attacked,
                    "reduced": partial(settings.attacked, small=True),
                },
                measure="PSNR in dB",
                printed={
                    (row, column): (value, None)
                    for row, values in printed.PSNR.items()
                    for column, value in zip(("MNIST", "CIFAR-10"), values, strict=True)
                },
                sizes={
                    "full": "the attack ig of docs/attacks.md in 1,000 steps on 50 images; MNIST "
                    "in place of EMNIST; DP methods protect each record (epsilon 4)",
                    "reduced": "the attack ig of docs/attacks.md in 200 steps on 10 images of "
                    "MNIST in place of EMNIST; DP methods protect each record (epsilon 4)",
                },
                minutes={"reduced": 10},
            ),
            Table(
                "hyperfl-table-4",
                "Table 4: seconds per round",
                (
                    Claim(
                        "HyperFL is faster than the DP methods",
                        _slower(*settings.PRIVATE),
                        tried="here a step updates a hypernetwork of 100 hidden units, with about "
                        "100 times the weights of the body, while DP-SGD needs no gradient per "
                        "record: norms come from inputs and slopes of layers",
                    ),
                    Claim("HyperFL is slower than FedAvg", ahead("HyperFL", "FedAvg")),
                ),
                trained={
                    "full": settings.timed,
                    "reduced": partial(settings.timed, small=True),
                },
                measure="seconds per round",
                printed={
                    (row, "20 clients"): (value, None) for row, value in printed.SECONDS.items()
                },
                sizes={
                    "full": "Fashion-MNIST in place of EMNIST, 10 rounds; evaluation included",
                    "reduced": "Fashion-MNIST in place of EMNIST, 600 images per client, 3 "
                    "rounds; evaluation included; the paper's times are of its own machine",
                },
                minutes={"reduced": 8},
            ),
            Table(
                "hyperfl-table-5",
                "Table 5: reconstruction by ROG",
                left_out="ROG needs a pre-trained decoder; docs/hyperfl.md has a stronger attack",
            ),
            Table(
                "hyperfl-privacy",
                "Appendix D: epsilon of the DP methods",
                (Claim("sigma = 1e-5 satisfies epsilon = 4", _is_private),),
                planned=_privacy,
            ),
        ),
    ),
)
