"""Labelled records, images or text, split into training and test records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError


@dataclass(frozen=True)
class Dataset:
    """Records in their smallest integer type; a batch is decoded only when it is used.

    Attributes:
        name: its registered name.
        train_x: records [n, *shape]: images [n, channels, height, width], uint8, or
            token ids, any integer type.
        train_y: labels [n], int64.
        test_x: records [t, *shape].
        test_y: labels [t], int64.
        classes: names of the classes, in the order of their labels.
        mean: pixel value that becomes 0, one number or one per channel; a public
            constant, never computed from clients' data. Not used for tokens.
        std: pixel values that become 1, likewise.
        kind: type of a record.
        train_people: number of the person that each training record is from [n]; None
            when the data set does not name people.
        test_people: the same for the test records [t].
        targets: of all records, training records first [n + t, ...], in a task other
            than multi-class classification; labels are then its rows. None otherwise.
        test_groups: name of the privacy group of each test record [t]; None where
            unknown.
        codes: places in a record of numbers that are codes, such as rows of an
            embedding.
        labels_are_public: whether scores may be weighed by training labels.

    Raises:
        InputError: where labels or people do not fit the records.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    kind: Literal["image", "tokens"] = "image"
    train_people: np.ndarray | None = None
    test_people: np.ndarray | None = None
    targets: Tensor | None = None
    test_groups: np.ndarray | None = None
    codes: tuple[int, ...] = ()
    labels_are_public: bool = True

    def __post_init__(self) -> None:
        self._check("train", self.train_x, self.train_y, self.train_people)
        self._check("test", self.test_x, self.test_y, self.test_people)

    def test_groups_of(self, rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Test records of each privacy group that they name, by its name.

        Args:
            rows: indices of test records; None for all.

        Returns:
            Places among these test records; empty where none names a group.
        """
        if self.test_groups is None:
            return {}
        names = self.test_groups if rows is None else self.test_groups[rows]
        # The group of a record without a name is unknown.
        named = np.unique(names[names != ""])
        return {str(name): np.flatnonzero(names == name) for name in named}

    def _check(
        self, subset: str, x: Tensor, y: Tensor, people: np.ndarray | None
    ) -> None:
        """Raise where labels or people do not fit the records of a part."""
        field = f"dataset.{subset}"
        if len(x) != len(y) or not len(y):
            lengths = f"{len(x)} records, {len(y)} labels"
            raise InputError.one(field, "must have one label per record", lengths)
        if people is not None and len(people) != len(y):
            lengths = f"{len(y)} records, {len(people)} people"
            raise InputError.one(field, "must have one person per record", lengths)
        lowest = int(y.min())
        highest = int(y.max())
        labels = len(self.classes if self.targets is None else self.targets)
        if lowest < 0 or highest >= labels:
            rule = f"must have labels in 0..{labels - 1}"
            raise InputError.one(field, rule, f"{lowest}..{highest}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record, such as (channels, height, width) or (tokens,)."""
        return tuple(self.train_x.shape[1:])

    @property
    def train_labels(self) -> Tensor:
        """Class of each training record [n]; 0 for all in other tasks."""
        if self.targets is None:
            return self.train_y
        return torch.zeros_like(self.train_y)

    @property
    def test_labels(self) -> Tensor:
        """Class of each test record [t]; 0 for all in other tasks."""
        if self.targets is None:
            return self.test_y
        return torch.zeros_like(self.test_y)

    def inputs(self, records: Tensor) -> Tensor:
        """Model inputs of records [..., *shape]: images as float32, tokens as int64."""
        if self.kind == "tokens":
            return records.to(torch.int64)
        pixels = records.to(torch.float32)
        mean = self.mean
        std = self.std
        if not isinstance(mean, tuple) and not isinstance(std, tuple):
            return pixels.sub_(mean).div_(std)
        channels = self.shape[0]
        means = mean if isinstance(mean, tuple) else (mean,) * channels
        stds = std if isinstance(std, tuple) else (std,) * channels
        for channel, (centre, scale) in enumerate(zip(means, stds, strict=True)):
            pixels.select(-3, channel).sub_(centre).div_(scale)
        return pixels

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all records, labels and people; a run is bound to it."""
        content = hashlib.sha256()
        targets = () if self.targets is None else (self.targets,)
        for tensor in (self.train_x, self.train_y, self.test_x, self.test_y, *targets):
            content.update(np.ascontiguousarray(tensor.numpy()).data)
        for people in (self.train_people, self.test_people):
            if people is not None:
                content.update(np.ascontiguousarray(people, np.int64).data)
        return content.hexdigest()
