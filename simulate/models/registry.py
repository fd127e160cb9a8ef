"""Models by name, and those on disk.

Other modules of this package register built-in ones; other packages register theirs in
the entry-point group ``privplan.models``.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from privplan.errors import InputError, one_of
from privplan.registry import Registry, function_of
from simulate.models.adapters import PREFIX, adapted
from simulate.models.network import Model
from simulate.models.transformers import PRETRAINED


class Architecture(Protocol):
    """A function that builds a model for any shape of records and number of classes."""

    def __call__(
        self, name: str, *, shape: tuple[int, ...] = ..., classes: int = ...
    ) -> Model:
        """The model of a name; shape of a record and number of logits have defaults."""


MODELS: Registry[Architecture] = Registry(
    "model.name",
    "privplan.models",
    "simulate.models",
    function_of("name, shape and classes"),
)
_SIZE = "[0-9x]*[1-9][0-9]*"
"""A shape, such as 3x32x32 or x64, or a number of classes."""


def model(name: str) -> Model:
    """The model of a name; ``vit:FOLDER`` and ``roberta:FOLDER`` for weights on disk.

    Shape of a record and number of classes follow where they differ from the defaults:
    ``resnet-18:100``, ``cnn-2:1x32x32:62``, ``roberta:weights:x64:2``. ``adapters:``
    before any of these freezes the body and inserts adapters.

    Raises:
        InputError: for an unknown name, or sizes of another form.
    """
    if name.startswith(PREFIX):
        return adapted(model(name.removeprefix(PREFIX)))
    base, *details = name.split(":")
    # Sizes stand at the end; of a name with a folder, the folder comes first.
    sizes: dict[str, Any] = {}
    folder_parts = 1 if base in PRETRAINED else 0
    while len(details) > folder_parts and re.fullmatch(_SIZE, details[-1]):
        size = details.pop()
        numbers = tuple(int(number) for number in size.split("x") if number)
        if "x" in size:
            sizes["shape"] = numbers
        else:
            sizes["classes"] = numbers[0]
    if base in PRETRAINED and details:
        return PRETRAINED[base](name=name, folder=":".join(details), **sizes)
    if not MODELS.has_exactly(base):
        folders = (f"{kind}:FOLDER" for kind in sorted(PRETRAINED))
        rule = one_of([*sorted(MODELS), *folders], name)
        raise InputError.one("model.name", rule, name)
    if details:
        rule = "must be a name, then at most a shape such as 3x32x32 and a number of classes"
        raise InputError.one("model.name", rule, name)
    return MODELS.get(base)(name, **sizes)
