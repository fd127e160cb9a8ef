"""The model that a client uses once training is over."""

from __future__ import annotations

from simulate.components import Personalisation
from simulate.local.sgd import batch_sgd


def shared() -> Personalisation:
    """The neutral choice: all use the global model, evaluated on all test records."""
    return Personalisation("shared", False, lambda thetas, batch: thetas)


def own_model() -> Personalisation:
    """Each client's personal parameters, evaluated on the client's test records."""
    return Personalisation("own", True, lambda thetas, batch: thetas)


def fine_tuned(rate_factor: float = 1.0) -> Personalisation:
    """The global model after one round of local SGD, which a client never sends."""
    return Personalisation(
        "fine-tuned",
        True,
        lambda thetas, batch: thetas + batch_sgd(batch, thetas, rate_factor),
    )
