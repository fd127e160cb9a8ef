"""What malformed input may do: work, or be refused in lines that name what is wrong.

``PROPERTIES`` has one entry for each reader of the project: inputs, and a function that
fails when the promise is broken. The quick suite, the long suite and the atheris
harness share it.
"""

import io
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from click.testing import CliRunner
from hypothesis import strategies as st

from privplan.cli import main
from privplan.errors import InputError, PrivplanError
from privplan.ledger import chained
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.planning.sweep import parse_vary, points
from privplan.planning.sweep import with_point as varied
from privplan.record import LEDGER, PLAN, RECORD, ReleaseRecord
from privplan.spec.grouping import read_budgets
from privplan.spec.spec import Spec
from privplan.values import parse
from privplan.verification.verify import judge, load_run
from simulate.data.own_files import DataOptions
from simulate.data.pickles import read_pickle
from simulate.data.sources import load_own
from tests.fuzz import inputs as odd
from tests.planning.problems import spec_data
from tests.verification import honest_run

EXIT_CODES = {0, 2, 3, 4, 130}


@dataclass(frozen=True)
class Property:
    """One reader, what it is fed with, and how often."""

    inputs: st.SearchStrategy[Any]  # strategy of malformed inputs
    # Raises anything but a PrivplanError when the promise is broken.
    check: Callable[[Any], None]
    quick: int = 20  # inputs in the quick suite
    long: int = 1000  # inputs in the long suite


def refused(error):
    """The refusal is a printable line a fault, and never a wall of text."""
    lines = str(error).splitlines()
    assert lines
    assert error.exit_code in EXIT_CODES
    assert all(line.isprintable() and len(line) < 4000 for line in lines), lines
    if isinstance(error, InputError):
        assert len(lines) == len(error.faults)


def promised(check):
    """The check, in which a PrivplanError is an answer."""

    def checked(value):
        try:
            check(value)
        except PrivplanError as error:
            refused(error)

    return checked


def _written(name, content, read):
    """Read a file in a folder of its own, which must hold nothing else afterwards."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        data = (
            content.encode("utf-8", "surrogatepass")
            if isinstance(content, str)
            else content
        )
        path.write_bytes(data)
        try:
            read(path)
        finally:
            assert os.listdir(folder) == [name]
            assert path.read_bytes() == data


OF_A_RUN = (
    "plan.json",
    "record.json",
    "ledger.jsonl",
    "evidence.jsonl",
    "noise.jsonl",
    "clients.npz",
    "replay.json",
    "audit.json",
)


def folder_of_bytes(change):
    """A run folder, one of whose files has other bytes from some place on."""
    name, place, content = change
    before = run_of_three_rounds().get(name, b"")
    place %= len(before) + 1
    _judged({name: before[:place] + content + before[place + len(content) :]})


def pickle_of_bytes(content):
    """A pickled batch of a data set."""
    _written("batch", content, read_pickle)


def archive_of_bytes(change):
    """Own data, with other bytes from some place on."""
    place, content = change
    archive = io.BytesIO()
    np.savez(archive, x=np.eye(4), y=[0, 1, 0, 1])
    before = archive.getvalue()
    data = before[:place] + content + before[place + len(content) :]
    _written("own.npz", data, lambda path: load_own(str(path), DataOptions()))


def spec_of_text(text):
    """A spec file."""
    _written("spec.yaml", text, lambda path: _used(Spec.load(path)))


def spec_of_data(data):
    """A spec as plain data."""
    _used(Spec.parse(data))


def spec_of_every_field(start):
    """One value in each field of a spec in turn, also where the spec leaves it out."""
    data, value = start
    for path in odd.FIELDS:
        try:
            promised(spec_of_data)(odd.filled(data, path, value))
        except Exception as error:
            error.add_note(f"{'.'.join(path)}: {value!r:.200}")
            raise


def solved(data):
    """A spec with odd numbers, solved where it is sound."""
    Plan.parse(json.loads(solve(Spec.parse(data)).to_json()))


def _used(spec):
    """Everything that a spec answers without being solved."""
    spec.warnings()
    json.dumps(spec.model_dump(mode="json"), allow_nan=False)
    assert math.isfinite(spec.expected_cohort)
    assert all(0 < spec.delta_of(group) < 1 for group in spec.groups)
    assert all(group.name.isprintable() for group in spec.groups)


@cache
def run_of_three_rounds():
    """The files of an honest run."""
    with TemporaryDirectory() as folder:
        plan = honest_run.plan(honest_run.spec(rounds=3))
        honest_run.write_run(Path(folder), honest_run.releases(plan), plan)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _sound(name):
    return json.loads(run_of_three_rounds()[name])


def releases():
    """The releases of the honest run as plain data."""
    return [
        json.loads(line)["release"]
        for line in run_of_three_rounds()[LEDGER].splitlines()
    ]


def plan_of_text(text):
    """A plan file."""
    _written(PLAN, text, Plan.load)


def plan_of_data(data):
    """A plan whose digest fits, so that it is taken for the planner's."""
    if isinstance(data, dict):
        data.pop("digest", None)
    plan = Plan.parse({**data, "digest": parse(Plan, data).digest})
    _judged({PLAN: plan.to_json().encode()})
    for group in plan.groups:
        plan.history(group)


def _judged(changes):
    """Judge the honest run with some of its files exchanged."""
    with TemporaryDirectory() as folder:
        files = {**run_of_three_rounds(), **changes}
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        try:
            json.dumps(
                judge(load_run(Path(folder)), 0).model_dump(mode="json"),
                allow_nan=False,
            )
        finally:
            assert {path.name for path in Path(folder).iterdir()} == set(files)


def record_of_text(text):
    """A record file beside a sound plan and ledger."""
    _judged({RECORD: text.encode("utf-8", "surrogatepass")})


def ledger_of_text(lines):
    """A ledger with garbage between its lines."""
    _judged({LEDGER: "\n".join(lines).encode("utf-8", "surrogatepass")})


def ledger_of_data(data):
    """A ledger whose chain fits, so that it is taken for the simulation's."""
    text = ""
    chain = _sound(PLAN)["digest"]
    if not isinstance(data, list):
        return
    for release in data:
        line, chain = chained(parse(ReleaseRecord, release), chain)
        text += line
    _judged({LEDGER: text.encode()})


def budgets_of_text(text):
    """A file of individual budgets."""

    def read(path):
        read_budgets(path, "n^-1.1")
        Spec.parse({**spec_data(), "groups": [], "groups_from": path.name}, path.parent)

    _written("budgets.csv", text, read)


def vary_of_text(text):
    """A ``--vary`` word, applied to a sound spec."""
    for point in points([parse_vary(text)])[:3]:
        Spec.parse(varied(spec_data(), point))


def partition_of_text(text):
    """A ``--partition`` word."""
    from simulate.data.partition.schemes import scheme

    scheme(text)


def numbers_of_words(words):
    """``--set`` words."""
    from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
    from simulate.cli.options import hyperparameters_of

    values = hyperparameters_of(tuple(words))
    for _, entry in ALGORITHMS.items():
        with suppress(InputError):
            entry.complete(Hyperparameters(values=values))


def command_line(arguments):
    """A command line, in a folder of its own with a sound spec, plan and run."""
    before = os.getcwd()
    with TemporaryDirectory() as folder:
        inside = Path(folder) / "inside"
        inside.mkdir()
        for name, content in run_of_three_rounds().items():
            (inside / name).write_bytes(content)
        (inside / "spec.yaml").write_text(json.dumps(spec_data()))
        os.chdir(inside)
        try:
            done = CliRunner().invoke(main, arguments)
        finally:
            os.chdir(before)
        assert os.listdir(folder) == ["inside"]
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in EXIT_CODES, done.exit_code
    assert "Traceback" not in done.output


PIECES = st.sampled_from(
    [
        "iid",
        "dirichlet:",
        "by-class:",
        "pathological:",
        "dominant:",
        "natural",
        "%",
        "strict=",
        "1,2",
        "0.5",
        "1e400",
        "-1",
        "inf",
        "nan",
        "=",
        ":",
        ",",
        "5",
    ]
)
VARIES = st.one_of(
    odd.WORDS,
    st.builds(
        "{}={}:{}:{}{}".format,
        st.sampled_from(
            ["rounds", "groups.strict.epsilon", "cohort", "", "a..b", "model.name"]
        ),
        st.sampled_from(["1", "0", "-1", "1e-300", "1e308", "nan", "x", "9" * 400]),
        st.sampled_from(["1", "2", "1e300", "-1e308", "inf", ""]),
        st.sampled_from(["1", "3", "0", "10001", "1e3", "9" * 5000]),
        st.sampled_from(["", ":log", ":lin", ":"]),
    ),
)
_WORD = st.one_of(
    odd.WORDS.filter(lambda word: "\0" not in word and len(word) < 10_000),
    st.sampled_from(
        ["1", "0", "-1", "0.5", "1e-320", "nan", "inf", "1e400", "1e15", "9" * 30]
    ),
    st.sampled_from(
        ["spec.yaml", "plan.json", ".", "nosuch", "ledger.jsonl", "table", "json"]
    ),
)
_SMALL = st.sampled_from(["1", "2", "0.5", "0.01", "3", "1e-5"])
_FLAGS = (
    "--noise-multiplier",
    "--sampling-ratio",
    "--rounds",
    "--delta",
    "--sampling",
    "--relation",
    "--clients",
    "--accountant",
    "--format",
    "--epsilon",
    "--solve-for",
    "--preset",
    "--schema",
    "--vary",
    "--population",
    "--group",
    "--address",
    "--partition",
    "--set",
    "--seed",
    "--algorithm",
    "--dataset",
    "--data-dir",
    "--seeds",
    "--algorithms",
    "--jobs",
    "--device",
    "--help",
    "--",
    "-x",
    "-o",
    "--plot",
    "--for",
    "--tradeoff",
    "--frontier",
)
_COMMANDS = (
    "init",
    "solve",
    "explain",
    "what-if",
    "verify",
    "account",
    "calibrate",
    "simulate",
    "compare",
    "proxy",
    "nosuch",
    "",
)
LINES = st.one_of(
    st.builds(
        lambda command, words: [command, *words],
        st.sampled_from(_COMMANDS),
        st.lists(st.one_of(st.sampled_from(_FLAGS), _WORD, _SMALL), max_size=8),
    ),
    st.builds(
        lambda command, values: [
            command,
            *itertools.chain.from_iterable(zip(_FLAGS[:4], values, strict=True)),
        ],
        st.sampled_from(["account", "calibrate"]),
        st.tuples(_WORD, _WORD, _WORD, _WORD),
    ),
    st.builds(
        lambda vary: ["what-if", "spec.yaml", "--workers", "1", "--vary", vary],
        VARIES.filter(lambda word: "\0" not in word and ":3" not in word),
    ),
)

PROPERTIES: Mapping[str, Property] = {
    "spec files": Property(odd.SPEC_TEXTS, promised(spec_of_text), 60, 2000),
    "specs": Property(odd.SPECS, promised(spec_of_data), 60, 2000),
    "every field": Property(odd.FILLS, spec_of_every_field, 8, 300),
    "solving": Property(odd.odd(spec_data()), promised(solved), 10, 100),
    "plan files": Property(odd.documents(_sound(PLAN)), promised(plan_of_text), 40, 1000),
    "plans with their digest": Property(
        odd.changed(_sound(PLAN)), promised(plan_of_data), 20, 500),
    "record files": Property(odd.documents(_sound(RECORD)), promised(record_of_text), 40, 500),
    "ledger files": Property(
        st.lists(
            st.one_of(
                st.sampled_from(run_of_three_rounds()[LEDGER].decode().splitlines()),
                odd.documents(releases()[0]),
            ),
            max_size=8,
        ),
        promised(ledger_of_text), 60, 1000,
    ),
    "ledgers with their chain": Property(
        odd.changed(releases(), max_changes=2), promised(ledger_of_data), 40, 500
    ),
    "run folders": Property(
        st.tuples(st.sampled_from(OF_A_RUN), st.integers(0, 10**5), st.binary(max_size=40)),
        promised(folder_of_bytes), 40, 500,
    ),
    "pickles": Property(st.binary(max_size=200), promised(pickle_of_bytes), 100, 1000),
    "archives": Property(
        st.tuples(st.integers(0, 900), st.binary(max_size=40)), promised(archive_of_bytes), 60, 500
    ),
    "budget files": Property(odd.BUDGETS, promised(budgets_of_text), 100, 1000),
    "--vary": Property(VARIES, promised(vary_of_text), 100, 500),
    "--partition": Property(
        st.one_of(odd.WORDS, st.lists(PIECES, max_size=5).map("".join)),
        promised(partition_of_text), 100, 500,
    ),
    "--set": Property(
        st.lists(st.one_of(odd.WORDS, st.lists(PIECES, max_size=3).map("".join)), max_size=3),
        promised(numbers_of_words), 60, 500,
    ),
    "command lines": Property(LINES, command_line, 30, 500),
}  # fmt: skip
