"""Local training of one client by autograd: SGD, and DP-SGD with its evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from privplan.plan import Plan
from simulate.data.dataset import Dataset
from simulate.models.network import Model

NEAR = 1e-5
"""Relative distance from a threshold within which rounding may decide a comparison."""


def gradient(model: Model, data: Dataset, theta: Tensor, rows: np.ndarray) -> Tensor:
    """Gradient [d] of the mean cross-entropy of training records at parameters [d]."""
    theta, chosen = theta.detach().requires_grad_(), torch.from_numpy(rows)
    logits = model.logits(theta, data.inputs(data.train_x[chosen]))
    loss = model.objective(logits, data.train_y[chosen])
    return torch.autograd.grad(loss, theta)[0]


def learning_rate(plan: Plan, round_: int) -> float:
    """Local learning rate of a round."""
    return plan.spec.local.learning_rate * plan.spec.local.learning_rate_decay ** (round_ - 1)


def sgd(
    model: Model,
    data: Dataset,
    theta: Tensor,
    batches: Sequence[np.ndarray],
    plan: Plan,
    rate: float,
) -> Tensor:
    """Update [d] of one client after SGD with momentum at a learning rate.

    Args:
        model: the network.
        data: the data set.
        theta: parameters [d] at the start.
        batches: indices of the records of each mini-batch.
        plan: the executed plan.
        rate: learning rate.
    """
    now, speed = theta, torch.zeros_like(theta)
    for rows in batches:
        speed = plan.spec.local.momentum * speed + gradient(model, data, now, rows)
        now = now - rate * speed
    return now - theta


def dp_sgd(
    model: Model,
    data: Dataset,
    theta: Tensor,
    batches: Sequence[np.ndarray],
    plan: Plan,
    rate: float,
    noise: Sequence[np.ndarray],
    batch_size: float,
) -> tuple[Tensor, dict[str, float], int]:
    """DP-SGD of one client, record by record (Abadi et al. 2016, Algorithm 1).

    Args:
        model: the network.
        data: the data set.
        theta: parameters [d] at the start.
        batches: indices of the records of each mini-batch.
        plan: the executed plan.
        rate: learning rate.
        noise: noise on the sum of each step [d], float64.
        batch_size: planned batch size, by which sums are divided.

    Returns:
        The update [d]; the evidence of clipping for the ledger; and the number of gradients whose
        norm is so near the clipping norm that rounding decides whether they count as clipped.
    """
    now, speed, bound, near = theta, torch.zeros_like(theta), plan.spec.clipping_norm, 0
    clipped, excluded, largest = 0, 0, 0.0
    for rows, drawn in zip(batches, noise, strict=True):
        total = torch.from_numpy(drawn).clone()
        for row in rows:
            one = gradient(model, data, now, np.array([row])).double()
            norm = float(one.norm())
            if not np.isfinite(norm):
                excluded += 1
                continue
            clipped, near = clipped + (norm > bound), near + (abs(norm / bound - 1) < NEAR)
            largest = max(largest, min(norm, bound))
            total += one * min(1.0, bound / max(norm, 1e-300))
        speed = plan.spec.local.momentum * speed + (total / batch_size).float()
        now = now - rate * speed
    return now - theta, {"clipped": clipped, "excluded": excluded, "largest_norm": largest}, near
