"""Minimisation by Adam over images and further unknowns, as attacks share it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simulate.attacks.checkpoint import StageFile
from simulate.attacks.gradient_objective import Objective
from simulate.attacks.view import Guess, View

Progress = Callable[[int, int], None]
_DECAY = 0.1  # factor on the learning rate at a milestone
LARGEST_DISTANCE = 2.0  # of two gradients, 1 - cosine; stands for no finite value


@dataclass(frozen=True)
class Descent:
    """Settings of Adam.

    Attributes:
        rate: first learning rate.
        milestones: shares of the steps after which the rate is a tenth of what it was;
            without any it falls to zero as half a cosine.
        variation: weight of the total variation of model inputs.
        is_signed: whether Adam receives the sign of the images' gradient.
    """

    rate: float
    milestones: tuple[float, ...] = ()
    variation: float = 0.0
    is_signed: bool = False

    def rate_at(self, share: float) -> float:
        """Learning rate after a share of the steps."""
        if not self.milestones:
            return self.rate * (1 + math.cos(math.pi * share)) / 2
        passed = sum(share >= milestone for milestone in self.milestones)
        rate: float = self.rate * _DECAY**passed
        return rate


def minimise(
    objective: Callable[[float], Tensor],
    unknowns: Sequence[Tensor],
    descent: Descent,
    steps: int,
    stage: StageFile,
    progress: Progress,
    after_gradient: Callable[[], None] = lambda: None,
    after_step: Callable[[], None] = lambda: None,
) -> None:
    """Minimise the sum of an objective's values [K] in place.

    Args:
        objective: of the share of steps that are done.
        unknowns: tensors that require gradients.
        descent: settings of Adam.
        steps: of Adam.
        stage: the file in which steps are kept.
        progress: told of completed steps.
        after_gradient: changes gradients before a step.
        after_step: changes unknowns after a step.
    """
    optimiser = torch.optim.Adam(list(unknowns), lr=descent.rate)
    done = stage.restore(unknowns, optimiser)
    for step in range(done, steps):
        share = step / steps
        optimiser.param_groups[0]["lr"] = descent.rate_at(share)
        optimiser.zero_grad()
        torch.autograd.backward(objective(share).sum())
        after_gradient()
        optimiser.step()
        with torch.no_grad():
            after_step()
        stage.keep(step + 1, unknowns, optimiser, is_last=step + 1 == steps)
        progress(step + 1, steps)


def descend(
    objective: Objective,
    start: Tensor,
    limits: tuple[Tensor, Tensor],
    descent: Descent,
    steps: int,
    stage: StageFile,
    progress: Progress,
    unknowns: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """Minimise an objective over images within limits, such as those of pixels.

    Args:
        objective: of the images.
        start: the first images [K, n, channels, height, width].
        limits: lowest and highest values of an image.
        descent: settings of Adam.
        steps: of Adam.
        stage: the file in which steps are kept.
        progress: told of completed steps.
        unknowns: other tensors that the objective is minimised over.

    Returns:
        Images, and the last values of the objective [K].
    """
    low, high = limits
    images = start.clone().requires_grad_()

    def total(share: float) -> Tensor:
        variation = descent.variation * total_variation(images)
        return objective(images, share) + variation

    def take_sign() -> None:
        if descent.is_signed and images.grad is not None:
            images.grad.sign_()

    def limit() -> None:
        images.copy_(torch.minimum(torch.maximum(images, low), high))

    every_unknown = [images, *unknowns]
    minimise(total, every_unknown, descent, steps, stage, progress, take_sign, limit)
    with torch.no_grad():
        values = objective(images, 1.0).cpu()
    return images.detach(), values


def input_limits(view: View) -> tuple[Tensor, Tensor]:
    """Model inputs of a black and of a white image."""
    black = torch.zeros(view.model.input_shape, device=view.parameters.device)
    return view.inputs(black), view.inputs(black + 1.0)


def grey_inputs(view: View, shape: Sequence[int]) -> Tensor:
    """Model inputs at the public mean pixel, zero; half white where zero is black."""
    low, high = input_limits(view)
    start = torch.zeros_like(low)
    if bool((low == 0).all()):
        start = (low + high) / 2
    return start.expand(*shape).clone()


def pixels_of(view: View, inputs: Tensor) -> Tensor:
    """Pixels in [0, 1] of model inputs, on the CPU; half white where not finite."""
    return view.outputs(inputs).clamp(0, 1).cpu().nan_to_num(0.5)


def guess_of(image: Tensor, label: Tensor | None, value: Tensor) -> Guess:
    """What was found in a release, with the last value of its objective."""
    if bool(value.isfinite()):
        reached = float(value)
    else:
        reached = LARGEST_DISTANCE
    labels = None
    if label is not None:
        labels = label.cpu()
    return Guess(image, labels, {"objective": reached})


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels [K], of x [K, ...]."""
    down = x.diff(dim=-2).abs().flatten(1).mean(1)
    right = x.diff(dim=-1).abs().flatten(1).mean(1)
    return down + right
