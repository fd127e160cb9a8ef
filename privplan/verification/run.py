"""A run to verify: what was read of it, and what several checks ask of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from privplan.auditing import AuditEvidence
from privplan.evidence.replay import ReplayReport
from privplan.evidence.rounds import EarlierHeader, EvidenceHeader, read_evidence
from privplan.laws.law import Clients
from privplan.ledger import LedgerText
from privplan.plan import Plan
from privplan.record import GroupShare, ReleaseRecord, RunRecord
from privplan.releases import stored_fault
from privplan.secure_stream import NoiseKey
from privplan.streams import Purpose, private_seed, stream
from privplan.values import Shown

Shares = list[tuple[ReleaseRecord, GroupShare]]
T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """A run to verify: plan, ledger, record, and optional evidence.

    Attributes:
        plan: that was executed.
        ledger: the releases.
        record: of the run.
        audit: the canaries; None in a run without canaries.
        folder: the run folder; None for a run that is in memory only.
        trusted: what the reader trusts and gives to checks; each takes what it knows.
        executed: what executing rounds again found for this verdict; None when none
            was.
        contradiction: what the record says and cannot be so here, such as a partition
            that nobody knows, or public data with another digest; empty without one.
    """

    plan: Plan
    ledger: LedgerText
    record: RunRecord
    audit: AuditEvidence | None = None
    folder: Path | None = None
    trusted: tuple[object, ...] = ()
    executed: ReplayReport | None = None
    contradiction: str = ""
    _results: dict[Any, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def metrics(self) -> Any:
        """Score and loss by round, as a ``pandas.DataFrame``."""
        return self.to_frame()

    def once(self, compute: Callable[[Run], T]) -> T:
        """The result of a function of the run, which several checks need."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        result: T = self._results[compute]
        return result

    def shares(self, group: str) -> Shares:
        """Releases that a group took part in, each with the group's share."""
        return self._shares.get(group, [])

    @cached_property
    def evidence(self) -> tuple[EvidenceHeader | EarlierHeader | None, str | None]:
        """Header of the evidence for a replay, and the first fault of its files.

        Without evidence both are None. The last line of an unfinished run may be torn;
        resuming the run writes it again. A finished run has the evidence of each
        release of its ledger, and no byte beside its vectors.
        """
        if self.folder is None:
            return None, None
        evidence = read_evidence(self.folder, self.plan.digest)
        if evidence is None:
            return None, None
        header = evidence.header
        if self.record.status == "running":
            # The last line may be written at this moment.
            if evidence.torn:
                return header, None
            return header, evidence.fault
        if evidence.fault is not None or not isinstance(header, EvidenceHeader):
            return header, evidence.fault
        rounds = tuple(evidence.of_releases.values())
        return header, stored_fault(self.folder, header, rounds, self.ledger, self.plan)

    @cached_property
    def numbered(self) -> list[tuple[int, ReleaseRecord]]:
        """The releases, each with its position among those of its round, from 0."""
        next_index: dict[int, int] = {}
        numbered = []
        for release in self.ledger.records:
            index = next_index.get(release.round, 0)
            next_index[release.round] = index + 1
            numbered.append((index, release))
        return numbered

    @cached_property
    def keyed(self) -> bool:
        """Whether a secret key determines cohorts and noise, not the seed."""
        source = self.record.configuration.get("noise")
        return self.record.noise == "secure" or source not in (None, "seeded")

    @cached_property
    def writes_evidence(self) -> bool:
        """Whether the program that wrote the folder always measures the noise.

        Simulations do since version 0.2.
        """
        version = self.record.versions.get("privplan", "0.1")
        is_simulation = self.folder is not None and self.record.seed is not None
        return is_simulation and version[:3] != "0.1"

    @cached_property
    def key(self) -> NoiseKey | None:
        """The secret key of cohorts and noise, where the reader has it."""
        keys = (item for item in self.trusted if isinstance(item, NoiseKey))
        return next(keys, None)

    def source(self, purpose: Purpose, *place: int, group: str = "") -> Any:
        """A stream of the run's cohorts or noise, from its start: of its key or seed.

        Args:
            purpose: what is drawn from it.
            place: round and position, as the purpose counts them.
            group: whose cohorts are drawn; empty for noise.
        """
        if self.key is not None:
            return self.key.stream(purpose, *place)
        seed = self.record.simulation_seed
        # Streams of scheme 1, that of old runs, follow from the seed alone.
        if self.record.configuration.get("streams", 1) != 1:
            seed = private_seed(seed, self._spec_digest, group)
        return stream(seed, purpose, *place)

    @cached_property
    def _spec_digest(self) -> str:
        """The digest of the plan's spec, of which each stream's seed is made."""
        return self.plan.spec_digest

    @cached_property
    def clients(self) -> dict[str, int]:
        """Clients of each group, with its parts that take turns.

        The parts are the record's where data name them. Where the record does not tell
        them nobody has a turn, so participants are out of turn.
        """
        clients = {}
        for group in self.plan.groups:
            law = self.plan.law_of(group).law
            seated, _ = law.seated(group.name, range(group.clients))
            if self.record.partition == "clients" and isinstance(seated, Clients):
                seated = Clients(self.record.parts.get(group.name, ()))
            clients[group.name] = seated
        return clients

    @property
    def other_streams(self) -> str | None:
        """Why streams of the seed cannot be generated here; None where they can be.

        Those of the key can be anywhere.
        """
        if self.key is not None:
            return None
        recorded = self.record.versions.get("numpy")
        installed = np.__version__
        if recorded is None:
            return "the version of numpy in the record"
        # Streams may change between minor versions of numpy.
        if recorded.split(".")[:2] != installed.split(".")[:2]:
            return f"streams of numpy {recorded}, here is {installed}"
        if self.record.seed is None:
            return "the seed"
        return None

    @cached_property
    def _shares(self) -> dict[str, Shares]:
        """Releases with shares of all groups, by group."""
        by_group: dict[str, Shares] = {}
        for release in self.ledger.records:
            for share in release.shares:
                by_group.setdefault(share.group, []).append((release, share))
        return by_group
