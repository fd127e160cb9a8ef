"""Every client uses what the split gives it, judged on everybody's test records.

Every client uses its own model, judged on test records of its own.

Every client goes on training with its own records, after the last release.

What a client uses once training is over.
"""

from __future__ import annotations

from torch import Tensor

from simulate.components import ClientBatch, Personalise
from simulate.local.sgd import local_sgd


def shared() -> Personalise:
    """The neutral choice: one model for all."""
    return Personalise("shared", False, lambda thetas, work: thetas)


def own() -> Personalise:
    """What the split makes of the global and the client's personal parameters."""
    return Personalise("own", True, lambda thetas, work: thetas)


def fine_tuned() -> Personalise:
    """The global model after a round's worth of local SGD; what comes of it stays at home."""

    def deploy(thetas: Tensor, work: ClientBatch) -> Tensor:
        updates = local_sgd(
            work.model,
            thetas,
            work.x,
            work.y,
            learning_rate=work.learning_rate,
            momentum=work.momentum,
            workers=work.workers,
        )
        return thetas + updates

    return Personalise("fine-tuned", True, deploy)
