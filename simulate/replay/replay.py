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
from itertools import product
from pathlib import Path

import numpy as np
import torch

from privplan.discrete_gaussian import grid_fault
from privplan.errors import InputError
from privplan.evidence.clients import clients_digest, read_clients
from privplan.evidence.replay import ReplayReport
from privplan.evidence.rounds import (
    EARLIER,
    EVIDENCE,
    EarlierHeader,
    EvidenceHeader,
    read_evidence,
    vector_digest,
)
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.record import PLAN, ReleaseRecord, RunRecord
from privplan.releases import NOT_STORED, StoredReleases, stored_fault, stored_releases
from privplan.secure_stream import NoiseKey
from simulate.algorithm import Algorithm, declaration
from simulate.algorithms.registry import ALGORITHMS
from simulate.data.partition.clients import client_arrays, first_shared_record
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
from simulate.replay.model_scores import ModelScores
from simulate.replay.rounds import Recorded, Replayed, RoundReplay
from simulate.replay.tolerance import NUDGED_PAIRS
from simulate.replay.training import Nudge
from simulate.replay.world import World

OF_KEY = frozenset(
    {"noise_state", "noise_sum_squares", "participants", "cohort", "releases"}
)
"""Comparisons that need the key of a run with secure noise."""
NO_KEY = "the key of cohorts and noise (--noise-key)"
NOT_THE_BITS = (
    "the initial vector to the bit, which another release of PyTorch or kind of "
    "processor may draw: nobody shows who chose the last bits of the stored one"
)
"""What is missing where the initial vector agrees but for rounding."""
OWN_MODELS = (
    "rounds build on what clients keep; privplan replay --rounds all executes them"
)
"""Why a replay of some rounds in a limited time shows nothing where clients keep
parameters.
"""
CLAIMED = (
    "scores are of models that clients keep, which no run stores; they are only claimed"
)

Lines = dict[int, list[ReleaseRecord]]
"""Ledger lines by round."""
Progress = Callable[[int, int], None]
"""(rounds done, rounds to do)."""


class Replay:
    """The replay of one run folder.

    Args:
        folder: the run folder.
        data_dir: the data folder; PRIVPLAN_DATA when None.
        own_parts: the data, model, loss and metric of a run on own ones, as they were
            given to it.
        noise_key: file with the key of a run with secure noise; without it cohorts and
            noise are not shown.

    Raises:
        InputError: when the folder holds no finished run, or the data or the key are
            not those of the run.
    """

    def __init__(
        self,
        folder: Path,
        data_dir: Path | None = None,
        own_parts: OwnParts | None = None,
        noise_key: Path | None = None,
    ) -> None:
        self.folder = folder
        self.comparisons = Comparisons()
        self._workers = torch.get_num_threads()
        # Drawn by the verifier, whatever the run's seed.
        seeds = [secrets.randbits(64) for _ in range(NUDGED_PAIRS)]
        self.nudges = [Nudge(*nudge) for nudge in product(seeds, (1.0, -1.0))]
        self.plan = Plan.load(folder / PLAN)
        self.record = RunRecord.load(folder)
        if self.record.status != "complete":
            raise InputError.one(
                "record.status", "must be complete", self.record.status
            )
        self.ledger = read_ledger(folder, self.plan.digest)
        self.evidence = read_evidence(folder, self.plan.digest)
        if not self.evidence:
            self.comparisons.missing = f"digests of the releases ({EVIDENCE})"
        self.world: World | None = None
        self.algorithm: Algorithm | None = None
        # The state after the last round, where all rounds were executed one after
        # another.
        self.final: ModelState | None = None

        commitment = self.record.configuration.get("noise_commitment")
        key = NoiseKey.of_run(folder, commitment, noise_key)
        name = self.record.algorithm
        if name not in ALGORITHMS:
            self.comparisons.missing = (
                f"{name} cannot be executed again: it is unknown here"
            )
            return
        try:
            self.algorithm = algorithm_of(self.plan, self.record)
        except InputError as error:  # settings that the algorithm does not have
            self.comparisons.add(0, "algorithm", str(error), math.inf)
            return
        own_parts = own_parts or OwnParts()
        self.world = self._world(self.algorithm, data_dir, own_parts, key)
        if self.evidence and isinstance(self.evidence.header, EarlierHeader):
            self.comparisons.lacks(EARLIER)

    def _world(
        self,
        algorithm: Algorithm,
        data_dir: Path | None,
        own_parts: OwnParts,
        key: NoiseKey | None,
    ) -> World | None:
        """What the run starts from; None, and a missing reason, where none executes."""
        settings = self.record.configuration
        name = self.record.algorithm
        aggregation = str(settings.get("aggregation", "paper"))
        recipe = ALGORITHMS.get(name).replayed(self.plan, aggregation)
        if settings.get("canaries"):
            recipe = NotExecuted("canaries")
        if self.plan.foreign_part is not None:
            recipe = NotExecuted(f"{self.plan.foreign_part} is not privplan's")
        if isinstance(recipe, NotExecuted):
            self.comparisons.missing = (
                f"{name} cannot be executed again: {recipe.reason}"
            )
            return None

        run_parts = own_parts.parts_of(self.record, self.plan, data_dir, self.folder)
        if run_parts.model.stochastic:
            self.comparisons.missing = (
                "support of replay for a module that draws random numbers in training"
            )
            return None

        if recipe.personal or recipe.fine_tuned:
            self.comparisons.claimed = CLAIMED
        noise = settings.get("noise")
        if noise == "secure-discrete" and self.record.noise != "secure":
            rule = "must be secure under noise of whole numbers"
            raise InputError.one("noise", rule, self.record.noise)
        is_discrete = noise == "secure-discrete" and recipe.noisy
        multipliers = [group.noise_multiplier for group in self.plan.groups]
        too_coarse = grid_fault(multipliers, self.plan.spec.clipping_norm)
        if is_discrete and too_coarse:
            self.comparisons.lacks(f"what clients trained: noise {too_coarse}")
        secret = self.record.noise == "secure" and not key
        if secret:
            self.comparisons.skipped = OF_KEY
            self.comparisons.lacks(NO_KEY)
        return World(
            plan=self.plan,
            recipe=recipe,
            numbers=settings_of(self.record).values,
            parts=run_parts,
            seed=self.record.simulation_seed,
            key=key,
            secret=secret,
            discrete=is_discrete,
            scheme=settings.get("streams", 1),
        )

    def run(
        self,
        rounds: int | None,
        seed: int | None,
        progress: Progress,
        seconds: float | None = None,
    ) -> ReplayReport:
        """Compare cohorts, noise states, constants and scores of all rounds.

        Some rounds are trained again, or all where each needs those before it.

        Args:
            rounds: how many, drawn at random; None for all.
            seed: of the selection; fresh randomness when None.
            progress: is called with the rounds done and those to do.
            seconds: no further round begins after so many; one is always trained.
        """
        if seconds is None:
            self._until = math.inf
        else:
            self._until = time.monotonic() + seconds
        total = self.plan.spec.rounds
        seed = secrets.randbits(64) if seed is None else seed
        generator = np.random.default_rng(seed)
        chosen = np.arange(1, total + 1)
        if rounds is not None and rounds < total:
            chosen = np.sort(generator.choice(chosen, rounds, replace=False))

        trained: list[int] = []
        if self.world is not None and self.algorithm is not None:
            lines = self._ledger(self.world)
            self._compare_holders(self.world)
            stored = self._inputs(self.world, self.algorithm)
            if stored is not None:
                # Whatever rounds the time suffices for are then a random choice, too.
                if seconds is not None and not self.world.recipe.personal:
                    chosen = generator.permutation(chosen)
                trained = self._from_stored(
                    self.world, stored, chosen.tolist(), lines, progress
                )
            elif self._may_train_in_turn():
                last_round = int(chosen.max(initial=0))
                trained = self._in_turn(
                    self.world, self.algorithm, last_round, lines, progress
                )

        binding = Binding(
            plan_digest=self.plan.digest,
            chain=self.record.chain,
            record=self.record.digest,
            rounds=tuple(sorted(trained)),
            rounds_of_run=total,
            selection_seed=None if len(trained) == total else seed,
        )
        return self.comparisons.report(binding)

    def _ledger(self, world: World) -> Lines:
        """The ledger's lines by round; compares what does not depend on training."""
        compared = self.comparisons
        total = self.plan.spec.rounds
        claimed_chain = self.ledger.fault or self.record.chain
        compared.equal(0, "ledger chain", claimed_chain, self.ledger.chain)
        compared.equal(0, "plan digest", self.record.plan_digest, self.plan.digest)
        compared.equal(0, "rounds done", self.record.rounds_done, total)
        self._compare_names(world)

        lines = self._lines_by_round()
        # A ledger may name rounds that are not planned: they must have no lines.
        for round_ in sorted({*lines, *range(1, total + 1)}):
            recorded = lines[round_]
            planned = planned_lines(world, round_, recorded) if round_ <= total else []
            compared.equal(round_, "number of releases", len(recorded), len(planned))
            for line, planned_line in zip(recorded, planned, strict=False):
                compared.lines(line, planned_line.record)
        return lines

    def _compare_names(self, world: World) -> None:
        """Compare the names in the record that neither plan nor ledger has."""
        record = self.record
        assert self.algorithm is not None
        # Own data are named by whoever gives them.
        if not record.is_on_own_data:
            name = world.parts.data.name
            self.comparisons.equal(0, "data set", record.dataset, name)
        # Records of version 0.1 do not have it.
        if record.executed is not None:
            declared = declaration(self.algorithm, world.parts.model, world.seed)
            self.comparisons.equal(0, "executed", record.executed, declared)

    def _compare_holders(self, world: World) -> None:
        """Find a record of several clients, each of whom spends a budget on it.

        Where clients are protected, they may hold the same records.
        """
        if ALGORITHMS.get(self.record.algorithm).unit_under(self.plan) != "record":
            return
        run_parts = world.parts
        shared = first_shared_record(run_parts.partition, len(run_parts.data.train_y))
        detail = f"several clients hold record {shared}, which the plan protects once"
        self.comparisons.add(0, "shared records", detail, float(shared is not None))

    def _lines_by_round(self) -> Lines:
        """The ledger's lines by round; a round without lines has an empty list."""
        lines: Lines = defaultdict(list)
        for line in self.ledger.records:
            lines[line.round].append(line)
        return lines

    def _inputs(self, world: World, algorithm: Algorithm) -> StoredReleases | None:
        """The stored releases, if they are whole; compares data, partition, vectors."""
        if self.evidence is None:
            return None
        compared = self.comparisons
        header = self.evidence.header
        fault = self.evidence.fault
        compared.add(0, "evidence chain", fault or "", float(fault is not None))
        if header is None:
            return None

        compared.equal(0, "data", header.data, world.parts.data.digest)
        digest = clients_digest(client_arrays(world.parts.partition))
        compared.equal(0, "partition", header.clients, digest)
        named_clients = read_clients(self.folder)
        if named_clients is not None:
            compared.equal(0, "clients", clients_digest(named_clients), digest)
        if fault is not None or not isinstance(header, EvidenceHeader):
            return None

        rounds = tuple(self.evidence.of_releases.values())
        fault = stored_fault(self.folder, header, rounds, self.ledger, self.plan)
        compared.add(0, "stored vectors", fault or "", float(fault is not None))
        if fault is not None:
            return None
        drawn = initial_vector(algorithm, world.parts.model, world.seed)
        self._compare_initial(header, drawn.numpy())
        if not header.stored:
            return None
        return stored_releases(self.folder, self.plan, self.ledger)

    def _may_train_in_turn(self) -> bool:
        """Whether rounds can be executed one after another, without stored releases."""
        assert self.world is not None
        earlier = self.evidence is not None and isinstance(
            self.evidence.header, EarlierHeader
        )
        return not (self.world.secret or earlier or self.comparisons.differences)

    def _from_stored(
        self,
        world: World,
        stored: StoredReleases,
        chosen: list[int],
        lines: Lines,
        show: Progress,
    ) -> list[int]:
        """Train rounds from the models of the stored releases; returns their numbers.

        Args:
            world: what the run starts from.
            stored: the run's releases.
            chosen: the rounds to compare, in any order.
            lines: of the ledger, by round.
            show: is called with the rounds done and those to do.
        """
        assert self.algorithm is not None
        if world.secret and world.recipe.release == "per_client":
            chosen = []  # each client adds its own noise: nothing is left to compare
        stretches = [self._stretch(world, round_) for round_ in chosen]
        to_execute = set[int]().union(*stretches)
        starts, recorded = self._pass(world, self.algorithm, stored, to_execute, lines)

        # Only the last round of a stretch is compared; the others give its sums or
        # personal parameters. Where the chosen rounds ascend, the round executed last
        # may serve the next stretch, which then begins after it.
        trained: list[int] = []
        before: RoundReplay | None = None
        for done, stretch in enumerate(stretches):
            show(done, len(stretches))
            if trained and time.monotonic() > self._until:
                break
            chosen_round = stretch[-1]
            if chosen_round not in recorded:
                continue  # the stored releases end before it
            for round_ in stretch:
                last_executed = before.state.round + 1 if before else 0
                if round_ <= last_executed < chosen_round:
                    continue  # executed for the round before
                if not world.before or last_executed != round_ - 1:
                    before = None
                before = RoundReplay(
                    world, starts[round_], recorded[round_], before, self._workers
                )
                before.replayed()
                if round_ == chosen_round:
                    self._compare(before)
                    trained.append(round_)
                before.keep(len(self.nudges))
        show(len(stretches), len(stretches))

        if world.recipe.personal and len(trained) < len(chosen):
            self.comparisons.lacks(OWN_MODELS)
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
        to_execute: set[int],
        lines: Lines,
    ) -> tuple[dict[int, ModelState], dict[int, Recorded]]:
        """Compute all models from the stored releases, and compare their scores.

        Returns:
            The state before each round to execute, and what the run recorded of it.
        """
        recorded: dict[int, Recorded] = {}

        def noted() -> Iterator[RoundReleases]:
            """The releases of each round; those of rounds to execute are noted."""
            members = members_of(self.folder, self.plan)
            for releases in round_releases(stored, self.ledger, algorithm, members):
                round_ = releases.round
                if round_ in to_execute:
                    recorded[round_] = Recorded(lines[round_], releases.vectors)
                yield releases

        model = world.parts.model
        initial = initial_vector(algorithm, model, world.seed)

        starts: dict[int, ModelState] = {}
        scores = ModelScores(self.comparisons, self.record, world, algorithm)

        def states() -> Iterator[ModelState]:
            """The model after each round, until releases are not of the algorithm."""
            try:
                yield from models_after(algorithm, model, world.seed, initial, noted())
            except InputError as error:
                self.comparisons.add(len(recorded), "releases", str(error), math.inf)

        for state in states():
            if state.round + 1 in to_execute:
                starts[state.round + 1] = state
            scores.see(state)
        return starts, recorded

    def _compare_initial(self, header: EvidenceHeader, drawn: np.ndarray) -> None:
        """Compare the stored first vector with the one that the seed draws [d].

        It follows from the seed alone, so that its last bits are free for whoever wrote
        the run unless all of them agree.
        """
        relative = 0.0
        if header.model != vector_digest(drawn):
            self.comparisons.lacks(NOT_THE_BITS)
            declared = StoredReleases(self.folder, header, ()).initial()
            relative = math.inf
            if declared.shape == drawn.shape:
                distance = np.linalg.norm(declared.astype(np.float64) - drawn)
                relative = float(distance) / (float(np.linalg.norm(drawn)) or 1.0)
        detail = f"off by {relative:.2g}"
        self.comparisons.add(0, "initial model", detail, relative, INITIAL_TOLERANCE)

    def _in_turn(
        self,
        world: World,
        algorithm: Algorithm,
        last_round: int,
        lines: Lines,
        show: Progress,
    ) -> list[int]:
        """Train all rounds up to one, each from the releases of those before it.

        The replayed releases take the place of those that the run did not store: the
        models, and the scores that are compared, are the verifier's own.
        """
        scores = ModelScores(self.comparisons, self.record, world, algorithm)
        trained: list[int] = []
        for replay, state in self._rounds_in_turn(world, algorithm, last_round, lines):
            round_ = state.round
            # Afterwards the run's model is another one, and was not stored. What the
            # verifier trains is its own all the same.
            if not self.comparisons.amplified:
                self._compare(replay)
            trained.append(round_)
            if not self.comparisons.amplified:
                scores.see(state)
            show(round_, last_round)
            if round_ == self.plan.spec.rounds:
                self.final = state
            if time.monotonic() > self._until:
                break
        show(last_round, last_round)

        # Once all rounds are executed, stored releases would show nothing more.
        if len(trained) < self.plan.spec.rounds:
            self.comparisons.lacks(NOT_STORED)
        else:
            claims = [self.comparisons.claimed, "it stores no release to compare"]
            self.comparisons.claimed = "; ".join(filter(None, claims))
        return trained

    def _rounds_in_turn(
        self, world: World, algorithm: Algorithm, last_round: int, lines: Lines
    ) -> Iterator[tuple[RoundReplay, ModelState]]:
        """Each round up to one, and the state after it.

        It is trained from the replayed releases of those before.
        """
        model = world.parts.model
        state = initial_state(algorithm, initial_vector(algorithm, model, world.seed))
        before: RoundReplay | None = None
        for round_ in range(1, last_round + 1):
            recorded = Recorded(lines[round_])
            before = RoundReplay(
                world, state, recorded, before if world.before else None, self._workers
            )

            # The model moves by the replayed releases.
            releases = _as_sent(world, round_, before.replayed())
            public = public_coordinates(algorithm, model, world.seed, round_)
            coordinates = None if public is None else torch.from_numpy(public)
            state = step(algorithm, state, releases, coordinates)
            yield before, state
            before.keep(len(self.nudges))

    def retrained(self, show: Progress) -> ModelState | None:
        """The state after all rounds, trained by the verifier from the seed on.

        Releases that agree within rounding may still say something in their last bits,
        which whoever wrote the run chose. Here no release is the run's: each round
        starts from the replayed releases of those before. None where the run cannot be
        executed, or its cohorts and noise are secret.

        Args:
            show: is called with the rounds done and those to do.
        """
        if self.final is not None or self.world is None or self.algorithm is None:
            return self.final
        if self.world.secret:
            return None
        total = self.plan.spec.rounds
        lines = self._lines_by_round()
        rounds = self._rounds_in_turn(self.world, self.algorithm, total, lines)
        for _, self.final in rounds:
            show(self.final.round, total)
        return self.final

    def _compare(self, replay: RoundReplay) -> None:
        """Compare a round trained again with the ledger and the stored releases."""
        recorded = replay.recorded
        releases = replay.replayed().releases
        lines = zip(recorded.lines, releases, strict=False)
        for place, (line, release) in enumerate(lines):
            vector = recorded.release(place)
            replays = map(replay.replayed, self.nudges)
            nudged = (replayed.releases[place] for replayed in replays)
            self.comparisons.trained(line, vector, release, nudged)


def _as_sent(world: World, round_: int, replayed: Replayed) -> RoundReleases:
    """The replayed releases of a round, as the server receives them."""
    senders: list[Sender] = []
    if world.recipe.release == "per_client":
        for line in planned_lines(world, round_):
            [contribution] = line.parts
            senders.append(
                Sender(contribution.group.name, int(contribution.clients[0]))
            )
    vectors = [release.vector for release in replayed.releases]
    return RoundReleases(round_, vectors, senders)
