"""Replay of a run folder: which rounds are executed again, and what is compared.

What precedes a release is executed again and compared in units of the release's noise.
What follows it, the models, is computed from the stored releases and compared with
nothing.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from privplan.errors import InputError
from privplan.evidence import (
    EARLIER,
    EVIDENCE,
    EarlierHeader,
    EvidenceHeader,
    ReplayReport,
    clients_digest,
    read_clients,
    read_evidence,
)
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.record import PLAN, ReleaseRecord, RunRecord
from privplan.releases import NOT_STORED, StoredReleases, stored_fault, stored_releases
from privplan.streams import NoiseKey
from simulate.aggregators import WEIGHT
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS
from simulate.data.partition.clients import client_arrays
from simulate.own_parts import OwnParts
from simulate.postprocessing import (
    ModelState,
    RoundReleases,
    Sender,
    initial_state,
    initial_vector,
    models_after,
    public_coordinates,
    step,
)
from simulate.recipe import NotExecuted
from simulate.replay.compare import Binding, Comparisons
from simulate.replay.lines import planned_lines
from simulate.replay.model import (
    INITIAL_TOLERANCE,
    algorithm_of,
    members_of,
    round_releases,
    settings_of,
)
from simulate.replay.rounds import Recorded, Replayed, replay_round, start_of
from simulate.replay.scores import SCORE, Scores, scores_of
from simulate.replay.world import World
from simulate.tasks import evaluations

OF_KEY = frozenset(
    {"noise_state", "noise_sum_squares", "participants", "cohort", "releases"}
)
"""Comparisons that need the key of a run with secure noise."""
NO_KEY = "the key of cohorts and noise (--noise-key)"
OWN_MODELS = (
    "rounds build on what clients keep; privplan replay --rounds all executes them"
)
"""Why a replay of some rounds in a limited time shows nothing where clients have own parameters."""
CLAIMED = (
    "scores are of models that clients keep, which no run stores; they are only claimed"
)
WEIGHTS = (
    1e-5  # relative error of a sum over rounds of weights that float32 updates give
)
Lines = dict[int, list[ReleaseRecord]]  # ledger lines by round
Progress = Callable[[int, int], None]  # rounds done, rounds to do


class Replay:
    """The replay of one run folder.

    Args:
        folder: the run folder.
        data_dir: the data folder; PRIVPLAN_DATA when None.
        own: the data, model, loss and metric of a run on own ones, as they were given
            to it.
        noise_key: file with the key of a run with secure noise; without it cohorts and
            noise are
            not shown.

    Raises:
        InputError: when the folder holds no finished run, or the data or the key are
        not those of
            the run.
    """

    def __init__(
        self,
        folder: Path,
        data_dir: Path | None = None,
        own: OwnParts | None = None,
        noise_key: Path | None = None,
    ) -> None:
        self.folder, self.found, self._workers = (
            folder,
            Comparisons(),
            torch.get_num_threads(),
        )
        self.plan, self.record = Plan.load(folder / PLAN), RunRecord.load(folder)
        if self.record.status != "complete":
            raise InputError.one(
                "record.status", "must be complete", self.record.status
            )
        self.ledger = read_ledger(folder, self.plan.digest)
        self.evidence = read_evidence(folder, self.plan.digest)
        self.missing = "" if self.evidence else f"digests of the releases ({EVIDENCE})"
        self.claimed = ""
        self.world: World | None = None
        self.algorithm: Algorithm | None = None
        # The state after the last round, where all rounds were executed one after another.
        self.final: ModelState | None = None
        key = NoiseKey.of_run(
            folder, self.record.configuration.get("noise_commitment"), noise_key
        )
        if self.record.algorithm not in ALGORITHMS.names():
            self.missing = (
                f"{self.record.algorithm} cannot be executed again: it is unknown here"
            )
            return
        try:
            self.algorithm = algorithm_of(self.plan, self.record)
        except InputError as error:  # settings that the algorithm does not have
            self.found.add(0, "algorithm", str(error), math.inf)
            return
        self.world = self._world(self.algorithm, data_dir, own or OwnParts(), key)
        header = None if self.evidence is None else self.evidence.header
        if isinstance(header, EarlierHeader):
            self.missing = self.missing or EARLIER

    def _world(
        self,
        algorithm: Algorithm,
        data_dir: Path | None,
        own: OwnParts,
        key: NoiseKey | None,
    ) -> World | None:
        """What the run starts from; None, and why in ``missing``, where no replay executes it."""
        settings, name = self.record.configuration, self.record.algorithm
        aggregation = str(settings.get("aggregation", "paper"))
        entry = ALGORITHMS.get(name)
        recipe = entry.recipe(self.plan, aggregation)
        if settings.get("canaries"):
            recipe = NotExecuted("canaries")
        if isinstance(recipe, NotExecuted):
            self.missing = f"{name} cannot be executed again: {recipe.reason}"
            return None
        parts = own.parts_of(self.record, self.plan, data_dir, self.folder)
        if parts.model.stochastic:
            self.missing = (
                "support of replay for a module that draws random numbers in training"
            )
            return None
        if recipe.personal or recipe.fine_tuned:
            self.claimed = CLAIMED
        secret = self.record.noise == "secure" and not key
        if secret:
            self.found.skipped = OF_KEY
            self.missing = self.missing or NO_KEY
        return World(
            plan=self.plan,
            recipe=recipe,
            numbers=settings_of(self.record).values,
            parts=parts,
            seed=self.record.simulation_seed,
            key=key,
            secret=secret,
            discrete=settings.get("noise") == "secure-discrete" and recipe.noisy,
            scheme=settings.get("streams", 1),
        )

    def run(
        self,
        rounds: int | None,
        seed: int | None,
        progress: Progress,
        seconds: float | None = None,
    ) -> ReplayReport:
        """Compare cohorts, noise states, constants and scores of all rounds; train some again.

        Args:
            rounds: how many, drawn at random; None for all.
            seed: of the selection; fresh randomness when None.
            progress: is called with the rounds done and those to do.
            seconds: no further round begins after so many; one is always trained.
        """
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        total = self.plan.spec.rounds
        seed = secrets.randbits(64) if seed is None else seed
        generator = np.random.default_rng(seed)
        chosen = np.arange(1, total + 1)
        if rounds is not None and rounds < total:
            chosen = np.sort(generator.choice(chosen, rounds, replace=False))
        trained: list[int] = []
        if self.world is not None and self.algorithm is not None:
            lines = self._ledger(self.world)
            stored = self._inputs(self.world)
            if stored is not None:
                if seconds is not None and not self.world.recipe.personal:
                    chosen = generator.permutation(chosen)
                trained = self._from_stored(
                    self.world, stored, chosen.tolist(), lines, progress
                )
            elif self._may_train_in_turn():
                last = int(chosen.max(initial=0))
                trained = self._in_turn(
                    self.world, self.algorithm, last, lines, progress
                )
        binding = Binding(
            plan_digest=self.plan.digest,
            chain=self.record.chain,
            record=self.record.digest,
            rounds=tuple(sorted(trained)),
            of=total,
            selection_seed=None if len(trained) == total else seed,
        )
        return self.found.report(binding, self.missing, self.claimed)

    def _ledger(self, world: World) -> Lines:
        """The ledger's lines by round, after comparing what does not depend on training."""
        found, total = self.found, self.plan.spec.rounds
        found.equal(
            0, "ledger chain", self.ledger.fault or self.record.chain, self.ledger.chain
        )
        found.equal(0, "plan digest", self.record.plan_digest, self.plan.digest)
        found.equal(0, "rounds done", self.record.rounds_done, total)
        lines: Lines = defaultdict(list)
        for line in self.ledger.records:
            lines[line.round].append(line)
        for round_ in sorted({*lines, *range(1, total + 1)}):
            planned = (
                planned_lines(world, round_, lines[round_]) if round_ <= total else []
            )
            found.equal(round_, "number of releases", len(lines[round_]), len(planned))
            for recorded, replayed in zip(lines[round_], planned, strict=False):
                found.lines(recorded, replayed.record, None)
        return lines

    def _inputs(self, world: World) -> StoredReleases | None:
        """Compare data, partition and stored vectors; the stored releases, where they are whole."""
        if self.evidence is None:
            return None
        found, header, fault = self.found, self.evidence.header, self.evidence.fault
        found.add(0, "evidence chain", fault or "", float(fault is not None))
        if header is None:
            return None
        found.equal(0, "data", header.data, world.parts.data.digest)
        digest = clients_digest(client_arrays(world.parts.partition))
        found.equal(0, "partition", header.clients, digest)
        if (named := read_clients(self.folder)) is not None:
            found.equal(0, "clients", clients_digest(named), digest)
        if fault is not None or not isinstance(header, EvidenceHeader):
            return None
        rounds = tuple(self.evidence.of_releases.values())
        fault = stored_fault(self.folder, header, rounds, self.ledger, self.plan)
        found.add(0, "stored vectors", fault or "", float(fault is not None))
        if fault is not None:
            return None
        if not header.stored:
            self.missing = self.missing or NOT_STORED
            return None
        return stored_releases(self.folder, self.plan, self.ledger)

    def _may_train_in_turn(self) -> bool:
        """Whether rounds can be executed one after another, without stored releases."""
        assert self.world is not None
        earlier = self.evidence is not None and isinstance(
            self.evidence.header, EarlierHeader
        )
        return not (self.world.secret or earlier or self.found.differences)

    def _from_stored(
        self,
        world: World,
        stored: StoredReleases,
        chosen: list[int],
        lines: Lines,
        show: Progress,
    ) -> list[int]:
        """Train rounds from the models that the stored releases give; returns their numbers."""
        assert self.algorithm is not None
        if world.secret and world.recipe.release == "per_client":
            chosen = []  # each client adds its own noise: nothing is left to compare
        stretches = [self._stretch(world, round_) for round_ in chosen]
        needed = {round_ for stretch in stretches for round_ in stretch}
        starts, recorded = self._pass(world, self.algorithm, stored, needed, lines)
        trained, last = list[int](), None
        before: Replayed | None = None
        for done, stretch in enumerate(stretches):
            show(done, len(stretches))
            if trained and time.monotonic() > self._until:
                break
            for round_ in stretch if stretch[-1] in starts else ():
                if last is not None and round_ <= last and stretch[-1] > last:
                    continue  # executed for the round before
                kept = before if last == round_ - 1 else None
                start = start_of(starts[round_], kept)
                before, last = (
                    replay_round(world, round_, start, recorded[round_], self._workers),
                    round_,
                )
                if round_ == stretch[-1]:
                    self._compare(round_, before, recorded[round_])
                    trained.append(round_)
        show(len(stretches), len(stretches))
        if world.recipe.personal and len(trained) < len(chosen):
            self.missing = self.missing or OWN_MODELS
            return []
        return trained

    def _stretch(self, world: World, round_: int) -> list[int]:
        """A round, after those whose sums or personal parameters it builds on."""
        return list(range(max(1, round_ - world.before), round_ + 1))

    def _pass(
        self,
        world: World,
        algorithm: Algorithm,
        stored: StoredReleases,
        needed: set[int],
        lines: Lines,
    ) -> tuple[dict[int, ModelState], dict[int, Recorded]]:
        """Compute all models: states before the needed rounds, and the scores of evaluated ones."""
        recorded = dict[int, Recorded]()

        def noted() -> Iterator[RoundReleases]:
            members = members_of(self.folder, self.plan)
            for releases in round_releases(stored, self.ledger, algorithm, members):
                if releases.round in needed:
                    recorded[releases.round] = Recorded(
                        lines[releases.round], releases.vectors
                    )
                yield releases

        first = initial_vector(algorithm, world.parts.model, world.seed)
        declared = torch.from_numpy(stored.initial().copy())
        off = (
            float((declared - first).norm())
            if declared.shape == first.shape
            else math.inf
        )
        unit = float(first.norm()) or 1.0
        self.found.add(
            0,
            "initial model",
            f"off by {off / unit:.2g}",
            off / unit,
            INITIAL_TOLERANCE,
        )
        starts = dict[int, ModelState]()
        scorer = _Scorer(self, world, algorithm)
        states = models_after(algorithm, world.parts.model, world.seed, first, noted())
        try:
            for state in states:
                if state.round + 1 in needed:
                    starts[state.round + 1] = state
                scorer.see(state)
        except InputError as error:  # releases that are not of the algorithm
            self.found.add(len(recorded), "releases", str(error), math.inf)
        return starts, recorded

    def _in_turn(
        self,
        world: World,
        algorithm: Algorithm,
        last: int,
        lines: Lines,
        show: Progress,
    ) -> list[int]:
        """Train all rounds up to one, each from the releases of those before it.

        The replayed releases take the place of those that the run did not store: the
        models, and the scores that are compared, are the verifier's own.
        """
        model = world.parts.model
        state = initial_state(algorithm, initial_vector(algorithm, model, world.seed))
        scorer, trained = _Scorer(self, world, algorithm), list[int]()
        before: Replayed | None = None
        for round_ in range(1, last + 1):
            show(round_ - 1, last)
            if trained and time.monotonic() > self._until:
                break
            recorded = Recorded(lines[round_])
            before = replay_round(
                world, round_, start_of(state, before), recorded, self._workers
            )
            self._compare(round_, before, recorded)
            trained.append(round_)
            releases = _as_sent(world, round_, before)
            public = public_coordinates(algorithm, model, world.seed, round_)
            coordinates = None if public is None else torch.from_numpy(public)
            state = step(algorithm, state, releases, coordinates)
            scorer.see(state)
        show(last, last)
        if len(trained) == self.plan.spec.rounds:
            self.final = state
            if self.missing == NOT_STORED:
                self.missing = ""
        return trained

    def _compare(self, round_: int, replayed: Replayed, recorded: Recorded) -> None:
        """Compare a round trained again with the ledger and the stored releases."""
        for line, release in zip(recorded.lines, replayed.releases, strict=False):
            self.found.lines(line, release.record, release.near)
        for vector, release in zip(recorded.releases, replayed.releases, strict=False):
            self.found.released(round_, vector, release)


def _as_sent(world: World, round_: int, replayed: Replayed) -> RoundReleases:
    """The replayed releases of a round, as the server receives them."""
    senders: list[Sender] = []
    if world.recipe.release == "per_client":
        for line in planned_lines(world, round_):
            [part] = line.parts
            senders.append(Sender(part.group.name, int(part.clients[0])))
    return RoundReleases(
        round_, [release.vector for release in replayed.releases], senders
    )


class _Scorer:
    """Compares the scores of the models that pass with those that the record claims."""

    def __init__(self, replay: Replay, world: World, algorithm: Algorithm) -> None:
        self._replay, self._world, self._algorithm = replay, world, algorithm
        parts, record = world.parts, replay.record
        self._points = {point.round: point for point in record.metrics}
        records = len(parts.data.test_y)
        self._due = evaluations(replay.plan, parts.partition, records, world.seed)
        replay.found.equal(0, "evaluated rounds", sorted(self._points), [*self._due])

    def see(self, state: ModelState) -> None:
        """Compare the scores of a model, where its round is evaluated and the model is for all."""
        replay, world = self._replay, self._world
        if state.round == replay.plan.spec.rounds:
            self._weights(state)
        if replay.claimed or state.round not in self._due:
            return
        theta = state.released(self._algorithm)
        scores = scores_of(world.parts, replay.plan, theta, self._due[state.round])
        if not scores.shown:
            share = (
                f"{scores.ties:.0%} of the test records are ties of the model's outputs"
            )
            replay.missing = (
                replay.missing or f"accuracies that rounding does not decide: {share}"
            )
        found, point = replay.found, self._points.get(state.round)
        if point is not None:
            replayed = {"score": scores.score, "loss": (scores.loss, 0.0)}
            claimed = {"score": point.accuracy, "loss": point.loss}
            found.scores(state.round, "metrics", claimed, replayed, SCORE)
        if state.round == replay.plan.spec.rounds:
            self._final(scores)

    def _final(self, scores: Scores) -> None:
        """Compare the scores of the final model."""
        found, record = self._replay.found, self._replay.record
        found.scores(
            0, "accuracy", {"score": record.accuracy}, {"score": scores.score}, SCORE
        )
        found.scores(
            0, "accuracy_by_class", record.accuracy_by_class, scores.by_class, SCORE
        )
        found.scores(
            0, "accuracy_by_group", record.accuracy_by_group, scores.by_group, SCORE
        )

    def _weights(self, state: ModelState) -> None:
        """Compare the groups' mean weights, where the server found them from the updates."""
        computed = {
            group.name: (float(state.server[WEIGHT + group.name]) / state.round, 0.0)
            for group in self._replay.plan.groups
            if WEIGHT + group.name in state.server
        }
        recorded = dict(self._replay.record.weights)
        if computed or recorded:
            self._replay.found.scores(0, "weights", recorded, computed, WEIGHTS)
