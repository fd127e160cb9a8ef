"""Signatures of a guarded run: each draw and each line of the ledger, before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from privplan.attestation import Attestor, SigningKey, read_attestation
from privplan.guard.storage import Storage
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.record import ReleaseRecord


class LedgerSigner:
    """Signs draws and ledger lines with the server's key; a kill leaves nothing unsigned.

    Args:
        folder: the run folder.
        plan: the plan, whose signers include the server.
        key: the server's secret key, or its file.
        storage: the files of the run; lines that are in the ledger and not signed are signed.

    Raises:
        InputError: when the key is not that of a server in the plan, or statements are missing.
    """

    def __init__(
        self, folder: Path, plan: Plan, key: SigningKey | Path | str, storage: Storage
    ) -> None:
        self._storage, self._committed = storage, 0
        found = read_attestation(folder)
        signed = [] if found is None else [one.statement for one in found.statements]
        lines = max((one.lines for one in signed if one.kind == "release"), default=0)
        chain = plan.digest
        for record in storage.records[:lines]:
            chain = chained(record, chain)[1]
        secret = key if isinstance(key, SigningKey) else SigningKey.load(key)
        self._attestor = Attestor(folder, plan, secret, chain)
        self._attestor.start()
        rest = storage.records[lines:]
        for round_ in sorted({record.round for record in rest}):
            records = [record for record in rest if record.round == round_]
            noisy = any(record.noise_state for record in records)
            self.lines(records, storage.release(round_)[1] if noisy else ())

    def cohort(self, round_: int, drawn: Mapping[str, Sequence[int]]) -> None:
        """Commit to what the law drew for a round, once."""
        if self._committed != round_:
            self._attestor.cohort(round_, drawn)
            self._committed = round_

    def lines(self, records: Sequence[ReleaseRecord], vectors: Sequence[np.ndarray]) -> None:
        """Sign new lines of the ledger, all of one round, with their released sums.

        Args:
            records: the lines.
            vectors: noisy sums [d] of the lines; none where nothing was released here.
        """
        round_ = records[0].round
        self.cohort(round_, self._storage.draw(round_) or {})
        digests = [hashlib.sha256(one.tobytes()).hexdigest() for one in vectors]
        nothing = [hashlib.sha256().hexdigest()] * (len(records) - len(digests))
        named = any(share.participants is not None for share in records[0].shares)
        chain = self._storage.chain_after(records[-1])
        self._attestor.release(round_, [*digests, *nothing], chain, reveal_cohort=named)

    def end(self) -> None:
        """Sign the end of the run."""
        self._attestor.end(self._storage.chain)
