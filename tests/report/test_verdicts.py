"""Wording of verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from privplan.record import RoundMetrics
from privplan.report.verdicts import closing_line, group_rows
from privplan.verification.verify import judge, load_run
from tests.verification import honest_run


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ((), "not measured"),
        ((RoundMetrics(round=30, accuracy=None, loss=None),), "not finite"),
    ],
)
def test_a_score_that_is_not_finite_is_not_one_that_was_not_measured(
    tmp_path: Path, metrics: tuple[RoundMetrics, ...], said: str
) -> None:
    honest_run.write_run(tmp_path)
    run = load_run(tmp_path)
    record = run.record.model_copy(
        update={"accuracy": None, "accuracy_by_group": {}, "metrics": metrics}
    )
    verdict = judge(replace(run, record=record))
    assert closing_line(verdict).partition("; test ")[2].startswith(f"accuracy {said} (")
    assert {row[-2] for row in group_rows(verdict)} == {"not finite" if metrics else ""}
