"""A run folder is closed: other files are named, and free text is refused."""

import json
import zipfile

import numpy as np
import pytest

from privplan.auditing import AuditEvidence, GroupTraces
from privplan.errors import InputError
from privplan.evidence.clients import CLIENTS, read_clients
from privplan.folder import unknown_files
from privplan.plan import Plan
from privplan.record import CHECKPOINT, RECORD, RunRecord
from privplan.verification.verify import judge, load_run
from tests.verification import honest_run

SUMS = "9f3a" * 40  # as if clear sums, in hexadecimal digits


@pytest.fixture
def folder(tmp_path):
    honest_run.write_run(tmp_path)
    return tmp_path


def _check(folder):
    verdict = judge(load_run(folder), 0)
    by_name = {check.name: check for check in verdict.checks}
    return by_name["folder"], verdict.outcome


def test_what_privplan_writes_is_known(folder):
    (folder / "tracking" / "mlflow").mkdir(parents=True)
    (folder / "tracking" / "mlflow" / "meta.yaml").touch()
    (folder / ".record.json.8a_x.tmp").touch()
    (folder / ".lock").touch()
    check, outcome = _check(folder)
    assert check.passed
    assert "killed writers left .record.json.8a_x.tmp" in check.reason
    assert outcome == "kept"


@pytest.mark.parametrize(
    "name",
    [
        "sums.npy",
        "record.json.bak",
        ".hidden",
        "guard.txt",
        "tracking",
        "guard/x.bin",
        "x/y.bin",
    ],
)
def test_an_unknown_file_is_named_and_the_run_is_unverified(name, folder):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"clear sums")
    check, outcome = _check(folder)
    assert check.outcome == "not shown"
    assert check.required
    assert outcome == "unverified"
    named = name if name.startswith("guard/") else name.partition("/")[0]
    assert list(unknown_files(folder)) == [named]
    assert named.partition("/")[0] in check.reason


@pytest.mark.parametrize(
    "name", ["initial.npy", "audit.json", "guard/release-1.bin", ".audit.json.8a_x.tmp"]
)
def test_a_file_that_plan_and_record_leave_no_place_for_is_named(name, folder):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"clear sums")
    check, outcome = _check(folder)
    assert outcome == "unverified"
    assert name.partition("/")[0] in check.reason


def test_the_lock_is_empty(folder):
    (folder / ".lock").write_bytes(b"clear sums")
    check, outcome = _check(folder)
    assert outcome == "unverified"
    assert "what .lock may hold" in check.reason


def test_many_unknown_files_are_counted(folder):
    for number in range(12):
        (folder / f"sum-{number:02}").touch()
    assert "sum-04 and 7 more" in _check(folder)[0].reason


def test_the_state_of_training_beside_a_finished_run_is_named(folder):
    (folder / CHECKPOINT).write_bytes(b"personal parameters")
    check, outcome = _check(folder)
    assert "holds the state of its clients" in check.reason
    assert outcome == "unverified"


def test_the_assignment_of_clients_has_no_further_array(folder):
    np.savez(folder / CLIENTS, **read_clients(folder), sums=np.ones(5))
    with pytest.raises(InputError, match="clients: must be the assignment"):
        read_clients(folder)


def test_the_archive_of_clients_holds_nothing_but_arrays(folder):
    content = (folder / CLIENTS).read_bytes()
    (folder / CLIENTS).write_bytes(bytes(5000) + content)
    with pytest.raises(InputError, match="clients: must be the assignment"):
        read_clients(folder)
    (folder / CLIENTS).write_bytes(content)
    with zipfile.ZipFile(folder / CLIENTS, "a") as archive:
        archive.comment = b"a sum"
    with pytest.raises(InputError, match="clients: must be the assignment"):
        read_clients(folder)


# Entries and fields that some runs have, and this one cannot.
IMPOSSIBLE = {
    "configuration.noise_commitment": {"noise_commitment": "ab" * 32},
    "configuration.evidence": {"evidence": "public"},
    "configuration.tuned": {"tuned": True},
    "configuration.test": {"test": "others"},
    "configuration.task": {"task": "regression"},
    "configuration.metric": {"metric": "f1"},
}


@pytest.mark.parametrize("field", IMPOSSIBLE)
def test_a_record_has_no_entry_that_its_run_cannot_have(field, folder):
    record = RunRecord.load(folder)
    configuration = {**record.configuration, **IMPOSSIBLE[field]}
    record.model_copy(update={"configuration": configuration}).save(folder)
    [failed] = judge(load_run(folder), 0).failed
    assert failed.name == "record"
    assert failed.reason.startswith(f"record.{field}: ")


def test_a_record_has_parts_only_where_the_law_makes_them(folder):
    record = RunRecord.load(folder)
    [name] = [*honest_run.GROUPS][:1]
    record.model_copy(update={"parts": {name: (72, 73, 86)}}).save(folder)
    [failed] = judge(load_run(folder), 0).failed
    assert failed.reason.startswith(f"record.parts.{name}: must be the 0 parts")


# Places of a record that once took free text, and what would be written there.
FREE = {
    "an unknown entry": lambda record: record["configuration"].update(note=SUMS),
    "numbers by name": lambda record: record["configuration"].update(
        numbers={SUMS: 1.0}
    ),
    "many numbers": lambda record: record["configuration"].update(
        numbers={f"n{number}": number for number in range(33)}
    ),
    "metric": lambda record: record["configuration"].update(metric=SUMS),
    "task": lambda record: record["configuration"].update(task="t\x1b[2J"),
    "aggregation": lambda record: record["configuration"].update(aggregation=SUMS),
    "data": lambda record: record["configuration"].update(data=f"{SUMS}"),
    "own model": lambda record: record["configuration"].update(own_model="my model"),
    "versions": lambda record: record["versions"].update(mine=SUMS),
    "a version": lambda record: record["versions"].update(numpy=SUMS),
    "chain": lambda record: record.update(chain=SUMS),
    "audit": lambda record: record.update(audit="none"),
    "algorithm": lambda record: record.update(algorithm="FedAvg\nkept"),
    "partition": lambda record: record.update(partition=SUMS),
    "device": lambda record: record.update(device="cpu and so on"),
    "aggregator": lambda record: record["executed"].update(aggregator=SUMS),
    "masks": lambda record: record["executed"].update(
        masks=[{"index": number, "name": "m", "size": 5} for number in range(17)]
    ),
    "scores by class": lambda record: record.update(
        accuracy_by_class={f"c{number}": 0.5 for number in range(10_001)}
    ),
    "a score": lambda record: record.update(accuracy_by_class={"c": 1e101}),
}


@pytest.mark.parametrize("place", FREE)
def test_a_record_takes_no_free_text(place, folder):
    record = json.loads((folder / RECORD).read_text())
    record["executed"] = {
        "aggregator": "mean",
        "coordinates": 400,
        "shared": 400,
        "masks": [],
    }
    (folder / RECORD).write_text(json.dumps(record))
    RunRecord.load(folder)
    FREE[place](record)
    (folder / RECORD).write_text(json.dumps(record))
    with pytest.raises(InputError):
        RunRecord.load(folder)


CANARIES = 16
OF_CANARIES = {
    "honest": {},
    "plan": {"plan_digest": "x; drop"},
    "chain": {"chain": "x; drop"},
    "group": {"group": "x; drop"},
    "coins": {"canaries": CANARIES + 1},
}


@pytest.mark.parametrize("change", OF_CANARIES)
def test_the_canaries_of_a_run_have_no_free_text(change, folder):
    record = RunRecord.load(folder)
    changed = OF_CANARIES[change]
    count = changed.get("canaries", CANARIES)
    names = list(honest_run.GROUPS)
    if "group" in changed:
        names[0] = changed["group"]
    scores = (0.0,) * count
    groups = tuple(
        GroupTraces(
            group=name,
            included="01" * (count // 2) + "0" * (count % 2),
            rounds=scores,
            final=scores,
        )
        for name in names
    )
    audit = AuditEvidence(
        plan_digest=changed.get("plan_digest", Plan.load(folder).digest),
        chain=changed.get("chain", record.chain),
        orthogonal=True,
        groups=groups,
    )
    audit.save(folder)
    configuration = {**record.configuration, "canaries": CANARIES}
    updated = {"audit": audit.digest, "configuration": configuration}
    record.model_copy(update=updated).save(folder)
    verdict = judge(load_run(folder), 0)
    failed = [check.name for check in verdict.failed]
    assert failed == ([] if change == "honest" else ["audit"])
