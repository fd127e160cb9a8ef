"""Each planted fault is caught by the right check and reason; honest runs pass."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.errors import InputError
from tests.sabotage import COLLECTED, FAULTS, Fault, honest, honest_runs, tried
from tests.sabotage.__main__ import command
from tests.sabotage.fault import EXTERNAL
from tests.sabotage.table import COLUMNS

STORED = Path(__file__).parents[2] / "docs" / "evidence" / "data" / "planted-faults.csv"


QUICK = (
    "Laplace noise of equal variance",
    "no noise on the last layer",
    "a ratio 3% too high",
)
"""One fault per family of checks, for the quick tests."""


LONG = (
    "records not clipped",
    "records' noise drawn and not added",
    "steps divided by the client's own records",
    "personal parameters released",
)
"""Faults of runs that train for seconds."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, marks=pytest.mark.slow if fault.name in LONG else (), id=fault.name
        )
        for fault in FAULTS
        if fault not in COLLECTED
    ],
)
def test_the_fault_is_caught_for_the_right_reason(fault):
    require_caught(fault)


@pytest.mark.parametrize("name", QUICK)
def test_a_collected_fault_is_caught_for_the_right_reason(name):
    [fault] = [fault for fault in COLLECTED if fault.name == name]
    require_caught(fault)


REFUSED = ("releases: must be", "must be the spec's")
"""What says that the server refuses a round's releases, or that a plan contradicts its spec."""


def require_caught(fault):
    """Fail unless the verdict catches the fault, or the run is refused for it."""
    refusal = ""
    verdict = None
    try:
        verdict = tried(fault)
    except InputError as error:
        refusal = str(error)
    if verdict is None:
        assert any(words in refusal for words in REFUSED), refusal
    else:
        assert verdict.caught, (fault.check, verdict.reason)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("fault", COLLECTED, ids=lambda fault: fault.name)
def test_a_collected_fault_needs_the_documented_evidence(fault, seed):
    finding = tried(fault, seed, replay=True)
    assert finding.as_documented, (fault.level, fault.check, finding)


def test_the_collection_is_large_and_explains_what_is_not_detected():
    assert len(COLLECTED) >= 48
    assert sum(fault.level == "declared" for fault in COLLECTED) >= 24
    with_replay = ("declared", "not shown", "replayed")
    assert sum(fault.level in with_replay for fault in COLLECTED) >= 44
    assert sum(fault.author == EXTERNAL for fault in COLLECTED) >= 24
    for fault in COLLECTED:
        assert (fault.level == "declared") == (not fault.why), fault.name
        assert bool(fault.check) == (fault.level in ("declared", "not shown")), (
            fault.name
        )


SHORT = (1, 2, 5)  # honest runs that take about half a second each
RUNS = honest_runs(40)


@pytest.mark.parametrize(
    ("algorithm", "sampling", "seed"), [RUNS[number] for number in SHORT]
)
def test_an_honest_run_passes(algorithm, sampling, seed):
    verdict = honest(algorithm, sampling, seed)
    assert verdict.kept, (*verdict.failed, *verdict.not_shown)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "sampling", "seed"),
    [run for number, run in enumerate(RUNS) if number not in SHORT],
)
def test_further_honest_runs_pass(algorithm, sampling, seed):
    test_an_honest_run_passes(algorithm, sampling, seed)


@pytest.mark.slow
def test_canaries_alone_see_two_in_five_faults_that_weaken_privacy():
    faults = [fault for fault in FAULTS if fault not in COLLECTED]
    findings = [tried(fault, canaries=800) for fault in faults]
    audited = [finding for finding in findings if finding.seen is not None]
    seen = [finding.fault.name for finding in audited if finding.seen]
    assert len(audited) >= 30
    assert 5 * len(seen) >= 2 * len(audited), seen


def test_canaries_alone_see_halved_noise_and_nothing_in_the_books():
    by_name = {fault.name: fault for fault in FAULTS}
    assert "canaries lost" in (tried(by_name["noise halved"], canaries=800).seen or "")
    assert tried(by_name["ledger line edited"], canaries=800).seen is None


def test_the_unbroken_bench_passes_so_that_it_is_the_fault_that_is_caught():
    assert honest("planned", "poisson", seed=1).kept


def test_the_table_has_enough_faults_of_every_kind():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20
    assert sum(fault.weakens for fault in FAULTS) >= 20
    assert len({fault.check for fault in FAULTS}) >= 12


def test_the_stored_table_has_all_faults_and_each_is_detected():
    with STORED.open(encoding="utf-8", newline="") as file:
        listed = list(csv.DictReader(file))
    assert list(listed[0]) == list(COLUMNS)
    assert [row["fault"] for row in listed] == [fault.name for fault in FAULTS]
    assert {row["detected by"] for row in listed} <= {
        "declared",
        "not shown",
        "replayed",
    }


def test_the_command_answers_with_4_when_a_fault_is_missed(monkeypatch, tmp_path):
    missed = Fault("harmless", "Nothing is broken.", "noise drawn", "drawn with")
    table = tmp_path / "faults.csv"
    for faults, code in (((missed,), 4), (FAULTS[:1], 0)):
        monkeypatch.setattr("tests.sabotage.FAULTS", faults)
        done = CliRunner().invoke(command, ["--honest", "0", "--table", str(table)])
        assert done.exit_code == code, done.output
        assert f"| {faults[0].name} |" in done.output
        assert (
            table.read_text(encoding="utf-8").splitlines()[1].startswith(faults[0].name)
        )
