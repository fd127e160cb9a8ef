"""The files of a run folder: which ones privplan writes there, and what each one is.

Whatever else lies in a run folder was put there by somebody else. No verdict says
anything of it, so a verdict names it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from privplan.attacked import ATTACKED
from privplan.auditing import AUDIT
from privplan.evidence.clients import CLIENTS
from privplan.evidence.noise import NOISE_EVIDENCE
from privplan.evidence.rounds import EVIDENCE, VECTORS
from privplan.files import LOCK, TEMPORARY
from privplan.record import CHECKPOINT, LEDGER, PLAN, RECORD, REPLAY, VERDICT

PLOT = "accuracy.png"
INITIAL = "initial.npy"  # a copy of the initial parameters that the plan names
TRACKING = (
    "tracking"  # folder of the trackers, whose files have formats of other programs
)
GUARD = "guard"  # folder of a deployment: released sums and models, and the open draw

FILES = frozenset(
    (
        *(
            PLAN,
            RECORD,
            LEDGER,
            ATTACKED,
            AUDIT,
            INITIAL,
            PLOT,
            VERDICT,
            REPLAY,
            CHECKPOINT,
            LOCK,
        ),
        *(EVIDENCE, NOISE_EVIDENCE, VECTORS, CLIENTS),
    )
)
"""Files that privplan writes into a run folder."""

_OF_GUARD = re.compile(r"(draw\.json|reserved|(release|model)-\d+\.bin)(\.tmp)?")


def unknown_files(
    folder: Path, optional: Collection[str] = (), unplanned: Collection[str] = ()
) -> Iterator[str]:
    """Names of files in a run folder that privplan does not write, in order.

    Temporary files of writers that were killed are known by their name. Trackers' files
    are known by their folder alone.

    Args:
        folder: of the run.
        optional: further names that some runs have.
        unplanned: names that this run cannot have.
    """
    for path in sorted(folder.iterdir()):
        if _final_name(path.name) in unplanned:
            yield path.name
        elif path.name == TRACKING and path.is_dir():
            continue
        elif path.name == GUARD and path.is_dir():
            for inner in sorted(path.iterdir()):
                if not _is_of_guard(inner.name):
                    yield f"{GUARD}/{inner.name}"
        elif path.is_dir() or not _is_of_run(path.name, optional):
            yield path.name


def unfinished_files(folder: Path) -> list[str]:
    """Names of files of killed writers, which the next run in the folder removes."""
    return sorted(
        path.name for path in folder.iterdir() if TEMPORARY.fullmatch(path.name)
    )


def _final_name(name: str) -> str:
    """The name that a temporary file would get; other names as they are."""
    temporary = TEMPORARY.fullmatch(name)
    if temporary is None:
        return name
    return temporary["name"]


def _is_of_run(name: str, optional: Collection[str]) -> bool:
    final = _final_name(name)
    return final in FILES or final in optional


def _is_of_guard(name: str) -> bool:
    return _OF_GUARD.fullmatch(_final_name(name)) is not None
