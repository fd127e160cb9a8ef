"""The record of a run, the releases in its ledger, and the files of its folder."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field

from privplan.accounting.families import NOISE_FAMILIES, NoiseFamily
from privplan.accounting.release import GAUSSIAN, Release, SamplingLaw
from privplan.configuration import configuration_faults
from privplan.distribution import own_version
from privplan.errors import Fault, InputError
from privplan.files import read_json, write_text
from privplan.limits import refuse_strange
from privplan.public_data import is_public
from privplan.values import (
    Checked,
    Count,
    Hash,
    HashOrNone,
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
# Name of what a guard reserved for the run in a budget book.
RESERVED = "guard/reserved"
REPLAY = "replay.json"
# Default metric of a run: the share of correct predictions.
ACCURACY = "accuracy"
# Entry of the configuration that names another metric.
METRIC = "metric"
# The partition in the record of a run whose data name the client of each record.
CLIENTS = "clients"
# How cohorts and noise of new runs follow from the seed. Scheme 1, of old runs, takes
# them from it alone.
STREAMS = 3

# Length of the fingerprint of a stream, or of coordinates.
LETTERS = 24
_FINGERPRINT = f"([0-9a-f]{{{LETTERS}}})?"
Fingerprint = Annotated[
    str, text_of(_FINGERPRINT, f"{LETTERS} hexadecimal digits, or empty")
]
"""A short hash, of a generator's state or of coordinates; empty where there is none."""
# More masks than any algorithm composes.
MOST_MASKS = 16
# Most scores by name, more than classes of any data set.
MOST_NAMED = 10_000
_Position = Annotated[int, Field(strict=True, ge=0, le=2**64 - 1)]
"""A position in a group; strict, so that long tuples are validated quickly."""


class GroupShare(Value):
    """One group's part in a release, as it was executed.

    Participants and their number, norm and clipping are evidence only, which no noise
    protects. They are None where a run does not record them: a deployment keeps them to
    itself.

    In a release that protects records, law and ratio are those of the client's
    mini-batches, ``cohort`` counts the records in all of them, and the bound, the norm
    and the clipping are those of records.

    Attributes:
        group: name of the group.
        clients: how many clients the group has.
        sampling: the law by which the cohort was drawn.
        sampling_ratio: the ratio that the law used.
        cohort: realised number of participants.
        participants: who they were, as positions in the group, in order.
        records: records that the client holds, in a release that protects records.
        clip_bound: bound on the norm of what one client adds to the sum, after any
            scale.
        largest_norm: largest norm that a client added to the sum, after clipping and
            scale.
        clipped: how many participants had their update shortened.
        excluded: how many participants had an update that was not finite, and added
            zero; of records, how many had such a gradient.
        factor: on the released sum in the step of the global model; a file calls it
            weight.
        canaries: how many canaries of an audit are in the sum beside the participants.
        drawn: how many clients the law drew, where fewer may have reported; the
            participants are then the clients drawn, and ``cohort`` counts those who
            reported.
    """

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    group: Name
    clients: Count
    sampling: SamplingLaw
    sampling_ratio: NonNegative
    cohort: Natural | None = None
    participants: tuple[_Position, ...] | None = None
    records: Natural | None = None
    clip_bound: Scale | None
    largest_norm: NonNegative | None = None
    clipped: Natural | None = None
    excluded: Natural = 0
    factor: NonNegative = Field(alias="weight")
    canaries: Count | None = Field(None, exclude_if=is_none)
    drawn: Natural | None = Field(None, exclude_if=is_none)

    @property
    def drawn_size(self) -> int | None:
        """How many clients the sampling law drew; None where that is not recorded."""
        if self.drawn is None:
            return self.cohort
        return self.drawn


class Residual(Value):
    """What left the clients less the sum that entered, measured outside the mechanism.

    Of a release that protects records it is what the client sent less its noise, drawn
    again, in units of one step's sum: the clipped gradients of its records, all steps
    together.

    Attributes:
        sum_squares: sum of its squares over all coordinates.
        along_sum: its part along the sum, or along a fixed direction where the sum is
            zero; None where it is not known.
    """

    sum_squares: NonNegative
    along_sum: float | None


def _registered_family(name: str) -> str:
    if name not in NOISE_FAMILIES:
        raise ValueError(f"must be one of {', '.join(NOISE_FAMILIES)}")
    return name


class ReleaseRecord(Value):
    """What left the clients at once, noisy or not.

    Attributes:
        round: training round, from 1.
        unit: whom the release protects: clients, or the records of one client.
        family: the noise, a name of ``NOISE_FAMILIES``; ``silent`` when nothing left
            the clients.
        steps: how many times it was released: the local steps of a release that
            protects records.
        noise_std: standard deviation of the noise on the sum, per coordinate.
        grid: step of the grid that sums and noise are on; None for noise on none.
        dimension: number of coordinates that received noise.
        noise_sum_squares: sum of squares of the noise that was drawn; evidence, None
            where it is not recorded.
        noise_state: hash of the generator's state before the draw; evidence that no
            noise is used twice.
        support: hash of the coordinates that were released; empty for all of them.
        residual: what a measurement outside the mechanism found; evidence.
        failure: why a round of a deployment was never released; empty for a release.
        shares: the groups whose clients are in the sum.
    """

    round: Count
    unit: Literal["client", "record"] = "client"
    family: Annotated[str, AfterValidator(_registered_family)]
    steps: Count = 1
    noise_std: Scale
    grid: Scale | None = Field(None, exclude_if=is_none)
    dimension: Natural
    noise_sum_squares: NonNegative | None = None
    noise_state: Fingerprint = ""
    support: Fingerprint = Field("", exclude_if=is_empty)
    residual: Residual | None = Field(None, exclude_if=is_none)
    failure: NameOrNone = Field("", exclude_if=is_empty)
    shares: tuple[GroupShare, ...]

    def release_for(self, share: GroupShare) -> Release:
        """The release as a client of one group sees it.

        The noise multiplier follows from the family of the noise.
        """
        ratio = min(share.sampling_ratio, 1.0)
        return _release(
            self.family,
            self.noise_std,
            self.grid,
            share.clip_bound,
            ratio,
            share.sampling,
        )

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
    """The release with these recorded values; rounds of one plan repeat few of them."""
    noise = NOISE_FAMILIES.get(family)
    std = noise.equivalent_std(noise_std, grid)
    multiplier = noise.noise_multiplier(std, clip_bound)
    return Release(multiplier, ratio, sampling, noise.name if noise.noisy else GAUSSIAN)


class RoundMetrics(Value):
    """What was measured after a round.

    Attributes:
        round: training round.
        accuracy: the score, by the run's metric; None when not finite.
        loss: None when not finite.
    """

    round: Natural
    accuracy: Real | None
    loss: float | None

    @property
    def scores(self) -> dict[str, float | None]:
        """The score and the loss by name."""
        return {"score": self.accuracy, "loss": self.loss}


class Mask(Value):
    """A uniform random mask of a fixed size.

    Attributes:
        index: its place among the transforms, which selects the random stream.
        name: name of the transform.
        size: number of coordinates in the mask.
    """

    index: Natural
    name: Title
    size: Count


class Executed(Value):
    """What the executed algorithm said of itself before it saw any data.

    Attributes:
        aggregator: the rule by which sums become a step.
        coordinates: length of the global vector (d).
        shared: how many of its coordinates are not personal, so that they may leave a
            client.
        masks: random masks that narrow them further in each round.
        appended: how many of its coordinates are appended to every update, such as the
            count of an adaptive clipping norm; no mask selects among these.
    """

    aggregator: TitleOrNone
    coordinates: Count
    shared: Natural
    masks: Annotated[tuple[Mask, ...], Field(max_length=MOST_MASKS)] = ()
    appended: Natural = Field(0, exclude_if=lambda count: count == 0)

    @property
    def released(self) -> int:
        """Most coordinates that leave a client in a round."""
        masked = (mask.size + self.appended for mask in self.masks)
        return min(self.shared, *masked, self.coordinates)


_VERSION = re.compile(
    r"\d{1,4}(\.\d{1,4}){0,3}((a|b|rc|\.dev|\.post)\d{1,8}){0,2}"
    r"(\+(cpu|cu\d{2,3}|rocm\d(\.\d){1,2}))?"
)
_Version = Annotated[str, text_of(_VERSION.pattern, "a version, such as 2.1.0+cpu")]
_Item = TypeVar("_Item")
_ByName = Annotated[dict[Name, _Item], Field(max_length=MOST_NAMED)]


class RunRecord(Checked):
    """The record of a run (``record.json``): of a simulation, or of a deployment.

    A deployment has no seed, data set, partition, model, device or accuracies.
    Accuracies are in [0, 1], unless the configuration names a metric.

    Attributes:
        plan_digest: content hash of the plan that was executed.
        chain: hash of the ledger's last line once the run is complete.
        audit: hash of what was seen of canaries (``audit.json``); empty without any.
        executed: what the algorithm said of itself; None in a record that does not
            tell.
        status: ``running`` until the last round is done, then ``complete``; ``stopped``
            when a deployment ended before its last planned round.
        accuracy: score on the test records, by the run's metric.
        accuracy_by_class: test accuracy of each class, by name; a statistic that no
            noise protects.
        accuracy_by_group: test accuracy weighted as the group's training labels are; a
            statistic of the groups' labels that no noise protects.
        weights: weight of each group in the mean of the updates, as the server found it
            from them: its mean over the rounds; empty where the plan has the weights.
        parts: clients of each part of a group that takes turns, by group.
        noise: source of the noise: ``seeded`` when it can be drawn again from ``seed``,
            which protects nobody outside a simulation; ``secure`` when its key is in no
            record.
    """

    schema_version: Literal[1] = 1
    plan_digest: Hash
    algorithm: Title
    dataset: NameOrNone = Field("", exclude_if=is_empty)
    partition: TitleOrNone = Field("", exclude_if=is_empty)
    model: NameOrNone = Field("", exclude_if=is_empty)
    seed: Natural | None = Field(None, exclude_if=is_none)
    device: Literal["", "cpu", "cuda"] = Field("", exclude_if=is_empty)
    configuration: dict[str, Any]
    versions: dict[Literal["python", "privplan", "torch", "numpy"], _Version]
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
        shares = {"accuracy": self.accuracy}
        for index, evaluation in enumerate(self.metrics):
            shares[f"metrics.{index}.accuracy"] = evaluation.accuracy
        for name, accuracy in self.accuracy_by_class.items():
            shares[f"accuracy_by_class.{name}"] = accuracy
        for name, accuracy in self.accuracy_by_group.items():
            shares[f"accuracy_by_group.{name}"] = accuracy
        for field, share in shares.items():
            if share is not None and not 0 <= share <= 1:
                yield Fault(f"record.{field}", "must be in [0, 1]", share)

    @rule
    def _streams_are_registered(self) -> Iterator[Fault]:
        """A record that names no scheme is of a version that had only one."""
        scheme = self.configuration.get("streams", 1)
        if scheme not in (1, STREAMS):
            text = f"must be 1 or {STREAMS}, the schemes that this version knows"
            yield Fault("record.configuration.streams", text, scheme)

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
            text = "must hold finite numbers only"
            yield Fault("record.configuration", text, "another one")

    @property
    def digest(self) -> str:
        """Content hash of all that a verdict reads, not the wall time.

        A replay is bound to it.
        """
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
    def cuts_up_people(self) -> bool:
        """Whether own records were dealt to clients, none of whom is then a person."""
        is_own = bool(self.configuration.get("own_data")) and self.seed is not None
        return is_own and self.partition != CLIENTS

    @property
    def scores_are_of_members(self) -> bool:
        """Whether scores may be of clients' own records.

        That is a release that no budget pays for, for the trainer's eyes. Such scores
        are in no bundle, and a report for others leaves them out. Scores on registered
        public data, and on test records of people who are no clients, as the user said,
        may be shown.
        """
        if self.seed is None or not self.is_on_own_data:
            return False
        return self.configuration.get("test") != "others"

    @property
    def simulation_seed(self) -> int:
        """The seed.

        Raises:
            InputError: for a deployment, whose randomness cannot be drawn again.
        """
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


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of Python and of packages, without what is local to a build."""
    versions = {"python": platform.python_version()}
    for name in packages:
        versions[name] = own_version() if name == "privplan" else version(name)
    matches = {name: _VERSION.match(text) for name, text in versions.items()}
    return {name: match[0] for name, match in matches.items() if match}


def refuse_inside_run(run: Path, output: Path) -> None:
    """Raise where an output would lie in a run folder, of which it is no part.

    Raises:
        InputError: naming the output.
    """
    if (run / RECORD).exists() and run.resolve() in output.resolve().parents:
        rule = "must be outside the run folder, which holds nothing but the run"
        raise InputError.one("output", rule, str(output))


def refuse_inside_runs(*outputs: Path | str | None) -> None:
    """Raise where an output would lie in any run folder.

    Raises:
        InputError: naming the output.
    """
    for output in outputs:
        if output is not None:
            for folder in Path(output).resolve().parents:
                refuse_inside_run(folder, Path(output))


def run_folder(run: Any) -> Path:
    """The folder of a run.

    Raises:
        InputError: for what is none, or holds what no run writes.
    """
    path = getattr(run, "folder", run)
    if not isinstance(path, Path | str):
        rule = "must be a run, or its folder, as in privplan.verify('run')"
        raise InputError.one("run", rule, type(path).__name__)
    folder = Path(path)
    if not folder.is_dir():
        rule = "must be a run folder, such as privplan simulate -o RUN writes"
        raise InputError.one("run", rule, str(folder))
    refuse_strange(folder)
    return folder
