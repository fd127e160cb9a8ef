"""Signed statements: what verify reports of honest and of changed ones."""

import json
import stat

import pytest

pytest.importorskip("cryptography")

from privplan.book.entry import booking_of
from privplan.contrib.attestation import (
    ATTESTATION,
    Attestor,
    SigningKey,
    new_key,
    read_attestation,
)
from privplan.contrib.attestation.statements import Signed, Statement, cohort_commitment
from privplan.errors import BrokenRunError, InputError
from privplan.plan import Plan
from privplan.record import PLAN
from privplan.verification.verify import judge, load_run
from tests.command import answer, refused
from tests.contrib.attestation import signed_run
from tests.verification import honest_run


@pytest.fixture
def server(tmp_path):
    return new_key(tmp_path / "server.pem")


@pytest.fixture
def run(tmp_path, server):
    """A run folder whose ledger a server signed, and two clients their updates."""
    clients = signed_run.keys(tmp_path, "ada", "bob")
    plan = signed_run.signed_plan(server, **clients)
    honest_run.write_run(tmp_path / "run", the_plan=plan)
    signed_run.attest(tmp_path / "run", plan, server, **clients)
    return tmp_path / "run"


def outcome(folder):
    """Outcome and reason of the attestation, and the verdict."""
    verdict = judge(load_run(folder), 0)
    [check] = [check for check in verdict.checks if check.name == "attestation"]
    return check.outcome, check.reason, verdict


def test_an_honest_signed_run_is_kept_and_attested(run):
    result, reason, verdict = outcome(run)
    assert result == "passed"
    assert verdict.outcome == "kept"
    assert verdict.evidence == ("declared", "attested")
    assert "server (server) signed 1 start, 30 cohort, 30 release, 1 end" in reason
    assert "ada (client) signed 30 update" in reason
    assert "all 60 lines signed" in reason


def test_the_start_binds_the_key_of_the_run(tmp_path, server):
    """Who chose the key after the start could choose cohorts and noise by it."""
    plan = signed_run.signed_plan(server)
    honest_run.write_run(tmp_path / "run", the_plan=plan)
    signed_run.attest(tmp_path / "run", plan, server, commitment="ab" * 32)
    result, reason, verdict = outcome(tmp_path / "run")
    assert result == "failed"
    assert "line 1: the start commits to another key than the run's" in reason
    assert verdict.outcome == "broken"


def swapped(lines):
    return [*lines[:5], lines[6], lines[5], *lines[7:]]


def wrongly_signed(lines):
    letters = json.loads(lines[1])["signature"]
    return [lines[0], lines[1].replace(letters, letters[::-1]), *lines[2:]]


def signed_by(name):
    """A change of the fifth line's signer, a release of the server."""

    def change(lines):
        renamed = lines[4].replace('"signer":"server"', f'"signer":"{name}"')
        return [*lines[:4], renamed, *lines[5:]]

    return change


BROKEN = ("failed", "broken")
MISSING = ("not shown", "unverified")


@pytest.mark.parametrize(
    ("change", "outcomes", "reason"),
    [
        (swapped, BROKEN, "dropped or reordered"),
        (lambda lines: lines[:8] + lines[9:], BROKEN, "dropped or reordered"),
        (lambda lines: lines[:2] + lines[3:], BROKEN, "dropped or reordered"),
        (lambda lines: lines[1:], BROKEN, "dropped or reordered"),
        (lambda lines: [*lines, lines[-1]], BROKEN, "dropped or reordered"),
        (
            lambda lines: [*lines[:9], lines[5], *lines[9:]],
            BROKEN,
            "dropped or reordered",
        ),
        (wrongly_signed, BROKEN, "the signature is not that of server"),
        (signed_by("mallory"), BROKEN, "mallory, who is not in the plan"),
        (signed_by("ada"), BROKEN, "a client cannot state release"),
        (
            lambda lines: [lines[0], "{}\n", *lines[2:]],
            BROKEN,
            "line 2 is not a signed statement",
        ),
        (lambda lines: lines[:-1], MISSING, "the signed end of the run"),
        (lambda lines: lines[:-6], MISSING, "signatures of ledger lines 57 to 60"),
        (
            lambda lines: [*lines[:-1], lines[-1][:40]],
            MISSING,
            "the rest of a last line",
        ),
        (lambda lines: [], MISSING, "signatures of ledger lines 1 to 60"),
        (None, MISSING, "signed statements (attestation.jsonl)"),
    ],
)
def test_changed_statements_are_broken_and_missing_ones_not_shown(
    run, change, outcomes, reason
):
    path = run / ATTESTATION
    lines = path.read_text().splitlines(keepends=True)
    path.unlink()
    if change is not None:
        path.write_text("".join(change(lines)))
    result, stated_reason, verdict = outcome(run)
    assert (result, verdict.outcome) == outcomes
    assert reason in stated_reason
    assert outcomes == BROKEN or verdict.evidence == ("declared",)


def test_statements_under_a_plan_without_signers_are_not_shown(tmp_path, run):
    honest_run.write_run(tmp_path / "plain")
    (tmp_path / "plain" / ATTESTATION).write_text((run / ATTESTATION).read_text())
    result, reason, verdict = outcome(tmp_path / "plain")
    assert result == "not shown"
    assert verdict.outcome == "kept"
    assert "public keys in the plan" in reason


@pytest.mark.parametrize(
    ("seed", "count", "expected"),
    [
        (2, 60, "ledger line 2 is not the one that was signed"),
        (1, 58, "60 ledger lines are signed, 58 are there"),
    ],
)
def test_another_ledger_than_the_signed_one_is_broken(run, seed, count, expected):
    plan = Plan.load(run / PLAN)
    honest_run.write_run(run, honest_run.releases(plan, seed=seed)[:count], plan)
    result, reason, _ = outcome(run)
    assert result == "failed"
    assert expected in reason


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (True, "the participants of round 1 are not those committed"),
        (False, "was not committed before its release"),
    ],
)
def test_a_cohort_that_was_not_committed_is_broken(
    tmp_path, server, committed, expected
):
    plan = signed_run.signed_plan(server)
    honest_run.write_run(tmp_path / "run", the_plan=plan)
    attestor = Attestor(tmp_path / "run", plan, server)
    attestor.start()
    if committed:
        attestor.cohort(1, {"strict": [1, 2, 3], "loose": [4]})
    attestor.release(1, ["0" * 64] * 2, load_run(tmp_path / "run").ledger.link(2))
    result, reason, _ = outcome(tmp_path / "run")
    assert result == "failed"
    assert expected in reason


def test_closed_cohorts_are_not_shown_where_the_ledger_names_them(tmp_path, server):
    plan = signed_run.signed_plan(server)
    honest_run.write_run(tmp_path / "run", the_plan=plan)
    signed_run.attest(tmp_path / "run", plan, server, reveal=False)
    result, reason, _ = outcome(tmp_path / "run")
    assert result == "not shown"
    assert reason == "missing: openings of committed cohorts (30 of 30)"


def test_an_interrupted_server_repeats_its_statements(run, server):
    before = (run / ATTESTATION).read_text()
    plan = Plan.load(run / PLAN)
    ledger = load_run(run).ledger

    # Torn in round 6: after the start, a round has a cohort, two updates and a release.
    statements = read_attestation(run).statements
    lines = [signed.line for signed in statements[: 5 * 4 + 3]]
    (run / ATTESTATION).write_text("".join(lines) + "{torn")

    # The server goes on from round 3, whose first line in the ledger is the fifth.
    attestor = Attestor(run, plan, server, ledger.link(4))
    for round_ in range(3, 31):
        records = ledger.records[2 * round_ - 2 : 2 * round_]
        attestor.cohort(round_, signed_run.cohort_of(records), model="0" * 64)
        offset = 1 + 4 * (round_ - 1)
        _, ada, bob, release = statements[offset : offset + 4]
        attestor.add(ada.line)
        attestor.add(bob.line)
        digests = release.statement.releases
        attestor.release(round_, digests, ledger.link(2 * round_))
    attestor.end(ledger.chain)
    assert (run / ATTESTATION).read_text() == before


def test_a_repeated_statement_that_differs_is_refused(run, server):
    attestor = Attestor(run, Plan.load(run / PLAN), server)
    attestor.start()
    with pytest.raises(InputError, match="must be repeated as it was signed"):
        attestor.cohort(1, {"strict": [0]})


def test_statements_of_others_are_refused(run, server, tmp_path):
    plan = Plan.load(run / PLAN)
    stranger = new_key(tmp_path / "stranger.pem")
    with pytest.raises(
        InputError, match="must be the key of a server in the plan's signers"
    ):
        Attestor(run, plan, stranger)
    attestor = Attestor(tmp_path, plan, server)
    attestor.start()
    statement = Statement(kind="update", signer="ada", previous=attestor.head, round=1)
    forged = Signed(
        statement=statement, signature=stranger.sign(statement.message(plan.digest))
    )
    with pytest.raises(
        InputError, match="must be signed by a client in the plan's signers"
    ):
        attestor.add(forged.line)


def test_a_commitment_hides_and_binds_the_cohort():
    first = cohort_commitment(b"s" * 32, 1, {"a": [3, 1], "b": []})
    assert first == cohort_commitment(b"s" * 32, 1, {"a": (1, 3)})

    # Another secret, round or cohort has another commitment.
    changed = [
        (b"t" * 32, 1, {"a": [1, 3]}),
        (b"s" * 32, 2, {"a": [1, 3]}),
        (b"s" * 32, 1, {"a": [1]}),
    ]
    assert first not in {cohort_commitment(*inputs) for inputs in changed}


def test_keys_from_the_command_line(tmp_path):
    path = tmp_path / "server.pem"
    public_key = answer("attest", "keys", "new", path)
    assert public_key == answer("attest", "keys", "show", path)
    assert SigningKey.load(path).public in public_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for action, name, text in (
        ("new", "server.pem", "key: must be a new file; none is replaced"),
        ("show", "none", "signing-key: must be a file that can be read"),
        ("show", "", "signing-key: must be a file that can be read"),
    ):
        assert text in refused("attest", "keys", action, tmp_path / name)
    path.chmod(0o644)
    line = refused("attest", "keys", "show", path)
    assert "must be accessible to its owner only (chmod 600)" in line


def test_signers_are_checked(server):
    entry = {"name": "server", "key": server.public}
    assert honest_run.spec().model_dump(mode="json").get("signers") is None
    assert honest_run.plan(honest_run.spec()).digest == honest_run.plan().digest
    for signers, text in (
        ([entry, entry], "signers.name: must be unique"),
        ([{**entry, "key": "00"}], "must be 64 hexadecimal digits"),
        ([{**entry, "role": "king"}], "must be one of 'server' or 'client'"),
    ):
        with pytest.raises(InputError, match=text):
            honest_run.spec(signers=signers)


def test_a_run_signed_by_an_unknown_party_is_not_booked(tmp_path):
    """The book asks the verdict."""
    server = new_key(tmp_path / "a.pem")
    stranger = new_key(tmp_path / "b.pem")
    plan = signed_run.signed_plan(server)
    honest_run.write_run(tmp_path / "run", the_plan=plan)
    signed_run.attest(tmp_path / "run", plan, server)
    assert booking_of(tmp_path / "run", "").run.verdict == "kept"
    path = tmp_path / "run" / ATTESTATION

    # All lines signed by a stranger in the server's name.
    forged = []
    for line in path.read_text().splitlines(keepends=True):
        signed = Signed.parse_line(line)
        signature = stranger.sign(signed.statement.message(plan.digest))
        forged.append(signed.model_copy(update={"signature": signature}).line)
    path.write_text("".join(forged))
    with pytest.raises(
        BrokenRunError, match="attestation: line 1: the signature is not that of"
    ):
        booking_of(tmp_path / "run", "")

    path.write_text(path.read_text().replace('"signer":"server"', '"signer":"eve"'))
    with pytest.raises(BrokenRunError, match="signed by eve, who is not in the plan"):
        booking_of(tmp_path / "run", "")

    # Without any signature the run is booked, at the cost of an unverified one.
    path.unlink()
    unsigned = booking_of(tmp_path / "run", "").run
    assert unsigned.verdict == "unverified"
    assert unsigned.cost == "infinite"
