"""Labelled records, images or text, split into training and test records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from privplan.errors import Fault, InputError
from privplan.spec.training import Augmentation
from privplan.streams import Purpose, stream
from simulate.data.partition.clients import ClientPartition


@dataclass(frozen=True)
class Dataset:
    """Records in their smallest integer type; a batch is decoded only when it is used."""

    name: str  # its registered name
    # records [n, *shape]: images [n, channels, height, width], uint8, or token ids, any integer
    # type
    train_x: Tensor
    train_y: Tensor  # labels [n], int64
    test_x: Tensor  # records [t, *shape]
    test_y: Tensor  # labels [t], int64
    classes: tuple[str, ...]  # names of the classes, in the order of their labels
    # pixel value that becomes 0, one number or one per channel; a public constant, never computed
    # from clients' data. Not used for tokens
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0  # pixel values that become 1, likewise
    kind: Literal["image", "tokens"] = "image"  # type of a record
    # number of the person that each training record is from [n]; None when the data set does not
    # name people
    train_people: np.ndarray | None = None
    test_people: np.ndarray | None = None  # the same for the test records [t]
    # targets of all records, training records first [n + t, ...], in a task other than multi-class
    # classification; labels are then its rows. None otherwise
    targets: Tensor | None = None
    # name of the privacy group of each test record [t]; None where unknown
    test_groups: np.ndarray | None = None

    def __post_init__(self) -> None:
        for part, x, y, people in (
            ("train", self.train_x, self.train_y, self.train_people),
            ("test", self.test_x, self.test_y, self.test_people),
        ):
            if len(x) != len(y) or not len(y):
                found = f"{len(x)} records, {len(y)} labels"
                raise InputError.one(
                    f"dataset.{part}", "must have one label per record", found
                )
            if people is not None and len(people) != len(y):
                found = f"{len(y)} records, {len(people)} people"
                raise InputError.one(
                    f"dataset.{part}", "must have one person per record", found
                )
            low, high = int(y.min()), int(y.max())
            most = len(self.classes if self.targets is None else self.targets)
            if low < 0 or high >= most:
                rule = f"must have labels in 0..{most - 1}"
                raise InputError.one(f"dataset.{part}", rule, f"{low}..{high}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record, such as (channels, height, width) or (tokens,)."""
        return tuple(self.train_x.shape[1:])

    @property
    def train_labels(self) -> Tensor:
        """Class of each training record [n]; 0 for all in other tasks."""
        return self.train_y if self.targets is None else torch.zeros_like(self.train_y)

    @property
    def test_labels(self) -> Tensor:
        """Class of each test record [t]; 0 for all in other tasks."""
        return self.test_y if self.targets is None else torch.zeros_like(self.test_y)

    def inputs(self, records: Tensor) -> Tensor:
        """Model inputs of records [..., *shape]: images as float32, tokens as int64."""
        if self.kind == "tokens":
            return records.to(torch.int64)
        pixels = records.to(torch.float32)
        mean, std = self.mean, self.std
        if not isinstance(mean, tuple) and not isinstance(std, tuple):
            return pixels.sub_(mean).div_(std)
        channels = self.shape[0]
        means = mean if isinstance(mean, tuple) else (mean,) * channels
        stds = std if isinstance(std, tuple) else (std,) * channels
        for channel, (centre, scale) in enumerate(zip(means, stds, strict=True)):
            pixels.select(-3, channel).sub_(centre).div_(scale)
        return pixels

    @property
    def digest(self) -> str:
        """SHA-256 of all records, labels and people; a run is bound to it."""
        content = hashlib.sha256()
        targets = () if self.targets is None else (self.targets,)
        for part in (self.train_x, self.train_y, self.test_x, self.test_y, *targets):
            content.update(np.ascontiguousarray(part.numpy()).data)
        for people in (self.train_people, self.test_people):
            if people is not None:
                content.update(np.ascontiguousarray(people, np.int64).data)
        return content.hexdigest()


# --- A part of the training records of a data set, for runs that a small machine can do. ---------

SEED = 0  # seed of the draw: a part is a data set like another, the same in all runs


def part_of(data: Dataset, count: int) -> Dataset:
    """The data set with so many training records; classes keep their shares to one record."""
    labels = data.train_labels.numpy()
    if not 1 <= count <= len(labels):
        rule = f"must have from 1 to {len(labels)} training records"
        raise InputError.one("dataset", rule, f"{data.name}:{count}")
    names, sizes = np.unique(labels, return_counts=True)
    ends = np.cumsum(sizes) * count // len(labels)
    source, chosen = np.random.default_rng(SEED), []
    for label, many in zip(names, np.diff(ends, prepend=0), strict=True):
        chosen.append(source.permutation(np.flatnonzero(labels == label))[:many])
    rows = np.sort(np.concatenate(chosen))
    taken, people = torch.from_numpy(rows), data.train_people
    return replace(
        data,
        name=f"{data.name}:{count}",
        train_x=data.train_x[taken],
        train_y=data.train_y[taken],
        train_people=None if people is None else people[rows],
    )


# --- A validation split: what is chosen by it has not seen the test records. ---------------------


def validation_split(data: Dataset, share: float, seed: int) -> Dataset:
    """The data set with a part of its training records, of each class, for its test records."""
    if not 0 < share < 1:
        raise InputError.one("validation_share", "must be in (0, 1)", share)
    labels, source = data.train_labels.numpy(), np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        held[source.permutation(rows)[: round(share * len(rows))]] = True
    if not held.any() or held.all():
        rule = "must leave records on both sides of the validation split"
        raise InputError.one("validation_share", rule, share)
    return with_held_out(data, f"{data.name}, validation", held)


def with_held_out(data: Dataset, name: str, held: np.ndarray) -> Dataset:
    """The data set with some of its training records [n, bool] for its test records."""
    chosen, people = torch.from_numpy(held), data.train_people
    return replace(
        data, name=name, train_x=data.train_x[~chosen],
        train_y=data.train_y[~chosen], test_x=data.train_x[chosen], test_y=data.train_y[chosen],
        train_people=None if people is None else people[~held],
        test_people=None if people is None else people[held], test_groups=None,
    )  # fmt: skip


# --- Test records of one client, for the evaluation of personal models. --------------------------

MOST = 100  # default of the largest number of test records of a client


def personal_test_records(
    data: Dataset, partition: ClientPartition, client: int, seed: int, most: int = MOST
) -> np.ndarray:
    """Test records distributed like the client's training records.

    Where the client is a person with test records, those of the person. Otherwise test records with
    the label distribution of the client's training records: as many as its scarcest label allows,
    rounded by largest remainders, drawn without replacement. Two clients may share test records.
    """
    generator = stream(seed, Purpose.OWN_TEST, int(client))
    person = partition.person(client)
    if person is not None and data.test_people is not None:
        own = np.flatnonzero(data.test_people == person)
        if len(own):
            chosen = (
                own if len(own) <= most else generator.choice(own, most, replace=False)
            )
            return np.sort(chosen)
    classes, labels = len(data.classes), data.test_labels.numpy()
    trained = np.bincount(
        data.train_labels.numpy()[partition.records(client)], minlength=classes
    )
    available = np.bincount(labels, minlength=classes)
    wanted = np.where(available > 0, trained, 0).astype(np.float64)
    if not wanted.sum():
        return np.empty(0, np.int64)
    share = wanted / wanted.sum()
    positive = share > 0
    total = min(
        most, int(np.floor((available[positive] / share[positive]).min() + 1e-9))
    )
    exact = share * total
    counts = np.floor(exact + 1e-9).astype(np.int64)
    remainders = np.where(positive & (counts < available), exact - counts, -1.0)
    counts[np.argsort(-remainders, kind="stable")[: total - counts.sum()]] += 1
    drawn = [
        generator.choice(np.flatnonzero(labels == label), counts[label], replace=False)
        for label in np.flatnonzero(counts)
    ]
    return np.sort(np.concatenate(drawn)) if drawn else np.empty(0, np.int64)


# --- Public images of another size than a model takes: grey or repeated channels, interpolated. --

BLOCK = 4096  # images that are interpolated at a time


def fitted(data: Dataset, shape: tuple[int, ...]) -> Dataset:
    """The data set with images of a shape, channels averaged or repeated, sides interpolated."""
    own = data.shape
    if data.kind != "image" or own == shape or len(own) != 3 or len(shape) != 3:
        return data
    if 1 not in (own[0], shape[0]) and own[0] != shape[0]:
        return data
    mean, std = data.mean, data.std
    if own[0] != shape[0]:
        mean = fmean(mean) if isinstance(mean, tuple) else mean
        std = fmean(std) if isinstance(std, tuple) else std
    train_x, test_x = (_images(x, shape) for x in (data.train_x, data.test_x))
    return replace(data, train_x=train_x, test_x=test_x, mean=mean, std=std)


def _images(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Images [n, *own] as [n, *shape], uint8."""
    blocks = []
    for at in range(0, len(images), BLOCK):
        pixels = images[at : at + BLOCK].float()
        if shape[0] == 1:
            pixels = pixels.mean(1, keepdim=True)
        if pixels.shape[2:] != shape[1:]:
            size = (shape[1], shape[2])
            pixels = functional.interpolate(
                pixels, size, mode="bilinear", antialias=True
            )
        blocks.append(
            pixels.round().clamp(0, 255).to(torch.uint8).expand(-1, shape[0], -1, -1)
        )
    return torch.cat(blocks)


# --- Random shifts and flips of images in training, drawn from each client's own stream. ----------


def augmentation_faults(rule: Augmentation, data: Dataset) -> Iterator[Fault]:
    """What keeps records from being moved or mirrored."""
    if data.kind != "image" or len(data.shape) != 3:
        shape = "x".join(map(str, data.shape))
        text = "must be left out for records that are no images of channels, height and width"
        yield Fault("local.augmentation", text, f"{data.name} with {shape}")
    elif rule.numbers[0] >= min(data.shape[1:]):
        text = f"must be below the sides of the images, {data.shape[1]} and {data.shape[2]}"
        yield Fault("local.augmentation.shift", text, rule.shift)


def augmented(
    x: Tensor, rule: Augmentation | None, sources: Iterable[np.random.Generator]
) -> Tensor:
    """Mini-batches with every image moved by whole pixels and mirrored at random.

    A row of a batch draws three numbers, so what happens to it does not depend on the number of
    rows after it. Pixels at the border are repeated where an image is moved away from it.
    """
    clients, steps, rows = x.shape[:3]
    if rule is None or clients == 0:
        return x
    drawn = np.stack([source.random((rows, steps, 3)) for source in sources])
    chances = torch.from_numpy(drawn).transpose(1, 2).flatten(0, 2)
    shift, flip = rule.numbers
    moves = (chances[:, :2] * (2 * shift + 1)).long() - shift
    images = x.flatten(0, 2)
    height, width = images.shape[-2:]
    lines = (torch.arange(height) + moves[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width) + moves[:, 1:]).clamp(0, width - 1)
    columns = torch.where((chances[:, 2] < flip).unsqueeze(1), columns.flip(1), columns)
    pixels = (lines.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1).to(x.device)
    taken = images.flatten(2).gather(
        2, pixels.unsqueeze(1).expand(-1, images.shape[1], -1)
    )
    return taken.view(x.shape)


def error_line(error: BaseException) -> str:
    """Type and first line of an error in the user's code, for a message of one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
