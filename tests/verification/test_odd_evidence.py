"""Odd values in every field of ledger, record and noise lines end in a verdict.

The ledger's chain of hashes is made anew after each edit, as a careful forger would.
"""

import copy
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privplan.book.entry import booking_of
from privplan.errors import BrokenRunError, InputError, PrivplanError
from privplan.evidence.noise import NOISE_EVIDENCE
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.record import LEDGER, PLAN, RECORD, ReleaseRecord
from privplan.verification.checks import ledger as ledger_checks
from privplan.verification.checks import record as record_fields
from privplan.verification.verify import judge, load_run
from simulate.engine import loop
from tests.command import answer, refused
from tests.simulate.replay.runs import ROUNDS

Path_ = tuple[str | int, ...]
VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    2,
    0.5,
    0.99,
    999,
    1e-320,
    1e-100,
    1e100,
    1e308,
    10**15,
    2**64 - 1,
    "",
    "x",
    "record",
    "client",
    "silent",
    "none",
    "discrete_gaussian",
    "full",
    "fixed_size",
    "running",
    "stopped",
    "secure",
    [],
    [0],
    [0, 0],
    {},
    {"x": 1},
]
DECLARED = {
    LEDGER: {"clipped", "excluded", "along_sum", "largest_norm"},
    RECORD: {
        "schema_version",
        "algorithm",
        "dataset",
        "partition",
        "device",
        "aggregation",
        "numbers",
        "processes",
        "versions",
        "metrics",
        "accuracy",
        "accuracy_by_class",
        "accuracy_by_group",
        "wall_seconds",
        "aggregator",
        "masks",
        "audit",
    },
    NOISE_EVIDENCE: {"sum_norm", "tails", "close", "lag", "autocorrelation"},
}
"""Fields, by file, that may have another value and nothing in the folder contradicts it."""


def read(folder, name):
    text = (folder / name).read_text()
    if name == RECORD:
        return json.loads(text)
    lines = [json.loads(line) for line in text.splitlines()]
    return [line["release"] for line in lines] if name == LEDGER else lines


def write(folder, name, data):
    """Write plain data; a ledger with its chain, which the record gets, too."""
    if name == RECORD:
        (folder / RECORD).write_text(json.dumps(data))
        return
    if name == LEDGER:
        chain = Plan.load(folder / PLAN).digest
        text = ""
        for line in data:
            written, chain = chained(ReleaseRecord.model_validate(line), chain)
            text += written
        write(folder, RECORD, {**read(folder, RECORD), "chain": chain})
    else:
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in data)
    (folder / name).write_text(text)


def edited(data, path, value):
    new = copy.deepcopy(data)
    inner = new
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return new


def paths(data, path=()):
    """The paths of all fields, and of the first and the last item of each list."""
    if path:
        yield path
    keys: list[Any] = []
    if isinstance(data, dict):
        keys = list(data)
    elif isinstance(data, list):
        keys = sorted({0, len(data) - 1} & set(range(len(data))))
    for key in keys:
        yield from paths(data[key], (*path, key))


def value_at(data, path):
    for step in path:
        data = data[step]
    return data


@pytest.mark.parametrize(
    "name", [LEDGER, RECORD, pytest.param(NOISE_EVIDENCE, marks=pytest.mark.slow)]
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(draw=st.data())
def test_no_odd_value_is_a_traceback_or_passes(name, run, draw):

    def contents():
        files = (LEDGER, RECORD, NOISE_EVIDENCE)
        return {file: (run / file).read_bytes() for file in files}

    honest = contents()
    data = read(run, name)
    path = draw.draw(st.sampled_from(list(paths(data))), label="path")
    value = draw.draw(st.sampled_from(VALUES), label="value")
    if json.dumps(value_at(data, path)) == json.dumps(value):
        return
    try:
        write(run, name, edited(data, path, value))
        outcome = judge(load_run(run), 0).outcome
    except (PrivplanError, ValidationError):
        # A validation error comes from ``write``: no line can hold the value.
        return
    finally:
        written = contents()
        for file, content in honest.items():
            (run / file).write_bytes(content)
    if outcome == "kept":
        # The value was read as the one that was there, such as 1 for 1.0.
        is_same = written == honest
        assert is_same or DECLARED[name] & set(map(str, path)), (path, value)


def verdict(folder):
    return judge(load_run(folder), 0)


EDITS: list[tuple[str, Path_, Any, str]] = [
    (LEDGER, (2, "unit"), "record", "line 3: unit"),
    (LEDGER, (2, "noise_std"), 0, "line 3: noise_std"),
    (LEDGER, (2, "dimension"), 0, "line 3: dimension"),
    (LEDGER, (2, "shares"), [], "line 3: shares"),
    (LEDGER, (2, "residual", "along_sum"), 1e308, "line 3: residual.along_sum"),
    (LEDGER, (2, "family"), "silent", "line 3: noise_std"),
    (LEDGER, (2, "steps"), 10**15, "line 3: steps"),
    (LEDGER, (2, "shares", 0, "clipped"), 1000, "must be at most the cohort of"),
    (LEDGER, (2, "shares", 0, "cohort"), 10**6, "clients"),
    (LEDGER, (2, "shares", 0, "records"), 7, "records: is only for unit: record"),
    (LEDGER, (2, "shares", 0, "clip_bound"), 0, "clip_bound"),
    (
        LEDGER,
        (2, "shares", 0, "sampling"),
        "full",
        "must be 1 under full participation",
    ),
    (
        NOISE_EVIDENCE,
        (1, "projections"),
        [],
        "projections: must be 128 numbers, found 0",
    ),
    (NOISE_EVIDENCE, (1, "autocorrelation"), 1e308, "autocorrelation"),
    (NOISE_EVIDENCE, (1, "round"), 999, "round 999"),
    (RECORD, ("rounds_done",), 0, "record.rounds_done"),
    (RECORD, ("status",), "running", "record.status"),
    (RECORD, ("model",), "cnn-2", "record.model: must be mlp-digits"),
    (RECORD, ("configuration",), {}, "record.configuration.rounds"),
    (RECORD, ("configuration", "clients"), 7, "record.configuration.clients"),
    (
        RECORD,
        ("configuration", "data"),
        "0" * 64,
        "must be the digest of the data in the evidence",
    ),
    (RECORD, ("configuration", "canaries"), 10, "record.configuration.canaries"),
    (RECORD, ("metrics", 0, "round"), 999, "record.metrics"),
    (RECORD, ("accuracy",), None, "record.accuracy"),
    (RECORD, ("accuracy",), 0.01, "record.accuracy"),
    (RECORD, ("accuracy_by_group", "nobody"), 0.5, "record.accuracy_by_group"),
    (RECORD, ("weights",), {"nobody": 0.5}, "record.weights"),
    (RECORD, ("executed", "coordinates"), 10**15, "record.executed.coordinates"),
    (RECORD, ("noise",), "secure", "record.noise"),
]


@pytest.mark.parametrize(("name", "path", "value", "rule"), EDITS)
def test_the_rule_that_is_broken_is_named(name, path, value, rule, run):
    before = verdict(run)
    write(run, name, edited(read(run, name), path, value))
    after = verdict(run)
    assert after.exit_code == 4
    assert any(rule in check.reason for check in after.failed), after.failed
    # Never a smaller epsilon.
    for group, edited_group in zip(before.groups, after.groups, strict=True):
        epsilon = edited_group.realised_upper
        if name == LEDGER:
            assert epsilon is None
        assert epsilon is None or epsilon >= group.realised_upper
    if name != NOISE_EVIDENCE:
        assert "run, verdict broken" in answer("report", "--format", "json", run)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("accuracy",), -3),
        (("accuracy",), 1.01),
        (("metrics", 0, "accuracy"), 2),
        (("accuracy_by_class", "3"), -0.1),
    ],
)
def test_an_accuracy_that_is_no_share_is_refused(path, value, run):
    write(run, RECORD, edited(read(run, RECORD), path, value))
    field = ".".join(map(str, path))
    assert f"record.{field}: must be in [0, 1], found {value}" in refused("verify", run)


def test_a_metric_of_a_name_need_not_be_a_share(run):
    record = read(run, RECORD)
    record["configuration"]["metric"] = "mean squared error"
    write(run, RECORD, edited(record, ("accuracy",), 17.5))
    assert verdict(run).accuracy == 17.5


def test_a_number_that_json_cannot_hold_is_refused(run):
    text = json.dumps(
        edited(read(run, RECORD), ("configuration", "numbers"), {"rho": 7.25})
    )
    (run / RECORD).write_text(text.replace("7.25", "1e999"))
    with pytest.raises(
        InputError, match=r"record.configuration: must hold finite numbers"
    ):
        load_run(run)


def test_a_release_of_records_in_a_plan_of_clients_bounds_nothing(run):
    """Each would count for its own cohort, and epsilon would be that of one release."""
    lines = read(run, LEDGER)
    [share, *_] = lines[2]["shares"]
    share |= {"participants": [0], "cohort": 1, "clipped": 1}
    write(
        run,
        LEDGER,
        edited(lines, (2,), {**lines[2], "unit": "record", "shares": [share]}),
    )
    edited_verdict = verdict(run)
    assert all(group.realised_upper is None for group in edited_verdict.groups)
    assert "protects records, planned are clients" in str(edited_verdict.failed)


def test_a_broken_line_is_not_booked(run):
    write(run, LEDGER, edited(read(run, LEDGER), (2, "shares"), []))
    line = refused("book", "add", run, "--address", run.parent / "book.sqlite")
    assert "line 3: shares: must name a group" in line


def test_a_run_with_a_contradiction_is_booked_at_infinite_cost_only(run):
    write(run, RECORD, edited(read(run, RECORD), ("rounds_done",), 1))
    with pytest.raises(BrokenRunError, match=r"record\.rounds_done"):
        booking_of(run, "people")
    assert booking_of(run, "people", infinite=True).run.cost == "infinite for good"


def _running(record):
    ended = {
        "chain": "",
        "accuracy": None,
        "accuracy_by_class": {},
        "accuracy_by_group": {},
    }
    return {**record, **ended, "status": "running"}


@pytest.mark.parametrize("done", [0, 1, ROUNDS])
def test_a_run_that_was_killed_contradicts_nothing(done, run):
    """Its record may be the first one, while the ledger has every round."""
    record = _running(read(run, RECORD))
    record |= {
        "rounds_done": done,
        "metrics": [m for m in record["metrics"] if m["round"] <= done],
    }
    write(run, RECORD, record)
    [check] = [check for check in verdict(run).checks if check.name == "record"]
    assert check.passed, check.reason


@pytest.mark.parametrize(
    ("status", "unit", "fault", "done", "count"),
    [
        ("running", "client", None, 4, 0),
        ("running", "client", None, 5, 1),
        ("running", "client", "line 5", 5, 0),
        ("running", "record", None, 5, 0),
        ("running", "record", None, 11, 1),
        ("stopped", "client", None, 4, 0),
        ("stopped", "client", None, 3, 1),
        ("complete", "client", None, 4, 1),
    ],
)
def test_rounds_that_are_done_are_in_the_ledger(status, unit, fault, done, count):
    """Of 10 planned rounds 4 are; clients who take turns may leave rounds empty."""
    run = SimpleNamespace(
        record=SimpleNamespace(status=status, rounds_done=done, seed=None),
        plan=SimpleNamespace(spec=SimpleNamespace(rounds=10, unit=unit)),
        ledger=SimpleNamespace(fault=fault, records=[SimpleNamespace(round=4)]),
    )
    assert len([*record_fields._progress(run)]) == count


def test_a_client_takes_part_as_often_as_planned():
    """One that protects records: the rounds, the steps and the client are named."""

    def faults(*rounds, steps=3, cohort=2.0):
        shares = [
            (
                SimpleNamespace(round=round_, steps=steps),
                SimpleNamespace(participants=(5,)),
            )
            for round_ in rounds
        ]
        run = SimpleNamespace(
            plan=SimpleNamespace(spec=SimpleNamespace(rounds=10)),
            shares=lambda name: shares,
        )
        group = SimpleNamespace(
            name="all", steps=3, participations=2, expected_cohort=cohort
        )
        return [*ledger_checks._participations(run, group)]

    assert faults(1, 10) == []
    assert faults(1, 2, 3) == ["all: client 5 took part in 3 rounds, planned 2"]
    assert faults(1, 11) == ["round 11, all: only 10 rounds were planned"]
    assert faults(1, steps=4) == ["round 1, all: 4 noisy steps, planned 3"]
    assert faults() == faults(cohort=0.1) == ["all: no release is in the ledger"]
    # Nine tenths of a turn in ten rounds: nobody of the group need have had one.
    assert faults(cohort=0.09) == []


def test_all_clients_of_a_small_run_are_evaluated():
    assert record_fields.EVALUATED_CLIENTS == loop.EVALUATED_CLIENTS
