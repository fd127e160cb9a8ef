"""Objectives of images by what is released; what is not known is an unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simulate.attacks.dense import labels_of
from simulate.attacks.feature_objective import dense_objective, rank_one_fit
from simulate.attacks.gradient_objective import Objective, gradient_objective
from simulate.attacks.hypernetwork_objective import joint_objective
from simulate.attacks.view import View

MAX_RECORDS = 10  # most records that are reconstructed from one release


def image_shape(views: Sequence[View]) -> tuple[int, ...]:
    """Shape of the sought images [K, n, channels, height, width]."""
    first_view = views[0]
    images = min(first_view.records, MAX_RECORDS)
    return (len(views), images, *first_view.model.input_shape)


@dataclass(frozen=True)
class Matching:
    """An objective of images, for releases [K] with n images each.

    Attributes:
        objective: distance of the images from what is released.
        unknowns: that it is minimised over beside the images.
        inferred: labels per release [n]; None where they are not inferred.
        logits: unknown logits of the labels [K, n, classes], where the head is known;
            else None: under an unknown head labels say nothing.
    """

    objective: Objective
    unknowns: Sequence[Tensor]
    inferred: Sequence[Tensor | None]
    logits: Tensor | None = None

    def labels(self, index: int) -> Tensor | None:
        """Labels of a release, after the unknowns were found; None if not known."""
        if self.logits is not None:
            return self.logits[index].detach().argmax(1)
        return self.inferred[index]


def feature_matching(views: Sequence[View]) -> Matching | None:
    """Features and gradients below the first dense layer; None without such a layer."""
    objective = dense_objective(views)
    if objective is None:
        return None
    return Matching(objective, [], [labels_of(view) for view in views])


def closed_form_or_gradients(views: Sequence[View], images: int, seed: int) -> Matching:
    """Features where each release tells those of its record, else all gradients."""
    is_told = views[0].kind == "parameters" and all(
        rank_one_fit(view) is not None for view in views
    )
    matching = None
    if is_told:
        matching = feature_matching(views)
    return matching or gradient_matching(views, images, seed)


def gradient_matching(views: Sequence[View], images: int, seed: int) -> Matching:
    """The gradients of ``images`` images against all that each release holds."""
    first_view = views[0]
    unlabelled: list[Tensor | None] = [None] * len(views)
    if first_view.kind == "hypernetwork":
        objective, unknowns = joint_objective(views, images, seed)
        return Matching(objective, unknowns, unlabelled)
    labels = [labels_of(view) for view in views]
    inferred = [label[:images] for label in labels if label is not None]
    if len(inferred) == len(views):
        return Matching(gradient_objective(views, torch.stack(inferred)), [], inferred)
    logits = first_view.parameters.new_zeros(
        len(views), images, first_view.model.classes
    )
    logits.requires_grad_()
    objective = gradient_objective(views, logits)
    return Matching(objective, [logits], unlabelled, logits)
