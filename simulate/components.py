"""The eight slots of an algorithm, as values that hold pure functions.

Vectors are float32 tensors. ``d`` is the model's dimension, ``k`` the number of coordinates
that leave clients in a round (``d`` unless a split or a mask narrows it), ``K`` a number of
clients, ``p`` the length of what a client keeps, ``D`` the number of parameters of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.plan import GroupPlan, Plan
from privplan.record import ReleaseRecord
from simulate.models.network import Model

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Sampler:
    """Who takes part in a round.

    Attributes:
        law: the law that ``draw`` executes; it is written into the ledger. None for a public
            schedule, which amplifies no privacy and so suits record-level releases only.
        draw: (generator, clients in the group, ratio, round) to sorted positions in
            0..clients-1.
        ratio: (clients in the group, planned ratio) to the ratio that is executed.
    """

    law: SamplingLaw | None
    draw: Callable[[np.random.Generator, int, float, int], np.ndarray]
    ratio: Callable[[int, float], float]


@dataclass(frozen=True)
class Split:
    """Which parameters are global, which are personal, and what a client makes of both.

    Attributes:
        name: for messages and records.
        dimension: model to the length d of the global vector.
        start: (model, generator) to a fresh global vector [d].
        shared: model to the sorted coordinates of the global vector that may leave a client
            [k]; None for all.
        personal: (model, first global vector [d]) to the first personal vector [p], the same
            for every client; None when a client keeps nothing.
        use: (model, global vector [d], personal vectors [K, p] or None, clients [K]) to the
            parameters of the model that the clients use, one set for all or one a client.
    """

    name: str
    dimension: Callable[[Model], int]
    start: Callable[[Model, torch.Generator], Tensor]
    shared: Callable[[Model], Tensor | None]
    personal: Callable[[Model, Tensor], Tensor | None]
    use: Callable[[Model, Tensor, Tensor | None, np.ndarray], Tensor]


@dataclass(frozen=True)
class ClientBatch:
    """What a local rule is given for K clients of one group.

    Attributes:
        model: the network.
        theta: global vector [d].
        personal: the clients' personal vectors [K, p]; None when they keep nothing.
        x: their mini-batches [K, steps, B, ...].
        y: labels [K, steps, B], -1 for a padding row.
        learning_rate: step size of this round.
        momentum: momentum of local SGD.
        workers: how many threads may be used; the result must not depend on it.
        round: training round, from 1.
        server: the server's state.
        group: the clients' group.
        clients: numbers of the clients [K].
        records: records that each of them holds [K].
        noise: client to the generator of the noise that it draws itself (record level).
    """

    model: Model
    theta: Tensor
    personal: Tensor | None
    x: Tensor
    y: Tensor
    learning_rate: float
    momentum: float
    workers: int
    round: int
    server: State
    group: GroupPlan
    clients: np.ndarray
    records: np.ndarray
    noise: Callable[[int], np.random.Generator]


@dataclass(frozen=True)
class RecordNoiseEvidence:
    """What clients who draw their own noise have to show for it, one value a client [K].

    Attributes:
        noise_std: standard deviation of the noise on each step's sum of records.
        bound: proven bound on the norm of what one record adds to such a sum.
        noise_sum_squares: sum of squares of the noise that was drawn.
        noise_state: hash of the generator's state before the first draw.
        drawn: coordinates that were drawn, over all steps.
        steps: steps taken.
        records: records that the client holds.
        taken: records in the batches, over all steps.
        largest_norm: largest norm that a record added.
        clipped: records that were shortened.
        excluded: records whose gradient was not finite, and that added nothing.
    """

    noise_std: np.ndarray
    bound: np.ndarray
    noise_sum_squares: np.ndarray
    noise_state: tuple[str, ...]
    drawn: np.ndarray
    steps: np.ndarray
    records: np.ndarray
    taken: np.ndarray
    largest_norm: np.ndarray
    clipped: np.ndarray
    excluded: np.ndarray


@dataclass(frozen=True)
class LocalResult:
    """What a local rule hands back.

    Attributes:
        updates: what the clients would send [K, d], before any transform.
        personal: what they keep [K, p]; None when they keep nothing.
        spent: evidence of noise that they drew themselves; None when they drew none.
    """

    updates: Tensor
    personal: Tensor | None = None
    spent: RecordNoiseEvidence | None = None


Train = Callable[[ClientBatch], LocalResult]


@dataclass(frozen=True)
class Local:
    """The local update rule.

    Attributes:
        name: for messages and records.
        train: the rule.
        poisson: whether mini-batches are Poisson samples of a client's records, for the
            group's ``record_sampling_ratio`` and ``steps``; else passes in random order.
    """

    name: str
    train: Train
    poisson: bool = False


@dataclass(frozen=True)
class TransformContext:
    """What a transform may look at besides the update: only what every client knows.

    Attributes:
        round: training round, from 1.
        theta: global model [d].
        server: the server's state.
        group: the client's group.
    """

    round: int
    theta: Tensor
    server: State
    group: GroupPlan


@dataclass(frozen=True)
class Transform:
    """A step on each client's update before it is summed.

    Attributes:
        name: for messages and records.
        apply: (updates [K, k], context) to (updates [K, k], which were shortened [K] or None).
        bound: (L2 bound on an update before, group) to the bound after; None is no proof.
        support: (generator, model dimension) to the sorted coordinates that are released; it
            sees no data, which is what lets it narrow the noise. None keeps all.
        extra: coordinates that ``apply`` appends, such as a count.
    """

    name: str
    apply: Callable[[Tensor, TransformContext], tuple[Tensor, Tensor | None]]
    bound: Callable[[float | None, GroupPlan], float | None]
    support: Callable[[np.random.Generator, int], Tensor] | None = None
    extra: int = 0


@dataclass(frozen=True)
class GroupSum:
    """What secure aggregation reveals of one group in a round, and the evidence beside it.

    Attributes:
        group: the group.
        total: sum of the transformed updates [k], float64.
        sampling: law executed.
        ratio: ratio executed.
        participants: positions in the group of those who took part [cohort].
        bound: proven bound on each summand's norm; None without one.
        largest_norm: largest norm among the summands.
        clipped: how many updates were shortened.
        excluded: how many updates were not finite and added zero.
        canaries: how many canaries of an audit are in the sum beside the participants.
        others: the sum without the canaries [k]; None in a run without any.
    """

    group: GroupPlan
    total: Tensor
    sampling: SamplingLaw
    ratio: float
    participants: tuple[int, ...]
    bound: float | None
    largest_norm: float
    clipped: int
    excluded: int
    canaries: int = 0
    others: Tensor | None = None


@dataclass(frozen=True)
class ClientUpdate:
    """One client's own release, where clients send for themselves.

    Attributes:
        group: the client's group.
        client: the client's number.
        position: its position in the group.
        vector: what it sends [k], float32, after every transform.
        spent: evidence of the noise that it drew, a value each [1]; None when it drew none.
        excluded: whether its update was not finite, so that it sends zero.
    """

    group: GroupPlan
    client: int
    position: int
    vector: Tensor
    spent: RecordNoiseEvidence | None
    excluded: bool = False


@dataclass(frozen=True)
class Released:
    """A sum that left the clients: what the server sees, and its line in the ledger.

    Attributes:
        vector: the sum with its noise [k], float32.
        record: what was released.
        groups: the groups whose clients are in it.
        client: number of the client, where it sent for itself.
    """

    vector: Tensor
    record: ReleaseRecord
    groups: tuple[GroupPlan, ...]
    client: int | None = None


Noise = Callable[[int], np.random.Generator]
"""Index of a release within its round to the generator of its noise."""


@dataclass(frozen=True)
class Mechanism:
    """How sums are released. The only slot that draws privacy noise.

    Attributes:
        name: for messages and records.
        noisy: whether it adds noise, and so needs a proven bound on each update.
        joint: whether one sum holds all groups.
        release: (round, sums, weight of each group, noise) to releases.
        alone: (round, update, weight of its group) to the release of one client, where clients
            send for themselves; None where only sums leave them.
    """

    name: str
    noisy: bool
    joint: bool
    release: Callable[[int, Sequence[GroupSum], Mapping[str, float], Noise], tuple[Released, ...]]
    alone: Callable[[int, ClientUpdate, float], Released] | None = None


@dataclass(frozen=True)
class Aggregator:
    """How releases become one step.

    Attributes:
        name: for messages and records.
        weight: (group, plan) to the constant factor on the sum that holds the group.
        combine: (releases, global vector [d], state) to (step [k], state).
        start: first global vector [d] to what it remembers, under names of its own.
    """

    name: str
    weight: Callable[[GroupPlan, Plan], float]
    combine: Callable[[Sequence[Released], Tensor, State], tuple[Tensor, State]]
    start: Callable[[Tensor], State] = lambda theta: {}


@dataclass(frozen=True)
class Server:
    """What the server does with a step.

    Attributes:
        name: for messages and records.
        start: first global vector [d] to the server's first state.
        step: (global vector [d], step [d], state) to (global vector [d], state).
    """

    name: str
    start: Callable[[Tensor], State]
    step: Callable[[Tensor, Tensor, State], tuple[Tensor, State]]


@dataclass(frozen=True)
class Personalise:
    """What clients use once training is over.

    Attributes:
        name: for messages and records.
        own: whether each client is judged on test records of its own.
        deploy: (parameters that the split gives [D] or [K, D], work with the clients' own
            records) to the parameters that are used, [D] or [K, D].
    """

    name: str
    own: bool
    deploy: Callable[[Tensor, ClientBatch], Tensor]
