"""The guard of one run: draws cohorts, adds noise, books releases, and refuses what is too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from privplan.accounting.accountant import Interval
from privplan.attestation import SigningKey
from privplan.errors import Fault, InputError
from privplan.guard.budget import BudgetExceededError, Budgets
from privplan.guard.cohort import Available, Cohort, Positions, cohort_of, draw_registered
from privplan.guard.lines import (
    Evidence,
    Released,
    Sums,
    failed_lines,
    length_of,
    noised_line,
    noisy_sum,
    planned_noise_std,
    released_of,
    sums_of,
)
from privplan.guard.opening import check_settings, open_record
from privplan.guard.prior import add_to_book, past_runs
from privplan.guard.signing import LedgerSigner
from privplan.guard.storage import MODEL, RELEASE, Storage
from privplan.guard.vectors import GroupTotal, clip
from privplan.io.files import locked
from privplan.ledger import history_of
from privplan.plan import Plan
from privplan.record import Executed, ReleaseRecord
from privplan.secure_streams import secure_stream

if TYPE_CHECKING:
    from privplan.book.rules import Composition
    from privplan.verification.verify import Verdict

Model = np.ndarray | Mapping[str, np.ndarray]
VECTOR = "model"
"""Name of the array of a model that is one vector."""


class Guard:
    """Executes a plan inside a training loop that somebody else wrote.

    One process at a time holds the run folder. The guard of a folder with booked rounds goes on
    after them: ``round`` is the next one, ``model`` the last model, and ``interrupted`` a release
    whose model was not stored yet.

    Args:
        plan: the plan, or its file; of clients (``unit: client``), with a fixed clipping norm.
        ledger: the run folder, created if missing.
        book: address of a budget book, to which the run is added when it ends, and whose other runs
            count: by the rule of a plan that was made from a book, else by a filter.
        population: whose groups these are in the book.
        evidence: ``public`` records what no noise protects (cohorts, norms, noise) nowhere, so
            that checks which need it are not shown; ``internal`` records it in the ledger, which
            must then not be published.
        keep: number of released sums and of models that stay on disk; None for all.
        framework: what trains, for the record.
        signing_key: the server's secret key or its file, in a plan that names its signers; draws
            and lines of the ledger are signed before they are used.

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
        evidence: Evidence = "public",
        keep: int | None = 2,
        framework: str = "guard",
        signing_key: SigningKey | Path | str | None = None,
    ) -> None:
        self.plan = plan if isinstance(plan, Plan) else Plan.load(plan)
        self.folder = Path(ledger)
        self._book, self._population = book, population
        self._totals: dict[str, GroupTotal] = {}
        check_settings(self.plan, evidence, keep)
        with ExitStack() as stack:
            stack.enter_context(locked(self.folder))
            self.record_of_run = open_record(self.folder, self.plan, evidence, framework)
            self._storage = Storage(self.folder, self.plan.digest, keep)
            past: dict[str, Composition] = {}
            if book is not None:
                past = past_runs(book, population, self.plan, self._storage.records)
            self._budgets = Budgets(self.plan, past)
            for budget in self._budgets.groups.values():
                _ = budget.affordable_rounds
            self._signer: LedgerSigner | None = None
            if signing_key is not None:
                self._signer = LedgerSigner(self.folder, self.plan, signing_key, self._storage)
            self._stack = stack.pop_all()
        self._stored: list[ReleaseRecord] | None = None
        self._vectors: list[np.ndarray] = []
        self._drawn: tuple[int, Positions] | None = None

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
        return self.record_of_run.status != "running" or self.round > self.plan.spec.rounds

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
        return self.released(release)

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
        drawn = self._draw_of(round_)
        if drawn is None:
            drawn = draw_registered(self.plan, round_, secure_stream)
            self._storage.save_draw(round_, drawn, sync=self._signer is not None)
            self._drawn = round_, drawn
        if self._signer is not None:
            self._signer.cohort(round_, drawn)
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
        """Standard deviation of the noise on a sum, per coordinate.

        Args:
            round_: training round, from 1.
            group: the group of the sum; None for the sum of all groups, in a plan with one.

        Raises:
            InputError: when the plan has sums of the other kind.
        """
        return planned_noise_std(self.plan, round_, group)

    def total(self, group: str) -> GroupTotal:
        """The group's total of the open round: ``add`` updates, then ``release``."""
        if group not in self._totals:
            self._totals[group] = GroupTotal(self.clipping_norm(group), self.scale(group))
        return self._totals[group]

    def may_release(self) -> bool:
        """Whether the next round's release stays within the plan and every group's budget."""
        return self.refusal() is None

    def refusal(self) -> str | None:
        """Why the next round's release is refused, one line; None when it may happen."""
        status = self.record_of_run.status
        if status != "running":
            return str(Fault("run", "must not be finished", status))
        return self._budgets.refusal(self.round, self._storage.records)

    def release(self, round_: int, sums: Sums | None = None) -> Released:
        """Add the planned noise to a round's sums and store the result durably.

        A round is released once: a second call, also after an interruption, returns the same bits
        and ignores the sums.

        Args:
            round_: the next round.
            sums: the sum of each group's clipped and scaled updates [d], for example from secure
                aggregation, or its total; those of ``total`` when None. A group without updates
                may be left out.

        Raises:
            BudgetExceededError: when the release would exceed the plan or a group's budget.
            InputError: when it is another round, or the sums do not fit.
        """
        if self._stored is not None and self._stored[0].round == round_:
            return released_of(self.plan, self._stored, self._vectors)
        self._check_next(round_)
        self._allow(round_)
        given = self._totals if sums is None else sums
        executed = self.record_of_run.executed
        size = length_of(self.plan, given, None if executed is None else executed.coordinates)
        drawn, evidence = self._draw_of(round_), self.record_of_run.configuration["evidence"]
        if drawn is None:
            rule = "must be drawn by the guard before it is released"
            raise InputError.one("round", rule, round_)
        records, vectors = [], []
        for members in sums_of(self.plan):
            std = self.noise_std(round_, None if self.plan.release == "joint" else members[0].name)
            record, vector = noisy_sum(
                self.plan, round_, members, given, drawn, std, size, evidence, secure_stream()
            )
            records.append(record)
            vectors.append(vector)
        self._declare(size)
        self._storage.save_release(round_, records, vectors)
        self._stored, self._vectors = records, vectors
        self._totals = {}
        return released_of(self.plan, records, vectors)

    def released(self, round_: int) -> Released:
        """The release of a round, with the same bits as when it was made.

        Raises:
            InputError: when the round was not released, or is no longer stored.
        """
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
        stored = self._stored if self._stored and self._stored[0].round == round_ else None
        if stored is None and (self._storage.last(RELEASE) or 0) != round_:
            raise InputError.one("round", "must be released before it is recorded", round_)
        if model is not None:
            arrays = model if isinstance(model, Mapping) else {VECTOR: model}
            self._storage.save_model(round_, arrays)
        if stored is not None:
            self._book_stored()
        self._storage.prune()

    def record_noised(self, round_: int, dimension: int, noise_std: float) -> None:
        """Book a release whose noise somebody else drew; call it before the result is used.

        Args:
            round_: the next round.
            dimension: number of coordinates that received noise.
            noise_std: standard deviation of the noise that was added to the sum.

        Raises:
            BudgetExceededError: when the release would exceed the plan or a group's budget.
            InputError: when it is another round, the plan has several sums, or the noise is less
                than planned.
        """
        self._check_next(round_)
        self._allow(round_)
        line = noised_line(self.plan, round_, dimension, noise_std)
        self._declare(dimension)
        self._append([line])

    def fail(self, round_: int, reason: str) -> None:
        """Book a round that was never released, for example because too few clients reported.

        Raises:
            InputError: when it is another round, was released, or the reason is empty.
        """
        if self._stored is not None:
            raise InputError.one("round", "must not be released already", round_)
        self._check_next(round_)
        if not reason or not reason.isprintable():
            raise InputError.one("reason", "must be printable text on one line", reason)
        internal = self.record_of_run.configuration["evidence"] == "internal"
        drawn = self._draw_of(round_) if internal else None
        self._append(failed_lines(self.plan, round_, reason, drawn))
        self._totals = {}
        self._storage.prune()

    def epsilon(self, group: str) -> Interval:
        """Bounds on what the group has spent, with the book's; without the cost of ``tuning``."""
        self.plan.group(group)
        return self._budgets.groups[group].epsilon(history_of(self._storage.records, group))

    def finish(self) -> None:
        """End the run: complete when all rounds are booked, else stopped, and never continued."""
        self._book_stored()
        if self.record_of_run.status == "running":
            done = self._storage.round
            if self._signer is not None:
                self._signer.end()
            status: Literal["complete", "stopped"]
            status = "complete" if done >= self.plan.spec.rounds else "stopped"
            self._save({"status": status, "rounds_done": done, "chain": self._storage.chain})
            self._storage.remove_draw()
        if self._book is not None:
            add_to_book(self._book, self._population, self.folder)

    def close(self) -> None:
        """Release the folder's lock; the run is finished when all its rounds are booked."""
        try:
            self._book_stored()
            if self.round > self.plan.spec.rounds:
                self.finish()
            elif self._book is not None:
                add_to_book(self._book, self._population, self.folder)
        finally:
            self._stack.close()

    def verdict(self) -> Verdict:
        """The verdict on the run so far, from its folder."""
        from privplan.verification.verify import judge, load_run

        return judge(load_run(self.folder))

    def _draw_of(self, round_: int) -> Positions | None:
        """What the law drew for a round, in this process or before an interruption."""
        if self._drawn is None or self._drawn[0] != round_:
            found = self._storage.draw(round_)
            self._drawn = None if found is None else (round_, found)
        return None if self._drawn is None else self._drawn[1]

    def _book_stored(self) -> None:
        """Book a stored release, whose model may be missing."""
        if self._stored is not None:
            self._append(self._stored, self._vectors)
            self._stored = None

    def _append(self, lines: list[ReleaseRecord], vectors: Sequence[np.ndarray] = ()) -> None:
        """Write lines of the ledger and, with a key, sign them."""
        self._storage.append(lines)
        if self._signer is not None:
            self._signer.lines(lines, vectors)

    def _save(self, changes: Mapping[str, object]) -> None:
        self.record_of_run = self.record_of_run.model_copy(update=dict(changes))
        self.record_of_run.save(self.folder)

    def _declare(self, size: int) -> None:
        """Record the aggregation rule and the number of coordinates before the first release."""
        if self.record_of_run.executed is None:
            rule = "mean" if self.plan.release == "joint" else "normalised"
            self._save({"executed": Executed(aggregator=rule, coordinates=size, shared=size)})

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
