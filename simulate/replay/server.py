"""The server's part of a round, executed again: optimiser and average of models.

Formulas in float64, one function per optimiser, from the papers: FedAvgM (Hsu, Qi, Brown, 2019)
and Algorithm 2 of Adaptive Federated Optimization (Reddi et al., ICLR 2021).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor, from_numpy

from privplan.plan import Plan

AVERAGE, ROUNDS = "averaged_model", "averaging_rounds"
"""Names of the average of the models and of its count in the evidence."""
Array = np.ndarray
Vectors = dict[str, Tensor]
"""Vectors of the server's state [d] by name in the evidence."""
Move = Callable[[Array, dict[str, Array], dict[str, float]], tuple[Array, dict[str, Array]]]


def _sgd(
    mean: Array, state: dict[str, Array], of: dict[str, float]
) -> tuple[Array, dict[str, Array]]:
    return of["learning_rate"] * mean, {}


def _momentum(
    mean: Array, state: dict[str, Array], of: dict[str, float]
) -> tuple[Array, dict[str, Array]]:
    velocity = state["velocity"] * of["momentum"] + mean
    return of["learning_rate"] * velocity, {"velocity": velocity}


def _adaptive(second_moment: Callable[[Array, Array, float], Array]) -> Move:
    def move(
        mean: Array, state: dict[str, Array], of: dict[str, float]
    ) -> tuple[Array, dict[str, Array]]:
        first = of["beta1"] * state["mean"] + (1 - of["beta1"]) * mean
        second = second_moment(state["squares"], np.square(mean), of.get("beta2", 1.0))
        step = of["learning_rate"] * first / (np.sqrt(second) + of["epsilon"])
        return step, {"mean": first, "squares": second}

    return move


MOVES: dict[str, Move] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adagrad": _adaptive(lambda v, new, beta: v + new),
    "adam": _adaptive(lambda v, new, beta: beta * v + (1 - beta) * new),
    "yogi": _adaptive(lambda v, new, beta: np.where(v > new, v - (1 - beta) * new,
                                                    v + (1 - beta) * new)),
}  # fmt: skip
"""(mean update, state, hyperparameters) to the step and the state, by optimiser."""


def supported(plan: Plan) -> bool:
    """Whether the plan's server optimiser can be executed again."""
    return plan.spec.server is None or plan.spec.server.optimizer in MOVES


def first_vectors(plan: Plan, theta: Tensor) -> Vectors:
    """The server's vectors before the first round, for the initial model [d]."""
    server, zero = plan.spec.server, theta * 0
    found: Vectors = {}
    if server is not None and server.optimizer == "momentum":
        found = {"velocity": zero}
    elif server is not None and server.epsilon is not None:
        found = {"mean": zero, "squares": zero + server.epsilon**2}
    if plan.spec.averaging is not None:
        found[AVERAGE] = theta
    return found


def moved(
    plan: Plan, round_: int, theta: Tensor, mean: Tensor, vectors: Vectors
) -> tuple[Tensor, Vectors]:
    """The model and the server's vectors after a round.

    Args:
        plan: the executed plan.
        round_: the round, from 1.
        theta: the model before the round [d].
        mean: the mean update of the round [d].
        vectors: the server's vectors before the round.
    """
    before = {name: one.double().numpy() for name, one in vectors.items()}
    step, after = mean.double().numpy(), dict[str, Array]()
    if plan.spec.server is not None:
        numbers = plan.spec.server.model_dump(exclude={"optimizer"})
        step, after = MOVES[plan.spec.server.optimizer](step, before, numbers)
    model = theta.double().numpy() + step
    if plan.spec.averaging is not None:
        share = _share(plan, round_)
        after[AVERAGE] = (1 - share) * before[AVERAGE] + share * model
    return from_numpy(model).float(), {name: from_numpy(one).float() for name, one in after.items()}


def _share(plan: Plan, round_: int) -> float:
    """Weight of the model of a round in the average."""
    averaging, total = plan.spec.averaging, plan.spec.rounds
    assert averaging is not None
    if averaging.method == "ema":
        return 1 / sum((averaging.decay or 0.0) ** age for age in range(round_))
    averaged = max(1, int(np.ceil((averaging.fraction or 1.0) * total - 1e-9)))
    return 1.0 if round_ <= total - averaged else 1 / (round_ - (total - averaged))
