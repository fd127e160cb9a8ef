"""Arguments of another kind than a function takes: every one ends in a line."""

import itertools
import json
import warnings

import numpy as np
import pytest

import privplan
from privplan.errors import PrivplanError
from privplan.planning.sweep import parse_vary
from privplan.spec.presets import preset

NUMBERS = {"noise_multiplier": 1.5, "sampling_ratio": 0.1, "rounds": 3, "delta": 1e-5}
OTHER_KINDS = {
    "array": np.arange(3.0),
    "text": preset("digits"),
    "pair": (np.zeros((2, 2)), np.zeros(2)),
    "object": object(),
    "mapping": {"a": 1},
    "function": len,
    "class": int,
    "bytes": b"abc",
    "list": [1, 2],
    "true": True,
}


@pytest.fixture(scope="module")
def plan():
    return privplan.solve(privplan.preset("digits-planned").replace(rounds=2))


def calls(plan, folder):
    """Functions with arguments that they take, of which one at a time is exchanged."""
    history = plan.history("strict")
    book = privplan.Book(folder / "book.sqlite")
    release = privplan.Release(1.0, 0.1)
    return [
        (privplan.solve, {"spec": plan.spec}),
        (privplan.account, {"history": history, "delta": 1e-5, "accountants": ["pld"]}),
        (
            privplan.calibrate,
            {"epsilon": 1.0, "solve_for": "rounds", "accountant": "pld"},
        ),
        (privplan.compose, {"history": history, "relation": "add_remove"}),
        (privplan.what_if, {"spec": plan.spec, "vary": {"rounds": [2]}, "workers": 1}),
        (privplan.load_run, {"folder": "nosuch"}),
        (privplan.verify, {"run": "nosuch", "plan": plan}),
        (privplan.Plan.load, {"path": "nosuch"}),
        (privplan.Spec.load, {"path": "nosuch"}),
        (privplan.accountant, {"name": "pld"}),
        (
            privplan.Release,
            {"noise_multiplier": 1.0, "sampling_ratio": 0.1, "sampling": "poisson"},
        ),
        (privplan.History.repeated, {"release": release, "rounds": 3}),
        (plan.history, {"group": "strict"}),
        (book.add, {"run": "nosuch", "population": ""}),
        (book.left, {"group": "strict", "epsilon": 2.0}),
        (privplan.compose().step, {"release": release, "rounds": 2}),
    ]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_an_argument_of_another_kind_ends_in_a_line(kind, plan, tmp_path):
    for function, arguments in calls(plan, tmp_path):
        for name in arguments:
            changed = {**arguments, name: OTHER_KINDS[kind]}
            try:
                function(**changed)
            except PrivplanError as error:
                assert str(error)  # noqa: PT017


def test_the_kinds_that_an_argument_takes_are_named(plan):
    with pytest.raises(
        PrivplanError, match="group: must be one of strict, medium, loose"
    ):
        plan.history(3)
    with pytest.raises(
        PrivplanError, match="workers: must be of type int, found 'dict'"
    ):
        privplan.what_if(plan.spec, {"rounds": [2]}, workers={})


def test_the_text_of_a_file_is_no_path(plan):
    with pytest.raises(PrivplanError, match=r"Spec\.parse\(yaml\.safe_load\(text\)\)"):
        privplan.solve(preset("digits"))
    with pytest.raises(PrivplanError, match="path: must be the path of a file"):
        privplan.Spec.load(preset("digits"))
    with pytest.raises(PrivplanError, match="folder: must be the path of a file"):
        privplan.load_run("x" * 5000)
    # What is written instead works.
    assert privplan.Plan.parse(json.loads(plan.to_json())) == plan


def test_whole_numbers_of_numpy_are_whole_numbers(plan):
    assert privplan.account(**{**NUMBERS, "rounds": np.int64(3)}) == privplan.account(
        **NUMBERS
    )
    assert plan.spec.replace(rounds=np.int64(4)).rounds == 4
    release = privplan.Release(1.0, 0.1)
    assert privplan.History.repeated(release, np.int32(3)).rounds == 3
    with pytest.raises(PrivplanError, match="must be a whole number, 0 or more"):
        privplan.History.repeated(release, float("nan"))


def test_own_data_of_other_kinds(tmp_path):
    simulate = pytest.importorskip("simulate")
    x = np.random.default_rng(1).random((20, 4), np.float32)
    y = np.arange(20) % 2
    for name, value, line in [
        ("test", (x, y), r"write test=simulate\.Data\(x, y\)"),
        ("group", 3, "must have 20 values, one per record"),
        ("client", (x, y), "must have one value per record"),
        ("codes", "ab", "must be whole numbers, places of inputs"),
    ]:
        with pytest.raises(PrivplanError, match=line):
            simulate.Data(x, y, **{name: value})
    with pytest.raises(PrivplanError, match="source: must be of type Path or str"):
        simulate.Data.load(x, label="a")
    assert len(simulate.Data(x, y)) == 20
    x.flags.writeable = False
    y = y.astype(float)
    y.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate.Data(x, y)
        simulate.Data(x, y, task="regression")


def test_a_seed_of_numpy_is_a_seed(plan, tmp_path):
    simulate = pytest.importorskip("simulate")
    seeded = {"dataset": "digits", "folder": tmp_path / "run"}
    run = simulate.train(plan, seed=np.int64(3), **seeded)
    assert simulate.train(plan, seed=3, **seeded).reused
    assert run.record.seed == 3


def test_whole_numbers_that_are_no_codes_are_said_to_be_cast(plan, tmp_path):
    torch = pytest.importorskip("torch")
    simulate = pytest.importorskip("simulate")
    own_model = {"name": "own", "parameters": 10}
    plan = privplan.solve(plan.spec.replace(model=own_model))
    generator = np.random.default_rng(1)
    count = sum(group.clients for group in plan.groups)
    names = [group.name for group in plan.groups]
    groups = np.repeat(names, [group.clients for group in plan.groups])
    client = np.repeat(np.arange(count), 2)
    data = simulate.Data(
        generator.integers(0, 9, (2 * count, 4)),
        np.arange(2 * count) % 2,
        client=client,
        group=dict(enumerate(groups.tolist())),
        classes=[0, 1],
    )
    with pytest.raises(PrivplanError, match=r"give x\.astype\(numpy\.float32\)"):
        simulate.train(
            plan, data=data, model=torch.nn.Linear(4, 2), folder=tmp_path / "run"
        )


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "rounds=20:100:20",
            "rounds: 20 values from 20 to 100; a step of 20 is 20:100:5",
        ),
        (
            "rounds=0:100:10",
            "rounds: 10 values from 0 to 100; a step of 10 is 0:100:11",
        ),
        ("strict=0.1:2:20", None),
        ("rounds=1:20:20", None),
        ("rounds=2:8:3", None),
        ("rounds=10:1000:3:log", None),
    ],
)
def test_a_count_that_would_be_a_step_is_said_to_be_a_count(text, note, caplog):
    varied = parse_vary(text)
    lines = [record.getMessage() for record in caplog.records]
    if note is None:
        assert lines == []
    else:
        assert lines == [note]
        # The range of the note has the step that it names.
        step = int(note.split("a step of ")[1].split()[0])
        values = parse_vary(f"rounds={note.split()[-1]}").values
        assert {b - a for a, b in itertools.pairwise(values)} == {step}
        assert (values[0], values[-1]) == (varied.values[0], varied.values[-1])
