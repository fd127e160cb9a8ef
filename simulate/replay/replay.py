"""Replay of a run folder: selection of rounds, comparison, report."""

from __future__ import annotations

import math
import platform
import secrets
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import cross_entropy

from privplan import evidence as stored
from privplan.errors import InputError
from privplan.evidence import Comparison, Difference, ReplayReport
from privplan.ledger import chained, read_ledger
from privplan.plan import Plan
from privplan.record import PLAN, ReleaseRecord, RunRecord
from privplan.streams import NoiseKey
from simulate.data.partition.clients import client_arrays
from simulate.own_parts import OwnParts, RunParts
from simulate.replay import rounds as again
from simulate.replay.lines import NOT_EXECUTED, World, method_of, planned_lines
from simulate.replay.rounds import KINKS, deviations
from simulate.tasks import evaluations

PACKAGES = ("privplan", "torch", "numpy")  # packages whose versions a report names
TOLERANCE = 1e-5  # largest deviation that agrees, relative to the largest coordinate
TRAINED = ("largest_norm", "clipped", "excluded", "residual", "noise_sum_squares", "batches")
"""Fields of a ledger line that depend on training, or on noise drawn again."""
MOST_DIFFERENCES = 100  # largest number of differences that a report lists; all are counted
SCORE = 1e-3  # largest difference of a score or loss that agrees, relative above 1
MOST_DEVIATION = 1e100  # largest deviation that a report states, or for what is no number
BY = ("accuracy_by_class", "accuracy_by_group")
OF_KEY = frozenset({"noise_state", "noise_sum_squares", "participants", "cohort", "releases"})
"""Comparisons that need the key of a run with secure noise."""
OWN_MODELS = "rounds build on what clients keep; privplan replay --rounds all executes them"
"""Why a replay of some rounds in a limited time shows nothing where clients have own parameters."""
Lines = defaultdict[int, list[ReleaseRecord]]
Progress = Callable[[int, int], None]


class Comparisons:
    """Comparisons so far, by name, and the differences. Names in ``skipped`` are not compared."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.differences: list[Difference] = []
        self.skipped: frozenset[str] = frozenset()
        self.by_name: dict[str, Comparison] = {}

    def add(self, round_: int, name: str, detail: str, deviation: float, limit: float = 0) -> None:
        """Add a comparison, which differs when the deviation exceeds the limit or is no number."""
        if name in self.skipped:
            return
        one = self.by_name.get(name, Comparison(name=name, compared=0, differ=0, largest=0))
        wrong = not deviation <= limit
        largest = max(one.largest, deviation if deviation < MOST_DEVIATION else MOST_DEVIATION)
        self.by_name[name] = Comparison(
            name=name, compared=one.compared + 1, differ=one.differ + wrong, largest=largest
        )
        if wrong:
            self.differences.append(Difference(round=round_, name=name, detail=detail))

    def equal(self, round_: int, name: str, recorded: object, replayed: object) -> None:
        """Compare two values that must be equal."""
        self.add(round_, name, both(recorded, replayed), float(recorded != replayed))

    def scores(
        self,
        round_: int,
        name: str,
        recorded: Mapping[str, float | None],
        replayed: Mapping[str, tuple[float, float]],
    ) -> None:
        """Compare the scores of a model."""
        for one in sorted({*recorded, *replayed}):
            found = recorded.get(one)
            value, slack = (float(number) for number in replayed.get(one, (math.nan, 0.0)))
            deviation = abs(value - (math.nan if found is None else found))
            if found is None and not math.isfinite(value):
                deviation = 0.0
            limit = SCORE * max(1.0, abs(found or 0.0)) + slack
            self.add(round_, name, f"{one}: {both(found, value)}", deviation, limit)

    def vectors(
        self, at: tuple[int, str], run: ArrayLike, replay: ArrayLike, by: ArrayLike = 0.0
    ) -> None:
        """Compare vectors by the largest coordinate, or else by the L2 norm."""
        deviation, along = deviations(run, replay, by)
        text = f"deviation of {deviation:.2g} of the largest coordinate, {along:.2g} of the norm"
        self.add(*at, text, deviation, deviation if along <= KINKS else TOLERANCE)

    def report(
        self, plan_digest: str, chain: str, missing: str, fields: Mapping[str, Any]
    ) -> ReplayReport:
        """The report of a replay, whose outcome follows from differences and missing evidence."""
        outcome: Literal["passed", "failed", "not shown"] = "passed"
        compared, trained = tuple(self.by_name.values()), len(fields["rounds"])
        count = sum(one.compared for one in compared)
        reason = f"{count} comparisons agree; {trained} of {fields['of']} rounds were trained again"
        if self.differences:
            first = min(self.differences, key=lambda one: one.round or math.inf)
            where = f"round {first.round}: " if first.round else ""
            others = len(self.differences) - 1
            more = f" and {others} more differences" if others else ""
            outcome, reason = "failed", f"{where}{first.name}: {first.detail}{more}"
        elif missing:
            outcome, reason = "not shown", f"missing: {missing}"
        return ReplayReport(
            outcome=outcome,
            reason=reason,
            plan_digest=plan_digest,
            chain=chain,
            comparisons=compared,
            differences=tuple(self.differences[:MOST_DIFFERENCES]),
            tolerance=TOLERANCE,
            versions={"python": platform.python_version(), **{at: version(at) for at in PACKAGES}},
            seconds=time.monotonic() - self._started,
            **fields,
        )


def both(recorded: object, replayed: object) -> str:
    """The detail of a difference: the beginnings of two values."""
    return f"recorded {str(recorded)[:60]}, replayed {str(replayed)[:60]}"


def compare_lines(
    found: Comparisons, recorded: ReleaseRecord, replayed: ReleaseRecord, near: int | None
) -> None:
    """Compare ledger lines."""
    rest = replayed.residual.sum_squares if replayed.residual else 0.0
    scale = math.sqrt(replayed.noise_sum_squares or rest) or 1.0
    found.equal(recorded.round, "groups", len(recorded.shares), len(replayed.shares))
    for (name, one), (_, other) in zip(_fields(recorded), _fields(replayed), strict=False):
        if (name in TRAINED) == (near is None):
            continue
        limit = TOLERANCE if name in TRAINED else 1e-12
        if one is None or other is None or isinstance(one, str | tuple):
            deviation, limit = float(one != other), 0.0
        elif name == "clipped":
            deviation, limit = abs(one - other), float(near or 0)
        else:
            size = scale if name == "residual" else max(abs(one), abs(other), 1e-300)
            deviation = abs(one - other) / size
        found.add(recorded.round, name, both(one, other), deviation, limit)


def _fields(line: ReleaseRecord) -> Iterator[tuple[str, Any]]:
    """Fields of a ledger line and its shares by name; the residual as norm and projection."""
    for name, value in line:
        if name == "residual":
            yield name, value and math.sqrt(value.sum_squares)
            yield name, value and value.along_sum
        elif name != "shares":
            yield name, value
    cohort = "cohort" if line.unit == "client" else "batches"
    for share in line.shares:
        yield from ((cohort if name == "cohort" else name, value) for name, value in share)


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
        self.plan, self.record = plan, record = Plan.load(folder / PLAN), RunRecord.load(folder)
        if record.status != "complete":
            raise InputError.one("record.status", "must be complete", record.status)
        self.evidence = stored.read_evidence(folder, plan.digest)
        self.known = self.evidence.rounds if self.evidence else {}
        self.missing = "" if self.evidence else "hashes of releases and models (evidence.jsonl)"
        self.world: World | None = None
        settings = record.configuration
        key = NoiseKey.of_run(folder, settings.get("noise_commitment"), noise_key)
        method, own = method_of(plan, record), own or OwnParts()
        what = "canaries" if settings.get("canaries") else again.unsupported(plan)
        if what or method is None:
            why = NOT_EXECUTED.get(record.algorithm, "it has no second implementation here")
            self.missing = f"{record.algorithm} cannot be executed again: {what or why}"
            return
        parts = own.parts_of(record, plan, data_dir, folder)
        secret = record.noise == "secure" and not key
        if parts.model.stochastic:
            self.missing = "support of replay for a module that draws random numbers in training"
            return
        discrete, scheme = settings.get("noise") == "secure-discrete", settings.get("streams", 1)
        self.world = World(
            plan, method, parts, record.simulation_seed, key, secret,
            discrete and method.noisy, scheme,
        )  # fmt: skip
        if secret:
            self.found.skipped = OF_KEY
            self.missing = self.missing or "the key of cohorts and noise (--noise-key)"

    def run(
        self, rounds: int | None, seed: int | None, progress: Progress, seconds: float | None = None
    ) -> ReplayReport:
        """Compare cohorts, noise states and constants of all rounds; train some again.

        Args:
            rounds: how many, drawn at random; None for all.
            seed: of the selection; fresh randomness when None.
            progress: is called with the rounds done and those to do.
            seconds: no further round begins after so many; one is always trained.
        """
        self._until = math.inf if seconds is None else time.monotonic() + seconds
        total, seed = self.plan.spec.rounds, secrets.randbits(64) if seed is None else seed
        chosen, trained = np.arange(1, total + 1), list[int]()
        if rounds is not None and rounds < total:
            chosen = np.sort(np.random.default_rng(seed).choice(chosen, rounds, replace=False))
        if self.world is not None:
            lines = self._ledger(self.world)
            if self.evidence is not None:
                fault = self.evidence.fault
                self.found.add(0, "evidence chain", fault or "", float(fault is not None))
                if self.evidence.header is not None:
                    self._inputs(self.world, self.evidence.header)
            wanted = self._needed(chosen.tolist())
            stretches, whole = [wanted], self.world.method.personal
            if seconds is not None and not whole:  # from a stored model to the next, at random
                ends = {one for one in self.known if self.known[one].model_at is not None}
                cuts = [place for place, one in enumerate(wanted) if place and one - 1 in ends]
                parts = np.split(np.array(wanted), cuts)
                order = np.random.default_rng(seed).permutation(len(parts))
                stretches = [parts[place].tolist() for place in order]
            for stretch in stretches:
                if trained and time.monotonic() > self._until:
                    break
                done = self._rounds(self.world, self._needed(stretch), lines, progress)
                trained = sorted({*trained, *done} & {*trained, *stretch})
            if whole and len(trained) < len(wanted):
                self.missing = self.missing or OWN_MODELS
                trained = []
        seed, record = None if len(trained) == total else seed, self.record
        fields = {"rounds": trained, "of": total, "selection_seed": seed, "record": record.digest}
        return self.found.report(self.plan.digest, record.chain, self.missing, fields)

    def _ledger(self, world: World) -> Lines:
        """The ledger's lines by round, after comparing what does not depend on training."""
        ledger, found = read_ledger(self.folder, self.plan.digest), self.found
        found.equal(0, "ledger chain", ledger.fault or self.record.chain, ledger.chain)
        found.equal(0, "plan digest", self.record.plan_digest, chain := self.plan.digest)
        found.equal(0, "rounds done", self.record.rounds_done, self.plan.spec.rounds)
        lines, hashes, total = Lines(list), dict[int, str](), self.plan.spec.rounds
        for line in ledger.records:
            _, chain = chained(line, chain)
            lines[line.round].append(line)
            hashes[line.round] = chain
        for round_ in sorted({*lines, *range(1, total + 1)}):
            replayed = planned_lines(world, round_, lines[round_]) if round_ <= total else []
            found.equal(round_, "number of releases", len(lines[round_]), len(replayed))
            for one, other in zip(lines[round_], replayed, strict=False):
                compare_lines(found, one, other.record, None)
            if round_ in self.known and round_ in hashes:
                found.equal(round_, "ledger hash", self.known[round_].ledger, hashes[round_])
        return lines

    def _inputs(self, world: World, header: stored.EvidenceHeader) -> None:
        """Compare data, partition, initial model, and scores of each stored evaluated model."""
        found = self.found
        found.equal(0, "data", header.data, world.run.data.digest)
        digest = stored.clients_digest(client_arrays(world.run.partition))
        found.equal(0, "partition", header.clients, digest)
        if (named := stored.read_clients(self.folder)) is not None:
            found.equal(0, "clients", stored.clients_digest(named), digest)
        theta = again.first_round(world).theta
        first = next(stored.stored_vectors(self.folder, 0, 1, len(theta))).copy()
        found.equal(0, "stored vector's hash", header.model, stored.vector_digest(first))
        found.vectors((0, "initial model"), first, theta)
        points, run = {one.round: one for one in self.record.metrics}, world.run
        due = evaluations(self.plan, run.partition, len(run.data.test_y), world.seed)
        found.equal(0, "evaluated rounds", sorted(points), [*due])
        for round_, rows in due.items():  # the last round is the last one
            _, models = self._stored(round_)
            if models and not self._own_scores:
                theta = models.get(again.AVERAGE, models[stored.MODEL])
                scores = self._scores(run, theta, torch.from_numpy(rows))
                if point := points.get(round_):
                    found.scores(round_, "metrics", point.scores, scores["metrics"])
        self.missing = self.missing or ("" if models else "the final model (vectors.bin)")
        for name in ("accuracy", *BY) if models and not self._own_scores else ():
            recorded = getattr(self.record, name)
            found.scores(0, name, recorded if name in BY else {"score": recorded}, scores[name])

    @property
    def _own_scores(self) -> bool:
        """Whether the scores are those of models of single clients, which are not compared."""
        method = self.world and self.world.method
        return bool(method and (method.personal or method.fine_tuned))

    def _needed(self, chosen: list[int]) -> list[int]:
        """Chosen rounds and those from the stored model before each to the one after it."""
        before = self.world.before if self.world else 0
        chosen = sorted({at for one in chosen for at in range(max(1, one - before), one + 1)})
        models = [number for number, one in self.known.items() if one.model_at is not None]
        ends = sorted({0, max(chosen, default=0), *models})
        after = {bisect_left(ends, one) for one in chosen}
        return sorted(one + 1 for end in after for one in range(ends[end - 1], ends[end]))

    def _rounds(self, world: World, wanted: list[int], lines: Lines, show: Progress) -> list[int]:
        """Train rounds again and compare them; returns their numbers."""
        if world.secret and world.method.release == "per_client":
            return []
        first = now = again.first_round(world)
        last, compared = 0, list[int]()
        for done, round_ in enumerate(wanted):
            show(done, len(wanted))
            if done and time.monotonic() > self._until:
                return compared
            past = now.past if round_ == last + 1 else ()
            _, before = self._stored(round_ - 1)
            if before:
                state, kept = self.known[round_ - 1].state, (past, now.personal)
                now = again.Round([], before.pop(stored.MODEL), first.slack, state, before, *kept)
            released, stored_now = self._stored(round_)
            known = [now.vectors, *[stored_now] * (world.scheme == 1 and bool(stored_now))]
            if any(first.vectors.keys() - one.keys() for one in known):
                self.missing = self.missing or "vectors of the server (an older run)"
                return compared
            if len(released) < len(lines[round_]) and world.secret and world.method.noisy:
                return compared
            now = again.replay_round(world, round_, now, self._workers, (lines[round_], released))
            last = round_
            if world.method.personal or len(past) == min(world.before, round_ - 1):
                self._compare(round_, now, lines[round_])
                compared.append(round_)
        show(len(wanted), len(wanted))
        return compared

    def _compare(self, round_: int, now: again.Round, lines: list[ReleaseRecord]) -> None:
        """Compare a round trained again with the ledger and the evidence."""
        found, evidence = self.found, self.known.get(round_)
        for one, other in zip(lines, now.releases, strict=False):
            compare_lines(found, one, other.record, other.near)
        if evidence is None:
            self.missing = self.missing or f"hashes of releases and model of round {round_}"
            return
        found.equal(round_, "releases hashed", len(evidence.releases), len(now.releases))
        releases, vectors = self._stored(round_)
        for vector, replayed in zip(releases, now.releases, strict=False):
            found.vectors((round_, "releases"), vector, replayed.vector)
        if vectors:
            after = {stored.MODEL: now.theta, **now.vectors}
            found.equal(round_, "server state", sorted(vectors), sorted(after))
            slack = (now.slack > 0) * 1e30 if self.plan.spec.server else now.slack  # of top-k
            for name in vectors.keys() & after.keys():
                found.vectors((round_, name), vectors[name], after[name], slack)
        for name, value in now.state.items():
            recorded = evidence.state.get(name, float("nan"))
            found.add(round_, name, both(recorded, value), abs(recorded / value - 1), TOLERANCE)

    def _stored(self, round_: int) -> tuple[list[Tensor], again.Vectors]:
        """The stored releases of a round, and its model and server vectors by name, if stored."""
        size = self.world.run.model.parameters if self.world else 0
        found = stored.round_vectors(self.folder, self.known.get(round_), size)
        for recorded, digest in found.digests:
            self.found.equal(round_, "stored vector's hash", recorded, digest)
        models = {name: torch.from_numpy(one.copy()) for name, one in found.model.items()}
        return [torch.from_numpy(one.copy()) for one in found.releases], models

    @torch.no_grad()
    def _scores(self, run: RunParts, theta: Tensor, rows: Tensor) -> Any:
        """Scores on test records by kind and name, each with the share that rounding decides."""
        data, model, blocks = run.data, run.model, torch.split(rows, 1000)
        parts = [model.logits(theta, data.inputs(data.test_x[one])) for one in blocks]
        logits, labels, found = torch.cat(parts), data.test_y[rows], defaultdict[str, Any](dict)
        if run.metric is not None:
            targets = model.objective.targets_of(labels)
            score, loss = (run.metric(logits, targets), 0.0), model.objective(logits, labels)
            named = np.array([]) if data.test_groups is None else data.test_groups[rows]
            for name in np.unique(named):
                own = torch.from_numpy(named == name)
                found[BY[1]][str(name)] = run.metric(logits[own], targets[own]), 0.0
        else:
            best, hits = logits.topk(2).values, logits.argmax(1) == labels
            near = best[:, 0] - best[:, 1] <= again.NEAR * logits.abs().amax(1)
            pairs, classes = torch.stack([hits, near], 1).double().numpy(), np.unique(labels)
            score, loss = pairs.mean(0), cross_entropy(logits.double(), labels)
            means = np.array([pairs[labels == one].mean(0) for one in classes])
            found[BY[0]] = {data.classes[c]: mean for c, mean in zip(classes, means, strict=True)}
            of_records = (data.train_labels.numpy(), len(data.classes))
            for group, who in zip(self.plan.groups, run.partition.members, strict=True):
                weights = run.partition.label_distribution(who, *of_records)[classes]
                found[BY[1]][group.name] = weights @ means / (weights.sum() or 1.0)
        found["accuracy"], found["metrics"] = {"score": score}, {"score": score, "loss": (loss, 0)}
        return found
