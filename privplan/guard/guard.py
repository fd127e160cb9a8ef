"""The guard of one run: draws cohorts, adds noise, books releases, refuses excess.

It opens a run folder, executes rounds (``rounds``) and keeps them on disk
(``storage``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np

from privplan.accounting.accountant import Interval, outwards
from privplan.errors import Fault, InputError
from privplan.evidence.noise import NoiseEvidence
from privplan.files import locked
from privplan.guard.access import Access, changing, exclusive
from privplan.guard.budgets import (
    BudgetExceededError,
    Excess,
    affordable_rounds,
    budgets_of,
)
from privplan.guard.cohort import (
    Available,
    Cohort,
    Positions,
    cohort_of,
    draw_registered,
)
from privplan.guard.open_round import GroupTotal, OpenRound
from privplan.guard.opening import OTHER_BOOK, check_settings, open_record
from privplan.guard.rounds import (
    Evidence,
    Released,
    SeenNoise,
    Updates,
    check_reports,
    check_sums,
    dimension_of,
    failed_lines,
    noised_line,
    noisy_sum,
    planned_noise_std,
    released_of,
    sums_of_round,
)
from privplan.guard.storage import (
    MODEL,
    RELEASE,
    Storage,
    StoredDraw,
    StoredRelease,
)
from privplan.guard.testimony import Testimony
from privplan.guard.vectors import clip
from privplan.guidance import Guided, checked_init
from privplan.ledger import history_of, worst_client
from privplan.plan import Plan
from privplan.record import Executed, ReleaseRecord
from privplan.secure_stream import secure_stream
from privplan.witness import Witnessing

if TYPE_CHECKING:
    from privplan.guard.booked import RunInBook
    from privplan.verification.verdict import Verdict


def _array(name: str, values: object) -> np.ndarray:
    """Numbers of a model as an array; tensors of other libraries become one."""
    rule = "must hold arrays of numbers"
    try:
        array = np.asarray(values)
    except Exception as error:  # whatever the other library raises
        raise InputError.one(f"model.{name}", rule, type(error).__name__) from None
    if array.dtype.kind not in "fiub":
        raise InputError.one(f"model.{name}", rule, f"an array of {array.dtype}")
    return array


Model = np.ndarray | Mapping[str, np.ndarray]
VECTOR = "model"  # name of the array of a model that is one vector


@checked_init
class Guard(Guided):
    """Executes a plan inside a training loop that somebody else wrote.

    One process at a time holds the run folder, and its threads take turns. The guard of
    a folder with booked rounds goes on after them: ``round`` is the next one, ``model``
    the last model, and ``interrupted`` a release whose model was not stored yet.

    Args:
        plan: the plan, or its file; of clients (``unit: client``), with a fixed
            clipping norm.
        ledger: the run folder, created if missing.
        book: address of a budget book, to which the run is added when it ends, and
            whose other runs count, by the rule of a plan that was made from a book,
            else by a filter; so do accounts of the groups. What this run may release is
            reserved in it from the start, so that runs at once never overspend, and of
            two copies of the folder the one that was opened last goes on. A run that
            began with a book goes on with it.
        population: whose groups these are in the book.
        evidence: ``internal`` records what no noise protects (cohorts, norms, noise) in
            the ledger, which must then not be published, so that the verdict can be
            kept; ``public`` records it nowhere, and the verdict stays unverified.
        keep: number of released sums and of models that stay on disk; None for all.
        resends: whether the updates of a round stay in memory until its release, so
            that a second one of a client replaces the first; False keeps only their
            sum, and refuses a second.
        coordinates: numbers in an update (d). When None the first update of the first
            round decides, whose client then decides it for all.
        framework: what trains, for the record.
        witnessing: opens what testifies to draws and lines of the ledger before they
            are used; None for nothing.

    Raises:
        InputError: when the plan cannot be executed by a guard, or the folder holds
            another run or is in use.
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
        coordinates: int | None = None,
        framework: str = "guard",
        witnessing: Witnessing | None = None,
    ) -> None:
        if not isinstance(ledger, str | Path):
            raise InputError.one("ledger", "must be the path of a run folder", ledger)
        self.access = Access()
        self.plan = Plan.load(plan)
        self.folder = Path(ledger)
        check_settings(self.plan, evidence, keep, coordinates)
        self._evidence = evidence
        self._resends = resends
        self._coordinates = coordinates
        self._open: OpenRound | None = None
        self._drawn_round = 0  # the round of ``_drawn``
        self._drawn: Positions = {}
        # The release that is stored and not booked; without a book, or once it is past
        # the fence of its book, it is handed out.
        self._pending: StoredRelease | None = None
        self._is_handed_out = False
        with ExitStack() as stack:
            self._holds_folder = stack.enter_context(locked(self.folder))
            self.record_of_run = open_record(
                self.folder, self.plan, evidence, framework
            )
            self._storage = Storage(self.folder, self.plan.digest, keep)
            self._book = self._opened_book(book, population)
            if self._book is None:
                self._budgets = budgets_of(self.plan, {}, {})
                affordable_rounds(self._budgets)  # refuses what cannot be composed
            else:
                self._budgets = self._book.budgets
            self._testimony: Testimony | None = None
            if witnessing is not None:
                self._testimony = Testimony(
                    witnessing, self.folder, self.plan, self._storage
                )
            self._stack = stack.pop_all()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled: a copy would release a round again."""
        raise TypeError("a guard cannot be copied: each copy would draw its own noise")

    @property
    def round(self) -> int:
        """The next round: the first that is not booked."""
        return self._storage.round + 1

    @property
    def _is_running(self) -> bool:
        return self.record_of_run.status == "running"

    @property
    def finished(self) -> bool:
        """Whether all rounds are booked, or the run was stopped."""
        return not self._is_running or self.round > self.plan.spec.rounds

    def rounds(self) -> Iterator[int]:
        """The rounds that are left, while their release is not refused."""
        while not self.finished and self.may_release():
            round_ = self.round
            yield round_
            if self.round == round_:
                rule = (
                    "must be booked by record, fail or an optimizer's step, also that "
                    "of an empty batch (BatchMemoryManager adds several batches up)"
                )
                raise InputError.one("round", rule, round_)

    @property
    @exclusive
    def model(self) -> dict[str, np.ndarray] | None:
        """The last stored model; a single vector is under the name ``model``."""
        last_round = self._storage.last(MODEL)
        if last_round is None:
            return None
        return self._storage.model(last_round)

    @property
    @exclusive
    def interrupted(self) -> Released | None:
        """The booked release whose model is not stored, if there is one.

        Make the step again, then ``record`` it.
        """
        released_round = self._storage.last(RELEASE)
        model_round = self._storage.last(MODEL) or 0
        if self._pending is not None or released_round is None:
            return None
        if released_round <= model_round:
            return None
        records, vectors = self._storage.release(released_round)
        # Of noise that somebody else drew the guard has no sum, and nobody used it.
        if vectors:
            return released_of(self.plan, records, vectors)
        return None

    @changing
    def draw(self, round_: int, available: Available | None = None) -> Cohort:
        """The cohort of a round, by the planned law.

        The law draws from the registered clients, whoever is there, and those who are
        not there are left out. ``Cohort.guarantee`` states what this means. A round
        that was drawn before an interruption keeps its draw.

        Args:
            round_: the next round.
            available: positions of the clients that are there, by group; all when None.

        Raises:
            InputError: when it is another round, or a client is not registered.
            BudgetExceededError: when the round's release would be refused.
        """
        self._check_next(round_)
        self._allow_release()
        drawn = self._draw_once(round_)
        if self._testimony is not None:
            self._testimony.draw(round_, drawn)
        return cohort_of(self.plan, round_, drawn, available)

    def clipping_norm(self, group: str) -> float:
        """The L2 norm to which updates of a group are clipped, before the scale."""
        return self.plan.group(group).clipping_norm or self.plan.spec.clipping_norm

    def scale(self, group: str) -> float:
        """The factor on the clipped updates of the group's clients in the sum."""
        return self.plan.group(group).scale

    def clip(self, update: np.ndarray, group: str) -> np.ndarray:
        """The update [d] as it enters the sum: clipped, then scaled."""
        return clip(update, self.clipping_norm(group)) * self.scale(group)

    def noise_std(self, round_: int, group: str | None = None) -> float:
        """Noise per coordinate on a group's sum, or on that of all groups (None)."""
        return planned_noise_std(self.plan, round_, group)

    @changing
    def add(self, round_: int, group: str, client: int, update: np.ndarray) -> None:
        """Add a client's update [d] to a round: clipped and scaled.

        That is done whatever the client did. A second update of a client in a round
        replaces the first; see ``resends``.

        Args:
            round_: the next round, which was drawn.
            group: of the client.
            client: its position in the group.
            update: what it sent; one that is not finite counts as zero.

        Raises:
            InputError: when it is another round, the client was not drawn in it, or the
                update does not fit the others.
        """
        self._opened(round_).add(group, client, update)

    @exclusive
    def total(self, group: str) -> GroupTotal:
        """What the next round has of a group's updates so far."""
        return self._opened(self.round).total(group)

    @property
    def _dimension(self) -> int | None:
        """Numbers in an update (d), of the releases so far or as given."""
        executed = self.record_of_run.executed
        if executed is None:
            return self._coordinates
        return executed.coordinates

    def _opened(self, round_: int) -> OpenRound:
        """The next round, which must have been drawn."""
        self._check_next(round_)
        if self._open is None or self._open.round != round_:
            drawn = self._draw_of(round_)
            if drawn is None:
                rule = "must be drawn by the guard before it is released"
                raise InputError.one("round", rule, round_)
            self._open = OpenRound(
                self.plan,
                round_,
                drawn,
                resends=self._resends,
                length=self._dimension,
            )
        return self._open

    def _opened_book(self, address: str | None, population: str) -> RunInBook | None:
        """The run in its book, with what it may still release reserved there."""
        if address is None:
            if self._is_running and self._storage.reservation.exists():
                raise InputError.one("book", OTHER_BOOK, None)
            return None
        from privplan.guard.booked import RunInBook

        return RunInBook(
            address,
            population,
            self.folder,
            self.plan,
            self._storage,
            is_running=self._is_running,
        )

    def may_release(self) -> bool:
        """Whether the next release stays within the plan and every group's budget."""
        return self.refusal() is None

    @exclusive
    def refusal(self) -> str | None:
        """Why the next release is refused, one line; None when it may happen."""
        return self._refusal()

    def _refusal(self) -> str | None:
        if self._book is not None and self._book.lost:
            return self._book.lost
        if not self._is_running:
            status = self.record_of_run.status
            return str(Fault("run", "must not be finished", status))
        rounds = self.plan.spec.rounds
        if self.round > rounds:
            rule = f"must be one of the {rounds} planned rounds"
            return str(Fault("round", rule, self.round))
        for name in self._budgets:
            excess = self._excess(name)
            if excess is not None:
                rule = (
                    f"must stay within the budget {excess.budget} with the release of "
                    f"round {self.round}"
                )
                epsilon = outwards(excess.epsilon, True, 6)
                return str(Fault(f"groups.{name}.epsilon", rule, epsilon))
        if self._book is not None and self.round > self._book.affordable_rounds:
            # A round that failed makes no room in the book for another one.
            reserved = self._book.affordable_rounds
            rule = f"must be one of the first {reserved}, reserved in the run's book"
            return str(Fault("round", rule, self.round))
        return None

    def _excess(self, group: str) -> Excess | None:
        """The budget that the next round would exceed for a group; None if it fits."""
        budget = self._budgets[group]
        if self.round <= budget.affordable_rounds:
            return None

        # After a failed round, which spent nothing, a later one may still fit.
        next_round = budget.planned_rounds(self.round, self.round)
        releases = history_of(self._storage.records, group, next_round)
        return budget.excess(releases)

    @changing
    def release(
        self, round_: int, sums: Mapping[str, np.ndarray] | None = None
    ) -> Released:
        """Add the planned noise to the sums of a round's updates and store the result.

        A round is released once: a second call, also after an interruption, returns the
        same bits and ignores the sums.

        Args:
            round_: the next round.
            sums: the sum of each group's clipped and scaled updates [d], where no
                update was added: from a secure aggregation that does not tell whose
                updates are in it. The guard can then check neither, and the run stays
                unverified. A group without updates may be left out.

        Raises:
            BudgetExceededError: when the release would exceed the plan or a group's
                budget.
            InputError: when it is another round, the sums do not fit, or another copy
                of the folder goes on with the run.
        """
        pending = self._pending_of(round_)
        if pending is not None:
            self._pass_fence()
            return released_of(self.plan, pending.records, pending.vectors)
        self._check_next(round_)
        self._allow_release()
        open_round = self._opened(round_)
        updates: Updates = open_round.totals
        if sums is not None:
            check_sums(sums, open_round.totals)
            updates = sums
        dimension = dimension_of(self.plan, updates, self._dimension)

        # Each sum has a generator of its own, whose key nobody has.
        noisy_sums = [
            noisy_sum(
                planned,
                updates,
                open_round.drawn,
                dimension,
                self._evidence,
                secure_stream(),
            )
            for planned in sums_of_round(self.plan, round_)
        ]
        self._declare(dimension)
        release = StoredRelease(
            [released.record for released in noisy_sums],
            [released.vector for released in noisy_sums],
        )
        # Once these bits may be on disk, no others are drawn for the round.
        with self.access.as_a_whole("release"):
            measurements = [released.measurement for released in noisy_sums]
            self._storage.measure([item for item in measurements if item is not None])
            self._storage.save_release(round_, release)
            self._pending = release
            self._is_handed_out = False
            self._open = None
        self._pass_fence()
        return released_of(self.plan, release.records, release.vectors)

    @exclusive
    def released(self, round_: int) -> Released:
        """The bits of a round's release.

        Raises:
            InputError: when it was not made, is stored no longer, or is not past the
                fence of the book yet.
        """
        if self._pending_of(round_) is not None and not self._is_handed_out:
            rule = "must be handed out by release, which the book has not allowed yet"
            raise InputError.one("round", rule, round_)
        return released_of(self.plan, *self._storage.release(round_))

    @changing
    def record(self, round_: int, model: Model | None = None) -> None:
        """Store the model after a round's release, then book the release.

        Only after this call may release or model leave the process. Of an interrupted
        round, which is booked already, it stores the model.

        Args:
            round_: the round.
            model: the model after the server's step, with what the server keeps of its
                optimiser; None in a run that stores its models elsewhere.

        Raises:
            InputError: when the round was not released.
        """
        is_pending = self._pending_of(round_) is not None
        is_released = self._storage.last(RELEASE) == round_
        if is_pending:
            is_released = self._is_handed_out
        if not is_released:
            rule = "must be released before it is recorded"
            raise InputError.one("round", rule, round_)
        if model is not None:
            arrays = model if isinstance(model, Mapping) else {VECTOR: model}
            arrays = {name: _array(name, values) for name, values in arrays.items()}
            self._storage.save_model(round_, arrays)
        if is_pending:
            self._book_pending()
        self._storage.prune()

    @changing
    def record_noised(
        self,
        round_: int,
        dimension: int,
        noise_std: float,
        total: GroupTotal | None = None,
        noise: np.ndarray | None = None,
        state: str = "",
    ) -> None:
        """Book a release whose noise somebody else drew, before the result is used.

        Args:
            round_: the next round, which was drawn.
            dimension: number of coordinates that received noise, as in earlier rounds.
            noise_std: standard deviation of the noise that was added to the sum.
            total: the only group's sum with what was seen of it, for the internal
                evidence; the framework answers for whose updates are in it.
            noise: the noise [d] that was added, as measured, for the internal evidence.
            state: hash of the generator's state before the noise was drawn.

        Raises:
            BudgetExceededError: when the release would exceed the plan or a group's
                budget.
            InputError: when it is another round, the plan has several sums, the noise
                is less than planned, more updates than drawn clients are in the sum, or
                another copy of the folder goes on with the run.
        """
        self._check_next(round_)
        self._allow_release()
        # Noise on fewer would leave the others without any.
        if dimension < 1 or self._dimension not in (None, dimension):
            rule = f"must be the {self._dimension or 'number of'} coordinates of all rounds"
            raise InputError.one("dimension", rule, dimension)
        line = noised_line(self.plan, round_, dimension, noise_std, state)
        group = self.plan.groups[0].name
        drawn = self._opened(round_).drawn
        if total is not None:
            check_reports(total, drawn[group])
        measurements: list[NoiseEvidence] = []
        is_internal = self._evidence == "internal"
        if is_internal and noise is not None and total is not None:
            if total.total is None:
                exact_sum = np.zeros(dimension)
            else:
                exact_sum = total.total
            seen = SeenNoise(exact_sum, noise, residual=noise)
            line = seen.evidenced(line, {group: total}, drawn)
            measurements = [seen.measurement(line, index=0)]
        self._declare(dimension)
        release = StoredRelease([line], [])
        with self.access.as_a_whole("record_noised"):
            self._storage.measure(measurements)
            if self._book is not None:  # a kill must find what is past the fence
                self._storage.save_release(round_, release)
            self._pending = release
            self._is_handed_out = False
        self._pass_fence()
        self._book_pending()
        self._storage.prune()

    @changing
    def fail(self, round_: int, reason: str) -> None:
        """Book a round that was never released, such as one of a server that stops.

        Nothing may fail because of who was drawn, or of their data: a round without
        reports is released, as noise alone.

        Args:
            round_: the next round.
            reason: why, in one line.

        Raises:
            InputError: when it is another round, or was released.
        """
        if self._pending is not None:
            raise InputError.one("round", "must not be released already", round_)
        self._check_next(round_)
        if not reason or not reason.isprintable():
            raise InputError.one("reason", "must be printable text on one line", reason)
        drawn = None
        if self._evidence == "internal":
            with suppress(InputError):  # the stream of an earlier round is lost
                drawn = self._draw_once(round_)
        self._append(failed_lines(self.plan, round_, reason, drawn))
        self._open = None
        self._storage.prune()

    @exclusive
    def epsilon(self, group: str) -> Interval:
        """Bounds on what the group has spent, with the runs of the book."""
        clients = self.plan.group(group).clients
        records = self._storage.records
        history = history_of(records, group)
        spent = self._budgets[group].epsilon(history)

        # The ledger may show that no client was in all rounds that it could be in.
        _, history_of_client = worst_client(records, group, clients, complete=True)
        if history_of_client == history:
            return spent
        lower = self._budgets[group].epsilon(history_of_client).lower
        return Interval(lower, spent.upper)

    @changing
    def finish(self) -> None:
        """End the run: complete when all rounds are booked, else stopped for good.

        A run that ends before its first round gives back what it reserved in its book;
        without a round there is nothing to verify.
        """
        self._pass_fence()
        self._book_pending()
        if self._is_running:
            done = self._storage.round
            if self._testimony is not None:
                self._testimony.end()
            status: Literal["complete", "stopped"] = "stopped"
            if done >= self.plan.spec.rounds:
                status = "complete"
            self._save(
                {"status": status, "rounds_done": done, "chain": self._storage.chain}
            )
            self._storage.remove_draw()
        self._settle_book()

    def close(self) -> None:
        """Release the folder's lock; the run is finished when all rounds are booked.

        After a call that did not come to its end, nothing but the lock is let go.
        """
        with self.access.to_close() as is_whole:
            try:
                if is_whole:
                    self._book_pending()
                    if self.round > self.plan.spec.rounds:
                        self.finish()
                    else:
                        self._settle_book()
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
            last_drawn, earlier = self._storage.streams()
            drawn, streams = draw_registered(self.plan, round_, earlier, last_drawn)
            # What a witness or later rounds rely on must survive a loss of power.
            sync = self._testimony is not None or bool(streams)
            self._storage.save_draw(StoredDraw(round_, drawn, streams), sync=sync)
            self._drawn_round = round_
            self._drawn = drawn
        return drawn

    def _draw_of(self, round_: int) -> Positions | None:
        """What the law drew for a round, in this process or before an interruption."""
        if self._drawn_round != round_:
            stored = self._storage.draw(round_)
            if stored is None:
                return None
            self._drawn_round = round_
            self._drawn = stored
        return self._drawn

    def _pending_of(self, round_: int) -> StoredRelease | None:
        """The release of a round that is stored and not booked."""
        self._require_number(round_)
        pending = self._pending
        if pending is None or pending.records[0].round != round_:
            return None
        return pending

    def _pass_fence(self) -> None:
        """Hand out the stored release, once it is past the fence of the book."""
        if self._pending is None or self._is_handed_out:
            return
        # A signal handler may have closed the guard while it released.
        self._require_folder()
        if self._book is not None:
            try:
                self._book.pass_fence(self._pending.records)
            except InputError:
                if self._book.lost:
                    self._pending = None
                raise
        self._is_handed_out = True

    def _book_pending(self) -> None:
        """Book a stored release that was handed out; its model may be missing."""
        if self._pending is not None and self._is_handed_out:
            with self.access.as_a_whole("record"):
                self._append(self._pending.records, self._pending.vectors)
                self._pending = None

    def _append(
        self, lines: Sequence[ReleaseRecord], vectors: Sequence[np.ndarray] = ()
    ) -> None:
        """Write lines of the ledger, and let a witness testify to them."""
        with self.access.as_a_whole("record"):
            self._storage.append(lines)
            if self._testimony is not None:
                self._testimony.lines(lines, vectors)

    def _settle_book(self) -> None:
        """Add the run to its book, if it has one."""
        if self._book is not None:
            self._book.settle(is_running=self._is_running)

    def _save(self, changes: Mapping[str, object]) -> None:
        """Change the record, and store it."""
        self.record_of_run = self.record_of_run.model_copy(update=dict(changes))
        self.record_of_run.save(self.folder)

    def _declare(self, dimension: int) -> None:
        """Record aggregation rule and coordinates, before the first release."""
        if self.record_of_run.executed is None:
            if self.plan.release == "joint":
                rule = "mean"
            else:
                rule = "normalised"
            executed = Executed(
                aggregator=rule, coordinates=dimension, shared=dimension
            )
            self._save({"executed": executed})

    def _check_next(self, round_: int) -> None:
        """Refuse a round that is not the next one, and one of a folder that is free."""
        self._require_folder()
        self._require_number(round_)
        expected = self.round
        if round_ != expected or isinstance(round_, bool):
            rule = (
                f"must be {expected}, the first round that is not booked; rounds before "
                f"{expected} are booked and never released again"
            )
            raise InputError.one("round", rule, round_)
        if self._pending is not None:
            rule = "must be recorded, since it was released; release returns its bits"
            raise InputError.one("round", rule, round_)

    def _require_number(self, round_: object) -> None:
        """Refuse what is no number of a round, such as an update in its place."""
        if not isinstance(round_, int):
            rule = f"must be the number of a round, which comes first; next is {self.round}"
            raise InputError.one("round", rule, type(round_).__name__)

    def _require_folder(self) -> None:
        """Refuse to go on in a folder that another guard may hold."""
        if not self._holds_folder():
            rule = "must be held by an open guard, which keeps its lock"
            raise InputError.one("ledger", rule, str(self.folder))

    def _allow_release(self) -> None:
        """Refuse the next round's release where it may not happen."""
        refusal = self._refusal()
        if refusal is not None:
            raise BudgetExceededError(refusal)
