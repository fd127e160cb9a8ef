"""The eight components of an algorithm, as values that hold pure functions.

Vectors are float32 tensors. ``d`` is the length of the global vector, ``k`` the number
of released coordinates in a round (``d`` unless a split or a mask selects fewer), ``K``
a number of clients, ``p`` the length of a personal vector, ``D`` the number of
parameters of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.evidence.noise import NoiseEvidence
from privplan.plan import GroupPlan, Plan
from privplan.record import ReleaseRecord
from simulate.models.network import Model
from simulate.norms import Measured
from simulate.own_state import State as State
from simulate.own_state import isolate
from simulate.signatures import hints_of, require_types

Step = tuple[Tensor, State]
"""A step or the vector after it, and the state after it."""
Transformed = tuple[Tensor, Tensor | None]
"""Updates [K, k], and whether each was clipped [K]; None where none can be."""


class Component:
    """A component, whose fields are of their kinds from the start."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        name = kind.__name__.removesuffix("Rule").lower()
        require_types(vars(self), hints_of(kind), f"{name}.")


@dataclass(frozen=True)
class Sampler(Component):
    """Selects the participants of a round."""

    # the law that ``draw`` executes; it is written into the ledger. None for a public
    # schedule, which amplifies no privacy and so suits record-level releases only
    law: SamplingLaw | None
    # (generator, clients in the group, ratio, round) to sorted positions in
    # 0..clients-1
    draw: Callable[[np.random.Generator, int, float, int], np.ndarray]
    # (clients in the group, planned ratio) to the ratio that is executed
    ratio: Callable[[int, float], float]


@dataclass(frozen=True)
class Split(Component):
    """Which parameters are shared or personal, and the model that a client uses."""

    name: str  # for messages and records
    dimension: Callable[[Model], int]  # model to the length d of the global vector
    # (model, generator) to a fresh global vector [d]
    start: Callable[[Model, torch.Generator], Tensor]
    # model to the sorted coordinates of the global vector that may leave a client [k];
    # None for all
    shared: Callable[[Model], Tensor | None]
    # (model, first global vector [d]) to the first personal vector [p], the same for
    # every client; None without personal vectors
    personal: Callable[[Model, Tensor], Tensor | None]
    # (model, global vector [d], personal vectors [K, p] or None, clients [K]) to the
    # parameters of the model that the clients use, one set for all or one per client
    use: Callable[[Model, Tensor, Tensor | None, np.ndarray], Tensor]


@dataclass(frozen=True)
class ClientBatch:
    """Input of a local rule: models and mini-batches of K clients of one group."""

    model: Model
    theta: Tensor  # global vector [d]
    # the clients' personal vectors [K, p]; None without personal vectors
    personal: Tensor | None
    x: Tensor  # their mini-batches [K, steps, B, ...]
    y: Tensor  # labels [K, steps, B], -1 for a padding row
    learning_rate: float  # step size of this round
    momentum: float  # of local SGD
    workers: int  # number of threads; the result must not depend on it
    round: int  # from 1
    server: State
    group: GroupPlan
    clients: np.ndarray  # numbers of the clients [K]
    records: np.ndarray  # number of records of each client [K]
    # Client to the generator of its locally drawn noise (record level).
    noise: Callable[[int], np.random.Generator]


@dataclass(frozen=True)
class RecordNoiseEvidence:
    """Per-client evidence of locally drawn DP-SGD noise, shape [K]."""

    noise_std: np.ndarray  # of the noise on each step's sum of records
    bound: np.ndarray  # proven, on the norm of one record's part of such a sum
    noise_sum_squares: np.ndarray  # sum of squares of the noise that was drawn
    noise_state: tuple[str, ...]  # hash of the generator's state before the first draw
    drawn: np.ndarray  # coordinates that were drawn, over all steps
    steps: np.ndarray  # steps taken
    records: np.ndarray  # number of records of the client
    batch_records: np.ndarray  # records in the batches, over all steps
    largest_norm: np.ndarray  # largest norm of a clipped gradient
    clipped: np.ndarray  # number of clipped records
    excluded: np.ndarray  # records whose gradient was not finite, which add nothing


@dataclass(frozen=True)
class LocalResult:
    """Result of a local rule."""

    updates: Tensor  # updates of the clients [K, d], before any transform
    # Their new personal vectors [K, p]; None without personal vectors.
    personal: Tensor | None = None
    # Evidence of locally drawn noise; None without such noise.
    noise_evidence: RecordNoiseEvidence | None = None


Train = Callable[[ClientBatch], LocalResult]


@dataclass(frozen=True)
class LocalRule(Component):
    """The local update rule."""

    name: str  # for messages and records
    train: Train  # the rule
    # whether mini-batches are Poisson samples of a client's records, for the group's
    # ``record_sampling_ratio`` and ``steps``; else shuffled epochs
    poisson: bool = False
    # whether ``train`` reads nothing of ``ClientBatch.group``, so that clients of
    # several groups may be trained in one batch, which saves time with many groups
    across_groups: bool = False
    # number of noisy steps in a round to the factor with which each step, and so its
    # noise, is in the update that is sent; 0 for a step on personal parameters.
    # Momentum acts on the steps with a factor. None for 1 in all steps
    sent_noise: Callable[[int], Sequence[float]] | None = None


@dataclass(frozen=True)
class TransformContext:
    """Input of a transform besides the update: public values and the client's group."""

    round: int  # from 1
    theta: Tensor  # global model [d]
    server: State
    group: GroupPlan  # the client's group
    # Norms of the updates before the first transform; None where unknown.
    measured: Measured | None = None


@dataclass(frozen=True)
class Transform(Component):
    """Changes each client's update before it is summed."""

    name: str  # for messages and records
    # (updates [K, k], context) to (updates [K, k], whether each was clipped [K] or
    # None)
    apply: Callable[[Tensor, TransformContext], Transformed]
    # (L2 bound on an update before, group) to the bound after; None without a bound
    bound: Callable[[float | None, GroupPlan], float | None]
    # (generator, model dimension) to the sorted coordinates that are released; it has
    # no access to data, so noise is needed only there. None releases all
    public_mask: Callable[[np.random.Generator, int], Tensor] | None = None
    extra: int = 0  # coordinates that ``apply`` appends, such as a count


@dataclass(frozen=True)
class GroupSum:
    """Result of secure aggregation for one group in a round, with its evidence."""

    group: GroupPlan
    total: Tensor  # sum of the transformed updates [k], float64
    sampling: SamplingLaw  # as executed
    ratio: float  # as executed
    # positions in the group of those who took part [cohort]
    participants: tuple[int, ...]
    bound: float | None  # proven bound on each summand's norm; None without a bound
    largest_norm: float  # largest norm of a summand
    clipped: int  # number of clipped updates
    excluded: int  # number of updates that were not finite and added zero
    # number of audit canaries in the sum, in addition to the participants
    canaries: int = 0
    # the sum without the canaries [k]; None in a run without canaries
    without_canaries: Tensor | None = None
    # step of the grid that the sum is on; None without a grid
    grid: float | None = None


@dataclass(frozen=True)
class ClientUpdate:
    """Update of one client whose mechanism releases single clients' updates."""

    group: GroupPlan  # the client's group
    client: int  # the client's number
    position: int  # its position in the group
    vector: Tensor  # the update [k], float32, after every transform
    norm: float  # its length
    # Evidence of locally drawn noise, shape [1]; None without such noise.
    noise_evidence: RecordNoiseEvidence | None
    # whether the update was not finite, so that the client sends zero
    excluded: bool = False


@dataclass(frozen=True)
class Released:
    """A release: the vector that the server receives, and its line in the ledger."""

    vector: Tensor  # the released vector with its noise [k], float32
    record: ReleaseRecord  # ledger record of the release
    groups: tuple[GroupPlan, ...]  # groups whose clients contribute
    client: int | None = None  # number of the client, for a release of one client
    # The loop's measurements of its Gaussian noise on sums; None for other releases.
    noise: NoiseEvidence | None = None


@dataclass(frozen=True)
class Received:
    """A release as the server receives it: without what only its ledger line says."""

    round: int  # from 1
    vector: Tensor  # the released vector [k], float32
    groups: tuple[GroupPlan, ...]  # groups whose clients contribute, as in this round
    factor: float  # the planned factor on the vector
    client: int | None = None  # number of the client, for a release of one client


Noise = Callable[[int], np.random.Generator]  # of a release, by its index in the round


@dataclass(frozen=True)
class Mechanism(Component):
    """Releases sums or single updates. The only component that draws privacy noise."""

    name: str  # for messages and records
    noisy: bool  # whether it adds noise, and so needs a proven bound on each update
    joint: bool  # whether one sum holds all groups
    # (round, sums, weight of each group, noise) to releases
    release: Callable[
        [int, Sequence[GroupSum], Mapping[str, float], Noise], tuple[Released, ...]
    ]
    # (round, update, weight of its group) to the release of one client; None if only
    # sums are released
    release_client: Callable[[int, ClientUpdate, float], Released] | None = None
    # (round, its sums, earlier sums [groups, B - 1, d], the latest first) to what is
    # released instead of each sum. The loop keeps the sums, and measures releases
    # against the mixture that the plan names
    mix: Callable[[int, Sequence[GroupSum], Tensor], tuple[GroupSum, ...]] = (
        lambda _, sums, past: tuple(sums)
    )


@dataclass(frozen=True)
class Aggregator(Component):
    """Combines the releases of a round into one step."""

    name: str  # for messages and records
    # (group, plan) to the constant factor on the sum that holds the group
    weight: Callable[[GroupPlan, Plan], float]
    # (releases, global vector [d], state) to (step [k], state)
    combine: Callable[[Sequence[Received], Tensor, State], Step]
    # first global vector [d] to the aggregator's part of the state, by distinct keys
    start: Callable[[Tensor], State] = lambda theta: {}

    def __post_init__(self) -> None:
        super().__post_init__()
        isolate(self, "aggregator", ("combine",))


@dataclass(frozen=True)
class Server(Component):
    """Applies a step to the global vector."""

    name: str  # for messages and records
    # first global vector [d] to the server's first state
    start: Callable[[Tensor], State]
    # (global vector [d], step [d], state) to (global vector [d], state)
    step: Callable[[Tensor, Tensor, State], Step]
    # (global vector [d], state) to the vector that is evaluated and released [d]
    released: Callable[[Tensor, State], Tensor] = lambda theta, state: theta

    def __post_init__(self) -> None:
        super().__post_init__()
        isolate(self, "server", ("step", "released"))


@dataclass(frozen=True)
class Personalisation(Component):
    """Makes the models that clients use after training."""

    name: str  # for messages and records
    per_client: bool  # whether each client is evaluated on its own test records
    # (parameters that the split returns [D] or [K, D], batch of the clients' own
    # records) to the parameters that are used, [D] or [K, D]
    deploy: Callable[[Tensor, ClientBatch], Tensor]
