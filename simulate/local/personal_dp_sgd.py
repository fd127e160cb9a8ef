"""DP-SGD of clients with personal parameters: all that they learn from records is noisy.

Personal parameters stay at the client, but the gradients of the shared ones depend on them. Were
they trained without noise, a record would change every other record's clipped gradient through
them, and no multiple of the clipping norm would bound its effect on a sum. So each step on personal
parameters is a step of DP-SGD, too, and is counted like the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulate.components import ClientBatch, LocalResult, LocalRule, Split
from simulate.local.dp_sgd import noisy_descent


def head_then_body(clipping_norm: float, split: Split, head_rate: float) -> LocalRule:
    """The first half of a round's noisy steps trains the head, the others the body.

    Each step clips the whole gradient of a record and adds noise to all coordinates; the step then
    uses those of the part that it trains. With an odd number of steps the body takes one more;
    with one step per round the head is never trained.

    Args:
        clipping_norm: bound on the norm of a record's gradient.
        split: shares the body; the head is personal.
        head_rate: the head's learning rate as a multiple of the body's.
    """

    def train(batch: ClientBatch) -> LocalResult:
        head = batch.model.head
        in_head = torch.zeros_like(batch.theta)
        in_head[head] = 1.0
        first = (batch.group.steps or batch.y.shape[1]) // 2
        start = split.use(batch.model, batch.theta, batch.personal, batch.clients)

        def rates(step: int) -> Tensor:
            return head_rate * in_head if step < first else 1 - in_head

        sent = split.shared(batch.model)
        moved = noisy_descent(batch, start, clipping_norm, rates, sent)
        heads = (start + moved.updates)[:, head]
        return LocalResult(moved.updates * (1 - in_head), heads, moved.noise_evidence)

    def sent_noise(steps: int) -> list[float]:
        return [0.0] * (steps // 2) + [1.0] * (steps - steps // 2)

    return LocalRule("dp-sgd, head then body", train, poisson=True, sent_noise=sent_noise)


def noisy_sum(clipping_norm: float, alpha: float) -> LocalRule:
    """DP-SGD at the sum of shared and personal parameters, which move along one noisy gradient.

    The gradients of both parts are equal, so one clipped and noised sum serves them.

    Args:
        clipping_norm: bound on the norm of a record's gradient.
        alpha: step size of the shared part over that of the personal part; the larger one is the
            learning rate.
    """
    shared = min(1.0, alpha)
    personal = min(1.0, 1 / alpha) if alpha else 1.0

    def train(batch: ClientBatch) -> LocalResult:
        offset = torch.zeros_like(batch.theta) if batch.personal is None else batch.personal
        factors = torch.full_like(batch.theta, shared + personal)
        moved = noisy_descent(batch, batch.theta + offset, clipping_norm, lambda step: factors)
        part = moved.updates / (shared + personal)
        return LocalResult(shared * part, offset + personal * part, moved.noise_evidence)

    def sent_noise(steps: int) -> list[float]:
        return [shared] * steps

    return LocalRule("dp-sgd at the sum", train, poisson=True, sent_noise=sent_noise)
