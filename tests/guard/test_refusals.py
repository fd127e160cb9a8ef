"""What the guard refuses: rounds beyond the budget, wrong settings, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privplan.accounting.accountant import accountant
from privplan.accounting.release import Relation
from privplan.errors import InputError
from privplan.guard import BudgetExceededError, Guard
from privplan.ledger import history_of
from privplan.record import LEDGER
from tests.guard.plans import SIZE, ledger_of, plan_of, train, two_groups


def test_the_round_that_would_overspend_is_refused(tmp_path: Path) -> None:
    """The plan has 30 rounds; the budget of the loose group holds for fewer."""
    plan = plan_of({"strict": (60, 9.0, 0.1, 2.0), "loose": (40, 2.0, 0.2, 1.5)}, 30)
    loose = plan.group("loose")
    with Guard(plan, tmp_path) as guard:
        train(guard)
        done = guard.round - 1
        assert not guard.finished
        refusal = guard.refusal()
        assert refusal is not None
        assert refusal.startswith("groups.loose.epsilon: must stay within the budget 2 at delta")
        for call in (guard.draw, guard.release):
            with pytest.raises(BudgetExceededError, match=f"with the release of round {done + 1}"):
                call(done + 1)
        guard.finish()
    records = ledger_of(tmp_path, plan)
    assert len(records) == done
    pld, relation = accountant("pld"), Relation(plan.spec.relation)
    spent = history_of(records, "loose")
    more = history_of([*records, records[-1]], "loose")
    assert pld.epsilon(spent, loose.delta, relation).upper <= 2.0
    assert pld.epsilon(more, loose.delta, relation).upper > 2.0


def test_rounds_beyond_the_plan_are_refused(tmp_path: Path) -> None:
    plan = two_groups(2)
    with Guard(plan, tmp_path) as guard:
        train(guard)
        with pytest.raises(BudgetExceededError, match="one of the 2 planned rounds, found 3"):
            guard.draw(3)


def test_one_process_holds_a_run(tmp_path: Path) -> None:
    plan = two_groups(2)
    with Guard(plan, tmp_path), pytest.raises(InputError, match="in use by another run"):
        Guard(plan, tmp_path)


def test_wrong_input_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    plan = two_groups(2)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="must be the folder of a guarded run"):
        Guard(plan, tmp_path)
    with Guard(plan, tmp_path / "run") as guard:
        with pytest.raises(InputError, match="must be 1, the first round"):
            guard.draw(2)
        with pytest.raises(InputError, match="must be one of strict, loose, found 'none'"):
            guard.draw(1, {"none": [1]})
        with pytest.raises(InputError, match=r"positions of registered clients, 0 to 59, found 60"):
            guard.draw(1, {"strict": [60]})
        guard.draw(1)
        with pytest.raises(InputError, match="sums: must"):
            guard.release(1, {"strict": np.zeros(3), "loose": np.zeros(4)})
        with pytest.raises(InputError, match="must be released before"):
            guard.record(1)
    with pytest.raises(InputError, match="must be the one of the run"):
        Guard(two_groups(3), tmp_path / "run")
    with pytest.raises(InputError, match="evidence: must be internal, as in"):
        Guard(plan, tmp_path / "run", evidence="public")
    assert not (tmp_path / "run" / LEDGER).exists()


@pytest.mark.parametrize(("old", "new"), [(b"noise_std", b"noise_stt"), (b"0.", b"1.")])
def test_a_damaged_release_is_refused_by_its_name(tmp_path: Path, old: bytes, new: bytes) -> None:
    with Guard(two_groups(), tmp_path / "run") as guard:
        guard.draw(1)
        guard.release(1, {name: np.zeros(SIZE) for name in guard.draw(1).clients})
    booked = (tmp_path / "run" / LEDGER).read_bytes()
    path = tmp_path / "run" / "guard" / "release-1.bin"
    head, mark, content = path.read_bytes().partition(b"\n")
    path.write_bytes(head.replace(old, new, 1) + mark + content)
    with pytest.raises(InputError, match=r"guard.release: must be as it was written, .*release-1"):
        Guard(two_groups(), tmp_path / "run")
    assert (tmp_path / "run" / LEDGER).read_bytes() == booked
