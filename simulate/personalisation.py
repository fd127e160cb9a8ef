"""The model that a client uses once training is over."""

from __future__ import annotations

from simulate.components import Personalisation
from simulate.local.sgd import batch_sgd


def shared() -> Personalisation:
    """The neutral choice: all clients use the global model, evaluated on all test records."""
    return Personalisation("shared", False, lambda thetas, batch: thetas)


def own() -> Personalisation:
    """Each client uses the model of its personal parameters, evaluated on its own test records."""
    return Personalisation("own", True, lambda thetas, batch: thetas)


def fine_tuned() -> Personalisation:
    """Each client fine-tunes the global model by one round of local SGD, which it never sends."""
    return Personalisation(
        "fine-tuned", True, lambda thetas, batch: thetas + batch_sgd(batch, thetas)
    )
