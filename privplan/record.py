"""The record of a run, the releases that its ledger holds, and the files of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field

from privplan.accounting.families import NOISE_FAMILIES, NoiseFamily
from privplan.accounting.release import GAUSSIAN, Release, SamplingLaw
from privplan.configuration import configuration_faults
from privplan.errors import Fault, InputError
from privplan.files import read_json, write_text
from privplan.limits import refuse_strange
from privplan.public_data import is_public
from privplan.values import (
    Checked,
    Count,
    Hash,
    HashOrNone,
    Label,
    Name,
    NameOrNone,
    Natural,
    NonNegative,
    Real,
    Scale,
    Title,
    TitleOrNone,
    Value,
    digest,
    is_empty,
    is_none,
    parse,
    rule,
    text_of,
)

LEDGER = "ledger.jsonl"
RECORD = "record.json"
PLAN = "plan.json"
CHECKPOINT = "checkpoint.pt"
VERDICT = "verdict.json"
REPLAY = "replay.json"
ACCURACY = "accuracy"  # default metric of a run: the share of correct predictions
STREAMS = (
    3  # how cohorts and noise of new runs follow from the seed: 1, old, from it alone
)
METRIC = "metric"  # entry of the configuration that names another metric


LETTERS = 24  # length of the fingerprint of a stream, or of coordinates
Fingerprint = Annotated[
    str, text_of(f"([0-9a-f]{{{LETTERS}}})?", f"{LETTERS} hexadecimal digits, or empty")
]
"""A short hash, of a generator's state or of coordinates; empty where there is none."""
MOST_REASON = (
    200  # letters of the reason why a round of a deployment was never released
)
MOST_MASKS = 16  # more masks than any algorithm composes
MOST_NAMED = 10_000  # most scores by name, more than classes of any data set
_Position = Annotated[int, Field(strict=True, ge=0, le=2**64 - 1)]
"""A position in a group; strict, so that long tuples are validated quickly."""


class GroupShare(Value):
    """One group's part in a release, as it was executed."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    group: Name  # name of the group
    clients: Count  # how many clients the group has
    sampling: SamplingLaw  # the law by which the cohort was drawn
    sampling_ratio: NonNegative  # the ratio that the law used
    # realised number of participants; evidence only, which no noise protects. This, the
    # participants, the norm and the clipping are None where a run does not record them: a
    # deployment keeps them to itself
    cohort: Natural | None = None
    # who they were, as positions in the group, in order
    participants: tuple[_Position, ...] | None = None
    # records that the client holds, in a release that protects records; then the law and the ratio
    # are those of its mini-batches, ``cohort`` counts the records in all of them, and the bound,
    # the norm and the clipping are those of records
    records: Natural | None = None
    # bound on the norm of what one client adds to the sum, after any scale
    clip_bound: Scale | None
    # largest norm that a client added to the sum, after clipping and scale
    largest_norm: NonNegative | None = None
    clipped: Natural | None = None  # how many participants had their update shortened
    # how many participants had an update that was not finite, and added zero; of records, how many
    # had such a gradient
    excluded: Natural = 0
    # on the released sum in the step of the global model; a file calls it weight
    factor: NonNegative = Field(alias="weight")
    # how many canaries of an audit are in the sum beside the participants
    canaries: Count | None = Field(None, exclude_if=is_none)
    # how many clients the law drew, where fewer may have reported; the participants are then the
    # clients drawn, and ``cohort`` counts those who reported
    drawn: Natural | None = Field(None, exclude_if=is_none)

    @property
    def drawn_size(self) -> int | None:
        """How many clients the sampling law drew; None where that is not recorded."""
        return self.cohort if self.drawn is None else self.drawn


class Residual(Value):
    """What left the clients less the sum that entered, as measured outside the mechanism.

    Of a release that protects records it is what the client sent less its noise, drawn again,
    in units of one step's sum: the clipped gradients of its records, all steps together.
    """

    sum_squares: NonNegative  # sum of its squares over all coordinates
    along_sum: (
        float | None
    )  # its part along the sum; None where the sum is zero, or is not known


def _known_family(name: str) -> str:
    if name not in NOISE_FAMILIES:
        raise ValueError(f"must be one of {', '.join(NOISE_FAMILIES)}")
    return name


class ReleaseRecord(Value):
    """What left the clients at once, noisy or not."""

    round: Count  # training round, from 1
    # whom the release protects: clients, or the records of one client
    unit: Literal["client", "record"] = "client"
    # the noise, a name of ``NOISE_FAMILIES``; ``silent`` when nothing left the clients
    family: Annotated[str, AfterValidator(_known_family)]
    steps: Count = (
        1  # how many times it was released: the local steps of a record-level release
    )
    noise_std: Scale  # standard deviation of the noise on the sum, per coordinate
    # step of the grid that sums and noise are on; None for noise on none
    grid: Scale | None = Field(None, exclude_if=is_none)
    dimension: Natural  # number of coordinates that received noise
    # sum of squares of the noise that was drawn; evidence, None where it is not recorded
    noise_sum_squares: NonNegative | None = None
    # hash of the generator's state before the draw; evidence that no noise is used twice
    noise_state: Fingerprint = ""
    # hash of the coordinates that were released; empty for all of them
    support: Fingerprint = Field("", exclude_if=is_empty)
    # what a measurement outside the mechanism found; evidence
    residual: Residual | None = Field(None, exclude_if=is_none)
    # why a round of a deployment was never released; empty for a release
    failure: Annotated[str, Field(max_length=MOST_REASON)] = Field(
        "", exclude_if=is_empty
    )
    shares: tuple[GroupShare, ...]  # the groups whose clients are in the sum

    def release_for(self, share: GroupShare) -> Release:
        """The release as a client of one group sees it, by the noise multiplier of its family."""
        noise, ratio = (
            (self.family, self.noise_std, self.grid),
            min(share.sampling_ratio, 1.0),
        )
        return _release(*noise, share.clip_bound, ratio, share.sampling)

    @property
    def noise(self) -> NoiseFamily:
        """The family of its noise."""
        return NOISE_FAMILIES.get(self.family)


@lru_cache(maxsize=10_000)
def _release(
    family: str,
    noise_std: float,
    grid: float | None,
    clip_bound: float | None,
    ratio: float,
    sampling: SamplingLaw,
) -> Release:
    """The release with these recorded values."""
    noise = NOISE_FAMILIES.get(family)
    multiplier = noise.noise_multiplier(
        noise.equivalent_std(noise_std, grid), clip_bound
    )
    return Release(multiplier, ratio, sampling, noise.name if noise.noisy else GAUSSIAN)


class RoundMetrics(Value):
    """What was measured after a round; the score and the loss are None when not finite."""

    round: Natural
    accuracy: Real | None  # the score, by the run's metric
    loss: float | None

    @property
    def scores(self) -> dict[str, float | None]:
        """The score and the loss by name."""
        return {"score": self.accuracy, "loss": self.loss}


class Mask(Value):
    """A uniform random mask of a fixed size."""

    index: Natural  # its place among the transforms, which selects the random stream
    name: Title  # name of the transform
    size: Count  # number of coordinates in the mask


class Executed(Value):
    """What the executed algorithm said of itself before it saw any data."""

    aggregator: TitleOrNone  # the rule by which sums become a step
    coordinates: Count  # length of the global vector (d)
    shared: Natural  # how many of its coordinates are not personal, so that they may leave a client
    # random masks that narrow them further in each round
    masks: Annotated[tuple[Mask, ...], Field(max_length=MOST_MASKS)] = ()
    # how many of its coordinates are appended to every update, such as the count of an adaptive
    # clipping norm; no mask selects among these
    appended: Natural = Field(0, exclude_if=lambda count: count == 0)

    @property
    def released(self) -> int:
        """Most coordinates that leave a client in a round."""
        masked = (mask.size + self.appended for mask in self.masks)
        return min(self.shared, *masked, self.coordinates)


_Device = Annotated[str, text_of("[a-z]{0,12}", "a kind of device, such as cpu")]
_Item = TypeVar("_Item")
_ByName = Annotated[dict[Name, _Item], Field(max_length=MOST_NAMED)]


class RunRecord(Checked):
    """The record of a run (``record.json``): of a simulation, or of a deployment.

    A deployment has no seed, data set, partition, model, device or accuracies. Accuracies are in
    [0, 1], unless the configuration names a metric.

    Attributes:
        plan_digest: content hash of the plan that was executed.
        chain: hash of the ledger's last line once the run is complete.
        audit: hash of what was seen of canaries (``audit.json``); empty without canaries.
        executed: what the algorithm said of itself; None in a record that does not tell.
        status: ``running`` until the last round is done, then ``complete``; ``stopped`` when a
            deployment ended before its last planned round.
        accuracy: score on the test records, by the run's metric.
        accuracy_by_class: test accuracy of each class, by name; a statistic that no noise protects.
        accuracy_by_group: test accuracy weighted as the group's training labels are; a statistic
            of the groups' labels that no noise protects.
        weights: weight of each group in the mean of the updates, as the server found it from them:
            its mean over the rounds; empty where the plan has the weights.
        parts: clients of each part of a group that takes turns, by group.
        noise: source of the noise: ``seeded`` when it can be drawn again from ``seed``, which
            protects nobody outside a simulation; ``secure`` when its key is in no record.
    """

    schema_version: Literal[1] = 1
    plan_digest: Hash
    algorithm: Title
    dataset: NameOrNone = Field("", exclude_if=is_empty)
    partition: TitleOrNone = Field("", exclude_if=is_empty)
    model: NameOrNone = Field("", exclude_if=is_empty)
    seed: Natural | None = Field(None, exclude_if=is_none)
    device: _Device = Field("", exclude_if=is_empty)
    configuration: dict[str, Any]
    versions: dict[Literal["python", "privplan", "torch", "numpy"], Label]
    status: Literal["running", "complete", "stopped"]
    rounds_done: Natural
    metrics: tuple[RoundMetrics, ...] = ()
    accuracy: Real | None = None
    accuracy_by_class: _ByName[Real] = Field(default_factory=dict)
    accuracy_by_group: _ByName[Real] = Field(default_factory=dict)
    weights: _ByName[NonNegative] = Field(default_factory=dict, exclude_if=is_empty)
    wall_seconds: NonNegative = 0.0
    chain: HashOrNone = ""
    executed: Executed | None = None
    audit: HashOrNone = ""
    parts: _ByName[tuple[Natural, ...]] = Field(
        default_factory=dict, exclude_if=is_empty
    )
    noise: Literal["seeded", "secure"] = Field(
        "seeded", exclude_if=lambda noise: noise == "seeded"
    )

    @rule
    def _accuracies_are_shares(self) -> Iterator[Fault]:
        """The accuracy of classification is a share of the test records."""
        if METRIC in self.configuration:
            return
        found = {"accuracy": self.accuracy}
        found |= {
            f"metrics.{at}.accuracy": one.accuracy
            for at, one in enumerate(self.metrics)
        }
        found |= {
            f"accuracy_by_class.{name}": one
            for name, one in self.accuracy_by_class.items()
        }
        found |= {
            f"accuracy_by_group.{name}": one
            for name, one in self.accuracy_by_group.items()
        }
        for field, value in found.items():
            if value is not None and not 0 <= value <= 1:
                yield Fault(f"record.{field}", "must be in [0, 1]", value)

    @rule
    def _streams_are_known(self) -> Iterator[Fault]:
        """A record that names no scheme is of a version that had only one."""
        if (found := self.configuration.get("streams", 1)) not in (1, STREAMS):
            text = f"must be 1 or {STREAMS}, the schemes that this version knows"
            yield Fault("record.configuration.streams", text, found)

    @rule
    def _configuration_is_closed(self) -> Iterator[Fault]:
        """No entry is free text, and none is unknown."""
        yield from configuration_faults(self.configuration)

    @rule
    def _configuration_is_json(self) -> Iterator[Fault]:
        """A number such as 1e999 is read as an infinite one, which JSON cannot hold."""
        try:
            digest(self.configuration)
        except ValueError:
            yield Fault(
                "record.configuration", "must hold finite numbers only", "another one"
            )

    @property
    def digest(self) -> str:
        """Content hash of all that a verdict reads; a replay is bound to it. Not the wall time."""
        return digest(self.model_dump(mode="json", exclude={"wall_seconds"}))

    @property
    def settings_digest(self) -> str:
        """Content hash of the hyperparameters, on which the model depends."""
        names = ("aggregation", "numbers")
        return digest({name: self.configuration.get(name) for name in names})

    @property
    def metric(self) -> str:
        """Name of the metric of the scores."""
        return str(self.configuration.get(METRIC, ACCURACY))

    @property
    def is_on_own_data(self) -> bool:
        """Whether the data are no registered public ones, whatever the run says."""
        return bool(self.configuration.get("own_data")) or not is_public(self.dataset)

    @property
    def scores_are_of_members(self) -> bool:
        """Whether scores may be of clients' own records: a release that no budget pays for.

        They are for the trainer's eyes. They are in no bundle, and a report for others leaves
        them out. Scores on registered public data, and on test records of people who are no
        clients, as the user said, may be shown.
        """
        return (
            self.seed is not None
            and self.is_on_own_data
            and self.configuration.get("test") != "others"
        )

    @property
    def simulation_seed(self) -> int:
        """The seed; an error for a deployment, whose randomness cannot be drawn again."""
        if self.seed is None:
            rule = "must be that of a simulation; a deployment cannot be executed again"
            raise InputError.one("record.seed", rule, None)
        return self.seed

    def save(self, folder: Path | str) -> None:
        """Write ``record.json`` into the run folder."""
        write_text(Path(folder) / RECORD, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path | str) -> RunRecord:
        """Read ``record.json`` from the run folder."""
        return parse(cls, read_json(Path(folder) / RECORD, "record"))


def run_folder(run: Any) -> Path:
    """The folder of a run, or InputError for what is none, or holds what no run writes."""
    given = getattr(run, "folder", run)
    if not isinstance(given, Path | str):
        rule = "must be a run, or its folder, as in privplan.verify('run')"
        raise InputError.one("run", rule, type(given).__name__)
    folder = Path(given)
    if not folder.is_dir():
        raise InputError.one("run", "must be a run folder", str(folder))
    refuse_strange(folder)
    return folder


# --- What no release can be: rules between the fields of one ledger line. ------------------------
# A mechanism cannot have written a line that breaks one of them, so ``read_ledger`` takes such a
# line as a fault of the ledger, wherever the chain of hashes was made anew: what was released in
# it and after it is unknown, and no epsilon is computed from it. Rules that need the plan or
# other lines are checks of a verdict.

ROUNDING = 1e-6  # relative tolerance between two recorded sums of the same numbers


def line_fault(line: ReleaseRecord) -> str | None:
    """The first rule that a line breaks, with field and value found; None for a sound one."""
    return next(_faults(line), None)


def _faults(line: ReleaseRecord) -> Iterator[str]:
    noise = line.noise
    if not line.shares:
        yield "shares: must name a group, found nothing"
    if line.unit == "record":
        if len(line.shares) > 1:
            yield f"unit: record is of one client's release, found {len(line.shares)} groups"
    elif line.steps != 1:
        yield f"steps: must be 1 in a release that protects clients, found {line.steps}"
    if noise.noisy:
        if line.noise_std == 0:
            yield f"noise_std: must be above 0 for {line.family} noise, found 0"
        if line.dimension < line.steps:
            yield f"dimension: must be {line.steps} or more for noise, found {line.dimension}"
    else:
        for name in ("noise_std", "dimension", "noise_sum_squares"):
            if value := getattr(line, name):
                yield f"{name}: must be 0 for family {line.family}, found {value:g}"
        if line.residual is not None:
            yield f"residual: must be absent for family {line.family}, found one"
    if line.failure and not noise.silent:
        yield f"failure: is of a round without a release, found family {line.family}"
    rest = line.residual
    if rest is not None and rest.along_sum is not None:
        along, norm = abs(rest.along_sum), rest.sum_squares**0.5
        if along > norm * (1 + ROUNDING):
            yield f"residual.along_sum: must be at most the norm {norm:.6g}, found {along:.6g}"
    for share in line.shares:
        try:
            line.release_for(share)
        except InputError as error:
            yield f"shares.{share.group}.{error}"
        for fault in _of_share(line, share):
            yield f"shares.{share.group}.{fault}"


def _of_share(line: ReleaseRecord, share: GroupShare) -> Iterator[str]:
    """Rules between the fields of a group's share."""
    of_record = line.unit == "record"
    if share.sampling_ratio > 1 + ROUNDING:
        yield f"sampling_ratio: must be 1 or less, found {share.sampling_ratio:g}"
    if line.noise.noisy and share.clip_bound == 0:
        yield "clip_bound: must be above 0 where noise covers it, found 0"
    if share.sampling_ratio == 0 and share.cohort:
        yield f"sampling_ratio: must be above 0 where somebody took part, found {share.cohort}"
    if share.records is not None and not of_record:
        yield f"records: is only for unit: record, found {share.records}"
    who, cohort, clients = share.participants, share.cohort, share.clients
    if of_record and who is not None and len(who) != 1:
        yield f"participants: must be one client with unit: record, found {len(who)}"
    if who is not None and len(who) > clients:
        yield f"participants: must be at most the {clients} clients, found {len(who)}"
    most, of = clients, "clients"
    if of_record and share.records is not None:
        most, of = share.records * line.steps, "records in all steps"
    if cohort is not None and cohort > most:
        yield f"cohort: must be at most the {most} {of}, found {cohort}"
    if share.drawn is not None and share.drawn > clients:
        yield f"drawn: must be at most the {clients} clients, found {share.drawn}"
    if (share.canaries or 0) > 0 and of_record:
        yield f"canaries: are of releases that protect clients, found {share.canaries}"
    sent = (most if cohort is None else cohort) + (share.canaries or 0)
    if (share.clipped or 0) > sent:
        yield f"clipped: must be at most the cohort of {sent}, found {share.clipped}"
    # A client of a release that protects records is excluded as a whole beside its records.
    if share.excluded > sent + of_record:
        yield f"excluded: must be at most the cohort of {sent}, found {share.excluded}"
    norm = share.largest_norm
    if norm and cohort == 0 and not share.canaries:
        yield f"largest_norm: must be 0 for an empty cohort, found {norm:g}"
