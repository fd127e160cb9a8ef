"""The attack ``tailored``: HyperFL's attack on its own framework (Figure 7).

First the client's embedding is recovered by Eq. 10: embedding and output of the
hypernetwork are optimised together until the hypernetwork gradient that they give has
the direction of the released one. Then the image, by model inversion (He, Zhang, Lee
2019) under the recovered body.

What the paper leaves open is chosen here. 1. The unknown is the output's difference to
the generated body: for a squared loss that difference is the loss's gradient by the
body (Delta theta of Eq. 9), so the minimisers are the same. 2. Model inversion needs
features of the client's image. They are the input of the first dense layer, the ratio
of its weight and bias gradients in the recovered difference (Phong et al. 2018). Below
two layers of maximum pooling features alone end at 11 dB, so that the gradients of the
layers below are compared, too, as Eq. 9 says: the objective of ``ig``. 3. Distances are
1 - cosine in the first step; Adam at 0.1 with the rates of HyperFL's IG for half of the
steps, then the settings of ``ig``.

Where the model itself is released, as under FedAvg, body and gradient are public, and
the attack is its second step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from simulate.attacks.bodies import of_parameters
from simulate.attacks.descent import Descent, Progress, grey_inputs, minimise
from simulate.attacks.hypernetwork_objective import (
    first_embeddings,
    first_normals,
    updates_of,
)
from simulate.attacks.ig import OURS, inverted
from simulate.attacks.matching import feature_matching
from simulate.attacks.view import Guess, Options, View, nothing_released, register

EMBEDDING = Descent(rate=0.1, milestones=(3 / 8, 5 / 8, 7 / 8))
_FIRST_DIFFERENCES = 1e-2  # standard deviation of the first differences of the output


@register("tailored", source="HyperFL, Eq. 9 and 10, Appendix D.1", steps=2000)
def tailored(
    views: Sequence[View], options: Options, progress: Progress
) -> list[Guess]:
    """Embedding and gradient of the body by optimisation, then images by features."""
    first_view = views[0]
    if first_view.kind == "nothing":
        return nothing_released(views)
    if first_view.kind != "hypernetwork":
        return _inverted(views, options, options.steps, progress)
    half = max(1, options.steps // 2)

    def in_second_half(done: int, steps: int) -> None:
        progress(half + done, half + steps)

    def in_first_half(done: int, steps: int) -> None:
        progress(done, half + steps)

    bodies, distances = _recovered(views, options, half, in_first_half)
    guesses = _inverted(bodies, options, half, in_second_half)
    with_distance = []
    for guess, distance in zip(guesses, distances, strict=True):
        numbers = {**guess.numbers, "embedding_objective": float(distance)}
        with_distance.append(replace(guess, numbers=numbers))
    return with_distance


def _recovered(
    views: Sequence[View], options: Options, steps: int, progress: Progress
) -> tuple[list[View], Tensor]:
    """Releases as updates of the recovered bodies, and the distances left [K]."""
    updates = updates_of(views)
    embeddings = first_embeddings(views, options.seed).requires_grad_()
    size = views[0].hypernetwork.generated_size
    drawn = first_normals(len(views), (size,), options.seed, 3)
    differences = (_FIRST_DIFFERENCES * drawn).to(embeddings.device).requires_grad_()

    def distance(share: float) -> Tensor:
        hidden = updates.hidden(embeddings)
        return updates.distance(embeddings, hidden, differences)

    stage = options.checkpoint.stage("embedding")
    minimise(distance, [embeddings, differences], EMBEDDING, steps, stage, progress)
    with torch.no_grad():
        bodies = updates.bodies(updates.hidden(embeddings))
        distances = distance(1.0)
    recovered = zip(views, bodies, differences.detach(), strict=True)
    return [of_parameters(*of_view) for of_view in recovered], distances


def _inverted(
    views: Sequence[View], options: Options, steps: int, progress: Progress
) -> list[Guess]:
    """One image for each release, by features and gradients below the dense layer."""
    matching = feature_matching(views)
    if matching is None:
        return [Guess(note="no dense layer is released") for _ in views]
    first_view = views[0]
    start = grey_inputs(first_view, (len(views), 1, *first_view.model.input_shape))
    chosen = replace(options, steps=steps)
    return inverted(matching, views, start, OURS, chosen, progress)
