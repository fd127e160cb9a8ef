"""The journal is written before use, never mended quietly; runs that share noise are named."""

import json

import pytest

from privplan.errors import InputError
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import LEDGER, RECORD
from simulate.algorithms.registry import ALGORITHMS
from simulate.engine.loop import train
from simulate.runs.compare import repeated_noise, run_folders
from simulate.runs.ledger_writer import FileLedger, MemoryLedger
from tests.command import privplan
from tests.simulate import small, tiny
from tests.simulate.conftest import digits_spec
from tests.simulate.engine.test_engine import build

DIGEST = "d" * 64


def releases():
    """The six releases of a whole run, two per round."""
    ledger = MemoryLedger(DIGEST)
    train(tiny.setting(build("GDPFed")), ledger)
    return ledger.records


def written(folder, count=6):
    """A ledger with the first releases; returns the chain after the fourth."""
    ledger, records, chain = FileLedger(folder, DIGEST, DIGEST), releases(), ""
    for index in range(0, count, 2):
        ledger.append(records[index : index + 2])
        chain = ledger.chain if index == 2 else chain
    return chain


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
    other = releases()[4].model_copy(update={"noise_sum_squares": 1.0})
    with pytest.raises(InputError, match="round 3 came out differently"):
        FileLedger(tmp_path, DIGEST, chain).append([other])
    assert (tmp_path / LEDGER).read_bytes() == before


@pytest.mark.parametrize("cut", [1, 2, 100, 500])
def test_a_torn_last_line_is_dropped_and_written_again(tmp_path, cut):
    chain = written(tmp_path)
    whole = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(whole[:-cut])
    ledger = FileLedger(tmp_path, DIGEST, chain)
    ledger.append(releases()[4:])
    assert (tmp_path / LEDGER).read_bytes() == whole


def test_an_edited_line_is_refused_and_located(tmp_path):
    chain = written(tmp_path)
    text = (tmp_path / LEDGER).read_text()
    (tmp_path / LEDGER).write_text(text.replace('"noise_std":10.0', '"noise_std":20.0', 1))
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


@pytest.mark.parametrize("name", [one for one, row in ALGORITHMS.items() if row.unit != "record"])
def test_every_algorithm_books_every_group_in_every_round(name):
    found = ALGORITHMS.get(name)
    built = found.build(small.plan("per_group"))
    ledger = MemoryLedger(DIGEST)
    train(small.setting(built), ledger)
    booked = [(record.round, share.group) for record in ledger.records for share in record.shares]
    rounds = range(1, small.ROUNDS + 1)
    expected = [(round_, group) for round_ in rounds for group in small.EPSILONS]
    if built.mechanism.release_client is not None:  # a line per client
        assert list(dict.fromkeys(booked)) == expected
    else:
        assert booked == expected


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repeated")
    solve(digits_spec(rounds=3), second_opinion=False).save(folder / "plan.json")
    done = compared(folder, "iid", "first")
    assert done.exit_code == 0, done.output
    assert "repeated noise" not in done.output
    return folder


def compared(folder, partition, name, *more):
    common = ["--algorithms", "GDPFed,GDPFed+", "--seeds", "2", "--partition", partition]
    command = ["compare", str(folder / "plan.json"), *common, "-o", str(folder / name), *more]
    return privplan(*command)


def test_the_same_seeds_on_other_data_are_reported(comparison):
    first = comparison / "first"
    done = compared(comparison, "dirichlet:1", "second", "--against", str(first))
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if "repeated noise" in line]
    assert len(lines) == 8  # two algorithms here and there, for each of two seeds
    rounds = Plan.load(comparison / "plan.json").spec.rounds
    expected = f"second/GDPFed/seed-0 and {first}/GDPFed/seed-0 have {3 * rounds} equal noise"
    assert any(expected in line for line in lines)


def test_noise_that_a_run_repeats_is_reported(comparison, tmp_path):
    [run, *_] = run_folders(comparison / "first")
    lines = (run / LEDGER).read_text().splitlines(keepends=True)
    (tmp_path / LEDGER).write_text("".join([*lines, lines[0]]))
    (tmp_path / RECORD).write_text((run / RECORD).read_text())
    assert list(repeated_noise([tmp_path])) == [
        f"repeated noise: {tmp_path} draws 1 times from an earlier state"
    ]


def test_releases_without_noise_states_are_no_repetition(comparison, tmp_path):
    [run, *_] = run_folders(comparison / "first")
    line = json.loads((run / LEDGER).read_text().splitlines()[0])
    line["release"]["noise_state"] = ""
    (tmp_path / LEDGER).write_text(2 * (json.dumps(line) + "\n"))
    (tmp_path / RECORD).write_text((run / RECORD).read_text())
    assert list(repeated_noise([tmp_path])) == []
