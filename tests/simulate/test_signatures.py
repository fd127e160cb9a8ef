"""Mistakes in calls from Python: each is one line that names the argument."""

import pytest
import torch

import simulate
from privplan.errors import InputError, PrivplanError
from simulate.aggregators import mean
from simulate.algorithm import compose
from simulate.algorithms.registry import ALGORITHMS, as_given, register
from simulate.components import Aggregator, LocalRule, Server, Transform
from simulate.data.own import Data
from simulate.engine.chunks import checked_result
from simulate.runs.run import Report
from simulate.signatures import require_types, typed
from simulate.transforms import plan_clip, scale
from tests.simulate import tiny


def start(theta):
    return {"steps": torch.zeros_like(theta)}


def move(theta, step, state):
    return theta + step, state


def weight(group, plan):
    return 1.0


def combine(releases, theta, state):
    return releases[0].vector, state


MISTAKES = {
    "server.start: must be a function of (Tensor), found None": lambda: Server(
        "mine", None, move
    ),
    "server.start: must be a function of (Tensor), found 'zero'": lambda: Server(
        "mine", "zero", move
    ),
    "server.start: must be a function of (Tensor), found '<lambda>()'": lambda: Server(
        "mine", lambda: {}, move
    ),
    "server.step: must be a function of (Tensor, Tensor, Mapping), found 'start(theta)'": (
        lambda: Server("mine", start, start)
    ),
    "aggregator.weight: must be a function of (GroupPlan, Plan), found 1.0": lambda: (
        Aggregator("mine", 1.0, combine)
    ),
    "aggregator.start: must be a function of (Tensor), found None": lambda: Aggregator(
        "mine", weight, combine, None
    ),
    "local.train: must be a function of (ClientBatch), found None": lambda: LocalRule(
        "mine", None
    ),
    "transform.bound: must be a function of (float | None, GroupPlan), found 1.0": (
        lambda: Transform("mine", lambda updates, context: (updates, None), 1.0)
    ),
    "server.start: must return a mapping from text to a Tensor, found None": lambda: (
        Server("mine", lambda theta: None, move).start(torch.ones(2))
    ),
    "algorithm.aggregator: must be an Aggregator or None; call the function that "
    "makes it, found 'mean()'": lambda: compose("X", tiny.plan(), aggregator=mean),
    "algorithm.local: must be a LocalRule or None, found 'sgd'": lambda: compose(
        "X", tiny.plan(), local="sgd"
    ),
    "algorithm.plan: must be a plan, such as privplan.solve(spec), found 'plan.json'": (
        lambda: compose("X", "plan.json")
    ),
    "algorithm.transforms: must be a list, each item a Transform, found (1.0,)": (
        lambda: compose("X", tiny.plan(), transforms=(1.0,))
    ),
    "optimiser: is not an argument; it takes name, plan, sampler, ": lambda: compose(
        "X", tiny.plan(), optimiser="adam"
    ),
    "register: missing a required argument: 'plan'; write registry.register(": lambda: (
        register("Bad")
    ),
    "register.unit: must be 'client' or 'record' or 'none', found 'patient'": lambda: (
        register("Bad", plan=as_given, unit="patient", released="sums", source="me")
    ),
    "register.plan: must be a function of (Plan, Mapping), found 'as_given'": lambda: (
        register("Bad", plan="as_given", unit="client", released="sums", source="me")
    ),
    "register.function: must be a function of (Plan, Hyperparameters), found "
    "'<lambda>(plan)'": lambda: register(
        "Bad", plan=as_given, unit="client", released="sums", source="me"
    )(lambda plan: plan),
    "folder: must be a path or text, found None": lambda: train(folder=None),
    "partition: must be text, found 0.3": lambda: train(partition=0.3),
    "canaries: must be a whole number, found True": lambda: train(canaries=True),
    "callbacks: must be a list, each item a Callback, found None": lambda: train(
        callbacks=None
    ),
    "track: must be a list, each item text, found 'mlflow'": lambda: train(
        track="mlflow"
    ),
    "hyperparameters: must be a mapping from text to a number or None, found "
    "{'rho': 'a'}": lambda: train(hyperparameters={"rho": "a"}),
    "rounds: is not an argument; the plan says it: write spec.replace(": lambda: train(
        rounds=3
    ),
    "epochs: is not an argument; the spec says how clients train: local.steps, or "
    "with unit: record local.epochs, found 3": lambda: train(epochs=3),
    "n_jobs: is not an argument; write jobs, found 2": lambda: compare(n_jobs=2),
    "clients: is not an argument; write client, found 'list'": lambda: Data(
        torch.zeros(2, 3), [0, 1], clients=["a", "b"]
    ),
    "Data: missing a required argument: 'x'": lambda: Data(y=[0, 1]),
    "seeds: must be a whole number or a list, each item a whole number, found '1'": (
        lambda: compare(seeds="1")
    ),
    "jobs: must be 1 or more, found 0": lambda: compare(jobs=0),
    "seed: is not an argument; write seeds, found 1": lambda: compare(seed=1),
    "model: must be a torch.nn.Module, or a class or function that returns one, found "
    "'str'": lambda: compare(model="cnn"),
    "model: must be a function or a torch.nn.Module or None, found 1": lambda: train(
        model=1
    ),
    "partiton: is not an argument (did you mean partition?), found 'iid'": lambda: (
        compare(partiton="iid")
    ),
    "recipe: must be 'published' or 'ours' or 'both' or None, found True": lambda: (
        compare(recipe=True)
    ),
    "recipe: must be left out: the plan has no recipe, found 'ours'": lambda: compare(
        recipe="ours"
    ),
}


def train(**arguments):
    return simulate.train(tiny.plan(), dataset="digits", **arguments)


def compare(**arguments):
    return simulate.compare(tiny.plan(), ["planned"], **arguments)


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_answered_in_one_line(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PrivplanError) as caught:
        MISTAKES[message]()
    text = str(caught.value)
    assert text.startswith(message)
    assert "\n" not in text
    assert not list(tmp_path.iterdir())
    assert "Bad" not in ALGORITHMS


def test_a_weight_that_is_no_number_is_refused_by_group():
    plan = tiny.plan()
    group = plan.groups[0].name
    rule = rf"aggregator\.weight of group {group}: must return a number, found None"
    with pytest.raises(InputError, match=rule):
        compose(
            "X",
            plan,
            transforms=(plan_clip(plan), scale()),
            aggregator=Aggregator("mine", lambda group, plan: None, combine),
        )


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (torch.zeros(2, 3), r"local\.train of mine: must return a LocalResult"),
        (None, r"local\.train of mine: must return a LocalResult, found None"),
    ],
)
def test_what_a_local_rule_returns_is_checked(result, message):
    with pytest.raises(InputError, match=message):
        checked_result("mine", result, None)


def test_all_faults_are_named_at_once():
    @typed("place.")
    def function(number: int, name: str = "x", data: Data | None = None) -> None:
        raise AssertionError

    with pytest.raises(InputError) as caught:
        function(1.5, name=3)
    assert str(caught.value).splitlines() == [
        "place.number: must be a whole number, found 1.5",
        "place.name: must be text, found 3",
    ]


def test_numbers_of_numpy_and_functions_of_c_are_taken():
    values = {
        "whole": torch.ones(1, dtype=torch.int64).numpy()[0],
        "number": torch.ones(1).numpy()[0],
        "report": print,
    }
    require_types(values, {"whole": int, "number": float, "report": Report})
