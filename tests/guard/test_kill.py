"""A guarded run is killed many times: nothing is released twice, nothing is lost."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from privplan.book.database import address_of
from privplan.book.store import runs
from privplan.guard.storage import Storage
from privplan.ledger import read_ledger
from tests.guard import copies, kills

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("count", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_with_the_same_bits(tmp_path, count):
    check_killed(tmp_path, count, "tests.guard.kills")


@pytest.mark.parametrize("count", [6, pytest.param(150, marks=pytest.mark.slow)])
def test_killed_copies_of_a_run_release_no_round_twice(tmp_path, count):
    """Of all copies each round has one release, and the book counts each once."""
    hits, refused, folders = map(
        int, output_of(tmp_path, count, "tests.guard.copies").split()
    )
    assert hits > 0
    assert refused > 0
    assert folders > refused
    seen = digests_of(tmp_path / "log.jsonl")
    assert sorted(round_ for _, round_ in seen) == list(range(1, copies.ROUNDS + 1))
    assert {len(digests) for digests in seen.values()} == {1}
    [booked] = runs(address_of(str(tmp_path / "book.sqlite")))
    assert booked.status == "complete"
    assert {share.history.rounds for share in booked.shares} == {copies.ROUNDS}


def output_of(tmp_path, count, module):
    """What a module prints that kills processes so often."""
    command = [sys.executable, "-m", module, str(tmp_path), str(count), "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests_of(log):
    """Digests in a log by what they are of and round."""
    seen: dict[tuple[str, int], set[str]] = defaultdict(set)
    for line in log.read_text().splitlines():
        try:
            kind, round_, digest = json.loads(line)
        except ValueError:  # the log itself was cut off by a kill
            continue
        seen[kind, round_].add(digest)
    return seen


def check_killed(tmp_path, count, module, signers=()):
    """Run a module that kills a run so often, and look at what stands on the disk."""
    assert (
        int(output_of(tmp_path, count, module)) == count
    )  # no process finished before it was killed

    plan = kills.plan_for(count, signers)
    ledger = read_ledger(tmp_path / "run", plan.digest)
    rounds = plan.spec.rounds
    assert ledger.fault is None
    assert [record.round for record in ledger.records] == list(range(1, rounds + 1))
    assert len({record.noise_state for record in ledger.records}) == rounds

    seen = digests_of(tmp_path / "log.jsonl")
    assert {len(digests) for digests in seen.values()} == {1}
    assert max(round_ for _, round_ in seen) == rounds

    stored = Storage(tmp_path / "run", plan.digest, None)
    model = np.zeros(kills.SIZE)
    for record in ledger.records:
        lines, [vector] = stored.release(record.round)
        assert lines == [record]
        model = model + record.shares[0].factor * vector
        assert np.array_equal(stored.model(record.round)["model"], model)
