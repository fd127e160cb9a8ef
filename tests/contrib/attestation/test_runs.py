"""Guarded and simulated runs whose draws and lines are signed before they are used."""

import shlex
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from privplan.contrib.attestation import ATTESTATION, Signing, new_key, read_attestation
from privplan.contrib.attestation.check import SIGNED
from privplan.errors import InputError
from privplan.guard import Guard
from privplan.verification.checks import check
from privplan.verification.verify import judge, load_run
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.command import answer
from tests.guard.plans import train, two_groups
from tests.guard.test_kill import check_killed
from tests.simulate.conftest import interrupt
from tests.simulate.replay.runs import short_plan


def guarded_plan(folder, rounds=6):
    """A plan that names its server, and the server's key."""
    key = new_key(folder / "key")
    signers = ({"name": "server", "role": "server", "key": key.public},)
    return two_groups(rounds, signers=signers), key


@pytest.mark.parametrize("evidence", ["public", "internal"])
def test_a_signed_run_is_attested(tmp_path, evidence):
    plan, key = guarded_plan(tmp_path)
    run = tmp_path / "run"
    with Guard(
        plan, run, evidence=evidence, witnessing=Signing(tmp_path / "key")
    ) as guard:
        train(guard, rounds=2)
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
    kinds = [signed.statement.kind for signed in read_attestation(run).statements]
    assert kinds == ["start", *["cohort", "release"] * 6, "end"]


def test_an_unsigned_line_is_signed_when_the_run_is_opened(tmp_path):
    """A kill between the ledger's line and its signature lost the last statement."""
    plan, key = guarded_plan(tmp_path)
    run = tmp_path / "run"
    with Guard(plan, run, witnessing=Signing(key)) as guard:
        train(guard, rounds=2)
    path = run / ATTESTATION
    text = path.read_text()
    path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    with Guard(plan, run, witnessing=Signing(key)):
        assert path.read_text() == text


@pytest.mark.slow
def test_a_killed_signed_run_goes_on_and_is_attested(tmp_path):
    signers = (
        {"name": "server", "role": "server", "key": new_key(tmp_path / "key").public},
    )
    check_killed(tmp_path, 60, "tests.contrib.attestation.kills", signers)
    verdict = judge(load_run(tmp_path / "run"), 0)
    assert verdict.failed == ()
    assert "attested" in verdict.evidence


def test_a_signed_run_is_attested_also_after_an_interruption(tmp_path, monkeypatch):
    key = new_key(tmp_path / "server.pem")
    plan = short_plan()
    signers = [{"name": "server", "role": "server", "key": key.public}]
    spec = type(plan.spec).model_validate(
        {**plan.spec.model_dump(), "signers": signers}
    )
    request = Request(
        plan.model_copy(update={"spec": spec}),
        "GDPFed+",
        "digits",
        tmp_path / "run",
        seed=3,
        witnessing=Signing(tmp_path / "server.pem"),
    )

    interrupt(request, 2)
    execute(request)
    verdict = judge(load_run(request.folder), 0)
    assert verdict.outcome == "kept"
    assert verdict.evidence == ("declared", "attested")

    # Without the part that verifies signatures a plan with signers is not kept.
    unsigned = [entry for entry in check.CHECKS.items() if entry[1] is not SIGNED]
    monkeypatch.setattr(check.CHECKS, "items", lambda: unsigned)
    names = [missing.name for missing in judge(load_run(request.folder), 0).not_shown]
    assert names == ["folder", "signers"]
    monkeypatch.undo()

    # A key that the plan does not name signs nothing.
    settings = {**vars(request), "plan": plan, "folder": tmp_path / "unsigned"}
    with pytest.raises(
        InputError, match="must be the key of a server in the plan's signers"
    ):
        execute(Request(**settings))


PAGE = (Path(__file__).parents[3] / "docs" / "attestation.md").read_text()


def test_the_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = []
    for line in PAGE.split("```bash\n")[1].split("```")[0].splitlines():
        words, _, target = line.partition(" >> ")
        done = answer(*shlex.split(words)[1:])
        if target:
            path = tmp_path / target
            path.write_text(path.read_text().replace("rounds: 60", "rounds: 4") + done)
        outputs.append(" ".join(done.split()))
    assert "passed: " in outputs[-2]
    assert "(rounds executed again), attested (releases signed" in outputs[-1]
    assert "simulation only" not in outputs[-1]
    assert "1 heads, the last after" in outputs[-1]
