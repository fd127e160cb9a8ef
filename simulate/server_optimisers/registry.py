"""Registry of the server optimisers, and the server that a spec asks for.

An optimiser is a function from ``spec.server`` to a ``Server``, registered where it is defined::

    @register("mine")
    def mine(options: ServerOptimiser) -> Server: ...

Other distributions name such a function in the entry-point group ``privplan.server_optimisers``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.registry import Registry
from privplan.spec.server import GROUP, Averaging, ServerOptimiser
from privplan.spec.spec import Spec
from simulate.components import Server, State

Make = Callable[[ServerOptimiser], Server]
"""Options of the spec to the server."""
AVERAGE = "averaged_model"
"""Key of the average of the models [d] in the server's state."""
AVERAGED_ROUNDS = "averaging_rounds"
"""Key of the number of completed rounds in the server's state."""


def _checked(component: object) -> Make:
    if not callable(component):
        raise TypeError("must be a function from ServerOptimiser to Server")
    return component


SERVER_OPTIMISERS: Registry[Make] = Registry(
    "server.optimizer", GROUP, "simulate.server_optimisers", _checked
)
"""All server optimisers by name."""


def register(name: str) -> Callable[[Make], Make]:
    """A decorator that registers a function as a server optimiser and returns it unchanged."""
    return lambda make: SERVER_OPTIMISERS.register(name, make)


def server_of(spec: Spec, own: Server, algorithm: str) -> Server:
    """Returns the server of a spec's optimiser and averaging, or the algorithm's own.

    Args:
        spec: the executed plan's spec.
        own: the server that the algorithm is composed with.
        algorithm: name of the algorithm.

    Raises:
        InputError: when the spec asks for a server and the algorithm defines its own.
    """
    if spec.server is None and spec.averaging is None:
        return own
    if own.name != "add":
        text = f"must be left out for {algorithm}, which has its own server"
        raise InputError.one("plan.server", text, own.name)
    server = own
    if spec.server is not None:
        server = SERVER_OPTIMISERS.get(spec.server.optimizer)(spec.server)
    return server if spec.averaging is None else averaged(server, spec.averaging, spec.rounds)


def averaged(inner: Server, averaging: Averaging, rounds: int) -> Server:
    """Returns a server whose released vector is an average of its models over rounds.

    Args:
        inner: moves the model, as without averaging; clients receive its model.
        averaging: kind of average.
        rounds: rounds of the run (T).
    """

    def start(theta: Tensor) -> State:
        zero = torch.zeros((), dtype=torch.float64, device=theta.device)
        return {**inner.start(theta), AVERAGE: theta.clone(), AVERAGED_ROUNDS: zero}

    def move(theta: Tensor, step: Tensor, state: State) -> tuple[Tensor, State]:
        after, state = inner.step(theta, step, state)
        done = state[AVERAGED_ROUNDS] + 1
        share = newest_weight(averaging, int(done), rounds)
        average = torch.lerp(state[AVERAGE], after, share)
        return after, {**state, AVERAGE: average, AVERAGED_ROUNDS: done}

    return replace(
        inner,
        name=f"{inner.name}, {averaging.method}",
        start=start,
        step=move,
        released=lambda theta, state: state[AVERAGE],
    )


def newest_weight(averaging: Averaging, round_: int, rounds: int) -> float:
    """Returns the weight of a round's model in the average after that round.

    It is (1 - decay) / (1 - decay^t) for ``ema``, so that the weights of the models of rounds 1
    to t are proportional to decay^(t - i), and 1 / n for the n-th model of a ``tail``.

    Args:
        averaging: kind of average.
        round_: the round (t), from 1.
        rounds: rounds of the run (T).
    """
    if averaging.decay is not None:
        return (1 - averaging.decay) / (1 - averaging.decay**round_)
    first = rounds - max(1, ceil((averaging.fraction or 1.0) * rounds - 1e-9))
    return 1 / max(1, round_ - first)
