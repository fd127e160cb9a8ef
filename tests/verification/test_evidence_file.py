"""Damaged or missing evidence is not the same as nothing to compare with."""

from collections.abc import Callable

import numpy as np
import pytest

from privplan.evidence.clients import CLIENTS, read_clients
from privplan.evidence.rounds import EVIDENCE
from privplan.record import RunRecord
from privplan.verification.verify import judge, load_run
from tests.command import refused, verify
from tests.simulate.replay.runs import replayed

# Checks that compare with the header of the evidence.
READERS = ("record", "groups", "coordinates")


# What a record says that evaluated no model.
UNEVALUATED = {
    "metrics": (),
    "accuracy": None,
    "accuracy_by_class": {},
    "accuracy_by_group": {},
}


def outcomes(verdict):
    return {
        check.name: check.outcome for check in verdict.checks if check.name in READERS
    }


def swap_clients(folder):
    """Another assignment of clients to groups, with the planned sizes."""
    arrays = read_clients(folder)
    arrays["group"] = arrays["group"][::-1]
    np.savez(folder / CLIENTS, **arrays)


def _line(number, change):
    def damage(text):
        lines = text.splitlines(keepends=True)
        lines[number - 1] = change(lines[number - 1])
        return "".join(lines)

    return damage


DAMAGES: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda text: "", "evidence.jsonl is empty"),
    "header is no JSON": (
        _line(1, lambda line: "{" + line),
        "line 1 of evidence.jsonl does not",
    ),
    "one digit of the header": (
        _line(1, lambda line: line.replace('"parameters":24', '"parameters":25')),
        "line 1 of evidence.jsonl does not",
    ),
    "one digit of a round": (
        _line(3, lambda line: line.replace('"round":2', '"round":1')),
        "line 3 of evidence.jsonl does not",
    ),
    "a round left out": (
        _line(2, lambda line: ""),
        "line 2 of evidence.jsonl does not",
    ),
    "a blank line": (lambda text: text + "\n", "line 5 of evidence.jsonl does not"),
    "last line cut off": (lambda text: text[:-40], "line 4 of evidence.jsonl is torn"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_evidence_breaks_the_run_and_names_the_line(name, run):
    damage, reason = DAMAGES[name]
    text = (run / EVIDENCE).read_text()
    (run / EVIDENCE).write_text(damage(text))
    assert (run / EVIDENCE).read_text() != text
    assert verify(run).exit_code == 4
    verdict = judge(load_run(run), 0)
    assert outcomes(verdict) == dict.fromkeys(READERS, "failed")
    assert all(check.reason.startswith(reason) for check in verdict.failed)
    assert EVIDENCE in refused(
        "book", "add", run, "--address", run.parent / "b", code=4
    )
    assert replayed(run).outcome == "failed"


def test_without_evidence_nothing_that_it_is_compared_with_passes(run):
    (run / EVIDENCE).unlink()
    swap_clients(run)
    verdict = judge(load_run(run), 0)
    assert outcomes(verdict) == dict.fromkeys(READERS, "not shown")
    assert verdict.outcome == "unverified"
    missing = set()
    for check in verdict.checks:
        if check.name in READERS:
            missing.update(check.missing)
    assert missing == {
        "the digest of the data (evidence.jsonl)",
        "the digest of the assignment of clients (evidence.jsonl)",
        "the number of parameters (evidence.jsonl)",
    }


def test_a_deployment_needs_no_evidence(run):
    (run / EVIDENCE).unlink()
    unsimulated = {
        "seed": None,
        "dataset": "",
        "partition": "",
        "model": "",
        "device": "",
    }
    change = {**unsimulated, **UNEVALUATED}
    RunRecord.load(run).model_copy(update=change).save(run)
    assert outcomes(judge(load_run(run), 0)) == dict.fromkeys(READERS, "passed")


def test_a_torn_last_line_of_an_unfinished_run_is_no_fault(run):
    (run / EVIDENCE).write_text((run / EVIDENCE).read_text()[:-40])
    unfinished = {"status": "running", "rounds_done": 2, "chain": ""}
    change = {**unfinished, **UNEVALUATED}
    RunRecord.load(run).model_copy(update=change).save(run)
    verdict = judge(load_run(run), 0)
    assert not verdict.failed
    assert outcomes(verdict) == dict.fromkeys(READERS, "passed")
    swap_clients(run)  # the header is still compared with
    assert outcomes(judge(load_run(run), 0))["groups"] == "failed"
