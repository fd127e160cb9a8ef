"""The attack ``ig``: images whose gradients have the direction of the released ones.

J. Geiping, H. Bauermeister, H. Droege, M. Moeller, Inverting Gradients, NeurIPS 2020,
Eq. 4: minimise 1 - cosine(gradient of the dummy images, released gradient) + weight *
total variation, by Adam on the sign of the gradient. Where the input of the first dense
layer follows in closed form, the features and the gradients below that layer are
compared instead, and neither label nor head is needed; on a hypernetwork, after its
closed form. The learning rate falls from 0.2 as a half cosine, and the start is the
data set's public mean pixel.

``ig-paper`` has the settings of HyperFL, Appendix D.1: all gradients, and on a
hypernetwork all unknowns at once; 10,000 steps of Adam at 0.1, divided by 10 after 3/8,
5/8 and 7/8 of them; total variation 1e-6. Normal first images, as Geiping et al.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from simulate.attacks.bodies import body_gradient
from simulate.attacks.descent import (
    Descent,
    Progress,
    descend,
    grey_inputs,
    guess_of,
    input_limits,
    pixels_of,
)
from simulate.attacks.hypernetwork_objective import first_normals
from simulate.attacks.matching import (
    Matching,
    closed_form_or_gradients,
    feature_matching,
    gradient_matching,
    image_shape,
)
from simulate.attacks.view import Guess, Options, View, nothing_released, register

OURS = Descent(rate=0.2, variation=1e-2, is_signed=True)
PAPER = Descent(rate=0.1, milestones=(3 / 8, 5 / 8, 7 / 8), variation=1e-6)
# So few that 10,000 steps take about a minute for a network of some thousand weights.
_FEW_IMAGES = 4


@register(
    "ig", source="Geiping et al. 2020; with features, docs/attacks.md", steps=1000
)
def ig(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Invert all releases at the same time, with what they tell in closed form."""
    first_view = views[0]
    if first_view.kind == "nothing":
        return nothing_released(views)
    shape = image_shape(views)
    start = grey_inputs(first_view, shape)
    if first_view.kind != "hypernetwork":
        matching = closed_form_or_gradients(views, shape[1], options.seed)
        return inverted(matching, views, start, OURS, options, progress)
    bodies = [body_gradient(view) for view in views]
    of_bodies = feature_matching([body.view for body in bodies])
    if of_bodies is None:
        return [Guess(note="the body has no dense layer") for _ in views]
    guesses = inverted(of_bodies, views, start, OURS, options, progress)
    return [
        replace(guess, numbers={**guess.numbers, **body.numbers})
        for guess, body in zip(guesses, bodies, strict=True)
    ]


@register(
    "ig-paper",
    source="Geiping et al. 2020, as HyperFL, Appendix D.1",
    steps=10_000,
    images=_FEW_IMAGES,
)
def ig_paper(
    views: Sequence[View], options: Options, progress: Progress
) -> list[Guess]:
    """Invert all releases at the same time, without any closed form but labels."""
    first_view = views[0]
    if first_view.kind == "nothing":
        return nothing_released(views)
    shape = image_shape(views)
    start = first_normals(len(views), shape[1:], options.seed, 2)
    matching = gradient_matching(views, shape[1], options.seed)
    start = start.to(first_view.parameters.device)
    return inverted(matching, views, start, PAPER, options, progress)


def inverted(
    matching: Matching,
    views: Sequence[View],
    start: Tensor,
    descent: Descent,
    options: Options,
    progress: Progress,
) -> list[Guess]:
    """The images that minimise an objective, from model inputs ``start``."""
    first_view = views[0]
    images, values = descend(
        matching.objective,
        start,
        input_limits(first_view),
        descent,
        options.steps,
        options.checkpoint.stage("images"),
        progress,
        matching.unknowns,
    )
    pixels = pixels_of(first_view, images)
    return [
        guess_of(pixels[index], matching.labels(index), values[index])
        for index in range(len(views))
    ]
