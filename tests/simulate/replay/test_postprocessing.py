"""Post-processing does what the papers say, for all methods and servers.

Random releases, of the lengths that a run has, are put through ``models_after`` and
through the second implementation in ``server_side``.
"""

from itertools import product

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

SEED = 5
# Senders of a round of releases by single clients.
CLIENTS = 4
EXACT = ("HyperFL", "HyperFL-LPM", "pFedHN", "pFedHN-PC")  # epsilon is infinite
# Of random matrices: tests/simulate/algorithms checks its estimates.
ESTIMATED = ("Robust-HDP",)


def released(algorithm, network, rounds):
    """Random releases of each round, with their senders."""
    generator = np.random.default_rng(1)
    groups = algorithm.plan.groups
    for round_ in range(1, rounds + 1):
        public = public_coordinates(algorithm, network, SEED, round_)
        size = network.parameters if public is None else len(public)
        size += extra_coordinates(algorithm)
        senders = []
        count = 1 if algorithm.mechanism.joint else len(groups)
        if algorithm.mechanism.release_client is not None:
            count = CLIENTS
            for client in range(CLIENTS):
                senders.append(Sender(groups[client % len(groups)].name, client))
        vectors = generator.normal(size=(count, size)).astype(np.float32)
        yield RoundReleases(round_, list(torch.from_numpy(vectors)), senders)


def by_hand(algorithm, network, initial, name):
    """The server of an algorithm, by hand."""
    plan = algorithm.plan
    numbers = entry_numbers(name)
    factors = list(weights(algorithm).values())
    options = {}
    if algorithm.mechanism.joint:
        factors = factors[:1]
    if algorithm.mechanism.release_client is not None:
        groups = plan.groups
        planned = [groups[client % len(groups)] for client in range(CLIENTS)]
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

    return Server(plan, initial.numpy(), factors, coordinates, **options)


def entry_numbers(name):
    return ALGORITHMS.get(name).complete(Hyperparameters()).values


def check(name, plan):
    """Compare a method's models and averages, of a plan, with those by hand."""
    entry = ALGORITHMS.get(name)
    network = model("mlp-digits")
    executed = entry.plan(plan, {group.name: 20 for group in plan.groups})
    algorithm = entry.build(executed)
    rounds = list(released(algorithm, network, executed.spec.rounds))
    initial = initial_vector(algorithm, network, SEED)
    server = by_hand(algorithm, network, initial, name)
    states = models_after(algorithm, network, SEED, initial, rounds)
    assert next(states).round == 0
    for state, releases in zip(states, rounds, strict=True):
        expected = server.move(
            releases.round, [vector.numpy() for vector in releases.vectors]
        )
        movement = np.abs(expected - initial.numpy()).max()
        assert distance(state.theta, expected) <= TOLERANCE * movement
        average = state.released(algorithm)
        assert distance(average, server.average) <= TOLERANCE * movement


# Models are computed in float32, whose errors add up over the rounds.
TOLERANCE = 2e-4


def distance(computed, expected):
    return np.abs(computed.double().numpy() - expected).max()


# The clusters of PFA's clients are in tests/simulate/algorithms.
ELSEWHERE = [("PFA", "record")]


def methods():
    """Names of the methods whose servers are done by hand, with the unit of a plan."""
    pairs = []
    for unit in ("client", "record"):
        plan = plan_of("poisson", unit)
        for name in executable(plan):
            protects_records = ALGORITHMS.get(name).unit_under(plan) == "record"
            if protects_records == (unit == "record"):
                pairs.append((name, unit))
    by_hand_nowhere = (*EXACT, *ESTIMATED, "Local-only")
    return sorted(
        pair
        for pair in pairs
        if pair[0] not in by_hand_nowhere and pair not in ELSEWHERE
    )


@pytest.mark.parametrize(("name", "unit"), methods())
def test_the_model_of_each_method_is_that_of_its_paper(name, unit):
    check(name, plan_of("poisson", unit))


AVERAGINGS = ("", "ema", "tail")
SERVERS = ("sgd", "momentum", "adagrad", "adam", "yogi")
# Each server without an average, and each average of one server.
QUICK_PAIRS = [
    *((server, "") for server in SERVERS),
    *(("momentum", averaging) for averaging in AVERAGINGS[1:]),
]


@pytest.mark.parametrize(
    ("server", "averaging"),
    [
        pytest.param(*pair, marks=() if pair in QUICK_PAIRS else pytest.mark.slow)
        for pair in product(SERVERS, AVERAGINGS)
    ],
)
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
    entry = ALGORITHMS.get("DP-FedAvg")
    network = model("mlp-digits")
    algorithm = entry.build(entry.plan(plan_of("poisson", "client"), {}))
    initial = initial_vector(algorithm, network, SEED)
    vector = torch.zeros(network.parameters)
    for wrong in (
        RoundReleases(1, [vector, vector]),
        RoundReleases(1, [vector[:-1]]),
        RoundReleases(2, [vector]),
        RoundReleases(1, []),
    ):
        with pytest.raises(InputError, match="releases: must be"):
            list(models_after(algorithm, network, SEED, initial, [wrong]))
