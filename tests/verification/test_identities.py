"""The stored assignment of clients: one group per client, no record of two clients."""

import shutil

import numpy as np
import pytest

from privplan.evidence.clients import CLIENTS, clients_digest, read_clients
from privplan.evidence.rounds import EVIDENCE, read_evidence
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.record import PLAN
from privplan.verification.checks.ledger import groups
from privplan.verification.verify import load_run


def changed(folder, target, change, *, honest):
    """A copy of what the check reads, with another assignment and a fitting header."""
    shutil.copytree(folder, target)
    arrays = read_clients(folder)
    change(arrays)
    np.savez(target / CLIENTS, **arrays)
    if honest:
        digest = Plan.load(folder / PLAN).digest
        evidence = read_evidence(folder, digest)
        change = {"clients": clients_digest(arrays)}
        header = evidence.header.model_copy(update=change)
        text, chain = chained(header, digest, "evidence")
        for round_evidence in evidence.of_releases.values():
            line, chain = chained(round_evidence, chain, "evidence")
            text += line
        (target / EVIDENCE).write_text(text)
    return target


def _leaves_sixty_without_group(arrays):
    arrays["group"][arrays["group"].tolist().index(2) :][:60] = -1


def _copies_records(arrays):
    starts = arrays["starts"]
    records = arrays["records"]
    records[starts[1] : starts[1] + 3] = records[starts[0] : starts[0] + 3]


def test_an_honest_assignment_passes(honest, tmp_path):
    assert groups(load_run(honest)).passed
    copy = changed(honest, tmp_path / "copy", lambda arrays: None, honest=True)
    assert groups(load_run(copy)).passed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            _leaves_sixty_without_group,
            "different clients hold records, 100 were planned",
        ),
        (_copies_records, "3 records are of more than one client"),
    ],
)
def test_places_and_records_of_one_client_are_counted_once(
    honest, tmp_path, change, reason
):
    check = groups(load_run(changed(honest, tmp_path / "copy", change, honest=True)))
    assert check.failed
    assert reason in check.reason


def test_an_assignment_that_the_run_did_not_write_fails(honest, tmp_path):
    check = groups(
        load_run(changed(honest, tmp_path / "copy", _copies_records, honest=False))
    )
    assert check.failed
    assert "not the assignment that the run wrote" in check.reason


def test_an_assignment_that_is_gone_is_not_shown(honest, tmp_path):
    copy = changed(honest, tmp_path / "copy", lambda arrays: None, honest=True)
    (copy / CLIENTS).unlink()
    check = groups(load_run(copy))
    assert check.outcome == "not shown"
    assert check.required
    assert CLIENTS in check.missing[0]
