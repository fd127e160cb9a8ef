"""Random changes of a client's images in training."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from privplan.values import Count, Probability, Value, is_none


class Augmentation(Value):
    """Random changes of an image each time that a client trains on it, which cost no privacy.

    A client changes its own records before gradients and updates are clipped, so that the bound on
    what a client or a record contributes is the same. Test records stay as they are.
    """

    shift: Count | None = Field(
        None,
        description="Most pixels by which an image is moved along each axis; pixels at the border "
        "are repeated.",
        exclude_if=is_none,
    )
    flip: Probability | None = Field(
        None,
        description="Chance that an image is mirrored left to right, for example 0.5.",
        exclude_if=is_none,
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.shift is None and self.flip is None:
            raise ValueError("must name shift or flip, or be left out")
        return self

    @property
    def numbers(self) -> tuple[int, float]:
        """The largest shift and the chance of a flip; 0 where left out."""
        return self.shift or 0, self.flip or 0.0
