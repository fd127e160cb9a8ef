"""The attack ``rog``: small images that match gradients through a decoder.

K. Yue, R. Jin, C.-W. Wong, D. Baron, H. Dai, Gradient Obfuscation Gives a False Sense
of Security in Federated Learning, USENIX Security 2023: small images are optimised so
that what they are enlarged to has the released gradient, by Adam at 0.05 on pixels
along half a cosine; a network that was trained on public images adds detail. HyperFL,
Appendix D.1, has 100 steps and all unknowns of HyperFL at once.

Two things differ, since on images of 28 pixels the published order, first the enlarged
image and then the detail, ends at 16 dB. The decoder is in the objective, so that the
image with detail has the released gradient, in the closed form of ``ig`` where there is
one; and Adam takes 300 steps, by the sign of the gradient. ``--steps 100`` has the
published number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.attacks.decoder import small_side
from simulate.attacks.descent import (
    Descent,
    Progress,
    descend,
    grey_inputs,
    guess_of,
    pixels_of,
)
from simulate.attacks.matching import closed_form_or_gradients, image_shape
from simulate.attacks.view import Guess, Options, View, nothing_released, register

DESCENT = Descent(rate=0.05, is_signed=True)


@register("rog", source="Yue et al. 2023, as HyperFL, Appendix D.1", steps=300)
def rog(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Images of half the side, whose decoded images have the released gradients."""
    first_view = views[0]
    if first_view.kind == "nothing":
        return nothing_released(views)
    decode = options.decode
    if decode is None:
        rule = "must name public data for the attack rog"
        raise InputError.one("decoder-data", rule, "nothing")
    shape = image_shape(views)
    _, images, _, height, width = shape
    matching = closed_form_or_gradients(views, images, options.seed)

    def of_small(small: Tensor, share: float) -> Tensor:
        return matching.objective(first_view.inputs(decode(small)), share)

    grey = first_view.outputs(grey_inputs(first_view, shape))
    start = grey[..., : small_side(height), : small_side(width)]
    black = torch.zeros_like(start[0, 0])
    small, values = descend(
        of_small,
        start,
        (black, black + 1.0),
        DESCENT,
        options.steps,
        options.checkpoint.stage("small-images"),
        progress,
        matching.unknowns,
    )
    pixels = pixels_of(first_view, first_view.inputs(decode(small)))
    return [
        guess_of(pixels[index], matching.labels(index), values[index])
        for index in range(len(views))
    ]
