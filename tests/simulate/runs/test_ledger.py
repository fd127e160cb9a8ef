"""The ledger is written before its releases are used, and never mended quietly."""

from itertools import product

import pytest

from privplan.errors import InputError
from privplan.ledger import read_ledger
from privplan.record import LEDGER
from simulate.algorithms.registry import ALGORITHMS
from simulate.engine.loop import train
from simulate.runs.ledger_writer import FileLedger, MemoryLedger
from tests.simulate import small, tiny
from tests.simulate.engine.test_engine import build

DIGEST = "d" * 64


def releases():
    """The six releases of a whole run, two per round."""
    ledger = MemoryLedger(DIGEST)
    train(tiny.setting(build("GDPFed")), ledger)
    return ledger.records


def written(folder, count=6):
    """A ledger with the first releases; returns the chain after the fourth."""
    ledger = FileLedger(folder, DIGEST, DIGEST)
    records = releases()
    chains = []
    for index in range(0, count, 2):
        ledger.append(records[index : index + 2])
        chains.append(ledger.chain)
    return chains[1] if len(chains) > 1 else ""


def test_lines_are_chained_from_the_plan(tmp_path):
    written(tmp_path)
    text = read_ledger(tmp_path, DIGEST)
    assert text.fault is None
    assert list(text.records) == releases()
    memory = MemoryLedger(DIGEST)
    memory.append(releases())
    assert text.chain == memory.chain
    assert "does not follow" in (read_ledger(tmp_path, "e" * 64).fault or "")


def test_a_replayed_release_is_not_written_twice(tmp_path):
    chain = written(tmp_path)
    before = (tmp_path / LEDGER).read_bytes()
    ledger = FileLedger(tmp_path, DIGEST, chain)
    ledger.append(releases()[4:])
    assert (tmp_path / LEDGER).read_bytes() == before
    ledger.append(releases()[:1])  # anything more is appended
    assert (tmp_path / LEDGER).read_bytes().count(b"\n") == 7


def test_a_replay_that_differs_is_refused_and_nothing_is_written(tmp_path):
    chain = written(tmp_path)
    before = (tmp_path / LEDGER).read_bytes()
    changed = releases()[4].model_copy(update={"noise_sum_squares": 1.0})
    with pytest.raises(InputError, match="round 3 came out differently"):
        FileLedger(tmp_path, DIGEST, chain).append([changed])
    assert (tmp_path / LEDGER).read_bytes() == before


@pytest.mark.parametrize("cut", [1, 2, 100, 500])
def test_a_torn_last_line_is_dropped_and_written_again(tmp_path, cut):
    chain = written(tmp_path)
    content = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(content[:-cut])
    FileLedger(tmp_path, DIGEST, chain).append(releases()[4:])
    assert (tmp_path / LEDGER).read_bytes() == content


def test_an_edited_line_is_refused_and_located(tmp_path):
    chain = written(tmp_path)
    text = (tmp_path / LEDGER).read_text()
    (tmp_path / LEDGER).write_text(
        text.replace('"noise_std":10.0', '"noise_std":20.0', 1)
    )
    with pytest.raises(InputError, match="line 1 does not follow"):
        FileLedger(tmp_path, DIGEST, chain)


def test_a_ledger_that_ends_before_the_checkpoint_is_refused(tmp_path):
    chain = written(tmp_path)
    (tmp_path / LEDGER).unlink()
    with pytest.raises(InputError, match="checkpoint: must continue the releases"):
        FileLedger(tmp_path, DIGEST, chain)
    written(tmp_path, count=2)
    with pytest.raises(InputError, match="checkpoint: must continue the releases"):
        FileLedger(tmp_path, DIGEST, chain)


@pytest.mark.parametrize(
    "name", [name for name, entry in ALGORITHMS.items() if entry.unit != "record"]
)
def test_every_algorithm_books_every_group_in_every_round(name):
    built = ALGORITHMS.get(name).build(small.plan("per_group"))
    ledger = MemoryLedger(DIGEST)
    train(small.setting(built), ledger)
    booked = []
    for record in ledger.records:
        booked += [(record.round, share.group) for share in record.shares]
    expected = list(product(range(1, small.ROUNDS + 1), small.EPSILONS))
    if built.mechanism.release_client is not None:  # a line per client
        assert list(dict.fromkeys(booked)) == expected
    else:
        assert booked == expected
