"""What testifies to a run while it happens: the hook of training loop and guard.

A witness learns of each cohort before it is used and of each release before it leaves,
and writes down what a third party can check later. The core has none; an optional part
passes one in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from privplan.plan import Plan


class Witness(Protocol):
    """Testifies to one run.

    After an interruption calls are repeated with equal arguments.
    """

    @property
    def lines(self) -> int:
        """Number of ledger lines that it has testified to."""

    def cohort(
        self, round_: int, cohort: Mapping[str, Sequence[int]], model: str = ""
    ) -> object:
        """Called before a round's participants are used."""

    def release(
        self,
        round_: int,
        releases: Sequence[str],
        ledger: str,
        *,
        reveal_cohort: bool = True,
    ) -> None:
        """Called once the ledger has its new lines, before the releases are used."""

    def end(self, ledger: str) -> None:
        """Called after the last round, with the hash of the ledger's last line."""


class Witnessing(Protocol):
    """Opens the witness of a run."""

    def check(self, plan: Plan) -> None:
        """Refuse a plan, before anything is written."""

    def open(
        self,
        folder: Path,
        plan: Plan,
        ledger: Sequence[str],
        noise_commitment: str = "",
    ) -> Witness:
        """The witness of the run in a folder, new or continued."""
