"""ROG: gradients matched by a small image, which a network then enlarges.

K. Yue, R. Jin, C.-W. Wong, D. Baron, H. Dai, Gradient Obfuscation Gives a False Sense of Security
in Federated Learning, USENIX Security 2023: images of half the side are optimised so that their
bicubic enlargement has the released gradient, then a network trained on public images restores
detail. As in HyperFL, Appendix D.1: Adam at 0.05, 100 steps. The network is a file of the user's,
written by ``torch.export.save``, from the pixels in [0, 1] of one image, shape
[1, channels, height, width], to the same; it is never downloaded.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from privplan.errors import InputError
from simulate.attacks.closed_form import labels_of
from simulate.attacks.dense import Objective
from simulate.attacks.inversion import Descent, descend, gradient_objective
from simulate.attacks.registry import Guess, Options, register
from simulate.attacks.tailored import Progress, joint_objective
from simulate.attacks.view import View

STEPS = 100
DESCENT = Descent(
    rate=0.05, variation=0.0, signed=False, grey=False, milestones=(1.0,), dense=False
)
"""A constant rate: the only milestone is the end."""
NOT_AVAILABLE = "not available: its network is not on disk (--rog-network)"
FIELD = "rog-network"


def network(path: Path) -> Callable[[Tensor], Tensor]:
    """The enlarging network of a file.

    Raises:
        InputError: when the file is missing or holds no network.
    """
    rule = "must be a file written by torch.export.save"
    if not path.is_file():
        raise InputError.one(FIELD, rule, str(path))
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            logging.disable()  # the loader writes a traceback of its own to the log
            loaded: Callable[[Tensor], Tensor] = torch.export.load(path).module()
    except Exception:  # the loader raises errors of many kinds
        raise InputError.one(FIELD, rule, str(path)) from None
    finally:
        logging.disable(logging.NOTSET)
    return loaded


def restored(images: Tensor, restore: Callable[[Tensor], Tensor]) -> Tensor:
    """Pixels of the network, in [0, 1], of images [n, channels, height, width].

    Raises:
        InputError: when the network does not return images of this shape.
    """
    try:
        with torch.no_grad():
            found: object = torch.cat([restore(image[None]) for image in images])
    except (RuntimeError, TypeError, AssertionError) as error:
        found = str(error).strip().splitlines()[-1]
    if not isinstance(found, Tensor) or found.shape != images.shape:
        shape = list(found.shape) if isinstance(found, Tensor) else found
        raise InputError.one(FIELD, f"must return images of shape {list(images.shape)}", shape)
    return found.clamp(0, 1).nan_to_num(0.5)


@register("rog", iterative=True, source="Yue et al. 2023, as in HyperFL, Appendix D.1")
def rog(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Half-size images by inversion of gradients, enlarged by a network from disk."""
    first = views[0]
    if first.kind == "nothing":
        return [Guess(note="nothing is released") for _ in views]
    if not options.rog_network:
        return [Guess(note=NOT_AVAILABLE) for _ in views]
    restore = network(Path(options.rog_network))
    count = min(first.records, options.records)
    channels, height, width = first.model.input_shape
    objective, extra = _objective(views, options, count)

    def enlarged(small: Tensor) -> Tensor:
        wide = functional.interpolate(
            small.flatten(0, 1), (height, width), mode="bicubic", align_corners=False
        )
        return wide.view(*small.shape[:2], channels, height, width)

    def from_small(small: Tensor, share: float) -> Tensor:
        return objective(enlarged(small), share)

    shape = (len(views), count, channels, (height + 1) // 2, (width + 1) // 2)
    own = replace(options, steps=STEPS)
    images, values = descend(from_small, shape, first, DESCENT, own, progress, extra)
    return [
        Guess(restored(image, restore), labels_of(view), {"objective": float(value)})
        for image, value, view in zip(
            enlarged(images).clamp(0, 1), values.nan_to_num(2.0), views, strict=True
        )
    ]


def _objective(
    views: Sequence[View], options: Options, count: int
) -> tuple[Objective, Sequence[Tensor]]:
    """Distance of gradients, and its unknowns beside the images."""
    if views[0].kind == "hypernetwork":
        return joint_objective(views, options)
    inferred = [labels_of(view) for view in views]
    labels = [one[:count] for one in inferred if one is not None]
    if len(labels) == len(views):
        return gradient_objective(views, torch.stack(labels)), ()
    device = views[0].parameters.device
    logits = torch.zeros(len(views), count, views[0].model.classes, device=device)
    logits.requires_grad_()

    def objective(inputs: Tensor, share: float) -> Tensor:
        return gradient_objective(views, logits.softmax(2))(inputs, share)

    return objective, [logits]
