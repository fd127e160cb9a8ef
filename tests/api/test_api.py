"""The Python interface: its list of names, examples, first guesses, small programs."""

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import privplan
import simulate
from privplan import api
from privplan.errors import PrivplanError
from privplan.spec.presets import preset
from privplan.yaml_text import load_yaml
from tests.api.programs import GUESSES, PROGRAMS, SIGNATURES
from tests.api.stubs import PACKAGES, path_of, stub_of
from tests.forecast.table import table
from tests.forecast.test_forecast import TEXT

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
VALUES = {
    "Release",
    "SamplingLaw",
    "Relation",
    "Verdict",
    "PrivplanError",
    "Plan",
    "Certificate",
}
"""Stable names whose examples are those of what makes them or of their methods."""


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """A folder with what examples and programs find: a plan, its run, a proxy table."""
    folder = tmp_path_factory.mktemp("api")
    plan = privplan.solve(privplan.preset("digits-planned").replace(rounds=2))
    plan.save(folder / "plan.json")
    simulate.train(plan, dataset="digits", seed=1, folder=folder / "run", device="cpu")
    privplan.solve(privplan.Spec.parse(load_yaml(TEXT, "spec"))).save(
        folder / "two-groups.json"
    )
    table().save(folder / "proxy.json")
    (folder / "spec.yaml").write_text(preset("digits"))
    return folder, {
        "privplan": privplan,
        "simulate": simulate,
        "plan": plan,
        "spec": plan.spec,
    }


@pytest.fixture
def namespace(names, monkeypatch):
    monkeypatch.chdir(names[0])
    monkeypatch.delenv("PRIVPLAN_BOOK", raising=False)
    return dict(names[1])


def arguments(function):
    return ", ".join(inspect.signature(function).parameters)


def test_stable_names_keep_their_arguments():
    stable = {name: getattr(privplan, name) for name in privplan.STABLE}
    stable["forecast"] = api.forecast  # which the package of that name calls
    stable |= {"simulate.train": simulate.train, "simulate.compare": simulate.compare}
    for kind, methods in (
        ("Spec", "load parse replace"),
        ("Plan", "load save history explain"),
        ("Book", "add spent left"),
    ):
        for name in methods.split():
            stable[f"{kind}.{name}"] = getattr(stable[kind], name)
    calls = {
        name: value
        for name, value in stable.items()
        if inspect.isroutine(value) or name == "Book"
    }
    assert {name: arguments(value) for name, value in calls.items()} == SIGNATURES
    assert set(stable) - set(calls) == VALUES - {"Release"} | {
        "Release",
        "Spec",
        "History",
    }


def test_the_page_names_every_tier():
    tiers = PAGE.partition("## Stable names")[2].partition("## Provisional")
    for place, listed in ((0, privplan.STABLE), (2, privplan.PROVISIONAL)):
        for name in listed:
            assert re.search(rf"\b{name}\b", tiers[place]), name
    assert len(PAGE.splitlines()) <= 70
    assert set(privplan.__all__) == {*privplan.STABLE, *privplan.PROVISIONAL}


EXAMPLES = sorted({*privplan.STABLE, "simulate.train", "simulate.compare"})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "frontier" else ())
        for name in EXAMPLES
    ],
)
def test_examples_of_stable_names_run(name, namespace):
    value = eval(name if "." in name else f"privplan.{name}", namespace)
    value = api.forecast if name == "forecast" else value
    assert value.__doc__
    tests = doctest.DocTestFinder(recurse=False).find(value, name, globs=namespace)
    if inspect.isclass(value):
        members = {
            member_name: member
            for member_name, member in vars(value).items()
            if not member_name.startswith("_")
        }
        for member_name, member in members.items():
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member) and member.__doc__:
                tests += doctest.DocTestFinder().find(
                    member, member_name, globs=namespace
                )
    examples = [test for test in tests if test.examples]
    assert examples or name in VALUES, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    Path("book.sqlite").unlink(missing_ok=True)
    for test in examples:
        runner.run(test, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("guess", GUESSES)
def test_first_guesses_work_or_name_the_right_call(guess, namespace):
    phrase = GUESSES[guess]
    if phrase is None:
        exec(guess, namespace)
        return
    with pytest.raises((PrivplanError, AttributeError, TypeError)) as caught:
        exec(guess, namespace)
    assert "\n" not in str(caught.value)
    assert phrase in str(caught.value)


# They draw a frontier, and compare runs and plans.
SLOW_PROGRAMS = (7, 8, 11)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=pytest.mark.slow if number in SLOW_PROGRAMS else ())
        for number in range(len(PROGRAMS))
    ],
)
def test_small_programs_work_at_the_first_try(number, namespace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(PROGRAMS[number], {"__name__": "program"})


@pytest.mark.slow
def test_a_value_is_one_screen_of_text_and_a_table_with_a_picture(namespace):
    run = privplan.load_run("run")
    verdict = privplan.verify("run", rounds=0)
    plan = namespace["plan"]
    book = privplan.Book("shown.sqlite")
    book.add("run")
    history = plan.history("strict")
    for value in (plan.spec, plan, plan.certificate, verdict, history, run, book):
        lines = repr(value).splitlines()
        assert 2 <= len(lines) <= 24
        assert max(map(len, lines)) <= 140
        page = value._repr_html_()
        assert "<table>" in page
        assert 'src="data:image/svg+xml' in page
        assert len(value.to_frame()) > 0
        value.plot().save("picture.svg")
        assert Path("picture.svg").read_bytes().lstrip().startswith(b"<?xml")


def test_names_are_escaped(namespace):
    assert (
        "<script"
        not in namespace["spec"].replace(name="<script>alert(1)</script>")._repr_html_()
    )


def test_completion_shows_names_of_the_project(namespace):
    for value in (namespace["spec"], namespace["plan"]):
        assert {"groups", "to_frame", "plot"} <= {*dir(value)}
        assert not [
            name for name in dir(value) if name.startswith(("model_", "dict", "copy"))
        ]


@pytest.mark.slow
def test_pandas_is_loaded_for_a_frame_and_named_when_missing():
    code = (
        "import sys, privplan\n"
        "plan = privplan.solve(privplan.preset('digits')); repr(plan)\n"
        "assert not {'pandas', 'matplotlib', 'torch', 'sqlalchemy'} & {*sys.modules}\n"
        "sys.modules['pandas'] = None\n"
        "try: plan.to_frame()\n"
        "except privplan.PrivplanError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(
        "to_frame: needs pandas: pip install 'privplan[tables]'"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": -5}, "rounds: must be 1 or more, found -5"),
        ({"groups": {"strct": {"epsilon": 1}}}, "did you mean strict?"),
        (
            {"groups.strict.epsilon": 0},
            "groups.strict.epsilon: must be greater than 0, found 0",
        ),
        ({"cohort": 1e9}, "cohort: must not exceed the population"),
        ({"round": 3}, "round: is not a known field (did you mean rounds?)"),
    ],
)
def test_a_changed_spec_is_checked(namespace, changes, message):
    with pytest.raises(PrivplanError, match=re.escape(message)):
        namespace["spec"].replace(changes)


def test_a_changed_spec_is_that_of_a_changed_file():
    data = {
        "name": "study",
        "rounds": 50,
        "cohort": 120,
        "model": {"name": "m", "parameters": 1000},
        "groups": [
            {"name": "a", "clients": 2000, "epsilon": 0.5},
            {"name": "b", "clients": 2000, "risk": {"advantage": 0.1}},
        ],
    }
    spec = privplan.Spec.parse(data)
    assert spec.replace() == spec
    changed = {**data, "rounds": 80, "clipping_norm": 2.0}
    assert spec.replace(rounds=80) == privplan.Spec.parse({**data, "rounds": 80})
    assert spec.replace(clipping_norm=2.0).clipping_norm == changed["clipping_norm"]
    loose = spec.replace(groups={"b": {"epsilon": 3}}).groups["b"]
    assert loose.epsilon == 3
    assert loose.risk is None
    risk = spec.replace({"groups.a.risk": {"advantage": 0.2}}).groups["a"]
    stated = [{"name": "a", "clients": 2000, "risk": {"advantage": 0.2}}]
    assert (
        risk.epsilon
        == privplan.Spec.parse({**data, "groups": stated}).groups["a"].epsilon
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_editors_and_type_checkers_know_every_name(package):
    assert path_of(package).read_text(encoding="utf-8") == stub_of(package)
