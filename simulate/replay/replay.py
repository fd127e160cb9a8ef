"""Replay of a run folder: selection of rounds, comparison, report."""

from __future__ import annotations

import platform
import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.evidence import (
    Evidence,
    RoundEvidence,
    clients_digest,
    read_clients,
    read_evidence,
    stored_vectors,
    vector_digest,
)
from privplan.ledger import chained, read_ledger
from privplan.plan import Plan
from privplan.record import PLAN, ReleaseRecord, RunRecord
from privplan.replayed import ReplayReport, report_of
from privplan.secure_streams import NoiseKey
from simulate.data.partition.clients import client_arrays
from simulate.data.partition.registry import partition, scheme
from simulate.own_parts import OwnParts
from simulate.replay.compare import TOLERANCE, Comparisons
from simulate.replay.lines import World, planned_lines
from simulate.replay.method import method_of
from simulate.replay.rounds import NORM, Round, first_model, replay_round
from simulate.replay.server import AVERAGE, first_vectors, supported
from simulate.tasks import Metric

ACCURACY = 1e-3
"""Largest difference between the recorded accuracy and that of the final model."""

OF_KEY = frozenset({"noise_state", "noise_sum_squares", "participants", "cohort", "releases"})
"""Comparisons that need the key of a run with secure noise."""

Progress = Callable[[int, int], None]
Lines = dict[int, list[ReleaseRecord]]


class Replay:
    """The replay of one run folder.

    Args:
        folder: the run folder.
        data_dir: the data folder; PRIVPLAN_DATA when None.
        own: the data, model, loss and metric of a run on own ones, as they were given to it.
        noise_key: file with the key of a run with secure noise; without it cohorts and noise are
            not shown.

    Raises:
        InputError: when the folder holds no finished run, or the data or the key are not those of
            the run.
    """

    def __init__(
        self,
        folder: Path,
        data_dir: Path | None = None,
        own: OwnParts | None = None,
        noise_key: Path | None = None,
    ) -> None:
        self.folder, self.found, self._workers = folder, Comparisons(), torch.get_num_threads()
        self.plan, self.record = Plan.load(folder / PLAN), RunRecord.load(folder)
        if self.record.status != "complete":
            raise InputError.one("record.status", "must be complete", self.record.status)
        seed = self.record.simulation_seed
        self.evidence = read_evidence(folder, self.plan.digest)
        self.missing = "" if self.evidence else "hashes of releases and models (evidence.jsonl)"
        settings = self.record.configuration
        aggregation = str(settings.get("aggregation"))
        key = self._key(noise_key)
        method = method_of(self.plan, self.record.algorithm, aggregation)
        self.world: World | None = None
        if method is None or settings.get("canaries") or not supported(self.plan):
            what = "a run with canaries"
            if method is None:
                what = f"algorithm {self.record.algorithm}"
            elif self.plan.spec.server is not None and not supported(self.plan):
                what = f"server optimiser {self.plan.spec.server.optimizer}"
            self.missing = f"{what}, which replay does not support"
            return
        own = own or OwnParts()
        self.metric = own.metric_of(self.record)
        data, assigned = own.data_of(self.record, self.plan, data_dir)
        if data.digest != settings.get("data"):
            rule = f"must be the data of the run, with digest {settings.get('data')}"
            raise InputError.one("dataset", rule, data.digest)
        people, labels = data.train_people, data.train_labels.numpy()
        if assigned is None:
            chosen = scheme(self.record.partition)
            assigned = partition(chosen, labels, self.plan.groups, seed, people)
        network = own.model_of(self.record, data)
        if network.stochastic:
            what = "a module that draws random numbers in training"
            self.missing = f"{what}, which replay does not support"
            return
        secret = self.record.noise == "secure" and key is None
        self.world = World(
            self.plan, method, network, data, assigned, seed, key=key, secret=secret,
            discrete=settings.get("noise") == "secure-discrete" and method.noisy,
        )  # fmt: skip
        if secret:
            self.found.skipped = OF_KEY
            self.missing = self.missing or "the key of cohorts and noise (--noise-key)"

    def _key(self, path: Path | None) -> NoiseKey | None:
        """The key of the run's cohorts and noise; None for a run without one, or if not given."""
        if path is None:
            return None
        if self.record.noise != "secure":
            raise InputError.one("noise-key", "is only for runs with secure noise", str(path))
        key = NoiseKey.load(path, "noise-key")
        committed = self.record.configuration.get("noise_commitment")
        if key.commitment != committed:
            rule = f"must be the key of the run, with commitment {committed}"
            raise InputError.one("noise-key", rule, key.commitment)
        return key

    def run(self, rounds: int | None, seed: int | None, progress: Progress) -> ReplayReport:
        """Compare cohorts, noise states and constants of all rounds, and train some rounds again.

        Args:
            rounds: number of rounds that are trained again; None for all.
            seed: seed of their selection; fresh randomness when None.
            progress: called with the number of rounds trained again and their total.
        """
        started, total = time.monotonic(), self.plan.spec.rounds
        seed = secrets.randbits(64) if seed is None else seed
        chosen = np.arange(1, total + 1)
        if rounds is not None and rounds < total:
            chosen = np.sort(np.random.default_rng(seed).choice(chosen, rounds, replace=False))
        trained: list[int] = []
        torch.set_num_threads(1)  # threads work on clients; idle ones of an operation would spin
        try:
            if self.world is not None:
                lines = self._ledger(self.world)
                self._inputs(self.world, self.evidence)
                trained = self._rounds(self.world, chosen.tolist(), lines, progress)
        finally:
            torch.set_num_threads(self._workers)
        versions = {name: version(name) for name in ("privplan", "torch", "numpy")}
        return report_of(
            self.plan.digest, self.record.chain, self.found.summary(), self.found.differences,
            self.missing, rounds=tuple(trained), of=total, tolerance=TOLERANCE,
            selection_seed=None if len(chosen) == total else seed,
            versions={"python": platform.python_version(), **versions},
            seconds=time.monotonic() - started,
        )  # fmt: skip

    def _ledger(self, world: World) -> Lines:
        """The ledger's lines by round, after comparing what does not depend on training."""
        ledger, found = read_ledger(self.folder, self.plan.digest), self.found
        found.equal(0, "ledger chain", ledger.fault or self.record.chain, ledger.chain)
        found.equal(0, "plan digest", self.record.plan_digest, self.plan.digest)
        lines: Lines = defaultdict(list)
        chain, hashes = self.plan.digest, {}
        for line in ledger.records:
            _, chain = chained(line, chain)
            lines[line.round].append(line)
            hashes[line.round] = chain
        for round_ in sorted({*lines, *range(1, self.plan.spec.rounds + 1)}):
            planned = round_ <= self.plan.spec.rounds
            replayed = planned_lines(world, round_, lines[round_]) if planned else []
            found.equal(round_, "number of releases", len(lines[round_]), len(replayed))
            for one, other in zip(lines[round_], replayed, strict=False):
                found.line(one, other.record, None)
            if self.evidence and round_ in self.evidence.rounds and round_ in hashes:
                recorded = self.evidence.rounds[round_].ledger
                found.equal(round_, "ledger hash", recorded, hashes[round_])
        return lines

    def _inputs(self, world: World, evidence: Evidence | None) -> None:
        """Compare data, partition, initial model and final accuracy."""
        found = self.found
        if evidence is None:
            return
        found.equal(0, "evidence chain", evidence.fault, None)
        found.equal(0, "data", evidence.header.data, self.record.configuration["data"])
        digest, stored = clients_digest(client_arrays(world.partition)), read_clients(self.folder)
        found.equal(0, "partition", evidence.header.clients, digest)
        if stored is not None:
            found.equal(0, "clients", clients_digest(stored), digest)
        first = self._vectors(0, 0, 1, world.model.parameters, (evidence.header.model,))
        found.vectors(0, "initial model", first[0], first_model(world))
        last = evidence.rounds.get(self.plan.spec.rounds)
        if last is not None and last.model_at is not None and self.record.accuracy is not None:
            theta = self._model(0, last, len(first[0]))[1].get(AVERAGE)
            theta = self._model(0, last, len(first[0]))[0] if theta is None else theta
            largest = ACCURACY * max(1.0, abs(self.record.accuracy))
            deviation = abs(_score(world, theta, self.metric) - self.record.accuracy)
            found.add(0, "accuracy", f"recorded {self.record.accuracy}", deviation, largest)

    def _rounds(
        self, world: World, chosen: list[int], lines: Lines, progress: Progress
    ) -> list[int]:
        """Train rounds again and compare them; returns their numbers."""
        known = self.evidence.rounds if self.evidence else {}
        stored = {number: one.model_at for number, one in known.items() if one.model_at is not None}
        if world.secret and world.method.release == "per_client":
            return []
        wanted: set[int] = set()
        for one in chosen:  # from the last stored model before it to the first one after it
            start = max((number for number in stored if number < one), default=0)
            end = min((number for number in stored if number >= one), default=one)
            wanted |= set(range(start + 1, end + 1))
        first = {} if self.plan.clipping is None else {NORM: self.plan.spec.clipping_norm}
        theta = first_model(world)
        now = Round((), theta, torch.empty(0), first, first_vectors(self.plan, theta))
        for done, round_ in enumerate(sorted(wanted)):
            progress(done, len(wanted))
            before = round_ - 1
            if before in stored:
                theta, vectors = self._model(before, known[before], len(now.theta))
                now = Round((), theta, now.slack, known[before].state, vectors)
            released = self._released(round_) if world.secret else []
            if len(released) < len(lines[round_]) and world.secret and world.method.noisy:
                return sorted(one for one in wanted if one < round_)
            of_run = (lines[round_], released)
            now = replay_round(world, round_, now, self._workers, of_run)
            self._compare(round_, now, lines[round_])
        progress(len(wanted), len(wanted))
        return sorted(wanted)

    def _compare(self, round_: int, now: Round, lines: list[ReleaseRecord]) -> None:
        """Compare a round trained again with the ledger and the evidence."""
        found, evidence = self.found, self.evidence.rounds.get(round_) if self.evidence else None
        for one, other in zip(lines, now.releases, strict=False):
            found.line(one, other.record, other.near)
        if evidence is None:
            self.missing = self.missing or f"hashes of releases and model of round {round_}"
            return
        found.equal(round_, "releases hashed", len(evidence.releases), len(now.releases))
        if evidence.releases_at is not None:
            hashes = evidence.releases
            run = self._vectors(round_, evidence.releases_at, len(hashes), evidence.length, hashes)
            for vector, replayed in zip(run, now.releases, strict=False):
                found.vectors(round_, "releases", vector, replayed.vector)
        if evidence.model_at is not None:
            theta, vectors = self._model(round_, evidence, len(now.theta))
            undecided = (now.slack > 0) * 1e30  # coordinates where rounding decides a selection
            plain = self.plan.spec.server is None
            found.vectors(round_, "model", theta, now.theta, now.slack if plain else undecided)
            found.equal(round_, "server state", sorted(vectors), sorted(now.vectors))
            for name in vectors.keys() & now.vectors.keys():
                found.vectors(round_, name, vectors[name], now.vectors[name], undecided)
        for name, value in now.state.items():
            recorded = evidence.state.get(name, float("nan"))
            text = f"recorded {recorded}, replayed {value}"
            found.add(round_, name, text, abs(recorded - value) / value, TOLERANCE)

    def _model(
        self, round_: int, evidence: RoundEvidence, size: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The stored model after a round and the server's vectors behind it, by name."""
        digests = (evidence.model, *evidence.server.values())
        theta, *rest = self._vectors(round_, evidence.model_at or 0, len(digests), size, digests)
        return theta, dict(zip(evidence.server, rest, strict=True))

    def _released(self, round_: int) -> list[Tensor]:
        """The stored releases of a round; none where they are not stored."""
        one = self.evidence.rounds.get(round_) if self.evidence else None
        if one is None or one.releases_at is None:
            return []
        return self._vectors(round_, one.releases_at, len(one.releases), one.length, one.releases)

    def _vectors(
        self, round_: int, offset: int, count: int, length: int, digests: tuple[str, ...]
    ) -> list[Tensor]:
        """Vectors of the run, after comparing their hashes."""
        vectors = list(stored_vectors(self.folder, offset, count, length))
        for vector, digest in zip(vectors, digests, strict=True):
            self.found.equal(round_, "stored vector's hash", digest, vector_digest(vector))
        return [torch.from_numpy(vector.copy()) for vector in vectors]


def _score(world: World, theta: Tensor, metric: Metric | None) -> float:
    """The metric on the test records; by default the share that is classified correctly."""
    right, data = 0, world.data
    with torch.no_grad():
        if metric is not None:
            outputs = world.model.logits(theta, data.inputs(data.test_x))
            return metric(outputs, world.model.objective.targets_of(data.test_y))
        for rows in torch.split(torch.arange(len(data.test_y)), 1000):
            logits = world.model.logits(theta, data.inputs(data.test_x[rows]))
            right += int((logits.argmax(1) == data.test_y[rows]).sum())
    return right / len(data.test_y)
