"""The verdict on canaries: those of each of the plan's groups, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privplan.planning.solver import solve
from privplan.verification.verify import Run, judge, load_run
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.conftest import digits_spec


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run") / "out"
    plan = solve(digits_spec(rounds=2), second_opinion=False)
    execute(Request(plan, "planned", "digits", folder, canaries=20))
    return load_run(folder)


def outcome(run: Run, order: list[int]) -> tuple[str, str]:
    """The check of canaries, with these groups in a record that knows them."""
    assert run.audit is not None
    audit = run.audit.model_copy(update={"groups": tuple(run.audit.groups[at] for at in order)})
    record = run.record.model_copy(update={"audit": audit.digest})
    checks = {one.name: one for one in judge(replace(run, audit=audit, record=record)).checks}
    return checks["audit"].outcome, checks["audit"].reason


def test_canaries_are_of_each_group_once(run: Run) -> None:
    assert run.audit is not None
    count = len(run.audit.groups)
    assert outcome(run, list(range(count)))[0] == "passed"
    for order in ([*range(count), 0], list(range(1, count))):
        status, reason = outcome(run, order)
        assert status == "failed"
        assert "not of each of the plan's groups once" in reason
