"""Runs with secure noise: resumed and replayed with the key, and what hides it."""

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import yaml
from torch import nn

import simulate
from privplan.errors import InputError
from privplan.evidence.noise import NOISE_EVIDENCE
from privplan.evidence.replay import ReplayReport
from privplan.ledger import read_ledger
from privplan.planning.solver import solve
from privplan.record import LEDGER, REPLAY, RunRecord
from privplan.secure_stream import NoiseKey, key_beside
from privplan.spec.spec import Spec
from privplan.verification.checks.regenerated_cohorts import cohorts_regenerated
from privplan.verification.checks.regenerated_noise import noise_regenerated
from privplan.verification.verify import judge, load_run
from simulate.cli.replay import OPTIONS, given_again
from simulate.engine import experiment
from simulate.models.own import OwnModel
from simulate.replay.replay import Replay
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from tests.command import answer, privplan, refused
from tests.simulate.conftest import interrupt
from tests.simulate.own_runs import SPEC, Net, data
from tests.simulate.replay.runs import comparison, names_of, short_plan


def secure_request(tmp_path, name="GDPFed+", noise="secure", **planned):
    """A run in a folder, whose key is in a file beside it."""
    return Request(
        short_plan(**planned),
        name,
        "digits",
        tmp_path / "run",
        seed=3,
        noise=noise,
        own_unit=True,
        noise_key_file=tmp_path / "noise.key",
    )


def with_changes(secure_run, **changes):
    """The request of a run, changed."""
    return Request(**{**vars(secure_run), **changes})


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secure")
    execute(secure_request(folder))
    return folder


@pytest.fixture
def done(once, tmp_path):
    """A copy of a run with secure noise, and of its key."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)
    return secure_request(tmp_path)


def replay(folder, key, rounds=None):
    return Replay(folder, noise_key=key).run(rounds, None, lambda done, total: None)


@pytest.mark.parametrize(
    ("name", "noise", "planned"),
    [
        ("GDPFed+", "secure", {}),
        pytest.param("GDPFed+", "secure-discrete", {}, marks=pytest.mark.slow),
        ("planned", "secure-discrete", {"planning": "quantile"}),
        ("DP-FedAvg", "secure-discrete", {"sampling": "fixed_size"}),
        pytest.param("FedAvg", "secure", {}, marks=pytest.mark.slow),
        pytest.param("DPFedAvg", "secure", {}, marks=pytest.mark.slow),
    ],
)
def test_replay_with_the_key_passes_and_without_it_shows_the_rest(
    name, noise, planned, tmp_path
):
    secure_run = secure_request(tmp_path, name, noise, **planned)
    execute(secure_run)
    rounds = 1 if name == "DPFedAvg" else None
    with_key = replay(secure_run.folder, secure_run.noise_key_file, rounds)
    assert with_key.outcome == "passed", with_key.reason
    without = replay(secure_run.folder, None)
    assert without.outcome == "not shown", without.reason
    if rounds:  # each client adds its own noise: nothing is left to compare
        assert without.rounds == ()
        return
    assert comparison(with_key, "metrics")[1] == 0
    assert without.reason == "missing: the key of cohorts and noise (--noise-key)"
    names = names_of(without.comparisons)
    assert {"metrics", "largest_norm", "clipped"} <= names
    assert not {"participants", "noise_state", "noise_sum_squares", "releases"} & names


def test_a_replay_without_the_key_keeps_the_report_of_one_that_passed(done):
    with_key = replay(done.folder, done.noise_key_file)
    assert with_key.save(done.folder) == with_key
    outcome = privplan("replay", done.folder)
    assert outcome.exit_code == 5, outcome.output
    assert ReplayReport.load(done.folder) == with_key
    (done.folder / REPLAY).write_text("{}")
    replay(done.folder, None).save(done.folder)
    checks = judge(load_run(done.folder), 0).checks
    reasons = {check.name: check.reason for check in checks}
    assert reasons["replay"] == "missing: the key of cohorts and noise (--noise-key)"


def test_a_replay_without_the_key_still_finds_other_sums(done):
    ledger = (done.folder / LEDGER).read_text()
    norm = json.loads(ledger.splitlines()[0])["release"]["shares"][0]["largest_norm"]
    (done.folder / LEDGER).write_text(ledger.replace(str(norm), str(norm * 0.9), 1))
    assert replay(done.folder, None).outcome == "failed"


def test_verify_takes_the_key_and_says_what_is_not_drawn_without_it(done, tmp_path):
    run = str(done.folder)
    key = str(tmp_path / "noise.key")
    (tmp_path / "other.key").write_text("0" * 64)
    (tmp_path / "other.key").chmod(0o600)
    without = "not executed again for this verdict: the key of cohorts and noise ("
    assert answer("verify", run).startswith(f"kept as recorded ({without}")
    with_key = answer("verify", run, "--noise-key", key)
    assert with_key.startswith("kept, executed again (all")
    refusal = refused("verify", run, "--noise-key", tmp_path / "other.key")
    assert refusal.startswith("noise-key: must be the key of the run")
    assert "not drawn again" in answer("verify", run, "--rounds", "0")
    drawn_again = answer("verify", run, "--rounds", "0", "--noise-key", key)
    assert "not drawn again" not in drawn_again


@pytest.fixture(scope="module", params=["secure", "secure-discrete"])
def run_with_key(request, tmp_path_factory):
    """A finished run, of which a verifier has the key."""
    folder = tmp_path_factory.mktemp(request.param)
    execute(secure_request(folder, noise=request.param))
    key = NoiseKey.load(folder / "noise.key")
    return replace(load_run(folder / "run"), trusted=(key,))


def test_checks_draw_cohorts_and_noise_again_with_the_key(run_with_key):
    assert cohorts_regenerated(run_with_key).passed
    assert noise_regenerated(run_with_key).passed


@pytest.mark.parametrize(
    ("check", "field", "reason"),
    [
        (noise_regenerated, "noise_sum_squares", "not the key's"),
        (noise_regenerated, "noise_state", "did not stand where the key puts it"),
        (cohorts_regenerated, "shares", "the key draws another cohort"),
    ],
)
def test_checks_find_a_line_that_is_not_of_the_key(check, field, reason, run_with_key):
    first_release, *later = run_with_key.ledger.records
    share, *further = first_release.shares
    another_cohort = share.model_copy(update={"participants": (0,)})
    values = {
        "noise_sum_squares": first_release.noise_sum_squares * 1.0001,
        "noise_state": "0" * 24,
        "shares": (another_cohort, *further),
    }
    changed = first_release.model_copy(update={field: values[field]})
    ledger = run_with_key.ledger.model_copy(update={"records": (changed, *later)})
    result = check(replace(run_with_key, ledger=ledger))
    assert result.failed
    assert reason in result.reason


def test_no_file_of_the_run_holds_the_key_and_verdicts_say_so(tmp_path):
    secure_run = secure_request(tmp_path, noise="secure-discrete")
    execute(secure_run)
    key = NoiseKey.load(tmp_path / "noise.key")
    for path in secure_run.folder.iterdir():
        content = path.read_bytes()
        assert key.content not in content
        assert key.content.hex().encode() not in content
    record = RunRecord.load(secure_run.folder)
    assert record.noise == "secure"
    assert record.configuration["noise_commitment"] == key.commitment
    verdict = judge(load_run(secure_run.folder), 0)
    assert verdict.outcome == "kept", [check.reason for check in verdict.failed]
    assert not verdict.simulation_only
    missing = {check.name: check.reason for check in verdict.checks if check.missing}
    assert missing["noise regenerated"] == "missing: the key of the noise"
    assert missing["cohorts regenerated"] == "missing: the key of the cohorts"
    lines = read_ledger(secure_run.folder, secure_run.plan.digest).records
    assert {line.family for line in lines} == {"discrete_gaussian"}
    assert all(line.noise_std / line.grid >= 2**36 for line in lines)


def test_two_runs_of_one_seed_share_neither_cohorts_nor_noise(tmp_path):
    lines = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        secure_run = secure_request(tmp_path / name)
        execute(secure_run)
        lines.append(read_ledger(secure_run.folder, secure_run.plan.digest).records)
    pairs = list(zip(*lines, strict=True))
    assert all(
        first_release.noise_state != second_release.noise_state
        for first_release, second_release in pairs
    )
    assert any(
        first_release.shares[0].participants != second_release.shares[0].participants
        for first_release, second_release in pairs
    )


def test_an_interrupted_run_resumes_with_its_key_to_the_same_bits(tmp_path):
    secure_run = secure_request(tmp_path, noise="secure-discrete")

    interrupt(secure_run, 2)
    early = read_ledger(secure_run.folder, secure_run.plan.digest).records
    key = NoiseKey.load(tmp_path / "noise.key")
    rule = r"the key of the run in .*/run; or choose another folder \(-o, folder=\)"
    with pytest.raises(InputError, match=rule):
        execute(with_changes(secure_run, noise_key_file=None))
    NoiseKey(bytes(32)).save(tmp_path / "other.key")
    with pytest.raises(InputError, match="noise_commitment: must be as in"):
        execute(with_changes(secure_run, noise_key_file=tmp_path / "other.key"))
    with pytest.raises(InputError, match="noise: must be as in"):
        execute(with_changes(secure_run, noise="seeded", noise_key_file=None))
    execute(secure_run)
    assert (
        read_ledger(secure_run.folder, secure_run.plan.digest).records[: len(early)]
        == early
    )
    assert NoiseKey.load(tmp_path / "noise.key") == key
    assert replay(secure_run.folder, tmp_path / "noise.key").outcome == "passed"


def test_a_key_is_for_one_new_run_with_secure_noise(tmp_path):
    NoiseKey.new().save(tmp_path / "noise.key")
    secure_run = secure_request(tmp_path)
    rule = "noise-key-file: must be a new file for a new run"
    with pytest.raises(InputError, match=rule):
        execute(secure_run)
    assert not secure_run.folder.exists()
    execute(with_changes(secure_run, noise="seeded", noise_key_file=None))
    rule = r"noise: must be as in .*; or choose another folder \(-o, folder=\)"
    with pytest.raises(InputError, match=rule):
        execute(with_changes(secure_run, noise_key_file=None))
    assert not key_beside(secure_run.folder).exists()
    rule = "noise-key: is only for runs with secure noise"
    with pytest.raises(InputError, match=rule):
        replay(secure_run.folder, tmp_path / "noise.key")


def test_secure_noise_without_its_measurements_is_unverified(done):
    assert judge(load_run(done.folder), 0).outcome == "kept"
    (done.folder / NOISE_EVIDENCE).unlink()
    verdict = judge(load_run(done.folder), 0)
    assert verdict.outcome == "unverified"
    assert "noise distribution" in {check.name for check in verdict.not_shown}


def test_noise_of_whole_numbers_without_a_key_is_no_traceback(tmp_path):
    """The record contradicts its configuration: replay refuses, verify says broken."""
    folder = tmp_path / "run"
    execute(Request(short_plan(), "planned", "digits", folder, seed=3))
    file = folder / "record.json"
    record = json.loads(file.read_text())
    record["configuration"]["noise"] = "secure-discrete"
    file.write_text(json.dumps(record))
    assert refused("replay", folder).startswith("noise: must be secure under noise of")
    failed = {check.name for check in judge(load_run(folder), 0).failed}
    assert "record" in failed


def coarse_request(tmp_path, noise="secure-discrete", norm=5e3):
    """Noise so large that usual updates are less than its rounding to float32."""
    spec = {**yaml.safe_load(SPEC), "clipping_norm": norm}
    return Request(
        solve(Spec.parse(spec)),
        "planned",
        "own",
        tmp_path / "run",
        own_data=data(),
        own_model=OwnModel(Net, {}, "Net"),
        noise=noise,
    )


def test_noise_in_which_updates_are_lost_is_refused(tmp_path):
    with pytest.raises(InputError, match="where the clipping norm times a noise"):
        prepare(coarse_request(tmp_path))


@pytest.mark.parametrize(
    ("noise", "norm"), [("secure", 1e10), ("secure-discrete", 5e3)]
)
def test_a_run_with_noise_in_which_updates_are_lost_is_not_kept(
    tmp_path, monkeypatch, noise, norm
):
    """Whatever a client trains is lost in rounding, so that nothing tells of it."""
    coarse = coarse_request(tmp_path, noise, norm)
    monkeypatch.setattr(experiment, "grid_fault", lambda *arguments: None)
    execute(coarse)
    options = {OPTIONS: given_again(coarse)}
    verdict = judge(load_run(coarse.folder), "all", options=options)
    assert verdict.outcome == "kept"
    assert verdict.level == "recorded"


def test_a_sum_far_beyond_its_noise_is_kept_without_the_key(tmp_path):
    """Rounding of the sum is then more than a hundred thousandth of the residual.

    Sixty clients move five parameters the same way, each as far as clipping allows.
    """
    clients = np.arange(120) % 60
    plan = solve(
        Spec.parse(
            {
                "name": "aligned",
                "groups": [
                    {"name": "strict", "clients": 30, "epsilon": 8.0},
                    {"name": "loose", "clients": 30, "epsilon": 16.0},
                ],
                "delta": 1e-4,
                "rounds": 1,
                "cohort": 60,
                "sampling": "full",
                "clipping_norm": 1.0,
                "local": {"steps": 3, "batch_size": 5, "learning_rate": 0.05},
                "model": {"name": "my-net", "parameters": 5},
                "planning": {"ratios": "noise"},
            }
        )
    )
    x = np.random.default_rng(1).normal(size=(120, 4)) + 1
    aligned = simulate.Data(
        x.astype("f4"),
        (3 * x.sum(1) + 5).astype("f4"),
        client=clients,
        group=np.where(clients < 30, "strict", "loose"),
        task="regression",
    )
    options = {"model": partial(nn.Linear, 4, 1), "data": aligned, "seed": 1}
    run = simulate.train(plan, folder=tmp_path / "run", **options)
    assert run.verdict.outcome == "kept"
    (tmp_path / "run.key").unlink()
    executor_options = {OPTIONS: given_again(run._request)}
    verdict = judge(load_run(run.folder), "all", options=executor_options)
    assert verdict.outcome == "kept"
    assert not verdict.failed


def test_updates_far_below_the_norm_are_kept_on_a_grid(tmp_path):
    """The grid is as fine as the norm asks for: rounding to it moves such updates."""
    spec = yaml.safe_load(SPEC.replace("clipping_norm: 1.0", "clipping_norm: 500.0"))
    run = simulate.train(
        solve(Spec.parse(spec)),
        model=Net,
        data=data(),
        noise="secure-discrete",
        seed=1,
        folder=tmp_path / "run",
    )
    assert run.verdict.outcome == "kept"
    assert run.verdict.level == "executed"
