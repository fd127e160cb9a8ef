"""Verdicts on claims, from cells written by hand."""

from __future__ import annotations

import pytest

from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    ORDER,
    REPRODUCED,
    Cell,
    Result,
    ahead,
    every,
    monotone,
    printed_within,
)


def result(size: str = "full", **rows: tuple[float, ...]) -> Result:
    """One column with the values of two rows, printed 74 and 72 with errors of 0.1."""
    printed = {"high": 74.0, "low": 72.0}
    cells = tuple(
        Cell(row=row, column="c", published=printed[row], published_error=0.1, values=values)
        for row, values in rows.items()
    )
    return Result.model_validate({"table": "t", "size": size, "cells": cells})


@pytest.mark.parametrize(
    ("size", "high", "verdict"),
    [
        ("full", (73.0, 75.1, 74.2), REPRODUCED),  # leads 2.0, 2.1, 2.2; printed 2
        ("reduced", (73.0, 75.1, 74.2), ORDER),  # another size cannot reproduce a number
        ("full", (71.1, 73.2, 72.3), ORDER),  # leads 0.1, 0.2, 0.3
        ("full", (70.8, 73.2, 71.9), NOT_REPRODUCED),  # leads -0.2, 0.2, -0.1
        ("full", (70.0, 71.9, 70.9), CONTRADICTED),  # leads -1.0, -1.1, -1.1
        ("reduced", (70.0, 71.9, 70.9), NOT_REPRODUCED),
        ("full", (71.0, 73.5, 72.1), NOT_REPRODUCED),  # leads 0, 0.5, 0.1: within two errors
        ("full", (74.0,), ORDER),  # one seed has no standard error
    ],
)
def test_a_lead_is_judged_by_its_standard_errors(size, high, verdict):
    low = (71.0, 73.0, 72.0)[: len(high)]
    assert ahead("high", "low")(result(size, high=high, low=low)).verdict == verdict


def test_leads_are_paired_by_seed():
    """Seeds differ by 10 points, the lead by 0.1: unpaired, nothing could be said."""
    found = ahead("low", "high")(result(high=(62.0, 72.1, 82.2), low=(61.0, 71.0, 81.0)))
    assert found.verdict == CONTRADICTED
    assert "-1.10 (± 0.06, printed -2.00)" in found.evidence


def test_rows_that_nothing_computed_are_not_run():
    assert ahead("high", "low")(result(high=(1.0,))).verdict == NOT_RUN
    assert monotone("high", rising=True)(result(high=(1.0,))).verdict == NOT_RUN


def test_printed_numbers_and_their_tolerance():
    near = result(high=(74.004,), low=(71.996,))
    assert printed_within(0.005)(near).verdict == REPRODUCED
    found = printed_within(0.003)(near)
    assert (found.verdict, found.evidence[:17]) == (NOT_REPRODUCED, "0 of 2 within 0.0")
    both = every(printed_within(0.005), printed_within(0.003))(near)
    assert both.verdict == NOT_REPRODUCED
