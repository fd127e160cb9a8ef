"""Methods of a user's: their state, how they are named, the recipe they go without."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import privplan
import simulate
from privplan.errors import InputError
from privplan.spec.presets import preset
from privplan.spec.training import Averaging, ServerOptimiser
from privplan.yaml_text import load_yaml
from simulate.aggregators import mean, top_k, weighted_sum
from simulate.algorithm import compose
from simulate.algorithms.registry import ALGORITHMS, as_given, register, registered_name
from simulate.components import Aggregator, Server
from simulate.mechanisms import gaussian_joint
from simulate.postprocessing import _checked
from simulate.runs.recipes import recipe_of_own, with_recipes
from simulate.runs.request import Request
from simulate.server import SERVER_OPTIMISERS, averaged
from simulate.transforms import plan_clip, scale

RATE = 0.01
STEPS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -0.4], [-1.0, 0.0, 2.0]])


def fed_yogi():
    """FedYogi as a user writes it, with names that the project's own has, too."""

    def start(theta):
        return {
            "mean": torch.zeros_like(theta),
            "squares": torch.full_like(theta, 1e-6),
        }

    def move(theta, step, state):
        assert set(state) == {"mean", "squares"}
        average = 0.9 * state["mean"] + 0.1 * step
        square = step * step
        squares = state["squares"]
        squares = squares - 0.01 * square * torch.sign(squares - square)
        moved = theta + RATE * average / (squares.sqrt() + 1e-3)
        return moved, {"mean": average, "squares": squares}

    return Server("my yogi", start, move)


def decaying():
    """An aggregator with a state of the same name, which it returns alone."""

    def combine(releases, theta, state):
        assert set(state) == {"mean"}
        return 0 * theta, {"mean": state["mean"] + 1}

    return Aggregator(
        "decaying", lambda group, plan: 1.0, combine, lambda theta: {"mean": 0 * theta}
    )


def moved_by(server, state, theta):
    for step in STEPS:
        theta, state = server.step(theta, step, state)
    return theta, state


def test_an_own_server_keeps_its_state_beside_that_of_others():
    theta = torch.ones(3)
    yogi_of_user = fed_yogi()
    rule = decaying()
    state = {"mean": 7 * theta, **yogi_of_user.start(theta), **rule.start(theta)}
    assert len(state) == 4
    moved, after = moved_by(yogi_of_user, state, theta)
    _, after = rule.combine([], theta, after)
    assert torch.equal(after["mean"], 7 * theta)
    assert set(after) == set(state)
    of_rule = next(key for key in after if key.startswith("own aggregator"))
    assert torch.equal(after[of_rule], torch.ones(3))
    # The same as the project's FedYogi, of Reddi et al. 2021.
    yogi = SERVER_OPTIMISERS.get("yogi")(
        ServerOptimiser(optimizer="yogi", learning_rate=RATE)
    )
    expected, _ = moved_by(yogi, yogi.start(theta), theta)
    assert torch.equal(moved, expected)


def test_rules_of_the_project_around_an_own_one_pass_its_state_on():
    theta = torch.ones(3)
    around = averaged(fed_yogi(), Averaging(method="ema", decay=0.8), rounds=3)
    moved, state = moved_by(around, around.start(theta), theta)
    expected, _ = moved_by(fed_yogi(), fed_yogi().start(theta), theta)
    assert torch.equal(moved, expected)
    assert not torch.equal(around.released(moved, state), moved)
    sparse = top_k(decaying())
    _, after = sparse.combine([], theta, sparse.start(theta))
    assert torch.equal(after["own aggregator: mean"], torch.ones(3))


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (None, "NoneType"),
        ((1, None), "int for the vector"),
        ((torch.ones(3), None), "NoneType for the state"),
        ((torch.ones(3), {"rounds": 2}), "int for 'rounds' of the state"),
        ((1, 2, 3), "tuple"),
    ],
)
def test_what_is_no_state_is_refused_in_one_line(result, kind):
    with pytest.raises(
        InputError, match=r"algorithm\.server: must return a vector"
    ) as caught:
        _checked("server", result, torch.ones(3))
    assert kind in str(caught.value)


def test_a_model_that_is_no_number_is_said_to_have_no_score(
    plan, mine, tmp_path, caplog
):
    def build(plan, hyperparameters):
        server = Server(
            "nan", lambda theta: {}, lambda theta, step, state: (theta * math.nan, {})
        )
        return replace(mine(plan, hyperparameters), server=server)

    register("Mine", plan=as_given, unit="client", released="sums", source="me")(build)
    short_spec = plan.spec.model_copy(update={"rounds": 1})
    short_plan = privplan.solve(short_spec)
    simulate.train(
        short_plan, dataset="digits", algorithm="Mine", folder=tmp_path / "run"
    )
    assert "round 1: the model's loss is not finite" in caplog.text


@pytest.fixture(scope="module")
def plan():
    data = load_yaml(preset("digits"), "digits")
    # The recipe decides what is left out.
    for field in ("planning", "clipping_norm"):
        data.pop(field, None)
    return privplan.solve(privplan.Spec.parse(data))


@pytest.fixture
def mine():
    @register("Mine", plan=as_given, unit="client", released="a noisy sum", source="me")
    def function(plan, hyperparameters):
        return compose(
            "Mine",
            plan,
            transforms=(plan_clip(plan), scale()),
            mechanism=gaussian_joint(),
            aggregator=Aggregator("mine", mean().weight, weighted_sum),
        )

    yield function
    ALGORITHMS._components.pop("Mine", None)


def test_an_own_method_goes_without_the_recipe_unless_asked(plan, mine):
    assert plan.spec.recipe.decides
    base = Request(plan, "", "digits", Path("results"))
    requests, [line] = with_recipes(base, ["planned", "Mine"], None)
    assert requests["planned"].plan is plan
    bare = requests["Mine"].plan.spec
    assert bare.server is None
    assert bare.averaging is None
    begin = "Mine trains as written; left out: the plan's recipe (clipping norm"
    assert line.startswith(begin)
    assert line.endswith("), which recipe ours gives it")
    with_recipe, _ = with_recipes(base, ["Mine"], "ours")
    assert with_recipe["Mine"].plan is plan
    # One run executes the plan that it is given, and says what is in it.
    [line] = recipe_of_own(with_recipe["Mine"])
    assert line.startswith("Mine trains with the plan's recipe: clipping norm")
    assert not recipe_of_own(requests["planned"])
    assert not recipe_of_own(requests["Mine"])


def test_an_own_server_goes_in_place_of_the_recipes(plan, mine):
    def build(plan, hyperparameters):
        return replace(mine(plan, hyperparameters), server=fed_yogi())

    register("Mine", plan=as_given, unit="client", released="sums", source="me")(build)
    assert plan.spec.recipe.decides
    assert ALGORITHMS.get("Mine").build(plan).server.name == "my yogi"
    [line] = recipe_of_own(Request(plan, "Mine", "digits", Path("run")))
    assert line.startswith("Mine trains with the plan's recipe: clipping norm")
    assert line.endswith(", its own server my yogi in place of the recipe's")
    # A server that the user states is a wish, which the method cannot fulfil.
    server = ServerOptimiser(optimizer="momentum")
    recipe = plan.spec.recipe.model_copy(update={"decides": ()})
    update = {"server": server, "recipe": recipe}
    stated = plan.model_copy(update={"spec": plan.spec.model_copy(update=update)})
    with pytest.raises(InputError, match="must be left out for Mine, which has its"):
        ALGORITHMS.get("Mine").build(stated)


def test_a_function_names_its_algorithm(plan, mine):
    assert registered_name(mine) == "Mine"
    rule = r"algorithm: must be a name, or a function decorated with @register"
    with pytest.raises(InputError, match=rule):
        simulate.train(plan, dataset="digits", algorithm=lambda plan, values: None)
    with pytest.raises(InputError, match=rule):
        simulate.compare(plan, [mine, lambda plan, values: None])


@pytest.mark.parametrize("shape", ["[:, 1:]", "[0]"])
def test_updates_of_another_shape_are_refused_in_one_line(plan, mine, shape, tmp_path):
    def build(plan, hyperparameters):
        algorithm = mine(plan, hyperparameters)

        def train(batch):
            result = algorithm.local.train(batch)
            updates = result.updates[:, 1:] if shape == "[:, 1:]" else result.updates[0]
            return replace(result, updates=updates)

        local = replace(algorithm.local, name="short", train=train)
        return replace(algorithm, local=local)

    register("Mine", plan=as_given, unit="client", released="sums", source="me")(build)
    rule = r"local\.train of short: must return a row of d numbers per client, \[K, d\]"
    with pytest.raises(InputError, match=rule):
        simulate.train(
            plan, dataset="digits", algorithm="Mine", folder=tmp_path / "run"
        )
