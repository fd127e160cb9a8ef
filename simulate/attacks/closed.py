"""The attack ``closed``: labels, and the image where the first layer is dense."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulate.attacks.bodies import body_gradient
from simulate.attacks.dense import first_dense, labels_of
from simulate.attacks.view import Guess, Options, View, register

Progress = Callable[[int, int], None]


@register("closed", source="Phong et al. 2018; Zhao, Mopuri, Bilen 2020")
def closed(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Label and dense input of each release; the image if the first layer is dense."""
    guesses = []
    for done, view in enumerate(views, start=1):
        guesses.append(_guess(view))
        progress(done, len(views))
    return guesses


def _guess(view: View) -> Guess:
    """What a release tells in closed form."""
    if view.kind == "nothing":
        return Guess(note="nothing is released")
    numbers: dict[str, float] = {}
    labels = labels_of(view)
    if view.kind == "hypernetwork":
        body = body_gradient(view)
        view = body.view
        numbers.update(body.numbers)
    dense = first_dense(view, view.gradient)
    if dense is None:
        note = ""
        if labels is None:
            note = "no dense layer is released"
        return Guess(labels=labels, numbers=numbers, note=note)
    index, fit = dense
    numbers["dense_residual"] = fit.residual
    if index > 0:
        return Guess(labels=labels, numbers=numbers)
    pixels = view.outputs(fit.inputs.view(view.model.input_shape))
    return Guess(pixels.clamp(0, 1)[None], labels, numbers)
