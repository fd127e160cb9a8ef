"""The user's own records: arrays or a map-style dataset, with clients and groups."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from privplan.errors import Fault, InputError
from privplan.guidance import Guided, checked_init, instead_of_argument
from privplan.plan import GroupPlan
from privplan.streams import Purpose, key_of_client, stream
from simulate.data.dataset import Dataset
from simulate.data.encoding import Encoding, not_standardised
from simulate.data.own_arrays import (
    class_labels,
    is_dataset,
    named_classes_hint,
    names_of,
    pairs_of,
    records_of,
    size_faults,
)
from simulate.data.partition.clients import Partition
from simulate.signatures import hints_of, require_types
from simulate.tasks import MULTI_CLASS, targets_of, task_of

_log = logging.getLogger(__name__)
MAX_CLASSES = 100_000  # a larger label is a number of another kind, and no class
MAX_CODE = 2**24  # whole numbers below it are exact in float32
TEST_SHARE = 0.2  # default share of the records that is split off for testing
PIXEL_SCALE = 255.0  # default pixel value that becomes 1 in records of bytes
_LEAST_PIXELS = 49  # inputs of the smallest usual image, 7 x 7, whose scale is known
_SPLIT_SEED = 0  # of test records, the same at every seed of a run


class RecordOptions(TypedDict, total=False):
    """How records are read, from a file or a table."""

    client: str
    group: str
    features: Sequence[str]
    codes: Sequence[str]
    task: str
    test_share: float


class FileOptions(RecordOptions, total=False):
    """How a file is read; ``simulate.data.own_files.DataOptions`` explains each."""

    label: str
    groups: Path | str
    statistics: Path | str
    test: Path | str
    test_of_others: bool
    classes: Sequence[str]


class TableOptions(RecordOptions, total=False):
    """How a table is read; ``simulate.data.own_files.from_table`` explains each."""

    label: str | Sequence[str]
    groups: Mapping[str, str]
    statistics: Mapping[str, Mapping[str, Any]] | Path | str
    test: Data
    test_of_others: bool
    classes: Sequence[object]
    name: str


@checked_init
@dataclass(repr=False)
class Data(Guided):
    """Labelled records, with the client and the privacy group of each.

    Floating-point records are model inputs as they are: standardise them with public
    statistics. Records of bytes (uint8) are images and divided by 255; other integers
    are token ids.

    Args:
        x: records [n, ...], a NumPy array or a torch tensor; or a map-style dataset of
            pairs (record, label), and ``y`` is left out.
        y: labels [n]: whole numbers from 0, or names of classes.
        client: the client of each record [n], numbers or names; None to partition the
            records as ``partition`` of the run says.
        group: the privacy group of each record [n], or a mapping from clients to
            groups. Names are those of the plan's groups; may be left out when the plan
            has one group.
        test: test records, another ``Data``. It may name the groups of people who have
            no training records, for scores by group.
        codes: places of the inputs [n, inputs] that are codes: whole numbers from 0,
            such as the rows of an ``nn.Embedding``.
        test_of_others: whether you say that the people of ``test`` are no clients.
            Scores on clients' records are a release that no budget pays for, so no
            report for others has them; scores on other people's may be shown.
        test_share: share of each client's records that is split off for testing when
            ``test`` is None; 0.2 by default. A client keeps at least one record for
            training.
        classes: names of the classes in the order of the model's outputs. By default
            these are all whole numbers up to the largest label, or the sorted names,
            whose number is public and which a run's files call 0, 1 and so on: a name
            that is read from records may be one person's.
        name: name of the data in the run's record.
        task: what the labels are: ``multi-class``, ``binary`` (0 or 1), ``multi-label``
            (0 or 1 for each of several labels [n, labels]), ``regression`` (numbers [n]
            or [n, outputs]), or ``next-token`` (``x`` are token ids [n, T] and ``y`` is
            left out, or targets [n, T] with -100 for tokens that are not predicted).
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
    codes: Sequence[int] = ()
    records: Tensor = field(init=False, repr=False)
    clients: np.ndarray | None = field(init=False, repr=False)
    groups: dict[str, str] | None = field(init=False, repr=False)
    targets: Tensor | None = field(init=False, repr=False)
    _labels: np.ndarray = field(init=False, repr=False)
    _encoding: Encoding | None = field(default=None, init=False, repr=False)
    _is_scale_known: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        task_of(self.task)
        x = self.x
        y = self.y
        if hasattr(x, "iloc"):  # a table of pandas
            rule = "must be arrays; write simulate.Data.from_table(table, label=...)"
            raise InputError.one("data.x", rule, type(x).__name__)
        if self.test is not None and not isinstance(self.test, Data):
            rule = "must be another Data; write test=simulate.Data(x, y)"
            raise InputError.one("data.test", rule, type(self.test).__name__)
        # Tokens are their own targets.
        needs_labels = self.task != "next-token" or is_dataset(x)
        if y is None and needs_labels:
            x, y = pairs_of(x)
        self.records = records_of(x)
        self.targets = None
        if self.task == MULTI_CLASS:
            self._labels = class_labels("data.y", y)
        else:
            self.records, self.targets = targets_of(self.task, y, self.records)
            self._labels = np.zeros(len(self.targets), np.int64)
        self.clients = None
        if self.client is not None:
            self.clients = names_of("data.client", self.client)
        self.require_sound()
        self.groups = None if self.group is None else _groups(self.clients, self.group)
        if self.test is not None and self.test.task != self.task:
            raise InputError.one(
                "data.test", f"must be for {self.task}", self.test.task
            )
        names = self.class_names()
        self._warn_of_unseen_classes(names)
        if self.test is not None:
            _warn_of_training_records(self, self.test)

    def require_sound(self) -> None:
        """Refuse arrays that do not fit together, and values out of range."""
        faults = list(_length_faults(self)) or list(_value_faults(self))
        if faults:
            raise InputError(faults)

    @classmethod
    def load(cls, source: Path | str, **options: Unpack[FileOptions]) -> Data:
        """``Data`` of a file or folder; see ``simulate.data.own_files.DataOptions``."""
        from simulate.data.sources import load_file

        with _of_kinds(options, FileOptions):
            return load_file(source, options)

    @classmethod
    def from_table(cls, table: Any, **arguments: Unpack[TableOptions]) -> Data:
        """``Data`` of a table; see ``simulate.data.own_files.from_table``."""
        from simulate.data.own_files import from_table

        options = TableOptions.__optional_keys__
        for name, value in arguments.items():
            if name not in options:
                hint = instead_of_argument(from_table, name, dict.fromkeys(options))
                raise InputError.one(name, f"is not an argument{hint}", value)
        with _of_kinds(arguments, TableOptions):
            return from_table(table, **arguments)

    def encode(self, source: Any) -> Tensor:
        """Inputs of new records [n, inputs], made as those of this table were.

        ``run.model()(data.encode("new.csv"))`` are the outputs of a trained model.

        Args:
            source: a table, as ``from_table`` takes it, or the path of a CSV, TSV or
                Parquet file. It needs the columns of the features only.

        Raises:
            InputError: where this is no data of a table, or a column is missing.
        """
        from simulate.data.own_files import columns_in

        if self._encoding is None:
            rule = "needs data of a table; arrays are inputs as they are"
            raise InputError.one("data.encode", rule, self.name)
        inputs, _ = self._encoding.inputs(columns_in(source))
        return records_of(inputs)

    def __repr__(self) -> str:
        """How many records and clients there are; none of them is shown."""
        shape = " x ".join(map(str, self.shape)) or "one number"
        clients = 0 if self.clients is None else len(set(self.clients))
        return f"Data: {len(self.records)} records of {shape}, {clients} named clients"

    def __len__(self) -> int:
        return len(self.records)

    @property
    def kind(self) -> Literal["image", "tokens"]:
        """How ``Dataset`` reads the records: whole numbers but bytes are tokens."""
        is_input = self.records.dtype in (torch.uint8, torch.float32)
        if is_input:
            return "image"
        return "tokens"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record."""
        return tuple(self.records.shape[1:])

    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the outputs; ``all`` in other tasks."""
        if self.targets is not None:
            return ("all",)
        if self.classes is not None:
            return tuple(str(name) for name in self.classes)
        labels = self._labels
        if self.test is not None:
            if (labels.dtype.kind == "i") != (self.test._labels.dtype.kind == "i"):
                rule = "must have labels of the same type"
                raise InputError.one("data.test", rule, "others")
            unseen = np.setdiff1d(self.test._labels, labels)
            if unseen.size:
                rule = (
                    "must have classes of the training records, unless classes names "
                    "them all"
                )
                raise InputError.one("data.test", rule, str(unseen[0]))
        if labels.dtype.kind == "i":
            return tuple(str(number) for number in range(int(labels.max()) + 1))
        return tuple(str(name) for name in np.unique(labels))

    def _warn_of_unseen_classes(self, names: Sequence[str]) -> None:
        """Say that labels that do not begin at 0 make outputs that nobody has."""
        if self.targets is not None or self.classes is not None:
            return
        lowest = int(self._labels.min()) if self._labels.dtype.kind == "i" else 0
        if lowest > 0:
            hint = named_classes_hint(np.unique(self._labels).tolist())
            text = "labels go from %d to %d, outputs of the model from 0%s"
            _log.warning(text, lowest, len(names) - 1, hint)

    def warn_of_scale(self) -> None:
        """Say once which inputs of an array are not standardised; tables said it."""
        is_table = self.records.ndim == 2 and self.records.dtype == torch.float32
        if self._is_scale_known or self._encoding is not None or not is_table:
            return
        self._is_scale_known = True
        inputs = self.records.numpy()
        is_image = inputs.shape[1] >= _LEAST_PIXELS and inputs.min() >= 0
        if is_image and inputs.max() <= PIXEL_SCALE:
            return
        raw = np.setdiff1d(not_standardised(inputs), np.array(self.codes, int))
        if raw.size:
            text = (
                "data: inputs train best with mean and deviation near 0 and 1; one is "
                "above 3 in %d of %d, the first x[:, %d]: subtract a public mean and "
                "divide by a public deviation, or write simulate.Data.from_table(table, "
                "label=..., statistics=...)"
            )
            _log.warning(text, raw.size, inputs.shape[1], raw[0])

    def _public_names(self) -> tuple[str, ...]:
        """Names of classes that a run may write: those that were given, or numbers."""
        names = self.class_names()
        if self.targets is not None or self.classes is not None:
            return names
        return tuple(map(str, range(len(names))))

    @property
    def has_unnamed_classes(self) -> bool:
        """Whether the records' own texts decide which class is which output."""
        is_named = self.targets is not None or self.classes is not None
        return not is_named and self._labels.dtype.kind != "i"

    def require_separate_preparation(self, *, by_record: bool) -> None:
        """Refuse data in which one person's records decide how others' are prepared.

        Then more than one update would change with a person, or more than one record
        with a record, and no clipping norm bounds what that does to a sum. Seeded noise
        protects nobody, so rehearsals are free.

        Args:
            by_record: whether single records are protected.

        Raises:
            InputError: with everything that must be known beforehand.
        """
        faults = []
        rehearses = "; --noise seeded rehearses"
        if self.clients is None:
            rule = "must name the client of each record (--client) for secure noise"
            faults.append(Fault("data.client", rule + rehearses, "none"))
        if self.has_unnamed_classes:
            rule = (
                "must name all classes of labels in words (--classes) for secure noise, "
                "as one person may have the only record of a class"
            )
            faults.append(Fault("data.classes", rule + rehearses, "none"))
        if by_record and self.test is None:
            rule = (
                "must be given (--test) for secure noise with unit: record, as a record "
                "more would split off other ones"
            )
            faults.append(Fault("data.test", rule + rehearses, "none"))
        if faults:
            raise InputError(faults)

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
        """The data set, and its partition over a plan's clients.

        Clients are numbered group after group, within a group in the order of their
        names; so the digest of the data set covers the groups.

        Args:
            groups: of the plan.

        Returns:
            The data set; and the partition, None for data that do not name clients.

        Raises:
            InputError: where clients and groups are not those of the plan, or records
                cannot be split or labelled.
        """
        self.warn_of_scale()
        train_rows, test_rows = self.split()
        tested = self.test or self
        classes = self.class_names()
        arguments: dict[str, Any] = {}
        partition = None
        if self.clients is not None:
            members = self._members(groups, self.clients[train_rows])
            names = np.concatenate(members)
            numbers = dict(zip(map(str, names), range(len(names)), strict=True))
            people = _numbered(self.clients[train_rows], numbers)
            arguments["train_people"] = people
            partition = _partition(people, members)
            if tested.clients is not None:
                names = tested.clients[test_rows]
                arguments["test_people"] = _numbered(names, numbers)
                arguments["test_groups"] = self._groups_of_test(groups, names)
        train_y = torch.from_numpy(self.labels(classes)[train_rows])
        test_y = torch.from_numpy(tested.labels(classes)[test_rows])
        if self.targets is not None and tested.targets is not None:
            arguments["targets"] = torch.cat(
                [self.targets[train_rows], tested.targets[test_rows]]
            )
            train_y = torch.arange(len(train_rows))
            test_y = len(train_rows) + torch.arange(len(test_rows))
        if self.records.dtype == torch.uint8:
            arguments["mean"] = self.mean
            arguments["std"] = self.std
        data = Dataset(
            self.name,
            self.records[train_rows],
            train_y,
            tested.records[test_rows],
            test_y,
            self._public_names(),
            kind=self.kind,
            codes=tuple(self.codes),
            labels_are_public=False,
            **arguments,
        )
        return data, partition

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the training records here, and of test records in their ``Data``."""
        records = len(self._labels)
        has_named_classes = self.targets is not None or self.classes is not None
        if not has_named_classes and (self._labels == self._labels[0]).all():
            rule = "must have records of two classes or more, unless classes names them all"
            raise InputError.one("data.y", rule, str(self._labels[0]))
        if self.test is not None:
            return np.arange(records), np.arange(len(self.test._labels))
        if self.test_share is None:
            share = TEST_SHARE
        else:
            share = self.test_share
        names: np.ndarray = np.array([""])
        owners = np.zeros(records, np.int64)
        if self.clients is not None:
            names, owners = np.unique(self.clients, return_inverse=True)
        by_owner = np.argsort(owners, kind="stable")
        rows_by_owner = np.split(by_owner, np.cumsum(np.bincount(owners))[:-1])
        is_test = np.zeros(records, bool)
        for name, rows in zip(names, rows_by_owner, strict=True):
            # A stream of its own: nobody's records decide which ones of another client
            # are trained on.
            generator = stream(_SPLIT_SEED, Purpose.OWN_TEST, key_of_client(name))
            # Rounded at random, so that small clients lose their share on average.
            count = int(share * len(rows) + generator.random())
            count = min(len(rows) - 1, count)
            is_test[generator.permutation(rows)[:count]] = True
        if not is_test.any():
            rule = f"must leave a test record of {records}; raise it or give test"
            if len(by_owner) == owners.max() + 1:
                rule = (
                    "can split nothing off clients of one record each, which they keep "
                    "for training; give test (--test), records of people who are no "
                    "clients"
                )
            raise InputError.one("data.test_share", rule, share)
        return np.flatnonzero(~is_test), np.flatnonzero(is_test)

    def _members(
        self, groups: Sequence[GroupPlan], clients: np.ndarray
    ) -> list[np.ndarray]:
        """Sorted names of the clients of each group of the plan."""
        names = np.unique(clients)
        if self.groups is None and len(groups) > 1:
            rule = f"is required with a plan of {len(groups)} groups"
            raise InputError.one("data.group", rule, "none")
        group_of = self.groups or dict.fromkeys(names, groups[0].name)
        by_group: dict[str, list[Any]] = {group.name: [] for group in groups}
        unplanned = set()
        for name in names:
            group_name = group_of[str(name)]
            if group_name in by_group:
                by_group[group_name].append(name)
            else:
                unplanned.add(group_name)
        faults = []
        if unplanned:
            rule = f"must be one of the plan's groups {', '.join(sorted(by_group))}"
            faults.append(Fault("data.group", rule, min(unplanned)))
        for group in groups:
            count = len(by_group[group.name])
            if count != group.clients:
                rule = f"must have the plan's {group.clients} clients in {group.name}"
                faults.append(Fault("data.group", rule, count))
        if faults:
            raise InputError(faults)
        return [np.array(by_group[group.name]) for group in groups]

    def _groups_of_test(
        self, groups: Sequence[GroupPlan], names: np.ndarray
    ) -> np.ndarray:
        """Group of each test record of the clients of ``names`` [t]; "" if unknown.

        The test records may name groups of people who were not in training, and so may
        a mapping of all clients.
        """
        planned = [group.name for group in groups]
        stated = dict(self.test.groups or {}) if self.test is not None else {}
        for name, group_name in stated.items():
            trained_in = (self.groups or {}).get(name, group_name)
            if group_name not in planned:
                rule = f"must be one of the plan's groups {', '.join(sorted(planned))}"
                raise InputError.one("data.test.group", rule, group_name)
            if group_name != trained_in:
                rule = f"must be {trained_in} for {name}, as in training"
                raise InputError.one("data.test.group", rule, group_name)
        if isinstance(self.group, Mapping):
            stated |= {str(name): str(value) for name, value in self.group.items()}
        if len(groups) == 1:
            stated = dict.fromkeys(map(str, names), planned[0])
        stated |= self.groups or {}
        of_records = np.array([stated.get(str(name), "") for name in names])
        unknown = int((of_records == "").sum())
        if unknown:
            text = (
                "%d of %d test records are of clients whose group is not named: "
                "they count in the whole test score, in no group's"
            )
            _log.warning(text, unknown, len(names))
        return of_records


@contextmanager
def _of_kinds(options: Mapping[str, Any], kinds: type) -> Iterator[None]:
    """Say which option is of another kind where reading with it ends in an error.

    Raises:
        InputError: naming every such option.
    """
    try:
        yield
    except (AttributeError, TypeError, ValueError):
        require_types(options, hints_of(kinds), "data.")
        raise


def _numbered(names: np.ndarray, numbers: Mapping[str, int]) -> np.ndarray:
    """The numbers of clients [n], by name; one above all for an unknown name."""
    unknown = len(numbers)
    return np.array([numbers.get(str(name), unknown) for name in names], np.int64)


def _partition(people: np.ndarray, members: Sequence[np.ndarray]) -> Partition:
    """Each client has its own records, of which ``people`` are the numbers [n].

    Groups are consecutive clients, whose names are ``members``.
    """
    sizes = [len(names) for names in members]
    clients = np.arange(sum(sizes))
    starts = np.concatenate([[0], np.cumsum(np.bincount(people))]).astype(np.int64)
    return Partition(
        np.argsort(people, kind="stable").astype(np.int64),
        starts,
        tuple(np.split(clients, np.cumsum(sizes)[:-1])),
        clients,
        names=tuple(members),
    )


def _length_faults(data: Data) -> Iterator[Fault]:
    """Arrays that do not have one value per record."""
    count = len(data.records)
    arrays = {"y": data._labels, "client": data.clients, "group": data.group}
    for name, values in arrays.items():
        if values is None or isinstance(values, Mapping):
            continue
        if hasattr(values, "__len__") and len(values) == count:
            continue
        rule = f"must have {count} values, one per record"
        size = len(values) if hasattr(values, "__len__") else type(values).__name__
        yield Fault(f"data.{name}", rule, size)
    if not count:
        yield Fault("data.x", "must hold a record", 0)
    if data.group is not None and data.clients is None:
        yield Fault("data.client", "is required with group", "none")


def _value_faults(data: Data) -> Iterator[Fault]:
    """Values that cannot be trained on, and options out of range."""
    classes = None
    if data.classes is not None:
        classes = list(data.classes)
    if classes is not None and data.task != MULTI_CLASS:
        yield Fault("data.classes", f"is only for {MULTI_CLASS}", classes)
    if data.records.is_floating_point():
        yield from size_faults("data.x", data.records)
    yield from _code_faults(data)
    yield from _look_alikes(data)
    if data._labels.dtype.kind == "i" and classes is None:
        lowest = int(data._labels.min())
        highest = int(data._labels.max())
        if lowest < 0 or highest >= MAX_CLASSES:
            rule = f"must be numbers of classes from 0, below {MAX_CLASSES}"
            yield Fault("data.y", rule, f"{lowest}..{highest}")
    if classes is not None and len(set(map(str, classes))) != len(classes):
        yield Fault("data.classes", "must be unique names", classes)
    if data.test_share is not None and not 0 < data.test_share < 1:
        yield Fault("data.test_share", "must be above 0 and below 1", data.test_share)
    if data.test is not None:
        yield from _test_faults(data, data.test)
    elif data.test_of_others:
        rule = "needs test, the records of people who are no clients"
        yield Fault("data.test_of_others", rule, True)


def _look_alikes(data: Data) -> Iterator[Fault]:
    """The first two clients whose names a reader takes for one, such as ``s5 ``."""
    of_test = None
    if data.test is not None:
        of_test = data.test.clients
    all_names = [names for names in (data.clients, of_test) if names is not None]
    as_read: dict[str, str] = {}
    for name in map(str, np.unique(np.concatenate(all_names)) if all_names else ()):
        plain = " ".join(unicodedata.normalize("NFKC", name).split())
        if plain in as_read:
            rule = f"must not look like {as_read[plain]!a}, which is another client"
            yield Fault("data.client", rule, ascii(name))
            return
        as_read[plain] = name


def _code_faults(data: Data) -> Iterator[Fault]:
    """Places of codes outside a record, and codes that are no whole numbers."""
    places = list(data.codes)
    if not all(isinstance(place, Integral) for place in places):
        yield Fault("data.codes", "must be whole numbers, places of inputs", places[:3])
    elif places and (data.records.ndim != 2 or not 0 <= min(places) <= max(places)):
        yield Fault("data.codes", "must be places in records of numbers", places)
    elif places and max(places) >= data.shape[0]:
        yield Fault("data.codes", f"must be below {data.shape[0]} inputs", max(places))
    elif places:
        values = data.records[:, places]
        wrong = values[(values < 0) | (values != values.round()) | (values >= MAX_CODE)]
        if wrong.numel():
            rule = f"must be whole numbers from 0, below {MAX_CODE}"
            yield Fault("data.codes", rule, float(wrong[0]))


def _test_faults(data: Data, test: Data) -> Iterator[Fault]:
    """Test records that are not like the training records."""
    if data.test_share is not None:
        yield Fault("data.test_share", "must be left out with test", data.test_share)
    if data.test_of_others and data.clients is not None and test.clients is not None:
        in_both = {*map(str, data.clients)} & {*map(str, test.clients)}
        if in_both:
            rule = "must hold records of people who are no clients"
            yield Fault("data.test", rule, min(in_both))
    if data.targets is not None and test.targets is not None:
        per_record = tuple(data.targets.shape[1:])
        if test.targets.shape[1:] != per_record:
            rule = f"must have labels of shape {per_record} per record"
            yield Fault("data.test", rule, tuple(test.targets.shape[1:]))
    trained_type = f"{data.shape} {data.records.dtype}"
    tested_type = f"{test.shape} {test.records.dtype}"
    if trained_type != tested_type:
        rule = f"must have records like the training records, {trained_type}"
        yield Fault("data.test", rule, tested_type)


def _warn_of_training_records(data: Data, test: Data) -> None:
    """Say how many test records have inputs and label of a training record.

    It is no fault: two people may well have the same few values.
    """
    trained_on = set(_identities(data))
    repeated = sum(identity in trained_on for identity in _identities(test))
    if repeated:
        text = (
            "%d of %d test records are also training records, with the same inputs "
            "and label: their scores say little about other records"
        )
        _log.warning(text, repeated, len(test.records))


def _identities(data: Data) -> list[int]:
    """A hash of each record with its label [n], which equal ones share."""
    labels = [str(label).encode() for label in data._labels]
    if data.targets is not None:
        targets = data.targets.reshape(len(data.targets), -1).numpy()
        labels = [row.tobytes() for row in targets]
    records = data.records.reshape(len(data.records), -1).numpy()
    return [
        hash((record.tobytes(), label))
        for record, label in zip(records, labels, strict=True)
    ]


def _groups(clients: np.ndarray | None, group: Any) -> dict[str, str]:
    """Group of each client, by name of the client."""
    if clients is None:
        present = np.array([], str)
    else:
        present = np.unique(clients)
    if isinstance(group, Mapping):
        group_of = {str(name): str(value) for name, value in group.items()}
        for name in present:
            if str(name) not in group_of:
                rule = "must name a group for each client"
                raise InputError.one("data.group", rule, str(name))
        return {str(name): group_of[str(name)] for name in present}
    rows = np.stack([np.asarray(clients), names_of("data.group", group)])
    names, group_names = np.unique(rows, axis=1)
    distinct, counts = np.unique(names, return_counts=True)
    if (counts > 1).any():
        client = distinct[counts > 1][0]
        groups = ", ".join(group_names[names == client])
        rule = f"must be one per client; client {client}"
        raise InputError.one("data.group", rule, groups)
    return {str(n): str(value) for n, value in zip(names, group_names, strict=True)}
