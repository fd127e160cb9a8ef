"""The contact sheet of a report: originals, reconstructions, and a null of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from privplan.report.style import Panel, Theme, picture
from simulate.attacks.measures import matched, psnr
from simulate.attacks.sweep import Result

SHOWN = 10  # most images per row
_ROW_HEIGHT = 1.45  # in sides of an image, with the text below it
_ROUNDS_TO_100 = 99.95  # a PSNR that has no digit after the point, for want of space


class _Strip(NamedTuple):
    """Rows of images [channels, height, width], as many in each."""

    originals: list[Tensor]
    reconstructions: list[Tensor]
    nulls: list[Tensor]


def contact_sheet(results: Sequence[Result]) -> bytes:
    """PNG: originals, reconstructions, and the null of another update.

    The null is blank where there is no other update.
    """
    panels = []
    for number, result in enumerate(results):
        strip = _strip(result)
        values = [_psnr(row, strip) for row in (strip.reconstructions, strip.nulls)]
        text = ", ".join(f"{value:.1f}" for value in values[0])
        name = _name(result)
        alt = f"Reconstructions by {name}, PSNR in dB: {text}."
        draw = partial(_draw, strip, values)
        panels.append(Panel(f"images-{number}", name, alt, draw, 1.85))
    return picture(panels, "png", columns=1 if len(panels) < 3 else 2)


def _psnr(row: list[Tensor], strip: _Strip) -> np.ndarray:
    """PSNR of the images of a row to the originals, in dB [n]."""
    return psnr(torch.stack(row), torch.stack(strip.originals))


def _draw(strip: _Strip, values: Sequence[np.ndarray], axes: Any, theme: Theme) -> None:
    """Rows of images, with the PSNR to the original below a guess or a null."""
    for row, images in enumerate(strip):
        pixels = [image.permute(1, 2, 0).numpy() for image in images]
        bottom = -_ROW_HEIGHT * row - 1
        axes.imshow(
            np.concatenate(pixels, 1),
            cmap="gray",
            vmin=0,
            vmax=1,
            interpolation="nearest",
            extent=(0, len(images), bottom, bottom + 1),
        )
        for column, value in enumerate(values[row - 1] if row else ()):
            # Nothing is written below the blank null of a single release.
            if torch.any(images[column] != 1):
                axes.text(
                    column + 0.5,
                    bottom - 0.06,
                    f"{value:.0f}" if value >= _ROUNDS_TO_100 else f"{value:.1f}",
                    ha="center",
                    va="top",
                    fontsize=8,
                    color=theme.ink,
                )
    lowest = -2 * _ROW_HEIGHT
    axes.vlines(range(1, SHOWN), lowest - 1, 0, color=theme.ground, lw=2)
    axes.set(xlim=(0, SHOWN), ylim=(lowest - 1.5, 0.05), aspect="equal", xticks=[])
    labels = ("original", "reconstruction,\nPSNR (dB)", "null,\nPSNR (dB)")
    axes.set_yticks([-_ROW_HEIGHT * row - 0.5 for row in range(3)], labels)
    axes.tick_params(axis="y", length=0, labelcolor=theme.ink)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def _name(result: Result) -> str:
    """What was attacked, and how."""
    attacked = result.case.attacked
    name = f"{attacked.algorithm}, {result.case.attack}"
    clients = attacked.heads["clients"]
    if clients > 1:
        name += f", sum of {clients} clients"
    if attacked.noise_factor != 1.0:
        name += f", {attacked.noise_factor:g} of the planned noise"
    return name


def _strip(result: Result) -> _Strip:
    """Originals, reconstructions and reconstructions from the next release's update."""
    images = result.images
    next_images = [*images[1:], images[0]]
    if len(images) == 1:
        next_images = [torch.ones_like(images[0])]
    strip = _Strip([], [], [])
    for guesses, truth, nulls in zip(images, result.truths, next_images, strict=True):
        missing = SHOWN - len(strip.originals)
        strip.originals.extend(matched(guesses, truth.images)[:missing])
        strip.reconstructions.extend(guesses[:missing])
        strip.nulls.extend(nulls[:missing])
    return strip
