"""The guard of one run: draws cohorts, adds noise, books releases, and refuses what is too much.

It opens a run folder, executes rounds (``rounds``) and keeps them on disk (``storage``).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from privplan.accounting.accountant import Interval, outwards
from privplan.accounting.release import History
from privplan.errors import Fault, InputError
from privplan.files import locked, read_text, write_text
from privplan.guard.open_round import GroupTotal, OpenRound
from privplan.guard.rounds import (
    Available,
    BudgetExceededError,
    Cohort,
    Evidence,
    GroupBudget,
    Positions,
    Released,
    Sums,
    check_reports,
    check_settings,
    check_sums,
    cohort_of,
    draw_registered,
    evidenced,
    failed_lines,
    length_of,
    measured_noise,
    noised_line,
    noisy_sum,
    planned_noise_std,
    released_of,
    sums_of,
)
from privplan.guard.storage import FOLDER, MODEL, RELEASE, Storage, clip, open_record
from privplan.ledger import Witness, Witnessing, history_of, worst_client
from privplan.plan import Plan
from privplan.record import Executed, ReleaseRecord
from privplan.streams import secure_stream

if TYPE_CHECKING:
    from privplan.book.composition import Composition
    from privplan.book.entry import BookedRun, Booking
    from privplan.book.reservations import Reservation
    from privplan.verification.verdict import Verdict


Model = np.ndarray | Mapping[str, np.ndarray]
VECTOR = "model"  # name of the array of a model that is one vector
RESERVED = "reserved"  # file in the guard's folder with the name of what is reserved in its book


class Guard:
    """Executes a plan inside a training loop that somebody else wrote.

    One process at a time holds the run folder. The guard of a folder with booked rounds goes on
    after them: ``round`` is the next one, ``model`` the last model, and ``interrupted`` a release
    whose model was not stored yet.

    Args:
        plan: the plan, or its file; of clients (``unit: client``), with a fixed clipping norm.
        ledger: the run folder, created if missing.
        book: address of a budget book, to which the run is added when it ends, and whose other runs
            count: by the rule of a plan that was made from a book, else by a filter. What this run
            may release is reserved in it from the start, so that runs at once never overspend, and
            of two copies of the folder the one that was opened last goes on. A run that began with
            a book goes on with it.
        population: whose groups these are in the book.
        evidence: ``internal`` records what no noise protects (cohorts, norms, noise) in the
            ledger, which must then not be published, so that the verdict can be kept; ``public``
            records it nowhere, and the verdict stays unverified.
        keep: number of released sums and of models that stay on disk; None for all.
        resends: whether the updates of a round stay in memory until its release, so that a second
            one of a client replaces the first; False keeps only their sum, and refuses a second.
        framework: what trains, for the record.
        witnessing: opens what testifies to draws and lines of the ledger before they are used;
            None for nothing.

    Raises:
        InputError: when the plan cannot be executed by a guard, or the folder holds another run
            or is in use.
    """

    def __init__(
        self,
        plan: Plan | Path | str,
        ledger: Path | str,
        book: str | None = None,
        *,
        population: str = "",
        evidence: Evidence = "internal",
        keep: int | None = 2,
        resends: bool = True,
        framework: str = "guard",
        witnessing: Witnessing | None = None,
    ) -> None:
        self.plan = Plan.load(plan)
        self.folder = Path(ledger)
        self._book, self._population = book, population
        self._resends = resends
        self._open: OpenRound | None = None
        check_settings(self.plan, evidence, keep)
        with ExitStack() as stack:
            stack.enter_context(locked(self.folder))
            self.record_of_run = open_record(
                self.folder, self.plan, evidence, framework
            )
            self._storage = Storage(self.folder, self.plan.digest, keep)
            self._held: dict[str, History] | None = None
            self._reservation: Reservation | None = None
            self._lost = (
                ""  # why another copy of the folder goes on; empty where this one does
            )
            self._reserve(book)
            self._drawn: tuple[int, Positions] | None = None
            self._committed = 0
            self._witness = None if witnessing is None else self._witnessed(witnessing)
            self._stack = stack.pop_all()
        self._stored: list[ReleaseRecord] | None = None
        self._vectors: list[np.ndarray] = []
        self._handed_out = (
            False  # whether the stored release is past the fence of its book
        )

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def round(self) -> int:
        """The next round: the first that is not booked."""
        return self._storage.round + 1

    @property
    def finished(self) -> bool:
        """Whether all rounds are booked, or the run was stopped."""
        return (
            self.record_of_run.status != "running" or self.round > self.plan.spec.rounds
        )

    def rounds(self) -> Iterator[int]:
        """The rounds that are left, one after another, while their release is not refused."""
        while not self.finished and self.may_release():
            before = self.round
            yield before
            if self.round == before:
                rule = "must be booked by record or fail before the next"
                raise InputError.one("round", rule, before)

    @property
    def model(self) -> dict[str, np.ndarray] | None:
        """The last stored model; a single vector is under the name ``model``."""
        last = self._storage.last(MODEL)
        return None if last is None else self._storage.model(last)

    @property
    def interrupted(self) -> Released | None:
        """The booked release whose model is not stored: make the step again, then ``record`` it."""
        release, model = self._storage.last(RELEASE), self._storage.last(MODEL)
        if self._stored is not None or release is None or release <= (model or 0):
            return None
        records, vectors = self._storage.release(release)
        # Of noise that somebody else drew the guard has no sum, and nobody used it.
        return released_of(self.plan, records, vectors) if vectors else None

    def draw(self, round_: int, available: Available | None = None) -> Cohort:
        """The cohort of a round, by the planned law.

        The law draws from the registered clients, whoever is there, and those who are not there
        are left out. ``Cohort.guarantee`` states what this means. A round that was drawn before an
        interruption keeps its draw.

        Args:
            round_: the next round.
            available: positions of the clients that are there, by group; all when None.

        Raises:
            InputError: when it is another round, or a client is not registered.
            BudgetExceededError: when the round's release would be refused.
        """
        self._check_next(round_)
        self._allow(round_)
        drawn = self._draw_once(round_)
        if self._witness is not None:
            self._commit(self._witness, round_, drawn)
        return cohort_of(self.plan, round_, drawn, available)

    def clipping_norm(self, group: str) -> float:
        """The L2 norm to which updates of the group's clients are clipped, before the scale."""
        return self.plan.group(group).clipping_norm or self.plan.spec.clipping_norm

    def scale(self, group: str) -> float:
        """The factor on the clipped updates of the group's clients in the sum."""
        return self.plan.group(group).scale

    def clip(self, update: np.ndarray, group: str) -> np.ndarray:
        """The update [d] as it enters the sum: clipped, then scaled."""
        return clip(update, self.clipping_norm(group)) * self.scale(group)

    def noise_std(self, round_: int, group: str | None = None) -> float:
        """Noise per coordinate on a group's sum in a round (from 1), or on that of all (None)."""
        return planned_noise_std(self.plan, round_, group)

    def add(self, round_: int, group: str, client: int, update: np.ndarray) -> None:
        """Add a client's update [d] to a round: clipped and scaled, whatever the client did.

        A second update of a client in a round replaces the first; see ``resends``.

        Args:
            round_: the next round, which was drawn.
            group: of the client.
            client: its position in the group.
            update: what it sent; one that is not finite counts as zero.

        Raises:
            InputError: when it is another round, the client was not drawn in it, or the update
                does not fit the others.
        """
        self._opened(round_).add(group, client, update)

    def total(self, group: str) -> GroupTotal:
        """What the next round has of a group's updates so far."""
        return self._opened(self.round).total(group)

    def _opened(self, round_: int) -> OpenRound:
        """The next round, which must have been drawn."""
        self._check_next(round_)
        if self._open is None or self._open.round != round_:
            drawn = self._draw_of(round_)
            if drawn is None:
                rule = "must be drawn by the guard before it is released"
                raise InputError.one("round", rule, round_)
            self._open = OpenRound(self.plan, round_, drawn, resends=self._resends)
        return self._open

    def _compose(self, past: Mapping[str, Composition]) -> int:
        """Compose the budgets with other runs, and return how many first rounds they afford."""
        self._budgets = {
            group.name: GroupBudget(self.plan, group, past.get(group.name))
            for group in self.plan.groups
        }
        return min(budget.affordable_rounds for budget in self._budgets.values())

    def _reserve(self, book: str | None) -> None:
        """Reserve in the book what the run may still release, beside all other runs."""
        path, running = (
            self.folder / FOLDER / RESERVED,
            self.record_of_run.status == "running",
        )
        reserved = path.exists()
        if book is None:
            if reserved and running:
                rule = "must be the book in which the run reserved its releases"
                raise InputError.one("book", rule, None)
            self._compose({})
            return
        from privplan.book.database import address_of
        from privplan.book.reservations import Reservation
        from privplan.guard.booked import booked_lines, past_runs, whole_run

        if not reserved:
            write_text(path, f"reserved-{uuid.uuid4().hex}")
        self._reservation_name = read_text(path, "guard.reserved")
        chains = frozenset(self._storage.chains)

        def decide(booked: tuple[BookedRun, ...]) -> Booking | None:
            past = past_runs(booked, self._population, self.plan, chains)
            self._affordable = self._compose(past)
            last = self._affordable if running else 0
            self._held = whole_run(
                self._storage.records, self._budgets, self.round, last
            )
            return self._rest(booked_lines(booked, self.plan, chains))

        where = str(self.folder)
        self._reservation = Reservation(address_of(book), self._reservation_name, where)
        begun = reserved and running and self.round > 1
        self._reservation.take(chains, self._storage.chain, decide, begun=begun)

    def _rest(self, booked: int) -> Booking | None:
        """What the book has to hold beside ``booked`` lines of the ledger; None for nothing.

        These are the releases since, and the planned ones up to the last that the budgets afford.
        """
        from privplan.book.entry import reservation
        from privplan.guard.booked import not_booked, whole_run

        last = self._affordable if self.record_of_run.status == "running" else 0
        records = self._storage.records
        whole = whole_run(records, self._budgets, self.round, last)
        rest = not_booked(whole, records[:booked])
        name, where = self._reservation_name, self.folder.resolve()
        return (
            reservation(self.plan, name, where, self._population, rest)
            if rest
            else None
        )

    def _book_run(self) -> None:
        """Add the run to its book, if it has one; what it may still release stays reserved.

        A guard that lost the fence adds nothing: the copy that took it has all its releases.
        """
        if self._reservation is not None and not self._lost:
            from privplan.guard.booked import executed_run

            rest = self._rest(len(self._storage.records))
            self._reservation.settle(executed_run(self.folder, self._population), rest)

    def may_release(self) -> bool:
        """Whether the next round's release stays within the plan and every group's budget."""
        return self.refusal() is None

    def refusal(self) -> str | None:
        """Why the next round's release is refused, one line; None when it may happen."""
        status = self.record_of_run.status
        if self._lost:
            return self._lost
        if status != "running":
            return str(Fault("run", "must not be finished", status))
        rounds = self.plan.spec.rounds
        if self.round > rounds:
            return str(
                Fault(
                    "round", f"must be one of the {rounds} planned rounds", self.round
                )
            )
        for name, budget in self._budgets.items():
            if self.round <= budget.affordable_rounds:
                continue
            one = budget.to_come(self.round, self.round)
            releases = history_of(self._storage.records, name, one)
            refused = budget.refusal(releases)
            if refused is None and self._held is not None:
                kept = dict(
                    self._held[name]
                )  # a round that failed pays for one like it
                if any(count > kept.get(release, 0) for release, count in releases):
                    refused = (
                        "that the run reserved in its book",
                        budget.epsilon(releases).upper,
                    )
            if refused is not None:
                limit, found = refused
                rule = f"must stay within the budget {limit} with the release of round {self.round}"
                return str(
                    Fault(f"groups.{name}.epsilon", rule, outwards(found, True, 6))
                )
        return None

    def release(
        self, round_: int, sums: Mapping[str, np.ndarray] | None = None
    ) -> Released:
        """Add the planned noise to the sums of a round's updates and store the result durably.

        A round is released once: a second call, also after an interruption, returns the same bits
        and ignores the sums.

        Args:
            round_: the next round.
            sums: the sum of each group's clipped and scaled updates [d], where no update was
                added: from a secure aggregation that does not tell whose updates are in it. The
                guard can then check neither, and the run stays unverified. A group without
                updates may be left out.

        Raises:
            BudgetExceededError: when the release would exceed the plan or a group's budget.
            InputError: when it is another round, the sums do not fit, or another copy of the folder
                goes on with the run.
        """
        if self._stored is not None and self._stored[0].round == round_:
            self._pass_fence()
            return released_of(self.plan, self._stored, self._vectors)
        self._check_next(round_)
        self._allow(round_)
        open_round = self._opened(round_)
        given: Sums = open_round.totals
        if sums is not None:
            check_sums(sums, open_round.totals)
            given = sums
        executed = self.record_of_run.executed
        size = length_of(
            self.plan, given, None if executed is None else executed.coordinates
        )
        drawn, evidence = (
            self._draw_of(round_),
            self.record_of_run.configuration["evidence"],
        )
        assert drawn is not None  # or there is no open round
        records, vectors, measured = [], [], []
        for index, members in enumerate(sums_of(self.plan)):
            std = self.noise_std(
                round_, None if self.plan.release == "joint" else members[0].name
            )
            record, vector, noise = noisy_sum(
                self.plan, round_, index, members, given, drawn, std, size, evidence,
                secure_stream(),
            )  # fmt: skip
            measured += [] if noise is None else [noise]
            records.append(record)
            vectors.append(vector)
        self._declare(size)
        self._storage.measure(measured)
        self._storage.save_release(round_, records, vectors)
        self._stored, self._vectors = records, vectors
        self._handed_out = False
        self._open = None
        self._pass_fence()
        return released_of(self.plan, records, vectors)

    def released(self, round_: int) -> Released:
        """The bits of a round's release; InputError if it was not made or is stored no longer."""
        return released_of(self.plan, *self._storage.release(round_))

    def record(self, round_: int, model: Model | None = None) -> None:
        """Store the model after a round's release, then book the release.

        Only after this call may release or model leave the process. Of an interrupted round, which
        is booked already, it stores the model.

        Args:
            round_: the round.
            model: the model after the server's step, with what the server keeps of its optimiser;
                None in a run that stores its models elsewhere.

        Raises:
            InputError: when the round was not released.
        """
        stored = (
            self._stored if self._stored and self._stored[0].round == round_ else None
        )
        refused = stored is not None and not self._handed_out
        if refused or (stored is None and (self._storage.last(RELEASE) or 0) != round_):
            raise InputError.one(
                "round", "must be released before it is recorded", round_
            )
        if model is not None:
            arrays = model if isinstance(model, Mapping) else {VECTOR: model}
            self._storage.save_model(round_, arrays)
        if stored is not None:
            self._book_stored()
        self._storage.prune()

    def record_noised(
        self,
        round_: int,
        dimension: int,
        noise_std: float,
        total: GroupTotal | None = None,
        noise: np.ndarray | None = None,
        state: str = "",
    ) -> None:
        """Book a release whose noise somebody else drew; call it before the result is used.

        Args:
            round_: the next round.
            dimension: number of coordinates that received noise.
            noise_std: standard deviation of the noise that was added to the sum.
            total: the only group's sum with what was seen of it, for the internal evidence; the
                framework answers for whose updates are in it.
            noise: the noise [d] that was added, as measured, for the internal evidence.
            state: hash of the generator's state before the noise was drawn.

        Raises:
            BudgetExceededError: when the release would exceed the plan or a group's budget.
            InputError: when it is another round, the plan has several sums, the noise is less than
                planned, more updates than drawn clients are in the sum, or another copy of the
                folder goes on with the run.
        """
        self._check_next(round_)
        self._allow(round_)
        line = noised_line(self.plan, round_, dimension, noise_std, state)
        drawn = self._draw_of(round_)
        if drawn is not None and total is not None:
            check_reports(total, drawn[self.plan.groups[0].name])
        internal = self.record_of_run.configuration["evidence"] == "internal"
        if internal and drawn and noise is not None and total is not None:
            summed = np.zeros(dimension) if total.total is None else total.total
            given = {self.plan.groups[0].name: total}
            line = evidenced(line, given, drawn, summed, noise, noise)
            self._storage.measure([measured_noise(line, 0, summed, noise)])
        self._declare(dimension)
        if self._reservation is not None:
            self._storage.save_release(round_, [line], [])
        self._stored, self._vectors = [line], []
        self._handed_out = False
        self._pass_fence()
        self._book_stored()
        self._storage.prune()

    def fail(self, round_: int, reason: str) -> None:
        """Book a round that was never released, for example because too few clients reported."""
        if self._stored is not None:
            raise InputError.one("round", "must not be released already", round_)
        self._check_next(round_)
        if not reason or not reason.isprintable():
            raise InputError.one("reason", "must be printable text on one line", reason)
        drawn = None
        if self.record_of_run.configuration["evidence"] == "internal":
            with suppress(InputError):  # the stream of an earlier round is lost
                drawn = self._draw_once(round_)
        self._append(failed_lines(self.plan, round_, reason, drawn))
        self._open = None
        self._storage.prune()

    def epsilon(self, group: str) -> Interval:
        """Bounds on what the group has spent, with the runs of the book."""
        clients, records = self.plan.group(group).clients, self._storage.records
        history, budget = history_of(records, group), self._budgets[group]
        spent, whole = (
            budget.epsilon(history),
            worst_client(records, group, clients, complete=True),
        )
        if whole[1] == history:
            return spent
        return Interval(budget.epsilon(whole[1]).lower, spent.upper)

    def finish(self) -> None:
        """End the run: complete when all rounds are booked, else stopped, and never continued."""
        self._pass_fence()
        self._book_stored()
        if self.record_of_run.status == "running":
            done = self._storage.round
            if self._witness is not None:
                self._witness.end(self._storage.chain)
            status: Literal["complete", "stopped"]
            status = "complete" if done >= self.plan.spec.rounds else "stopped"
            self._save(
                {"status": status, "rounds_done": done, "chain": self._storage.chain}
            )
            self._storage.remove_draw()
        self._book_run()

    def close(self) -> None:
        """Release the folder's lock; the run is finished when all its rounds are booked."""
        try:
            self._book_stored()
            if self.round > self.plan.spec.rounds:
                self.finish()
            else:
                self._book_run()
        finally:
            self._stack.close()

    def verdict(self) -> Verdict:
        """The verdict on the run so far, from its folder."""
        from privplan.verification.verify import judge, load_run

        return judge(load_run(self.folder))

    def _draw_once(self, round_: int) -> Positions:
        """What the law draws for a round, or drew before."""
        drawn = self._draw_of(round_)
        if drawn is None:
            begun, streams = self._storage.streams()
            drawn, streams = draw_registered(self.plan, round_, streams, begun)
            sync = self._witness is not None or bool(streams)
            self._storage.save_draw(round_, drawn, streams, sync=sync)
            self._drawn = round_, drawn
        return drawn

    def _draw_of(self, round_: int) -> Positions | None:
        """What the law drew for a round, in this process or before an interruption."""
        if self._drawn is None or self._drawn[0] != round_:
            found = self._storage.draw(round_)
            self._drawn = None if found is None else (round_, found)
        return None if self._drawn is None else self._drawn[1]

    def _pass_fence(self) -> None:
        """Move the book's fence past the stored release, which may be handed out then.

        The release is on disk before: after a kill it is the one that is handed out. A guard that
        lost the fence removes it.
        """
        if self._stored is None or self._handed_out:
            return
        if self._reservation is not None:
            from privplan.book.reservations import FencedError

            try:
                self._reservation.move(self._storage.chain_with(self._stored))
            except FencedError as error:
                self._storage.remove_release(self._stored[0].round)
                self._stored, self._vectors, self._lost = None, [], str(error)
                raise
        self._handed_out = True

    def _book_stored(self) -> None:
        """Book a stored release that was handed out, and whose model may be missing."""
        if self._stored is not None and self._handed_out:
            self._append(self._stored, self._vectors)
            self._stored = None

    def _append(
        self, lines: list[ReleaseRecord], vectors: Sequence[np.ndarray] = ()
    ) -> None:
        """Write lines of the ledger, and let a witness testify to them."""
        self._storage.append(lines)
        if self._witness is not None:
            self._testify(self._witness, lines, vectors)

    def _witnessed(self, witnessing: Witnessing) -> Witness:
        """The run's witness; it testifies to lines that a kill left without it."""
        witness = witnessing.open(self.folder, self.plan, self._storage.chains)
        rest = self._storage.records[witness.lines :]
        for round_ in sorted({record.round for record in rest}):
            records = [record for record in rest if record.round == round_]
            noisy = any(record.noise_state for record in records)
            vectors = self._storage.release(round_)[1] if noisy else ()
            self._testify(witness, records, vectors)
        return witness

    def _commit(
        self, witness: Witness, round_: int, drawn: Mapping[str, Sequence[int]]
    ) -> None:
        """Testify to what the law drew for a round, once."""
        if self._committed != round_:
            witness.cohort(round_, drawn)
            self._committed = round_

    def _testify(
        self,
        witness: Witness,
        records: Sequence[ReleaseRecord],
        vectors: Sequence[np.ndarray],
    ) -> None:
        """Testify to new lines, all of one round, with their noisy sums [d] if there are any."""
        round_ = records[0].round
        self._commit(witness, round_, self._storage.draw(round_) or {})
        digests = [hashlib.sha256(one.tobytes()).hexdigest() for one in vectors]
        nothing = [hashlib.sha256().hexdigest()] * (len(records) - len(digests))
        named = any(share.participants is not None for share in records[0].shares)
        chain = self._storage.chain_after(records[-1])
        witness.release(round_, [*digests, *nothing], chain, reveal_cohort=named)

    def _save(self, changes: Mapping[str, object]) -> None:
        self.record_of_run = self.record_of_run.model_copy(update=dict(changes))
        self.record_of_run.save(self.folder)

    def _declare(self, size: int) -> None:
        """Record the aggregation rule and the number of coordinates before the first release."""
        if self.record_of_run.executed is None:
            rule = "mean" if self.plan.release == "joint" else "normalised"
            self._save(
                {"executed": Executed(aggregator=rule, coordinates=size, shared=size)}
            )

    def _check_next(self, round_: int) -> None:
        expected = self.round
        if round_ != expected or self._stored is not None:
            booked = f"rounds before {expected} are booked and never released again"
            rule = f"must be {expected}, the first round that is not booked; {booked}"
            raise InputError.one("round", rule, round_)

    def _allow(self, round_: int) -> None:
        refusal = self.refusal()
        if refusal is not None:
            raise BudgetExceededError(refusal)
