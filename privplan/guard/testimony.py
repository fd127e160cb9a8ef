"""What a guard has a witness testify to: the draws and lines of its run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from privplan.guard.rounds import Drawn
from privplan.guard.storage import Storage
from privplan.plan import Plan
from privplan.record import ReleaseRecord
from privplan.witness import Witnessing


class Testimony:
    """The witness of a guarded run.

    A new guard first has it testify to lines that a kill left without it.

    Args:
        witnessing: opens the witness.
        folder: the run folder.
        plan: of the run.
        storage: its files.
    """

    def __init__(
        self, witnessing: Witnessing, folder: Path, plan: Plan, storage: Storage
    ) -> None:
        self._storage = storage
        self._committed_round = 0
        self._witness = witnessing.open(folder, plan, storage.chains)
        without_witness = storage.records[self._witness.lines :]
        for round_ in sorted({record.round for record in without_witness}):
            records = [record for record in without_witness if record.round == round_]
            vectors: Sequence[np.ndarray] = ()
            if any(record.noise_state for record in records):
                vectors = storage.release(round_).vectors
            self.lines(records, vectors)

    def draw(self, round_: int, drawn: Drawn) -> None:
        """Testify to what the law drew for a round, once."""
        if self._committed_round != round_:
            self._witness.cohort(round_, drawn)
            self._committed_round = round_

    def lines(
        self, records: Sequence[ReleaseRecord], vectors: Sequence[np.ndarray]
    ) -> None:
        """Testify to new lines.

        Args:
            records: the lines, all of one round.
            vectors: their noisy sums [d], if there are any.
        """
        round_ = records[0].round
        self.draw(round_, self._storage.draw(round_) or {})
        digests = [hashlib.sha256(vector.tobytes()).hexdigest() for vector in vectors]
        without_sum = len(records) - len(digests)
        digests += [hashlib.sha256().hexdigest()] * without_sum
        reveal = any(share.participants is not None for share in records[0].shares)
        chain = self._storage.chain_after(records[-1])
        self._witness.release(round_, digests, chain, reveal_cohort=reveal)

    def end(self) -> None:
        """Testify to the last line."""
        self._witness.end(self._storage.chain)
