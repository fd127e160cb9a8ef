"""Heads of statements in a local log and in time stamps of an authority made here."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from privplan.contrib.attestation import ATTESTATION, SigningKey, new_key
from privplan.contrib.attestation.anchors import (
    ANCHORS,
    LocalLog,
    TimeStamps,
    anchor,
    post_to,
)
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import PLAN
from tests.command import answer, privplan, refused
from tests.contrib.attestation import signed_run
from tests.verification import honest_run


@pytest.fixture
def run(tmp_path):
    server = new_key(tmp_path / "server.pem")
    plan = signed_run.signed_plan(server)
    honest_run.write_run(tmp_path / "run", the_plan=plan)
    signed_run.attest(tmp_path / "run", plan, server)
    return tmp_path / "run"


def verdict(run, *options):
    """Exit code of verify, and a sentence of each check by its name."""
    done = privplan(
        "verify", "--rounds=0", "--details", run, "--format", "json", *options
    )
    rows = json.loads(done.stdout)["checks"] if done.exit_code in (0, 4, 5) else []
    sentences = {row["name"]: f"{row['outcome']}: {row['reason']}" for row in rows}
    return done.exit_code, sentences


def test_a_head_in_a_local_log(run, tmp_path):
    log = tmp_path / "log"
    assert "anchors" not in verdict(run)[1]
    for _ in range(2):
        assert "anchored 62 statements" in answer("attest", "anchor", run, "--log", log)
    code, rows = verdict(run, "--anchor-log", str(log))
    assert code == 0
    assert rows["anchors"] == "passed: 2 heads, the last after 62 statements"
    code, rows = verdict(run)
    assert code == 0
    assert rows["anchors"] == "not shown: missing: the log of anchors (--anchor-log)"

    # A log that does not hold the run's heads breaks it.
    LocalLog(tmp_path / "empty").submit("0" * 64)
    code, rows = verdict(run, "--anchor-log", str(tmp_path / "empty"))
    assert code == 4
    assert "does not hold it" in rows["anchors"]


def test_an_anchor_of_the_start_alone_says_nothing_of_the_rest(run, tmp_path):
    log = tmp_path / "log"
    lines = (run / ATTESTATION).read_text()
    first = lines.splitlines(keepends=True)[0]
    (run / ATTESTATION).write_text(first)
    anchor(run, Plan.load(run / PLAN), LocalLog(log))
    (run / ATTESTATION).write_text(lines)
    _, rows = verdict(run, "--anchor-log", str(log))
    late = "an anchored head after the last of 62 statements, not 1"
    assert rows["anchors"] == f"not shown: missing: {late}"


def test_a_run_signed_anew_after_its_anchor_is_broken(run, tmp_path):
    log = tmp_path / "log"
    plan = Plan.load(run / PLAN)
    anchor(run, plan, LocalLog(log))
    (run / ATTESTATION).unlink()
    honest_run.write_run(run, honest_run.releases(plan, seed=2), plan)
    signed_run.attest(run, plan, SigningKey.load(tmp_path / "server.pem"))
    code, rows = verdict(run, "--anchor-log", str(log))
    assert code == 4
    assert rows["attestation"].startswith("passed")
    assert rows["anchors"].startswith("failed: 62 statements are not those")


def test_a_run_without_receipts_is_unverified_where_the_reader_gives_a_log(
    run, tmp_path
):
    log = tmp_path / "log"
    anchor(run, Plan.load(run / PLAN), LocalLog(log))
    (run / ANCHORS).unlink()
    code, rows = verdict(run, "--anchor-log", str(log))
    reason = "missing: a head in the given log (anchors.jsonl)"
    assert code == 5
    assert rows["anchors"] == f"not shown: {reason}"
    assert verdict(run)[0] == 0


def test_a_shortened_log_and_damaged_files_are_one_line(run, tmp_path):
    log = tmp_path / "log"
    anchor(run, Plan.load(run / PLAN), LocalLog(log))
    log.write_text(log.read_text().replace('"head":"', '"head":"0'))
    line = refused("verify", "--rounds=0", "--details", run, "--anchor-log", log)
    assert "log: must be an unbroken log, but line 1 is not" in line
    (run / ANCHORS).write_text("{}\n")
    assert verdict(run)[0] == 2
    (run / ANCHORS).unlink()
    for words, text in (
        ([run], "exactly one of --log and --tsa must be given"),
        ([run, "--tsa", "file:///x"], "tsa: must be an address with https://"),
        ([tmp_path, "--log", log], "plan: must be a file that exists"),
    ):
        assert text in refused("attest", "anchor", *map(str, words))
    with pytest.raises(InputError, match="tsa: must respond"):
        post_to("http://127.0.0.1:9/")(b"")


def test_a_log_that_is_none_is_one_line_also_where_no_anchor_asks_for_it(tmp_path):
    honest_run.write_run(tmp_path / "run")
    (tmp_path / "image").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    for name, text in (
        ("none", "must be a file that exists"),
        ("image", "must be UTF-8 text"),
        ("run/plan.json", "must be an unbroken log, but line 1 is not"),
    ):
        line = refused(
            "verify", "--rounds=0", tmp_path / "run", "--anchor-log", tmp_path / name
        )
        assert line == f"log: {text}, found '{tmp_path / name}'"
        assert not (tmp_path / "run" / "verdict.json").exists()


CONFIGURATION = """
[tsa]
default_tsa = own
[own]
serial = {folder}/serial
crypto_device = builtin
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
ess_cert_id_alg = sha256
accuracy = secs:1
"""


SELF_SIGNED = "req -x509 -newkey rsa:2048 -nodes -days 2"


def openssl(folder, words):
    """Run the openssl command in a folder."""
    command = ["openssl", *words.split()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def authority(tmp_path):
    """A time-stamping authority of the openssl command, in a folder."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path / "tsa"
    folder.mkdir()
    (folder / "serial").write_text("01\n")
    (folder / "tsa.cnf").write_text(CONFIGURATION.format(folder=folder))
    uses = (
        "keyUsage=critical,digitalSignature\nextendedKeyUsage=critical,timeStamping\n"
    )
    (folder / "extensions").write_text(uses)

    # A root, a request of the authority, and the root's certificate of it.
    openssl(folder, f"{SELF_SIGNED} -keyout root.key -out root.pem -subj /CN=root")
    openssl(
        folder,
        "req -new -newkey rsa:2048 -nodes -subj /CN=tsa -keyout tsa.key -out tsa.csr",
    )
    openssl(
        folder,
        "x509 -req -in tsa.csr -CA root.pem -CAkey root.key"
        " -CAcreateserial -out tsa.pem -days 2 -extfile extensions",
    )
    return folder


def test_a_time_stamp_of_a_local_authority(run, authority, tmp_path):
    pytest.importorskip("rfc3161_client")

    def post(request):
        (authority / "query").write_bytes(request)
        openssl(authority, "ts -reply -queryfile query -config tsa.cnf -out reply")
        return (authority / "reply").read_bytes()

    stamp = anchor(run, Plan.load(run / PLAN), TimeStamps(post))
    root = str(authority / "root.pem")
    code, rows = verdict(run, "--tsa-certificate", root)
    assert code == 0
    assert rows["anchors"] == "passed: 1 heads, the last after 62 statements"
    assert "missing: the certificate" in verdict(run)[1]["anchors"]

    # A stamp is of its head, and by the authority whose certificate is given.
    stamps = TimeStamps(certificates=Path(root))
    assert "not a time stamp" in str(stamps.problem("0" * 64, stamp.receipt))
    assert "not a time stamp" in str(stamps.problem(stamp.head, "AAAA"))
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    openssl(stranger, f"{SELF_SIGNED} -keyout k -out c.pem -subj /CN=stranger")
    wrong = TimeStamps(certificates=stranger / "c.pem")
    assert "not a time stamp" in str(wrong.problem(stamp.head, stamp.receipt))
    with pytest.raises(InputError, match="tsa: must grant a time stamp"):
        TimeStamps(lambda request: b"no").submit(stamp.head)
