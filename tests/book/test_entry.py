"""What the book keeps of a run, and which runs it refuses."""

import json
from pathlib import Path

import pytest

from privplan.book.entry import booking_of
from privplan.errors import InputError
from privplan.ledger import history_of, read_ledger
from privplan.record import LEDGER, RECORD, RunRecord
from tests.book.runs import as_recorded, run, two_groups
from tests.verification.honest_run import releases


def _lines(folder: Path) -> list[str]:
    return (folder / LEDGER).read_text().splitlines(keepends=True)


def test_shares_are_the_histories_of_the_ledger(tmp_path: Path) -> None:
    folder, plan = run(tmp_path / "run"), two_groups()
    booked = booking_of(folder, "staff").run
    ledger = read_ledger(folder, plan.digest)
    assert booked.chain == ledger.chain
    assert [share.group for share in booked.shares] == ["loose", "strict"]
    for share in booked.shares:
        assert share.history == history_of(ledger.records, share.group)
        assert share.relation == plan.spec.relation
        assert (share.epsilon, share.delta) == (plan.group(share.group).epsilon, 1e-4)
    assert booked.population == "staff"


def test_steps_count_and_units_stay_apart(tmp_path: Path) -> None:
    first, second = releases(two_groups())[:2]
    own = first.shares[0].model_copy(update={"participants": (0,), "records": 50})
    changed = first.model_copy(update={"unit": "record", "steps": 7, "shares": (own,)})
    booked = as_recorded(run(tmp_path / "run", made=[first, second, changed]))
    found = {(share.group, share.unit): share.history.rounds for share in booked.shares}
    assert found == {("strict", "client"): 1, ("strict", "record"): 7, ("loose", "client"): 1}


def test_silent_releases_cost_nothing_and_bare_ones_everything(tmp_path: Path) -> None:
    first, second = releases(two_groups())[:2]
    nothing = {"noise_std": 0.0, "dimension": 0, "noise_sum_squares": 0.0, "residual": None}
    made = [
        first.model_copy(update={"family": "silent", **nothing}),
        second.model_copy(update={"family": "none", **nothing}),
    ]
    loose, strict = as_recorded(run(tmp_path / "run", made=made)).shares
    assert strict.releases == ()
    assert [one.noise_multiplier for one in loose.releases] == [0.0]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda lines: [*lines[:-1], lines[-1][:-20]], "line 60 is torn"),
        (lambda lines: [*lines[:4], *lines[5:]], "line 5 does not follow"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1 does not follow"),
        (lambda lines: [lines[0].replace('"cohort":', '"cohort":1'), *lines[1:]], "line 1 "),
        (lambda lines: [], "must hold a release"),
    ],
)
def test_a_ledger_that_is_not_sound_is_refused_in_one_line(
    tmp_path: Path, harm: object, said: str
) -> None:
    folder = run(tmp_path / "run")
    (folder / LEDGER).write_text("".join(harm(_lines(folder))))  # type: ignore[operator]
    with pytest.raises(InputError, match=said) as refused:
        booking_of(folder, "")
    assert len(str(refused.value).splitlines()) == 1


def test_a_complete_run_whose_last_lines_are_gone_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    chain = booking_of(folder, "").run.chain
    RunRecord.load(folder).model_copy(update={"chain": chain}).save(folder)
    booking_of(folder, "")
    (folder / LEDGER).write_text("".join(_lines(folder)[:-2]))
    with pytest.raises(InputError, match="last line"):
        booking_of(folder, "")


def test_a_record_of_another_plan_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path / "run")
    data = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps({**data, "plan_digest": "0" * 64}))
    with pytest.raises(InputError, match="another plan"):
        booking_of(folder, "")
