"""Wording of verdicts."""

from __future__ import annotations

from pathlib import Path

from privplan.report.tables import (
    group_caption,
    group_columns,
    group_rows,
    worst_line,
)
from privplan.verification.verify import judge, load_run
from tests.verification import honest_run


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
