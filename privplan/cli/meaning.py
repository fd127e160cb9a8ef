"""What an epsilon means, for ``privplan explain --epsilon``."""

from __future__ import annotations

from dataclasses import asdict

from privplan.cli import render

DELTA = 1e-5
"""Delta where none is said: one of 100,000, the usual choice for some 10,000 people."""


def show(epsilon: float, delta: float, form: str) -> None:
    """Print the sentence of an epsilon, and the table from 0.1 to 10 beside it."""
    from privplan.accounting.meaning import EPSILONS, cells, meaning_of, sentence

    meaning = meaning_of(epsilon, delta)
    if form == "json":
        render.data(asdict(meaning))
        return
    render.text(sentence(meaning))
    rows = [cells(meaning_of(listed, delta)) for listed in EPSILONS]
    columns = ["epsilon", "any mechanism", "Gaussian noise"]
    caption = (
        f"guesses of 100 that are right, of 50 without the release; delta {delta:g}; "
        "a guarantee over several runs means their epsilon together"
    )
    render.table("What an epsilon means", columns, rows, caption)
