"""A bundle: what is published of a run, and nothing else.

It holds the plan, its certificate, the verdict and the model.

Every value of a bundle is computed by the verifier, but for the plan: that is the one
which was approved, or else the run's own, of which bundle and command say so. Nothing
else is copied from what a run wrote about itself. Equal runs give equal bytes.

The model is a file in the format of safetensors: eight bytes of length, a header in
JSON, and the parameters as float32, little-endian, tiled without gaps. Reading it
executes no code.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from privplan.accounting.accountant import outwards
from privplan.accounting.certificate import CertificateRow
from privplan.accounting.release import Relation, SamplingLaw, Unit
from privplan.errors import Fault, InputError
from privplan.files import load_json, read_json, read_text
from privplan.limits import refuse_strange, regular
from privplan.plan import Plan
from privplan.record import PLAN, RECORD, VERDICT
from privplan.values import (
    Checked,
    Count,
    Hash,
    Label,
    Name,
    Named,
    Natural,
    NonNegative,
    Positive,
    Probability,
    Shown,
    Title,
    Value,
    is_none,
    parse,
    rule,
    text_of,
)

CERTIFICATE = "certificate.json"
DEPLOYMENT = "deployment"  # the algorithm of a run that a guard executed
MODEL = "model.safetensors"
FILES = frozenset({PLAN, CERTIFICATE, VERDICT, MODEL})
DIGITS = 6  # significant digits of a bound on epsilon in a bundle, rounded outwards
ALIGNED = 8  # bytes to which the format pads its header
MOST_HEADER = 2**24  # bytes of a header that is read
MOST_MODEL = 2**36  # bytes of a model that is read
Parameters = Mapping[str, np.ndarray]
Version = Annotated[str, text_of("[0-9][0-9a-z.+]{0,40}", "a version")]


class GroupPromise(Value):
    """What a group's clients were promised, and what the run spent, at ``delta``."""

    group: Name
    clients: Count
    budget: Positive
    delta: Probability
    sampling: SamplingLaw
    accountant: Label
    certified_lower: NonNegative  # of the plan
    certified_upper: NonNegative
    realised_lower: NonNegative  # of the run, from its ledger
    realised_upper: NonNegative


class PublishedVerdict(Checked):
    """The verdict of a bundle, of which no field depends on a record of the data.

    Attributes:
        plan: digest of the plan, to be compared with the approved one.
        approved: whether the publisher compared it with the plan that was approved.
            Else its names and numbers are whatever the trainer wrote.
        believed: own code of the trainer that decides what clients send.
        released: how many rounds released something, where not all did.
        unit: whom the budgets protect.
        level: ``executed`` where all rounds were executed again and agree, and the
            model is the one that the verifier trained, which takes no release of
            the run; ``recorded`` where that is not so, and no model is published.
        noise: ``seeded`` noise can be drawn again: a simulation on public data.
        executed: how many rounds were executed again when the bundle was made.
        model: the parameters in the bundle: ``all``; ``shared``, those that clients do
            not keep for themselves; ``none`` for a run that is kept as recorded.
        initial: where the model began: ``seed``, drawn again from it; ``plan``,
            parameters whose digest the plan names; ``module``, an own module with
            values of its own, of which nothing is known; None without a model.
    """

    schema_version: Literal[1] = 1
    kind: Literal["bundle"] = "bundle"
    plan: Hash
    algorithm: Title
    unit: Unit
    relation: Relation
    outcome: Literal["kept"] = "kept"
    level: Literal["executed", "recorded"]
    noise: Literal["seeded", "secure"]
    rounds: Count
    executed: Natural
    model: Literal["all", "shared", "none"]
    initial: Literal["seed", "plan", "module"] | None = None
    approved: bool = False
    believed: tuple[Literal["module", "loss"], ...] = Field(
        (), exclude_if=lambda parts: not parts
    )
    released: Natural | None = Field(None, exclude_if=is_none)
    privplan: Version  # version that made the bundle
    groups: Named[GroupPromise]

    @rule
    def spent_within_budget(self) -> Iterator[Fault]:
        """A run that is kept spent no more than its budgets."""
        for promise in self.groups:
            field = f"groups.{promise.group}"
            upper = promise.realised_upper
            # Bounds are rounded outwards, so one within the budget may look above it.
            if upper > outwards(promise.budget, True, DIGITS):
                text = f"must be at most the budget {promise.budget:g}"
                yield Fault(f"{field}.realised_upper", text, upper)
            if promise.realised_lower > upper:
                text = f"must be at most realised_upper, {upper:g}"
                yield Fault(f"{field}.realised_lower", text, promise.realised_lower)

    @rule
    def model_was_trained_by_the_verifier(self) -> Iterator[Fault]:
        """A model is published where all rounds were executed again, and only there."""
        for field, count in (("executed", self.executed), ("released", self.released)):
            if count is not None and count > self.rounds:
                yield Fault(field, f"must be at most the {self.rounds} rounds", count)
        is_executed = self.level == "executed"
        if is_executed and self.executed != self.rounds:
            text = "must be recorded where not all rounds were executed again"
            yield Fault("level", text, self.level)
        if is_executed == (self.model == "none"):
            text = "must be none where the level is recorded, and only there"
            yield Fault("model", text, self.model)
        if self.algorithm == DEPLOYMENT and (self.executed or self.noise == "seeded"):
            text = "must be a simulation's: no deployment is executed again"
            yield Fault("algorithm", text, self.algorithm)
        if (self.model == "none") != (self.initial is None):
            text = "must be given with a model, and only then"
            yield Fault("initial", text, self.initial)

    @property
    def line(self) -> str:
        """What it says, in one sentence."""
        executed = f"{self.executed} of {self.rounds} rounds"
        checked = "as recorded"
        if self.level == "executed":
            checked = f"executed again ({executed}; model trained by the verifier)"
        elif self.executed:
            checked = f"as recorded ({executed} executed again)"
        spent = ", ".join(
            f"{promise.group}: at most {promise.realised_upper:g} of {promise.budget:g} at "
            f"delta {promise.delta:.3g} ({promise.sampling}, {self.relation}, "
            f"{promise.accountant})"
            for promise in self.groups
        )
        plan = f"plan {self.plan[:12]}"
        if not self.approved:
            plan += " (not compared with an approved one)"
        if self.believed:
            checked += f", the code of its own {' and '.join(self.believed)} believed"
        outcome = "kept"
        if self.noise == "seeded":
            outcome = "kept (simulation)"
        return f"{outcome}, {checked}: {self.algorithm} under {plan}; {spent}"


class PublishedCertificate(Value):
    """The certificate of a bundle, computed anew from the plan."""

    schema_version: Literal[1] = 1
    plan: Hash
    rows: tuple[CertificateRow, ...]


class Bundle(Shown):
    """A bundle as read: plan, certificate, verdict and the model's parameters.

    Only who has the run folder can execute the run again: a bundle says what its
        publisher found.
    """

    def __init__(
        self,
        plan: Plan,
        certificate: PublishedCertificate,
        verdict: PublishedVerdict,
        parameters: Parameters | None,
    ) -> None:
        self.plan = plan
        self.certificate = certificate
        self.verdict = verdict
        self.parameters = parameters  # arrays by name, float32; None without a model

    def contents(self) -> dict[str, bytes]:
        """The content of each file by name."""
        files = {
            PLAN: self.plan.to_json().encode(),
            CERTIFICATE: json_bytes(self.certificate),
            VERDICT: json_bytes(self.verdict),
        }
        if self.parameters is not None:
            files[MODEL] = model_bytes(self.parameters)
        return files

    @classmethod
    def load(cls, folder: Path | str) -> Bundle:
        """Read a bundle, which holds these files and nothing else.

        Raises:
            InputError: for another file, an unknown field, files of different plans, or
                a file that is not written as ``privplan publish`` writes it.
        """
        folder = Path(folder)
        if not is_bundle(folder):
            raise InputError.one(
                "bundle", "must be a folder that publish wrote", str(folder)
            )
        refuse_strange(folder)
        names = {path.name for path in folder.iterdir()}
        verdict = parse(PublishedVerdict, read_json(folder / VERDICT, "verdict"))
        expected = FILES if verdict.model != "none" else FILES - {MODEL}
        if names != expected:
            rule = f"must hold {', '.join(sorted(expected))}, and nothing else"
            raise InputError.one("bundle", rule, ", ".join(sorted(names)))
        plan = Plan.load(folder / PLAN)
        certificate = parse_certificate(read_json(folder / CERTIFICATE, "certificate"))
        parameters = read_model(folder / MODEL) if MODEL in expected else None
        bundle = cls(plan, certificate, verdict, parameters)
        for name, content in bundle.contents().items():
            if name != MODEL and read_text(folder / name, name).encode() != content:
                raise InputError.one(
                    f"bundle.{name}", "must be as publish writes it", "other text"
                )
        for name, digest in (
            ("certificate", certificate.plan),
            ("verdict", verdict.plan),
        ):
            if digest != plan.digest:
                raise InputError.one(
                    f"bundle.{name}.plan", f"must be {plan.digest}", digest
                )
        return bundle


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a bundle, and no run folder."""
    files = (folder / CERTIFICATE, folder / VERDICT)
    return all(path.exists() for path in files) and not (folder / RECORD).exists()


def json_bytes(value: Value) -> bytes:
    """The text of a value of a bundle."""
    data = value.model_dump(mode="json")
    return (json.dumps(data, indent=1, allow_nan=False) + "\n").encode()


def parse_certificate(data: Any) -> PublishedCertificate:
    """A certificate from plain data."""
    return parse(PublishedCertificate, data)


# --- The model's file. ---------------------------------------------------------------


def model_bytes(parameters: Parameters) -> bytes:
    """The parameters as a file: in their order, float32, one behind the other."""
    header: dict[str, Any] = {}
    contents: list[bytes] = []
    end = 0
    for name, values in parameters.items():
        content = np.ascontiguousarray(values, "<f4").tobytes()
        offsets = [end, end + len(content)]
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": offsets,
        }
        contents.append(content)
        end += len(content)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    return struct.pack("<Q", len(text)) + text + b"".join(contents)


def read_model(path: Path) -> dict[str, np.ndarray]:
    """The parameters in a file by name, float32.

    Raises:
        InputError: when the file is not one that ``model_bytes`` makes, to the byte.
    """
    try:
        with open(path, "rb", opener=regular(MOST_MODEL)) as file:
            content = file.read()
    except OSError as error:
        rule = f"must be readable ({error.strerror})"
        raise InputError.one("bundle.model", rule, str(path)) from None
    parameters: dict[str, np.ndarray] | None = None
    with suppress(*_FAULTS):
        parameters = _parameters(content)
    if parameters is None or model_bytes(parameters) != content:
        rule = "must hold float32 parameters by name and shape, one behind the other"
        raise InputError.one("bundle.model", rule, str(path))
    return parameters


_FAULTS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, struct.error)
"""What reading a header of another form can raise."""


def _parameters(content: bytes) -> dict[str, np.ndarray]:
    """The arrays that the header describes; ValueError where it cannot be right."""
    [length] = struct.unpack("<Q", content[:8])
    if length > min(MOST_HEADER, len(content)):
        raise ValueError("a header longer than the file")
    header = load_json(content[8 : 8 + length].decode())
    values = content[8 + length :]
    parameters: dict[str, np.ndarray] = {}
    begin = 0
    for name, entry in header.items():
        shape = [int(size) for size in entry["shape"]]
        size = 4 * math.prod(shape)
        array = np.frombuffer(values[begin : begin + size], "<f4")
        if not name.isprintable() or not np.isfinite(array).all():
            raise ValueError("a name with signs that move, or a parameter that is none")
        parameters[name] = array.reshape(shape)
        begin += size
    return parameters
