"""Runs with secure noise: resumed and replayed with the key, and what stays hidden without it."""

import json
import shutil
from dataclasses import replace

import pytest

from privplan.errors import InputError
from privplan.evidence.noise import NOISE_EVIDENCE
from privplan.evidence.replay import ReplayReport
from privplan.ledger import read_ledger
from privplan.record import LEDGER, REPLAY, RunRecord
from privplan.streams import NoiseKey
from privplan.verification.checks.regenerated_cohorts import cohorts_regenerated
from privplan.verification.checks.regenerated_noise import noise_regenerated
from privplan.verification.verify import judge, load_run
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.command import answer, privplan, refused
from tests.simulate.conftest import interrupt
from tests.simulate.replay.runs import comparison, short_plan


def request(tmp_path, name="GDPFed+", noise="secure", **planned):
    plan = short_plan(**planned)
    return Request(
        plan, name, "digits", tmp_path / "run", seed=3, noise=noise, own_unit=True,
        noise_key_file=tmp_path / "noise.key",
    )  # fmt: skip


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secure")
    execute(request(folder))
    return folder


@pytest.fixture
def done(once, tmp_path):
    """A copy of a run with secure noise, and of its key."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return request(tmp_path)


def replay(folder, key, rounds=None):
    return Replay(folder, noise_key=key).run(rounds, None, lambda done, total: None)


@pytest.mark.parametrize(
    ("name", "noise", "planned"),
    [
        ("GDPFed+", "secure", {}),
        ("GDPFed+", "secure-discrete", {}),
        ("planned", "secure-discrete", {"planning": "quantile"}),
        ("DP-FedAvg", "secure-discrete", {"sampling": "fixed_size"}),
        ("FedAvg", "secure", {}),
        pytest.param("DPFedAvg", "secure", {}, marks=pytest.mark.slow),
    ],
)
def test_replay_with_the_key_passes_and_without_it_shows_the_rest(
    name, noise, planned, tmp_path
):
    asked = request(tmp_path, name, noise, **planned)
    execute(asked)
    rounds = 1 if name == "DPFedAvg" else None
    with_key = replay(asked.folder, asked.noise_key_file, rounds)
    assert with_key.outcome == "passed", with_key.reason
    without = replay(asked.folder, None)
    assert without.outcome == "not shown", without.reason
    if rounds:  # each client adds its own noise: nothing is left to compare
        assert without.rounds == ()
        return
    assert comparison(with_key, "metrics")[1] == 0
    assert without.reason == "missing: the key of cohorts and noise (--noise-key)"
    names = {one.name for one in without.comparisons}
    assert {"metrics", "largest_norm", "clipped"} <= names
    assert not {"participants", "noise_state", "noise_sum_squares", "releases"} & names


def test_a_replay_without_the_key_keeps_the_report_of_one_that_passed(done):
    with_key = replay(done.folder, done.noise_key_file)
    assert with_key.save(done.folder) == with_key
    found = privplan("replay", done.folder)
    assert found.exit_code == 5, found.output
    assert ReplayReport.load(done.folder) == with_key
    (done.folder / REPLAY).write_text("{}")
    replay(done.folder, None).save(done.folder)
    checks = {one.name: one.reason for one in judge(load_run(done.folder), 0).checks}
    assert checks["replay"] == "missing: the key of cohorts and noise (--noise-key)"


def test_a_replay_without_the_key_still_finds_other_sums(done):
    ledger = (done.folder / LEDGER).read_text()
    norm = json.loads(ledger.splitlines()[0])["release"]["shares"][0]["largest_norm"]
    (done.folder / LEDGER).write_text(ledger.replace(str(norm), str(norm * 0.9), 1))
    assert replay(done.folder, None).outcome == "failed"


def test_verify_takes_the_key_and_says_what_is_not_drawn_without_it(done, tmp_path):
    run, key = str(done.folder), str(tmp_path / "noise.key")
    (tmp_path / "other.key").write_text("0" * 64)
    (tmp_path / "other.key").chmod(0o600)
    without = "not executed again for this verdict: the key of cohorts and noise ("
    assert answer("verify", run).startswith(f"kept as recorded ({without}")
    assert answer("verify", run, "--noise-key", key).startswith(
        "kept, executed again (all"
    )
    other = refused("verify", run, "--noise-key", tmp_path / "other.key")
    assert other.startswith("noise-key: must be the key of the run")
    found = [
        answer("verify", run, "--rounds", "0", *one)
        for one in ((), ("--noise-key", key))
    ]
    assert ["not drawn again" in one for one in found] == [True, False]


@pytest.mark.parametrize("noise", ["secure", "secure-discrete"])
def test_checks_draw_cohorts_and_noise_again_with_the_key(noise, tmp_path):
    asked = request(tmp_path, noise=noise)
    execute(asked)
    run = replace(
        load_run(asked.folder), trusted=(NoiseKey.load(asked.noise_key_file),)
    )
    assert all(check(run).passed for check in (cohorts_regenerated, noise_regenerated))
    one, *others = run.ledger.records
    shares = (one.shares[0].model_copy(update={"participants": (0,)}), *one.shares[1:])
    for check, why, fields in (
        (
            noise_regenerated,
            "not the key's",
            {"noise_sum_squares": one.noise_sum_squares * 1.0001},
        ),
        (
            noise_regenerated,
            "did not stand where the key puts it",
            {"noise_state": "0" * 24},
        ),
        (cohorts_regenerated, "the key draws another cohort", {"shares": shares}),
    ):
        records = (one.model_copy(update=fields), *others)
        found = check(
            replace(run, ledger=run.ledger.model_copy(update={"records": records}))
        )
        assert (found.failed, why in found.reason) == (True, True)


def test_no_file_of_the_run_holds_the_key_and_verdicts_say_so(tmp_path):
    asked = request(tmp_path, noise="secure-discrete")
    execute(asked)
    key = NoiseKey.load(tmp_path / "noise.key")
    for path in asked.folder.iterdir():
        content = path.read_bytes()
        assert key.content not in content
        assert key.content.hex().encode() not in content
    record = RunRecord.load(asked.folder)
    assert record.noise == "secure"
    assert record.configuration["noise_commitment"] == key.commitment
    verdict = judge(load_run(asked.folder), 0)
    assert verdict.outcome == "kept", [check.reason for check in verdict.failed]
    assert not verdict.simulation_only
    missing = {check.name: check.reason for check in verdict.checks if check.missing}
    assert missing["noise regenerated"] == "missing: the key of the noise"
    assert missing["cohorts regenerated"] == "missing: the key of the cohorts"
    lines = read_ledger(asked.folder, asked.plan.digest).records
    assert {line.family for line in lines} == {"discrete_gaussian"}
    assert all(line.noise_std / line.grid >= 2**36 for line in lines)


def test_two_runs_of_one_seed_share_neither_cohorts_nor_noise(tmp_path):
    lines = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        asked = request(tmp_path / name)
        execute(asked)
        lines.append(read_ledger(asked.folder, asked.plan.digest).records)
    pairs = list(zip(*lines, strict=True))
    assert all(one.noise_state != other.noise_state for one, other in pairs)
    cohorts = [
        (one.shares[0].participants, other.shares[0].participants)
        for one, other in pairs
    ]
    assert any(one != other for one, other in cohorts)


def test_an_interrupted_run_resumes_with_its_key_to_the_same_bits(tmp_path):
    asked = request(tmp_path, noise="secure-discrete")

    interrupt(asked, 2)
    early = read_ledger(asked.folder, asked.plan.digest).records
    key = NoiseKey.load(tmp_path / "noise.key")
    with pytest.raises(
        InputError, match="noise-key-file: must be a file that can be read"
    ):
        execute(Request(**{**vars(asked), "noise_key_file": None}))
    NoiseKey(bytes(32)).save(tmp_path / "other.key")
    with pytest.raises(InputError, match="noise_commitment: must be as in"):
        execute(Request(**{**vars(asked), "noise_key_file": tmp_path / "other.key"}))
    with pytest.raises(InputError, match="noise: must be as in"):
        execute(Request(**{**vars(asked), "noise": "seeded", "noise_key_file": None}))
    execute(asked)
    assert read_ledger(asked.folder, asked.plan.digest).records[: len(early)] == early
    assert NoiseKey.load(tmp_path / "noise.key") == key
    assert replay(asked.folder, tmp_path / "noise.key").outcome == "passed"


def test_a_key_is_for_one_new_run_with_secure_noise(tmp_path):
    NoiseKey.new().save(tmp_path / "noise.key")
    asked = request(tmp_path)
    with pytest.raises(
        InputError, match="noise-key-file: must be a new file for a new run"
    ):
        execute(asked)
    assert not asked.folder.exists()
    execute(Request(**{**vars(asked), "noise": "seeded", "noise_key_file": None}))
    with pytest.raises(
        InputError, match="noise-key: is only for runs with secure noise"
    ):
        replay(asked.folder, tmp_path / "noise.key")


def test_secure_noise_without_its_measurements_is_unverified(done):
    assert judge(load_run(done.folder), 0).outcome == "kept"
    (done.folder / NOISE_EVIDENCE).unlink()
    verdict = judge(load_run(done.folder), 0)
    assert verdict.outcome == "unverified"
    assert "noise distribution" in {check.name for check in verdict.not_shown}
