"""Models by name: one short file each, one table."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType

from privplan.errors import InputError
from simulate.models.adapted import PREFIX, adapted
from simulate.models.lstm import lstm
from simulate.models.network import Model
from simulate.models.networks import (
    cnn_2,
    cnn_2_valid,
    cnn_2_wide,
    cnn_3,
    cnn_digits,
    cnn_dp2_fedsam,
    cnn_hyperfl_2,
    cnn_hyperfl_3,
    mlp_digits,
)
from simulate.models.pretrained import roberta, vit
from simulate.models.resnet import (
    resnet_10,
    resnet_18,
    resnet_18_imagenet,
    resnet_34,
    resnet_34_imagenet,
)

MODELS: MappingProxyType[str, Callable[..., Model]] = MappingProxyType(
    {
        "cnn-2": cnn_2,
        "cnn-2-valid": cnn_2_valid,
        "cnn-2-wide": cnn_2_wide,
        "cnn-3": cnn_3,
        "cnn-digits": cnn_digits,
        "cnn-dp2-fedsam": cnn_dp2_fedsam,
        "cnn-hyperfl-2": cnn_hyperfl_2,
        "cnn-hyperfl-3": cnn_hyperfl_3,
        "lstm": lstm,
        "mlp-digits": mlp_digits,
        "resnet-10": resnet_10,
        "resnet-18": resnet_18,
        "resnet-18-imagenet": resnet_18_imagenet,
        "resnet-34": resnet_34,
        "resnet-34-imagenet": resnet_34_imagenet,
    }
)
"""Each takes ``name``, ``shape`` of a record and number of ``classes``, all with defaults."""


LIBRARY: MappingProxyType[str, Callable[..., Model]] = MappingProxyType(
    {"roberta": roberta, "vit": vit}
)
"""Each takes ``name``, ``folder``, and ``shape`` and ``classes``, which have defaults."""


def model(name: str) -> Model:
    """The model of a name.

    Args:
        name: a name of the table, or ``vit:FOLDER`` or ``roberta:FOLDER`` for weights on disk;
            then, where they are not the model's own, the shape of a record and the number of
            classes: ``resnet-18:100``, ``cnn-2:1x32x32:62``, ``roberta:weights:x64:2``.
            ``adapters:`` before any of these freezes the body and puts adapters into it.

    Raises:
        InputError: the name is not in the table (the message lists the known ones), or what
            follows it is neither a shape nor a number of classes.
    """
    if name.startswith(PREFIX):
        return adapted(model(name.removeprefix(PREFIX)))
    base, *rest = name.split(":")
    changes: dict[str, object] = {}
    least = 1 if base in LIBRARY else 0
    while len(rest) > least and re.fullmatch(r"[0-9x]*[1-9][0-9]*", rest[-1]):
        size = rest.pop()
        sides = tuple(int(side) for side in size.split("x") if side)
        changes |= {"shape": sides} if "x" in size else {"classes": sides[0]}
    if base in LIBRARY and rest:
        return LIBRARY[base](name=name, folder=":".join(rest), **changes)
    if base not in MODELS:
        known = ", ".join([*sorted(MODELS), *(f"{kind}:FOLDER" for kind in sorted(LIBRARY))])
        raise InputError.one("model.name", f"must be one of {known}", name)
    if rest:
        rule = "must be a name, then at most a shape such as 3x32x32 and a number of classes"
        raise InputError.one("model.name", rule, name)
    return MODELS[base](name=name, **changes)
