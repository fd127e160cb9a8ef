"""What an attacker sees of one release, and what its result is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from privplan.registry import Registry, instance_of
from simulate.algorithm import extra_coordinates
from simulate.attacks.checkpoint import Checkpoint
from simulate.components import ClientUpdate, GroupSum, Noise, Released
from simulate.data.dataset import Dataset
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, run_round
from simulate.engine.round import released_coordinates
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork
from simulate.models.network import Model, body_size, split_head
from simulate.runs.ledger_writer import LedgerWriter

Kind = Literal["parameters", "hypernetwork", "nothing"]


@dataclass(frozen=True)
class View:
    """A release as the server sees it, with what is public about its round.

    Attributes:
        kind: ``parameters``, the release is an update of model parameters that the
            server knows; ``hypernetwork``, an update of a hypernetwork that generates
            private parameters at the client; ``nothing``, no vector is released.
        model: the network.
        parameters: that the clients start from, as far as the server knows them [D];
            for ``hypernetwork``, the parameters of the hypernetwork [P].
        observed: indices of the released coordinates among ``parameters``, sorted.
        update: the released vector at these coordinates, without appended coordinates.
        clients: number of clients whose updates the vector sums up.
        records: number of records that contribute.
        steps: local steps per client.
        learning_rate: local learning rate of the round.
        noise_std: standard deviation of the noise on a client's or the cohort's vector,
            from the ledger record; 0 without noise.
        dataset: name of the data set, with the public scaling of its pixels.
        mean: pixel mean that model inputs subtract, per channel or one number.
        std: pixel standard deviation that model inputs divide by, likewise.
        white: stored value of a white pixel.
    """

    kind: Kind
    model: Model
    parameters: Tensor
    observed: Tensor
    update: Tensor
    clients: int
    records: int
    steps: int
    learning_rate: float
    noise_std: float
    dataset: str
    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    white: float

    @property
    def gradient(self) -> Tensor:
        """Estimated sum of mean gradients at ``parameters`` [D]; 0 if not observed."""
        full_gradient = torch.zeros_like(self.parameters)
        scale = -1.0 / (self.learning_rate * self.steps)
        return full_gradient.index_copy_(0, self.observed, self.update * scale)

    @property
    def mask(self) -> Tensor:
        """1 where a parameter's update is released, else 0 [D]."""
        ones = torch.ones(len(self.observed), device=self.parameters.device)
        return torch.zeros_like(self.parameters).index_copy_(0, self.observed, ones)

    @property
    def hypernetwork(self) -> Hypernetwork:
        """Sizes of the released hypernetwork, by the length of its parameters."""
        # P = H (E + 1) + D (H + 1), solved for the hidden units H.
        generated = body_size(self.model)
        hidden = (len(self.parameters) - generated) // (EMBEDDING + 1 + generated)
        return Hypernetwork(generated, hidden)

    def inputs(self, pixels: Tensor) -> Tensor:
        """Model inputs of pixels in [0, 1], shape [..., channels, height, width]."""
        mean, std = self._scaling(pixels)
        return (pixels * self.white - mean) / std

    def outputs(self, inputs: Tensor) -> Tensor:
        """The inverse of ``inputs``: pixels, not limited to [0, 1]."""
        mean, std = self._scaling(inputs)
        return (inputs * std + mean) / self.white

    def _scaling(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the channels, to broadcast over images."""
        mean = torch.as_tensor(self.mean).to(like)
        std = torch.as_tensor(self.std).to(like)
        return mean.reshape(-1, 1, 1), std.reshape(-1, 1, 1)


@dataclass(frozen=True)
class Truth:
    """The records of a release; attacks do not receive them.

    Attributes:
        images: pixels in [0, 1], shape [records, channels, height, width].
        labels: of the records [records].
        rows: indices of the records in the training set [records].
    """

    images: Tensor
    labels: Tensor
    rows: np.ndarray


@dataclass(frozen=True)
class Observation:
    """A release of one round: the attacker's view, and the truth."""

    view: View
    truth: Truth


def require_images(data: Dataset) -> None:
    """Raise unless records are images of bytes."""
    if data.kind != "image" or data.train_x.dtype != torch.uint8:
        rule = "must hold images, which attacks reconstruct"
        raise InputError.one("dataset", rule, data.name)


def white(data: Dataset) -> float:
    """Stored value of a white pixel: 255, or 16 for the digits of scikit-learn."""
    if int(data.train_x.max()) > 16:
        return 255.0
    return 16.0


def truth_of(data: Dataset, rows: np.ndarray) -> Truth:
    """The records with the given indices in the training set."""
    chosen = torch.from_numpy(np.asarray(rows, dtype=np.int64))
    return Truth(
        data.train_x[chosen].float() / white(data),
        data.train_y[chosen],
        np.asarray(rows),
    )


def recorded(
    experiment: Experiment, progress: Progress, ledger: LedgerWriter
) -> tuple[Released, ...]:
    """Run one round, whose model nobody uses; the releases that its mechanism made."""
    seen: list[Released] = []
    mechanism = experiment.algorithm.mechanism
    honest = mechanism.release_client

    def release(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
    ) -> tuple[Released, ...]:
        releases = mechanism.release(round_, sums, weights, noise)
        seen.extend(releases)
        return releases

    def release_client(round_: int, update: ClientUpdate, weight: float) -> Released:
        assert honest is not None
        released = honest(round_, update, weight)
        seen.append(released)
        return released

    of_client = None if honest is None else release_client
    noted = replace(mechanism, release=release, release_client=of_client)
    watching = replace(experiment.algorithm, mechanism=noted)
    watched = with_start(replace(experiment, algorithm=watching), experiment.start)
    run_round(watched, progress, ledger)
    return tuple(seen)


def with_start(experiment: Experiment, start: Tensor) -> Experiment:
    """The experiment with an initial vector in place of the one of its seed."""
    # The place where the cached property stores it.
    experiment.__dict__["start"] = start
    return experiment


def view_of(
    experiment: Experiment,
    progress: Progress,
    released: Released,
    *,
    clients: int,
    records: int,
    steps: int,
) -> View:
    """The server's view of a release."""
    vector = released.vector.float()
    extra = extra_coordinates(experiment.algorithm)
    vector = vector[: len(vector) - extra] if extra else vector
    kind, parameters, observed = _public(experiment, progress, released, len(vector))
    data = experiment.data
    return View(
        kind=kind,
        model=experiment.model,
        parameters=parameters,
        observed=observed,
        update=vector,
        clients=clients,
        records=records,
        steps=steps,
        learning_rate=experiment.learning_rate(progress.round + 1),
        noise_std=released.record.noise_std,
        dataset=data.name,
        mean=data.mean,
        std=data.std,
        white=white(data),
    )


@lru_cache(maxsize=1)
def _every_index(length: int) -> Tensor:
    """All indices of a vector, stored once: those of a hypernetwork are millions."""
    return torch.arange(length)


def _public(
    experiment: Experiment, progress: Progress, released: Released, length: int
) -> tuple[Kind, Tensor, Tensor]:
    """Kind of a release, the public parameters it updates, and which it holds."""
    model = experiment.model
    split = experiment.algorithm.split
    if not length:
        return "nothing", progress.theta[:0], torch.empty(0, dtype=torch.int64)
    coordinates = released_coordinates(experiment, progress.round + 1)
    if split.dimension(model) != model.parameters and released.client is None:
        return "hypernetwork", progress.theta[:length], _every_index(length)
    clients = np.array([0 if released.client is None else released.client])
    start = experiment.personal_start
    personal = None
    if start is not None:
        personal = start.to(progress.theta.device)[None]
    used = split.use(model, progress.theta, personal, clients)
    # Models of several clients have a row for each.
    if used.dim() > 1:
        used = used[0]
    parameters = used.clone()
    indices = torch.arange(model.parameters, device=parameters.device)
    if coordinates is not None and split.dimension(model) == model.parameters:
        indices = coordinates
    elif length == body_size(model):
        indices = split_head(model, indices)[0]
    return "parameters", parameters, indices


# Attacks by name. A module of this package registers its attacks with ``register``;
# other distributions declare an entry point of the group ``privplan.attacks``, whose
# value is an ``Attack``.


@dataclass(frozen=True)
class Options:
    """Settings of the attacks; an attack ignores those that it does not have.

    Attributes:
        steps: of an iterative attack.
        seed: of an attack with random starts.
        checkpoint: where an attack keeps its steps.
        decode: takes small images to images with detail, for the attack ``rog``; None
            without a trained decoder.
    """

    steps: int = 1000
    seed: int = 0
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    decode: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Guess:
    """What an attack found in one release.

    Attributes:
        images: reconstructed pixels in [0, 1], shape [n, channels, height, width]; None
            when the attack reconstructs none.
        labels: inferred labels [n]; None when the attack infers none.
        numbers: further findings by name, such as residuals.
        note: why nothing was found; empty otherwise.
    """

    images: Tensor | None = None
    labels: Tensor | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def nothing_released(views: Sequence[View]) -> list[Guess]:
    """The guesses of an attack on a method that releases no vector."""
    return [Guess(note="nothing is released") for _ in views]


IMAGES = 50  # attacked by default, as in HyperFL's tables
Reconstruct = Callable[
    [Sequence[View], Options, Callable[[int, int], None]], Sequence[Guess]
]
"""(views, options, progress in steps) to one guess per view."""


@dataclass(frozen=True)
class Attack:
    """A reconstruction attack.

    Attributes:
        reconstruct: runs it.
        source: where it was published.
        steps: of an iterative attack unless others are asked for; 0 of others.
        images: attacked of a plan unless another number is asked for.
    """

    reconstruct: Reconstruct
    source: str
    steps: int = 0
    images: int = IMAGES


ATTACKS: Registry[Attack] = Registry(
    "attack",
    "privplan.attacks",
    "simulate.attacks",
    instance_of(Attack),
    # By module: lists of names do not follow what was imported first.
    order=lambda attack: str(getattr(attack.reconstruct, "__module__", "")),
)


def register(
    name: str, *, source: str, steps: int = 0, images: int = IMAGES
) -> Callable[[Reconstruct], Reconstruct]:
    """A decorator that registers a reconstruction attack under a name.

    Args:
        name: on the command line.
        source: where it was published.
        steps: of an iterative attack unless others are asked for.
        images: attacked of a plan unless another number is asked for.
    """

    def decorate(reconstruct: Reconstruct) -> Reconstruct:
        ATTACKS.register(name, Attack(reconstruct, source, steps, images))
        return reconstruct

    return decorate
