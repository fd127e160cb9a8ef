"""A guarded run whose draws and lines are signed before they are used."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from privplan.contrib.attestation import ATTESTATION, Signing, SigningKey, new_key, read_attestation
from privplan.errors import InputError
from privplan.guard import Guard
from privplan.plan import Plan
from privplan.verification.verify import judge, load_run
from tests.guard.plans import train, two_groups
from tests.guard.test_kill import check_killed


def signed_plan(folder: Path, rounds: int = 6) -> tuple[Plan, SigningKey]:
    """A plan that names its server, and the server's key."""
    key = new_key(folder / "key")
    signers = ({"name": "server", "role": "server", "key": key.public},)
    return two_groups(rounds, signers=signers), key


@pytest.mark.parametrize("evidence", ["public", "internal"])
def test_a_signed_run_is_attested(tmp_path, evidence):
    plan, key = signed_plan(tmp_path)
    run = tmp_path / "run"
    with Guard(plan, run, evidence=evidence, witnessing=Signing(tmp_path / "key")) as guard:
        train(guard, most=2)
        guard.draw(3)
        guard.fail(3, "too few clients")
    with Guard(plan, run, evidence=evidence, witnessing=Signing(key)) as guard:
        train(guard)
        verdict = guard.verdict()
    with Guard(plan, run, evidence=evidence, witnessing=Signing(key)) as guard:
        verdict = guard.verdict()
    assert verdict.failed == ()
    assert verdict.evidence == ("declared", "attested")
    if evidence == "internal":
        assert verdict.outcome == "kept"
    found = read_attestation(run)
    kinds = [one.statement.kind for one in found.statements]
    assert kinds == ["start", *["cohort", "release"] * 6, "end"]


def test_an_unsigned_line_is_signed_when_the_run_is_opened(tmp_path):
    """The last statement was lost in a kill between the ledger's line and its signature."""
    plan, key = signed_plan(tmp_path)
    run = tmp_path / "run"
    with Guard(plan, run, witnessing=Signing(key)) as guard:
        train(guard, most=2)
    path = run / ATTESTATION
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    with Guard(plan, run, witnessing=Signing(key)):
        assert path.read_text() == text


def test_a_key_that_the_plan_does_not_name_is_refused(tmp_path):
    plan, _ = signed_plan(tmp_path)
    other = new_key(tmp_path / "other")
    with pytest.raises(InputError, match="must be the key of a server in the plan's signers"):
        Guard(plan, tmp_path / "run", witnessing=Signing(other))


@pytest.mark.slow
def test_a_killed_signed_run_goes_on_and_is_attested(tmp_path):
    public = new_key(tmp_path / "key").public
    signers = ({"name": "server", "role": "server", "key": public},)
    check_killed(tmp_path, 60, "tests.contrib.attestation.kills", signers)
    verdict = judge(load_run(tmp_path / "run"))
    assert verdict.failed == ()
    assert "attested" in verdict.evidence
