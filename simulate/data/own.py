"""The user's own records: arrays, tensors or a map-style dataset, with clients and groups."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan
from simulate.data.dataset import Dataset
from simulate.data.partition.clients import Partition
from simulate.tasks import MULTI_CLASS, targets_of, task_of

_log = logging.getLogger(__name__)
MOST_CLASSES = 100_000  # largest label that is a class and no number of another kind
TEST_SHARE = 0.2  # default share of the records that is split off for testing
PIXEL_SCALE = 255.0  # default pixel value that becomes 1 in records of bytes
_SPLIT_SEED = 0  # of test records, the same at every seed of a run


@dataclass
class Data:
    """Labelled records, with the client and the privacy group of each.

    Floating-point records are model inputs as they are: standardise them with public statistics.
    Records of bytes (uint8) are images and divided by 255; other integers are token ids.

    Args:
        x: records [n, ...], a NumPy array or a torch tensor; or a map-style dataset of pairs
            (record, label), and ``y`` is left out.
        y: labels [n]: whole numbers from 0, or names of classes.
        client: the client of each record [n], numbers or names; None to partition the records
            as ``partition`` of the run says.
        group: the privacy group of each record [n], or a mapping from clients to groups. Names
            are those of the plan's groups; may be left out when the plan has one group.
        test: test records, another ``Data``; its groups are not used.
        test_of_others: whether you say that the people of ``test`` are no clients. Scores on
            clients' records are a release that no budget pays for, so no report for others has
            them; scores on other people's may be shown.
        test_share: share of each client's records that is split off for testing when ``test`` is
            None; 0.2 by default. A client keeps at least one record for training.
        classes: names of the classes in the order of the model's outputs; by default all whole
            numbers up to the largest label, or the sorted names.
        name: name of the data in the run's record.
        task: what the labels are: ``multi-class``, ``binary`` (0 or 1), ``multi-label`` (0 or 1
            for each of several labels [n, labels]), ``regression`` (numbers [n] or [n, outputs]),
            or ``next-token`` (``x`` are token ids [n, T] and ``y`` is left out, or targets [n, T]
            with -100 for tokens that are not predicted).
        mean: pixel value of byte records that becomes 0, one number or one per channel.
        std: pixel values of byte records that become 1, likewise.

    Raises:
        InputError: naming every fault.
    """

    x: Any
    y: Any = None
    client: Any = None
    group: Any = None
    test: Data | None = None
    test_share: float | None = None
    classes: Sequence[object] | None = None
    name: str = "own data"
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = PIXEL_SCALE
    task: str = MULTI_CLASS
    test_of_others: bool = False
    records: Tensor = field(init=False, repr=False)
    clients: np.ndarray | None = field(init=False, repr=False)
    groups: dict[str, str] | None = field(init=False, repr=False)
    targets: Tensor | None = field(init=False, repr=False)
    _labels: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        task_of(self.task)
        alone = self.y is None and not is_dataset(self.x) and self.task == "next-token"
        x, y = (self.x, self.y) if self.y is not None or alone else pairs_of(self.x)
        self.records, self.targets = records_of(x), None
        if self.task == MULTI_CLASS:
            self._labels = class_labels("data.y", y)
        else:
            self.records, self.targets = targets_of(self.task, y, self.records)
            self._labels = np.zeros(len(self.targets), np.int64)
        self.clients = (
            None if self.client is None else names_of("data.client", self.client)
        )
        if faults := _length_faults(self) or _value_faults(self):
            raise InputError(faults)
        self.groups = None if self.group is None else _groups(self.clients, self.group)
        if self.test is not None and self.test.task != self.task:
            raise InputError.one(
                "data.test", f"must be for {self.task}", self.test.task
            )
        self.class_names()

    @classmethod
    def load(cls, source: Path | str, **options: Any) -> Data:
        """``Data`` of a file or folder; options as ``simulate.data.sources.DataOptions``."""
        from simulate.data.sources import load_file

        return load_file(source, options)

    @classmethod
    def from_table(cls, table: Any, **arguments: Any) -> Data:
        """``Data`` of a table with named columns; see ``simulate.data.sources.from_table``."""
        from simulate.data.sources import from_table

        return from_table(table, **arguments)

    @property
    def kind(self) -> Literal["image", "tokens"]:
        """How ``Dataset`` reads the records: bytes and floating point are inputs, others tokens."""
        return (
            "image" if self.records.dtype in (torch.uint8, torch.float32) else "tokens"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return tuple(self.records.shape[1:])

    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the model's outputs; one in other tasks."""
        if self.targets is not None:
            return ("all",)
        if self.classes is not None:
            return tuple(str(name) for name in self.classes)
        labels = self._labels
        if self.test is not None:
            if (labels.dtype.kind == "i") != (self.test._labels.dtype.kind == "i"):
                raise InputError.one(
                    "data.test", "must have labels of the same type", "others"
                )
            unseen = np.setdiff1d(self.test._labels, labels)
            if unseen.size:
                rule = "must have classes of the training records, unless classes names them all"
                raise InputError.one("data.test", rule, str(unseen[0]))
        if labels.dtype.kind == "i":
            return tuple(str(number) for number in range(int(labels.max()) + 1))
        return tuple(str(name) for name in np.unique(labels))

    def labels(self, classes: Sequence[str]) -> np.ndarray:
        """Label of each record as an index into ``classes`` [n], int64."""
        if self._labels.dtype.kind == "i" and self.classes is None:
            numbers: np.ndarray = self._labels
        else:
            index = {name: number for number, name in enumerate(classes)}
            numbers = np.array(
                [index.get(str(name), -1) for name in self._labels], np.int64
            )
        wrong = np.flatnonzero((numbers < 0) | (numbers >= len(classes)))
        if wrong.size:
            rule = f"must be one of the {len(classes)} classes, row {wrong[0]}"
            raise InputError.one("data.y", rule, str(self._labels[wrong[0]]))
        return numbers

    def prepared(self, groups: Sequence[GroupPlan]) -> tuple[Dataset, Partition | None]:
        """The data set, and its partition over a plan's clients; None without names of clients.

        Clients are numbered group after group, within a group in the order of their names; so the
        digest of the data set covers the groups.
        """
        train_rows, test_rows = self.split()
        part, classes = self.test or self, self.class_names()
        arguments: dict[str, Any] = {}
        partition = None
        if self.clients is not None:
            members = self._members(groups, self.clients[train_rows])
            order = np.concatenate(members)
            known = {str(name): number for number, name in enumerate(order)}
            people = np.array(
                [known[str(name)] for name in self.clients[train_rows]], np.int64
            )
            arguments["train_people"] = people
            if part.clients is not None:
                names = [str(name) for name in part.clients[test_rows]]
                group_of = self.groups or dict.fromkeys(known, groups[0].name)
                owners = np.array(
                    [known.get(name, len(known)) for name in names], np.int64
                )
                arguments["test_people"] = owners
                arguments["test_groups"] = np.array(
                    [group_of.get(name, "") for name in names]
                )
                if unknown := int((owners == len(known)).sum()):
                    text = "%d of %d test records are of clients that have no training records: "
                    text += "they count in the whole test score, in no group's"
                    _log.warning(text, unknown, len(owners))
            # Each client has its own records; groups are consecutive clients.
            starts = np.concatenate([[0], np.cumsum(np.bincount(people))]).astype(
                np.int64
            )
            cuts = np.cumsum([len(one) for one in members])[:-1]
            numbers = np.arange(len(order))
            partition = Partition(
                np.argsort(people, kind="stable").astype(np.int64),
                starts,
                tuple(np.split(numbers, cuts)),
                numbers,
                names=tuple(members),
            )
        train_y = torch.from_numpy(self.labels(classes)[train_rows])
        test_y = torch.from_numpy(part.labels(classes)[test_rows])
        if self.targets is not None and part.targets is not None:
            chosen = self.targets[torch.from_numpy(train_rows)]
            rest = part.targets[torch.from_numpy(test_rows)]
            arguments["targets"] = torch.cat([chosen, rest])
            train_y = torch.arange(len(chosen))
            test_y = len(chosen) + torch.arange(len(rest))
        if self.records.dtype == torch.uint8:
            arguments |= {"mean": self.mean, "std": self.std}
        train_x = self.records[torch.from_numpy(train_rows)]
        test_x = part.records[torch.from_numpy(test_rows)]
        parts = train_x, train_y, test_x, test_y
        return Dataset(
            self.name, *parts, classes, kind=self.kind, **arguments
        ), partition

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the training records here, and of the test records in their ``Data``."""
        everything, named = (
            np.arange(len(self._labels)),
            self.targets is None and self.classes is None,
        )
        if named and (self._labels == self._labels[0]).all():
            rule = "must have records of two classes or more, unless classes names them all"
            raise InputError.one("data.y", rule, str(self._labels[0]))
        if self.test is not None:
            return everything, np.arange(len(self.test._labels))
        share = TEST_SHARE if self.test_share is None else self.test_share
        generator = np.random.Generator(np.random.Philox(_SPLIT_SEED))
        owners = np.zeros(len(everything), np.int64)
        if self.clients is not None:
            owners = np.unique(self.clients, return_inverse=True)[1]
        chosen, order = (
            np.zeros(len(everything), bool),
            np.argsort(owners, kind="stable"),
        )
        for rows in np.split(order, np.cumsum(np.bincount(owners))[:-1]):
            count = min(len(rows) - 1, int(share * len(rows) + generator.random()))
            chosen[generator.permutation(rows)[:count]] = True
        if not chosen.any():
            rule = (
                f"must leave a test record of {len(everything)}; raise it or give test"
            )
            raise InputError.one("data.test_share", rule, share)
        return np.flatnonzero(~chosen), np.flatnonzero(chosen)

    def _members(
        self, groups: Sequence[GroupPlan], clients: np.ndarray
    ) -> list[np.ndarray]:
        """Sorted names of the clients of each group of the plan."""
        names = np.unique(clients)
        if self.groups is None and len(groups) > 1:
            rule = f"is required with a plan of {len(groups)} groups"
            raise InputError.one("data.group", rule, "none")
        owner = self.groups or dict.fromkeys(names, groups[0].name)
        members = [
            np.array([n for n in names if owner[str(n)] == group.name])
            for group in groups
        ]
        faults = [
            Fault(
                "data.group",
                f"must have the plan's {group.clients} clients in {group.name}",
                n,
            )
            for group, n in zip(groups, map(len, members), strict=True)
            if n != group.clients
        ]
        known = {group.name for group in groups}
        others = sorted({owner[str(name)] for name in names} - known)
        if others:
            rule = f"must be one of the plan's groups {', '.join(sorted(known))}"
            faults.insert(0, Fault("data.group", rule, others[0]))
        if faults:
            raise InputError(faults)
        return members


def _length_faults(data: Data) -> list[Fault]:
    """Arrays that do not have one value per record."""
    count = len(data.records)
    arrays = {"y": data._labels, "client": data.clients, "group": data.group}
    faults = [
        Fault(f"data.{name}", f"must have {count} values, one per record", len(values))
        for name, values in arrays.items()
        if not (values is None or isinstance(values, Mapping) or len(values) == count)
    ]
    if not count:
        faults.append(Fault("data.x", "must hold a record", 0))
    if data.group is not None and data.clients is None:
        faults.append(Fault("data.client", "is required with group", "none"))
    return faults


def _value_faults(data: Data) -> list[Fault]:
    """Values that cannot be trained on, and options out of range."""
    faults, test = [], data.test
    if data.classes is not None and data.task != MULTI_CLASS:
        faults.append(
            Fault("data.classes", f"is only for {MULTI_CLASS}", list(data.classes))
        )
    if data.records.is_floating_point():
        finite = data.records.flatten(1).isfinite().all(1)
        if not finite.all():
            row = int((~finite).nonzero()[0])
            faults.append(
                Fault("data.x", "must be finite", f"NaN or infinity in row {row}")
            )
    if data._labels.dtype.kind == "i" and data.classes is None:
        low, high = int(data._labels.min()), int(data._labels.max())
        if low < 0 or high >= MOST_CLASSES:
            rule = f"must be numbers of classes from 0, below {MOST_CLASSES}"
            faults.append(Fault("data.y", rule, f"{low}..{high}"))
    if data.classes is not None and len(set(map(str, data.classes))) != len(
        data.classes
    ):
        faults.append(Fault("data.classes", "must be unique names", list(data.classes)))
    if data.test_share is not None and not 0 < data.test_share < 1:
        faults.append(
            Fault("data.test_share", "must be above 0 and below 1", data.test_share)
        )
    if data.test_of_others and test is None:
        rule = "needs test, the records of people who are no clients"
        faults.append(Fault("data.test_of_others", rule, True))
    if test is None:
        return faults
    if data.test_share is not None:
        faults.append(
            Fault("data.test_share", "must be left out with test", data.test_share)
        )
    if data.test_of_others and data.clients is not None and test.clients is not None:
        members = sorted({*map(str, data.clients)} & {*map(str, test.clients)})
        if members:
            rule = "must hold records of people who are no clients"
            faults.append(Fault("data.test", rule, members[0]))
    if data.targets is not None and test.targets is not None:
        per_record = tuple(data.targets.shape[1:])
        if test.targets.shape[1:] != per_record:
            rule = f"must have labels of shape {per_record} per record"
            faults.append(Fault("data.test", rule, tuple(test.targets.shape[1:])))
    trained, tested = (f"{one.shape} {one.records.dtype}" for one in (data, test))
    if trained != tested:
        rule = f"must have records like the training records, {trained}"
        faults.append(Fault("data.test", rule, tested))
    return faults


def _groups(clients: np.ndarray | None, group: Any) -> dict[str, str]:
    """Group of each client, by name of the client."""
    present = np.unique(clients) if clients is not None else np.array([], str)
    if isinstance(group, Mapping):
        known = {str(name): str(value) for name, value in group.items()}
        lacking = [name for name in present if str(name) not in known]
        if lacking:
            raise InputError.one(
                "data.group", "must name a group for each client", str(lacking[0])
            )
        return {str(name): known[str(name)] for name in present}
    pairs = np.unique(
        np.stack([np.asarray(clients), names_of("data.group", group)]), axis=1
    )
    names, counts = np.unique(pairs[0], return_counts=True)
    if (counts > 1).any():
        client = names[counts > 1][0]
        both = ", ".join(pairs[1][pairs[0] == client])
        raise InputError.one(
            "data.group", f"must be one per client; client {client}", both
        )
    return {str(name): str(value) for name, value in pairs.T}


# --- Records, labels and names as arrays and tensors of the types that training uses. ------------


def is_dataset(source: Any) -> bool:
    """Whether a source is a map-style dataset rather than an array."""
    sized = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    return sized and not isinstance(source, Tensor | np.ndarray)


def pairs_of(source: Any) -> tuple[Any, Any]:
    """Records and labels of a map-style dataset of pairs."""
    if not is_dataset(source):
        raise InputError.one("data.y", "is required with an array of records", "none")
    try:
        items = [source[row] for row in range(len(source))]
        pairs = [(np.asarray(x), y) for x, y in items]
    except (TypeError, ValueError):
        rule = "must hold pairs of a record and a label"
        raise InputError.one("data.x", rule, "others") from None
    shapes = {x.shape for x, _ in pairs}
    if len(shapes) != 1:
        raise InputError.one(
            "data.x", "must have records of one shape", sorted(shapes)[:3]
        )
    try:
        return np.stack([x for x, _ in pairs]), np.stack(
            [np.asarray(y) for _, y in pairs]
        )
    except ValueError:
        raise InputError.one(
            "data.y", "must have labels of one shape", "others"
        ) from None


def class_labels(where: str, values: Any) -> np.ndarray:
    """One-dimensional labels: whole numbers as int64, or texts."""
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1:
        raise InputError.one(where, "must be one-dimensional", array.shape)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array):
        array = array.astype(str)
    if (
        array.dtype.kind == "f"
        and np.isfinite(array).all()
        and (array == array.round()).all()
    ):
        array = array.astype(np.int64)
    if array.dtype.kind in "biu":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iU":
        rule = "must be whole numbers or names of classes, without missing values"
        wrong = next((value for value in array if value != value), array[:1])
        raise InputError.one(where, rule, str(wrong))
    return array


def records_of(values: Any) -> Tensor:
    """Records as uint8, float32 or int64."""
    try:
        if not isinstance(values, Tensor):
            array = np.asarray(values)  # torch warns of a read-only array
            values = torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError):
        found = type(values).__name__
        raise InputError.one("data.x", "must be numbers in an array", found) from None
    records: Tensor = values.detach().cpu()
    if records.is_complex() or records.ndim < 2:
        rule = "must be real numbers of shape [records, ...]"
        raise InputError.one("data.x", rule, f"{records.dtype} {tuple(records.shape)}")
    if records.dtype == torch.uint8:
        return records.contiguous()
    whole = not records.is_floating_point() and records.dtype != torch.bool
    return records.to(torch.int64 if whole else torch.float32).contiguous()


def names_of(where: str, values: Any) -> np.ndarray:
    """Names of clients or groups as texts [n]; whole numbers by their digits."""
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    missing = [
        row
        for row, value in enumerate(array.ravel())
        if value is None
        or value != value
        or (isinstance(value, str) and not value.strip())
    ]
    if array.ndim != 1 or missing:
        rule = "must have one name or number per record"
        raise InputError.one(
            where, rule, f"none in row {missing[0]}" if missing else array.shape
        )
    if array.dtype.kind == "f" and (array == array.round()).all():
        array = array.astype(np.int64)
    return array.astype(str)
