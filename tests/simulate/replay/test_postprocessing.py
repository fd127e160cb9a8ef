"""The one function of post-processing does what the papers say, for all methods and servers.

Random releases, of the lengths that a run has, are put through ``models_after`` and through the
second implementation in ``server_side``.
"""

import numpy as np
import pytest
import torch

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from simulate.algorithm import extra_coordinates, weights
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters, executable
from simulate.models.registry import model
from simulate.postprocessing import (
    RoundReleases,
    Sender,
    initial_vector,
    models_after,
    public_coordinates,
)
from tests.simulate.replay.runs import short_plan
from tests.simulate.replay.server_side import Server, by_norm, projector, shares
from tests.simulate.replay.test_coverage import plan as plan_of

SEED, ROUNDS = 5, 6
EXACT = ("HyperFL", "HyperFL-LPM", "pFedHN", "pFedHN-PC")  # epsilon is infinite
ESTIMATED = (
    "Robust-HDP",
)  # of random matrices: tests/simulate/algorithms checks its estimates


def released(algorithm, network, rounds):
    """Random releases of each round, with their senders."""
    generator, groups = np.random.default_rng(1), algorithm.plan.groups
    for round_ in range(1, rounds + 1):
        public = public_coordinates(algorithm, network, SEED, round_)
        size = network.parameters if public is None else len(public)
        size += extra_coordinates(algorithm)
        senders, count = [], 1 if algorithm.mechanism.joint else len(groups)
        if algorithm.mechanism.release_client is not None:
            count = 4
            names = [groups[at % len(groups)].name for at in range(count)]
            senders = [Sender(name, at) for at, name in enumerate(names)]
        vectors = generator.normal(size=(count, size)).astype(np.float32)
        yield RoundReleases(round_, list(torch.from_numpy(vectors)), senders)


def by_hand(algorithm, network, first, name):
    """The server of an algorithm, by hand."""
    plan, numbers = algorithm.plan, entry_numbers(name)
    factors = list(weights(algorithm).values())
    options = {}
    if algorithm.mechanism.joint:
        factors = factors[:1]
    if algorithm.mechanism.release_client is not None:
        planned = [plan.groups[at % len(plan.groups)] for at in range(4)]
        counted = [group.weight / group.clients for group in planned]
        options["weigh"] = lambda vectors: shares(counted, vectors)
    if name == "Robust-HDP-norms":
        options["weigh"] = by_norm
    if name == "PFA" and plan.unit == "client":
        options["project"] = projector([group.epsilon for group in plan.groups])
    if name in ("GDPFed+", "planned") and not algorithm.mechanism.joint:
        options["top_k"] = True
    if "smoothing" in numbers:
        options["smoothing"] = numbers["smoothing"]
    if name.startswith("DP-FedPGN"):
        decay = plan.spec.local.learning_rate_decay
        options["known_share"] = (1 - numbers["beta"]) * decay
    if len(plan.spec.mixture) > 1:
        options["mixture"] = plan.spec.mixture_of

    def coordinates(round_):
        public = public_coordinates(algorithm, network, SEED, round_)
        return np.arange(network.parameters) if public is None else public

    return Server(plan, first.numpy(), factors, coordinates, **options)


def entry_numbers(name):
    return ALGORITHMS.get(name).complete(Hyperparameters()).values


def check(name, given):
    entry, network = ALGORITHMS.get(name), model("mlp-digits")
    executed = entry.plan(given, {group.name: 20 for group in given.groups})
    algorithm = entry.build(executed)
    first = initial_vector(algorithm, network, SEED)
    server, rounds = by_hand(algorithm, network, first, name), executed.spec.rounds
    states = models_after(
        algorithm, network, SEED, first, released(algorithm, network, rounds)
    )
    assert next(states).round == 0
    again = released(algorithm, network, rounds)
    for state, releases in zip(states, again, strict=True):
        expected = server.move(
            releases.round, [one.numpy() for one in releases.vectors]
        )
        found = state.theta.double().numpy()
        moved = np.abs(expected - first.numpy()).max()
        assert np.abs(found - expected).max() <= 2e-4 * moved, (name, state.round)
        average = state.released(algorithm).double().numpy()
        assert np.abs(average - server.average).max() <= 2e-4 * moved, (
            name,
            state.round,
        )


METHODS = sorted(
    (name, unit)
    for unit in ("client", "record")
    for name in executable(plan_of("poisson", unit))
    if (ALGORITHMS.get(name).unit_under(plan_of("poisson", unit)) == "record")
    == (unit == "record")
    and name not in (*EXACT, *ESTIMATED, "Local-only")
    and (name, unit)
    != ("PFA", "record")  # its clusters are in tests/simulate/algorithms
)


@pytest.mark.parametrize(("name", "unit"), METHODS)
def test_the_model_of_each_method_is_that_of_its_paper(name, unit):
    check(name, plan_of("poisson", unit))


@pytest.mark.parametrize("averaging", ["", "ema", "tail"])
@pytest.mark.parametrize("server", ["sgd", "momentum", "adagrad", "adam", "yogi"])
def test_each_server_optimiser_is_that_of_its_paper(server, averaging):
    check("planned", short_plan(planning="joint", server=server, averaging=averaging))


@pytest.mark.parametrize("planning", ["quantile", "quantiles"])
@pytest.mark.parametrize("name", ["planned", "DP-FedAvg", "GDPFed+"])
def test_the_clipping_norm_follows_the_quantile(name, planning):
    check(name, short_plan(planning=planning))


@pytest.mark.parametrize(
    "law", ["cyclic_poisson:3", *(str(law) for law in SamplingLaw)]
)
def test_mixtures_of_sums_are_solved(law):
    check("planned", plan_of(law, "client"))


def test_releases_of_another_number_length_or_round_are_refused():
    entry, network = ALGORITHMS.get("DP-FedAvg"), model("mlp-digits")
    algorithm = entry.build(entry.plan(plan_of("poisson", "client"), {}))
    first = initial_vector(algorithm, network, SEED)
    one = torch.zeros(network.parameters)
    for wrong in (
        RoundReleases(1, [one, one]),
        RoundReleases(1, [one[:-1]]),
        RoundReleases(2, [one]),
        RoundReleases(1, []),
    ):
        with pytest.raises(InputError, match="releases: must be"):
            list(models_after(algorithm, network, SEED, first, [wrong]))
