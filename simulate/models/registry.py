"""Models by name.

An architecture of the project is registered by a module of this package; other packages register
theirs in the entry-point group ``privplan.models``.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from privplan.errors import InputError, did_you_mean
from privplan.registry import Registry
from simulate.models.modular import PREFIX, PRETRAINED, adapted
from simulate.models.network import Model


class Architecture(Protocol):
    """A function that builds a model for records of any shape and any number of classes."""

    def __call__(self, name: str, *, shape: tuple[int, ...] = ..., classes: int = ...) -> Model:
        """The model.

        Args:
            name: name of the model, as in the spec.
            shape: shape of one record; it has a default.
            classes: number of logits; it has a default.

        Raises:
            InputError: when the architecture does not fit records of this shape.
        """


def _checked(component: object) -> Architecture:
    if not callable(component):
        raise TypeError("must be a function of name, shape and classes")
    return component


MODELS: Registry[Architecture] = Registry(
    "model.name", "privplan.models", "simulate.models", _checked
)


def model(name: str) -> Model:
    """The model of a name.

    Args:
        name: a registered name, or ``vit:FOLDER`` or ``roberta:FOLDER`` for weights on disk;
            then, where they differ from the defaults, the shape of a record and the number of
            classes: ``resnet-18:100``, ``cnn-2:1x32x32:62``, ``roberta:weights:x64:2``.
            ``adapters:`` before any of these freezes the body and inserts adapters.

    Raises:
        InputError: the name is not registered (the message lists the registered ones), or what
            follows it is neither a shape nor a number of classes.
    """
    if name.startswith(PREFIX):
        return adapted(model(name.removeprefix(PREFIX)))
    base, *rest = name.split(":")
    sizes: dict[str, Any] = {}
    least = 1 if base in PRETRAINED else 0
    while len(rest) > least and re.fullmatch(r"[0-9x]*[1-9][0-9]*", rest[-1]):
        size = rest.pop()
        sides = tuple(int(side) for side in size.split("x") if side)
        sizes |= {"shape": sides} if "x" in size else {"classes": sides[0]}
    if base in PRETRAINED and rest:
        return PRETRAINED[base](name=name, folder=":".join(rest), **sizes)
    if not MODELS.has_exactly(base):
        known = [*sorted(MODELS), *(f"{kind}:FOLDER" for kind in sorted(PRETRAINED))]
        rule = f"must be one of {', '.join(known)}{did_you_mean(name, MODELS)}"
        raise InputError.one("model.name", rule, name)
    if rest:
        rule = "must be a name, then at most a shape such as 3x32x32 and a number of classes"
        raise InputError.one("model.name", rule, name)
    return MODELS.get(base)(name, **sizes)
