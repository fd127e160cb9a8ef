"""Tables of what-if questions and of frontiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from privplan.accounting.accountant import at_most
from privplan.accounting.audibility import AUDIBLE, audibility, audibility_in_words
from privplan.planning.sweep import CHANCES, DECIDED
from privplan.report.numbers import rounded_up
from privplan.report.protection import BLIND
from privplan.report.table import Cell, Table, table_of

if TYPE_CHECKING:
    from privplan.planning.frontier import FrontierPoint

SweepRow = Mapping[str, Any]
"""A group at a point of a what-if; with ``error`` where the point has no plan."""


def sweep_table(
    rows: Sequence[SweepRow], paths: Sequence[str], person: str | None = None
) -> Table:
    """An attacker's guesses, then budgets, then the noise, at every point of a what-if.

    With what the plan of each point decided, where ``planning.free`` lets it decide
    more.

    Args:
        rows: one per point and group.
        paths: the fields of the spec that vary.
        person: the spec's word for whom a budget protects.
    """
    decided = [name for name in _names_in(rows, DECIDED) if name not in paths]
    chances = _names_in(rows, CHANCES)
    previous_point: list[str] | None = None
    cells = []
    for row in rows:
        point = [f"{row[path]:g}" for path in paths]
        for name in decided:
            point.append("" if row.get(name) is None else f"{row[name]:.5g}")
        if "error" in row:
            # Its text stands in the column of groups; all later ones are empty.
            later_columns = len((*chances, *_OF_GROUP, _NOISE))
            cells.append([*point, row["error"], *[""] * later_columns])
            continue

        # What is the same for all groups of a point is said once.
        of_point = [f"{row['relative_noise']:.4g}"]
        is_repeated = point == previous_point
        previous_point = point
        if is_repeated:
            point = [""] * len(point)
            of_point = [""]
        cells.append([*point, *_cells_of_group(row, chances), *of_point])

    columns = [path.removeprefix("groups.").replace(".", " ") for path in paths]
    columns += [name.replace("_", " ") for name in decided]
    columns += [_GROUP, *_GUESSES[: len(chances)], *_OF_GROUP, _NOISE]
    return Table("What if", columns, cells, sweep_caption(rows, person))


_GROUP = "group"
_GUESSES = ("right of 100", "found of 100")
_OF_GROUP = ("epsilon", "counts", "ratio", "multiplier")
_NOISE = "noise"


def _names_in(rows: Sequence[SweepRow], names: Iterable[str]) -> list[str]:
    """Those of the names that a row has, in their order."""
    names_of_rows = set().union(*rows)
    return [name for name in names if name in names_of_rows]


def _cells_of_group(row: SweepRow, chances: Sequence[str]) -> list[str]:
    """What a group spends and counts, and what an attack may reach."""
    ratio = row.get("record_sampling_ratio") or row["sampling_ratio"]
    return [
        row["group"],
        *(guesses_of_hundred(name, row[name]) for name in chances),
        at_most(row["epsilon_upper"]),
        f"{row['counts']:.0%}",
        f"{ratio:.2%}",
        f"{row['noise_multiplier']:.4g}",
    ]


def guesses_of_hundred(name: str, chance: float | None) -> str:
    """An attacker's chance in guesses of 100, rounded up.

    Args:
        name: one of ``CHANCES``: an advantage, or a rate of true positives.
        chance: the upper bound on it; None where it is unknown.
    """
    if chance is None:
        return "unknown"
    if name == CHANCES[0]:
        return rounded_up(BLIND * (1 + chance))
    return rounded_up(100 * chance)


def sweep_caption(rows: Sequence[SweepRow], person: str | None = None) -> str:
    """Under which law, relation, delta and accountant the numbers of a what-if hold.

    Args:
        rows: one per point and group.
        person: the spec's word for whom a budget protects.
    """
    solved = [row for row in rows if "error" not in row]
    if not solved:
        return ""
    law = {}
    for name in ("delta", "sampling", "relation", "unit", "accountant"):
        values = [row[name] for row in solved]
        texts = [
            value if isinstance(value, str) else f"{value:.3g}" for value in values
        ]
        law[name] = " or ".join(dict.fromkeys(texts))
    caption = ""
    if CHANCES[0] in solved[0]:
        caption = (
            "right of 100: guesses of an attacker, of 50 without the release; found of "
            "100: who took part, at 1 of 100 others accused; no attack exceeds them; "
        )
    protected = f" (each {person})" if person else ""
    return caption + (
        f"epsilon: at most, at delta {law['delta']}, {law['sampling']} sampling, "
        f"{law['relation']}, unit {law['unit']}{protected}, by {law['accountant']}; counts: weight "
        "over the share of the clients; noise: of a round's mean update, in clipping "
        "norms; less is better, between plans of as many rounds"
    )


def frontier_table(name: str, points: Sequence[FrontierPoint]) -> Table:
    """Noise of the mean update and its change, one row per point of a frontier."""
    cells: dict[str, Cell] = {
        "question": "question",
        "what": "what",
        "noise": lambda point: "-" if point.noise is None else f"{point.noise:.4g}",
        "change": lambda point: "-" if point.change is None else f"{point.change:+.2%}",
        "note": "note",
    }
    title = f"Frontier of {name}: noise of the mean update, in norm"
    return table_of(title, points, cells)


def hidden_lines(rows: Sequence[SweepRow], paths: Sequence[str]) -> list[str]:
    """The groups that no weight can make heard, and at which point of a sweep."""
    lines: list[str] = []
    for row in rows:
        if "error" in row:
            continue
        signal = audibility(row["clients"], row["epsilon"], row["delta"])
        if signal >= AUDIBLE:
            continue
        point = ", ".join(f"{path}={row[path]:g}" for path in paths)
        hidden = audibility_in_words(row["group"], row["clients"], signal)
        lines.append(f"{point}: {hidden}")
    return lines
