"""What a stranger made costs its reader one line, little time and 1 GB, and no code."""

import os
import pickle
import re
import resource
import shutil
import signal
import socket
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from privplan import limits, solve
from privplan.plan import Plan
from privplan.spec.presets import preset
from tests.command import privplan
from tests.verification import honest_run

SECONDS = 10
BYTES = 2**30
SPEC = preset("digits")
RUN_CODE = "import pathlib; pathlib.Path('executed').touch()"
BATCH = "cifar-10-batches-py/data_batch_1"
ARRAY = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt"


def header(shape, kind="<f8"):
    """The beginning of an .npy file, without numbers."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def zipped(name, content=b""):
    def make(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)

    return make


def text(content):
    return lambda it: it.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def link(target):
    return lambda path: path.symlink_to(target)


def changed(old, new):
    return lambda path: path.write_text(path.read_text().replace(old, new, 1))


def sparse(path):
    path.touch()
    os.truncate(path, 2**40)


def bound(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def objects(path):
    np.savez(path, x=np.array([{1}, {2}], object), y=[0, 1])


def spec(old, new):
    return lambda path: path.write_text(
        re.sub(old, lambda _: new, SPEC, count=1, flags=re.M)
    )


def picture(side):
    """The beginning of an image of so many pixels in a row and in a column."""
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    sealed = struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    return text(b"\x89PNG\r\n\x1a\n" + sealed)


def table(path):
    """A table of a few KB whose rows would fill memory."""
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="pip install 'privplan[tables]'"
    )
    import pyarrow

    lists = pyarrow.array([[0] * 2**22] * 2, pyarrow.list_(pyarrow.int8()))
    parquet.write_table(pyarrow.table({"y": [0, 1], "x": lists}), path)


def infinite(path):
    path.write_text(re.sub(r'("wall_seconds":) [^,]*', r"\1 1e999", path.read_text()))


def device(path):
    """A plan whose initial parameters are a device."""
    start = "{name: mlp-digits, parameters: 2410"
    initial = "initial: {file: /dev/zero, sha256: " + "ab" * 32 + "}"
    content = SPEC.replace(start, f"{start}, {initial}", 1)
    (path.parent / "i.yaml").write_text(content)
    solve(path.parent / "i.yaml").save(path)


def crowded(path):
    """A plan of 10^9 clients in each group."""
    plan = Plan.load(path)
    clients = 10**9
    groups = tuple(
        group.model_copy(
            update={
                "clients": clients,
                "expected_cohort": group.sampling_ratio * clients,
            }
        )
        for group in plan.groups
    )
    of_spec = tuple(
        group.model_copy(update={"clients": clients}) for group in plan.spec.groups
    )
    spec = plan.spec.model_copy(update={"groups": of_spec})
    plan.model_copy(update={"groups": groups, "spec": spec}).save(path)


DEEP = "[" * 10**5
LONG = "9" * 10**5
ALIASES = "a0: &a0 [1]\n" + "".join(
    f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 30)
)
VERIFY = "verify run --rounds=0"
SOLVE = "solve given.yaml"
PICKLED = "simulate plan.json --algorithm planned --dataset cifar-10 --data-dir ."
OWN_DATA = "simulate plan.json --algorithm planned --data own.npz"
TABLE = "check-data own.parquet --label y --statistics none"
SVHN = "simulate plan.json --algorithm planned --dataset svhn --data-dir ."
PACKED = zlib.compress(bytes(2**24))
MATLAB = bytes(124) + b"\0\1IM" + struct.pack("<II", 15, len(PACKED)) + PACKED
CASES = {
    # run folders
    "device for noise": ("run/noise.jsonl", link("/dev/zero"), VERIFY),
    "dangling link": ("run/evidence.jsonl", link("/nowhere/at/all"), VERIFY),
    "link to a folder": ("run/guard", link("/etc"), VERIFY),
    "socket": ("run/socket", bound, VERIFY),
    "pipe of vectors": ("run/vectors.bin", os.mkfifo, VERIFY),
    "huge ledger": ("run/ledger.jsonl", sparse, VERIFY),
    "huge plan": ("run/plan.json", sparse, VERIFY),
    "link for a verdict": ("run/verdict.json", link("../spec.yaml"), VERIFY),
    "many clients": ("run/plan.json", crowded, VERIFY),
    "folder for record": ("run/record.json", Path.mkdir, VERIFY),
    "folder for verdict": ("run/verdict.json", Path.mkdir, VERIFY),
    "folder for ledger": ("run/ledger.jsonl", Path.mkdir, VERIFY),
    "deep record": ("run/record.json", text(DEEP), VERIFY),
    "deep plan": ("run/plan.json", text(DEEP), VERIFY),
    "deep plan of keys": ("run/plan.json", text('{"a":' * 10**5), VERIFY),
    "YAML bomb for a plan": ("run/plan.json", text(ALIASES), VERIFY),
    "nothing for a record": ("run/record.json", text(b""), VERIFY),
    "zeros for a record": ("run/record.json", text(bytes(1000)), VERIFY),
    "no UTF-8": ("run/ledger.jsonl", text(b"\xff\xfe" * 99), VERIFY),
    "huge number": ("run/record.json", changed('"seed": ', f'"seed": {LONG}'), VERIFY),
    "not a number": ("run/record.json", changed('"wall_seconds": ', '"wall_seconds": NaN, "x": '),
                     VERIFY),
    "infinite": ("run/record.json", infinite, VERIFY),
    "key twice": ("run/record.json", changed("{", '{"seed": 1,'), VERIFY),
    "cut plan": ("run/plan.json", lambda path: os.truncate(path, 500), VERIFY),
    "cut ledger": ("run/ledger.jsonl", lambda path: os.truncate(path, 500), VERIFY),
    "control letters": ("run/plan.json", changed('"name": "', '"name": "\\u001b[2J'), VERIFY),
    "archive bomb in a run": ("run/clients.npz", zipped("x.npy", bytes(2**24)), VERIFY),
    "cut header in a run": ("run/clients.npz", zipped("group.npy", header("(" * 9)), VERIFY),
    "pipe for a replay": ("run/replay.json", os.mkfifo, "replay run"),
    "link for a replay": ("run/replay.json", link("/etc/passwd"), "book add run --address b"),
    "device for a report": ("run/record.json", link("/dev/zero"), "report --registry run"),
    # specs and plans
    "alias bomb": ("given.yaml", text(ALIASES), SOLVE),
    "deep brackets": ("given.yaml", text(f"a: {DEEP}"), SOLVE),
    "much text": ("given.yaml", text("a: [" + "1," * 10**6 + "]"), SOLVE),
    "code in a tag": ("given.yaml", text(f'a: !!python/object/apply:exec ["{RUN_CODE}"]'), SOLVE),
    "huge budget": ("given.yaml", spec("^rounds: .*", f"rounds: {LONG}"), SOLVE),
    "no budget": ("given.yaml", spec("^delta: .*$", "delta: .nan"), SOLVE),
    "field twice": ("given.yaml", text(SPEC + "\nrounds: 3\n"), SOLVE),
    "pipe for a spec": ("given.yaml", os.mkfifo, SOLVE),
    "device for a spec": ("given.yaml", link("/dev/zero"), SOLVE),
    "name with code": ("given.yaml", spec("name: strict", "name: 'x\"\"\"; exec(1)'"), SOLVE),
    "name of control letters": ("given.yaml", spec("name: strict", "name: \x1b]0;x"), SOLVE),
    "parameters of a device": ("given.json", device, "simulate given.json --algorithm planned"),
    # data sets
    "code in a pickle": (BATCH, text(f"cbuiltins\nexec\n(V{RUN_CODE}\ntR.".encode()), PICKLED),
    "state of a function": (BATCH, text(b"c_codecs\nencode\n}Vx\nI1\nsb."), PICKLED),
    "huge place in a pickle": (BATCH, text(b"\x80\x02}r\xff\xff\xff\x7f."), PICKLED),
    "huge array in a pickle": (BATCH, text(ARRAY + b"VO\ntR."), PICKLED),
    "pipe for a pickle": (BATCH, os.mkfifo, PICKLED),
    "device for a pickle": (BATCH, link("/dev/zero"), PICKLED),
    "deep pickle": (BATCH, text(b"(" * 10**5 + b"." ), PICKLED),
    "objects in an archive": ("own.npz", objects, OWN_DATA),
    "huge array": ("own.npz", zipped("x.npy", header("(1" + "0" * 13 + ",)")), OWN_DATA),
    "huge shape": ("own.npz", zipped("x.npy", header("(" + "9" * 30 + ",)")), OWN_DATA),
    "archive bomb": ("own.npz", zipped("x.npy", bytes(2**24)), OWN_DATA),
    "cut archive": ("own.npz", text(b"PK\x03\x04" + bytes(99)), OWN_DATA),
    "zip slip": ("own.npz", zipped("../../slip.npy", header("(2,)") + bytes(16)), OWN_DATA),
    "pipe of data": ("own.npz", os.mkfifo, OWN_DATA),
    "huge picture": ("own/c/0/a.png", picture(10**4), "check-data own"),
    "pipe for a picture": ("own/c/0/a.png", os.mkfifo, "check-data own"),
    "packed table": ("own.parquet", table, TABLE),
    "pipe for a table": ("own.parquet", os.mkfifo, TABLE),
    "packed MATLAB": ("SVHN/train_32x32.mat", text(MATLAB), SVHN),
    "pipe for MATLAB": ("SVHN/train_32x32.mat", os.mkfifo, SVHN),
}  # fmt: skip


EDITED = {
    "huge number",
    "not a number",
    "infinite",
    "key twice",
    "cut plan",
    "cut ledger",
    "control letters",
    "many clients",
}
"""Cases that change a file which was there."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An honest run, a plan, and a data set whose files hold no records."""
    folder = tmp_path_factory.mktemp("clean")
    (folder / "run").mkdir()
    honest_run.write_run(folder / "run", honest_run.releases(honest_run.plan()))
    (folder / "spec.yaml").write_text(SPEC)
    solve(folder / "spec.yaml").save(folder / "plan.json")
    (folder / "SVHN").mkdir()
    (folder / "SVHN" / "test_32x32.mat").touch()
    (folder / BATCH).parent.mkdir()
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        (folder / BATCH).with_name(name).write_bytes(pickle.dumps({b"data": 0}))
    return folder


@pytest.fixture
def place(tmp_path, clean, monkeypatch):
    shutil.copytree(clean, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TooLong(BaseException):
    """No reader takes it for a fault of a file."""


@pytest.fixture
def bounded(monkeypatch):
    monkeypatch.setattr(limits, "MOST_UNPACKED", 2**20)

    def stop(*_):
        raise TooLong

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, before[1]))
    # The clock runs while the process waits, on a busy machine.
    signal.alarm(6 * SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def sizes(folder):
    """The size of each file and folder, in bytes; links are not followed."""
    return {path: path.lstat().st_size for path in folder.rglob("*")}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_in_one_line(name, place, request):
    file, make, words = CASES[name]
    path = place / file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and name not in EDITED:
        path.unlink()
    make(path)
    before = sizes(place)
    request.getfixturevalue("bounded")
    done = privplan(*words.split())
    assert done.exit_code == 2, (done.exit_code, done.output[-500:], done.exception)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    after = sizes(place)
    assert after == before, after.keys() ^ before.keys()
