"""Wording of verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from privplan.record import RoundMetrics
from privplan.report.tables import (
    closing_line,
    group_caption,
    group_columns,
    group_rows,
    worst_line,
)
from privplan.verification.verify import judge, load_run
from tests.verification import honest_run


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ((), "not measured"),
        ((RoundMetrics(round=30, accuracy=None, loss=None),), "not finite"),
        ((RoundMetrics(round=20, accuracy=0.5, loss=1.0),), "not measured"),
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
    assert {row[-2] for row in group_rows(verdict)} == {said if said == "not finite" else ""}


def test_the_best_of_several_runs_names_the_accountant_that_bounds_it(tmp_path: Path) -> None:
    alone = honest_run.write_run(tmp_path / "alone")
    spec = honest_run.spec(tuning={"runs": 3, "law": "geometric"})
    honest_run.write_run(tmp_path / "tuned", the_plan=honest_run.plan(spec))
    before, verdict = (judge(load_run(tmp_path / name)) for name in ("alone", "tuned"))
    assert alone.spec.tuning is None
    for group, run in zip(verdict.groups, before.groups, strict=True):
        assert (run.accountant, run.one_run) == ("pld", None)
        assert (group.accountant, group.realised_lower) == ("selection", 0.0)
        assert run.realised_upper is not None
        assert group.realised_upper is not None
        assert group.realised_rdp == group.realised_upper > run.realised_upper
        assert group.one_run is not None
        assert group.one_run.model_dump() == {
            "lower": run.realised_lower,
            "upper": run.realised_upper,
            "rdp": run.realised_rdp,
        }
    assert verdict.worst.accountant == "selection"
    assert "accountant selection" in worst_line(verdict)
    assert "epsilon at most " in worst_line(verdict)
    assert "realised by selection" in group_caption(verdict)
    assert "this run alone" in group_caption(verdict)
    assert "rdp upper" not in group_columns(verdict)
    cells = dict(zip(group_columns(verdict), group_rows(verdict)[0], strict=True))
    assert cells["realised lower"] == "-"
    assert cells["one run, pld"] == f"{before.groups[0].realised_upper:.4f}"
