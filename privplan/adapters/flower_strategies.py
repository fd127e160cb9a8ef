"""Which strategies of Flower can be wrapped, and what they keep between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from privplan.errors import InputError

_COMPARES = "it compares the updates of single clients, which a plan's noisy sum does not contain"
_OWN_NOISE = "it adds noise of its own; wrap the strategy inside it"
REFUSED = {
    "Krum": _COMPARES,
    "MultiKrum": _COMPARES,
    "Bulyan": _COMPARES,
    "FedMedian": _COMPARES,
    "FedTrimmedAvg": _COMPARES,
    "QFedAvg": "it weights updates by the losses of clients, which no noise protects",
    "FedXgbBagging": "it collects trees, whose sensitivity clipping does not bound",
    "FedXgbCyclic": "it passes trees from client to client without any noise",
    "DifferentialPrivacyFixedClippingBase": _OWN_NOISE,
    "DifferentialPrivacyAdaptiveBase": _OWN_NOISE,
}
"""Strategies that cannot be wrapped, with the reason."""
_STATE = "state"


def check_strategy(strategy: object) -> None:
    """Refuse a strategy that does not work on one noised mean.

    Raises:
        InputError: with the reason.
    """
    for base in type(strategy).__mro__:
        if base.__name__ in REFUSED and base.__module__.startswith("flwr."):
            rule = f"must work on one noised mean; {REFUSED[base.__name__]}"
            raise InputError.one("strategy", rule, type(strategy).__name__)


def state_of(strategy: object) -> dict[str, np.ndarray]:
    """Arrays that a strategy keeps between rounds, such as the moments of FedAdam."""
    found = {}
    for name, value in vars(strategy).items():
        if isinstance(value, dict):
            items = [("dict", key, one) for key, one in value.items()]
        else:
            rows = value if isinstance(value, list) else []
            items = [("list", index, one) for index, one in enumerate(rows)]
        for kind, key, one in items:
            if isinstance(one, np.ndarray):
                found[f"{_STATE}/{name}/{kind}/{key}"] = one
    return found


def restore_state(strategy: object, stored: Mapping[str, np.ndarray]) -> None:
    """Give a strategy back what ``state_of`` found."""
    values: dict[str, Any] = {}
    for name, one in stored.items():
        if name.startswith(f"{_STATE}/"):
            _, attribute, kind, key = name.split("/", 3)
            value = values.setdefault(attribute, {} if kind == "dict" else [])
            if kind == "dict":
                value[key] = one
            else:
                value.append(one)
    for attribute, value in values.items():
        setattr(strategy, attribute, value)
