"""A simulated run that is signed, also after an interruption, and the options of the commands."""

import pytest
from click.testing import CliRunner

pytest.importorskip("cryptography")

from privplan.cli import main
from privplan.contrib.attestation import Signing, new_key
from privplan.contrib.attestation.check import SIGNED
from privplan.errors import InputError
from privplan.verification.checks import check
from privplan.verification.verify import judge, load_run
from simulate.runs.request import Request
from simulate.runs.run import InterruptedRunError, execute
from tests.simulate.replay.runs import short_plan


def test_a_signed_run_is_attested_also_after_an_interruption(tmp_path, monkeypatch):
    key = new_key(tmp_path / "server.pem")
    plan = short_plan()
    signers = [{"name": "server", "role": "server", "key": key.public}]
    spec = type(plan.spec).model_validate({**plan.spec.model_dump(), "signers": signers})
    asked = Request(
        plan.model_copy(update={"spec": spec}), "GDPFed+", "digits", tmp_path / "run", seed=3,
        witnessing=Signing(tmp_path / "server.pem"),
    )  # fmt: skip

    def stop(done, rounds):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError):
        execute(asked, stop)
    execute(asked)
    verdict = judge(load_run(asked.folder))
    assert verdict.outcome == "kept"
    assert verdict.evidence == ("declared", "attested")
    # Without the part that verifies signatures a plan with signers is not kept.
    others = [one for one in check.CHECKS.items() if one[1] is not SIGNED]
    monkeypatch.setattr(check.CHECKS, "items", lambda: others)
    assert [one.name for one in judge(load_run(asked.folder)).not_shown] == ["signers"]
    monkeypatch.undo()
    with pytest.raises(InputError, match="must be the key of a server in the plan's signers"):
        execute(Request(**{**vars(asked), "plan": plan, "folder": tmp_path / "unsigned"}))


@pytest.mark.parametrize("name", ["keys", "anchor"])
def test_commands_of_0_1_name_those_of_now(name):
    done = CliRunner().invoke(main, [name, "new", "--log", "x"])
    assert done.exit_code == 2
    assert f"{name}: was removed in 0.2; use privplan attest {name}" in done.output
