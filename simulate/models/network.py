"""What models have in common: losses, their interface, hypernetworks, starts, random numbers."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from privplan.errors import InputError
from privplan.files import write_bytes
from privplan.spec.training import FIELD, Initial

# --- The loss that a model is trained with, and what the labels of a mini-batch stand for. -------
# Mini-batches carry one int64 per record. It is a class, or the row of a table of targets where the
# targets are other than classes; in a model that draws random numbers in training, its upper bits
# are the seed of the client's step. So every algorithm handles every task without knowing it.

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs, targets [B, ...] to the mean loss

SEED_BITS = 31  # bits of a step's seed
_LABEL_BITS = 32
_LABELS = 2**_LABEL_BITS - 1


@dataclass(frozen=True)
class Objective:
    """A loss over outputs of a model and labels of a mini-batch."""

    loss: Loss
    targets: Tensor | None = (
        None  # whose rows the labels name [n, ...]; None: labels are targets
    )

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean loss of records with labels [B], none of them padding."""
        targets = self.targets_of(y)
        return self.loss(fitted(outputs, targets), targets)

    def targets_of(self, y: Tensor) -> Tensor:
        """Targets of labels [...]."""
        return y if self.targets is None else self.targets.to(y.device)[y]


CROSS_ENTROPY = Objective(functional.cross_entropy)
"""Cross-entropy of logits [B, classes] and labels [B], for which models have fast kernels."""


def fitted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs [..., 1] in the shape of floating-point targets [...], which would broadcast."""
    if targets.is_floating_point() and outputs.shape == (*targets.shape, 1):
        return outputs.squeeze(-1)
    return outputs


def with_seeds(y: Tensor, seeds: Tensor) -> Tensor:
    """Labels [K, steps, B] that also carry the seed of each step [K, steps]; padding stays."""
    return torch.where(y >= 0, y + (seeds.to(y.device) << _LABEL_BITS).unsqueeze(-1), y)


def without_seeds(y: Tensor) -> tuple[Tensor, int]:
    """Labels [B] of one client's step, none of them padding, and the step's seed."""
    return y & _LABELS, int(y[0] >> _LABEL_BITS) if len(y) else 0


# --- The interface of models: networks whose parameters are one flat vector. ---------------------

Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # of parameters, as in the flat vector

Parts = tuple[Tensor, ...]
"""Parameters of one layer of several clients, or (); gradients have the same shapes."""

Packed = list[Parts]
"""Parameters of several clients in the layout that a model trains fastest on a CPU.

The first dimension of each tensor is a multiple of the number of clients, client by client.
"""


class Model(Protocol):
    """A network without parameters: they are an argument of each method.

    ``d`` is the number of parameters, ``K`` a number of clients, ``B`` of records.
    """

    @property
    def name(self) -> str:
        """Name in the spec, with shape and classes where they are not the defaults."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record, such as (1, 28, 28)."""

    @property
    def classes(self) -> int:
        """Number of logits."""

    @property
    def objective(self) -> Objective:
        """The loss."""

    @property
    def stochastic(self) -> bool:
        """Whether training draws random numbers; labels of mini-batches then carry seeds."""

    @property
    def shapes(self) -> Shapes:
        """The parameter tensors by name, in the order of `module().named_parameters()`."""

    @property
    def parameters(self) -> int:
        """Length d of the parameter vector."""

    @property
    def head(self) -> slice:
        """Slice of the flat vector with the last dense layer, weight and bias."""

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, drawn on the generator's device."""

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, *input_shape] to logits [B, classes]."""

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model per client: [K, d] and records [K, B, *input_shape] to [K, B, classes]."""

    def module(self) -> nn.Module:
        """The same network as a plain PyTorch module; parameters in the same order."""

    def clients_per_chunk(self, batch: int) -> int:
        """Clients trained at once on one core, whatever the machine, in batches of a size."""

    def pack(self, thetas: Tensor) -> Packed:
        """A copy of parameters [K, d] in the layout of `packed_gradients`."""

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d], for parameters or for their gradients."""

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean loss over its unpadded rows."""

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum of the per-record gradients, each clipped, on a CPU."""


def body_size(model: Model) -> int:
    """Number of parameters of the body."""
    head = model.head
    return model.parameters - int(head.stop - head.start)


def split_head(model: Model, thetas: Tensor) -> tuple[Tensor, Tensor]:
    """Body and head of parameters [..., d]."""
    before, after = thetas[..., : model.head.start], thetas[..., model.head.stop :]
    return torch.cat([before, after], -1), thetas[..., model.head]


def join_head(model: Model, bodies: Tensor, heads: Tensor) -> Tensor:
    """The inverse of ``split_head``: parameters [..., d]."""
    before, after = bodies[..., : model.head.start], bodies[..., model.head.start :]
    return torch.cat([before, heads, after], -1)


# --- Hypernetworks: they generate the parameters of another network from an embedding. -----------
# One hidden layer and a linear head for each generated tensor, after A. Shamsian, A. Navon, E.
# Fetaya, G. Chechik, Personalized Federated Learning using Hypernetworks, ICML 2021, and HyperFL,
# Appendix D.1. All heads read the same hidden layer, so they are stored as one matrix.
#
# ``P`` parameters of the hypernetwork, ``E`` numbers of an embedding, ``H`` hidden units, ``D``
# generated parameters, ``K`` hypernetworks, ``n`` embeddings for each of them.

EMBEDDING = 64  # numbers of an embedding (HyperFL, Appendix D.1)


@dataclass(frozen=True)
class Hypernetwork:
    """The sizes of a hypernetwork; its parameters are an argument of each method."""

    made: int  # generated parameters (D)
    hidden: int  # units of the hidden layer (H)
    embedding: int = EMBEDDING  # numbers of an embedding (E)

    @property
    def parameters(self) -> int:
        """Length P of its own parameter vector."""
        return self.hidden * (self.embedding + 1) + self.made * (self.hidden + 1)

    def initial(
        self, start: Tensor, spreads: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Fresh parameters [P] that generate usual initial networks.

        The hidden layer has PyTorch's default initialisation. The biases of the heads are a usual
        initialisation of the network, ``start`` [D]; their weights are uniform with standard
        deviation ``spreads`` / sqrt(H).
        """

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator) * 2 - 1

        layer = uniform(self.hidden * (self.embedding + 1)) / math.sqrt(self.embedding)
        heads = uniform(self.made, self.hidden) * math.sqrt(3 / self.hidden)
        return torch.cat([layer, (heads * spreads[:, None]).flatten(), start])

    def generated(self, weights: Tensor, embeddings: Tensor) -> Tensor:
        """Parameters [K, n, D] from weights [K, P] and embeddings [K, n, E]."""
        layer, offsets, heads, biases = self._parts(weights)
        return torch.baddbmm(
            biases, torch.baddbmm(offsets, embeddings, layer.mT).relu_(), heads.mT
        )

    def pull_back(
        self,
        weights: Tensor,
        embeddings: Tensor,
        slopes: Tensor,
        into: Tensor,
        factor: float,
    ) -> Tensor:
        """Gradient by the embeddings, of slopes [K, n, D]; adds that by the weights to ``into``."""
        layer, offsets, heads, _ = self._parts(weights)
        hidden = torch.baddbmm(offsets, embeddings, layer.mT).relu_()
        inner = (slopes @ heads) * (hidden > 0)
        to_embeddings = inner @ layer
        to_layer, to_offsets, to_heads, to_biases = self._parts(into)
        to_layer.baddbmm_(inner.mT, embeddings, alpha=factor)
        to_offsets.add_(inner.sum(1, keepdim=True), alpha=factor)
        to_heads.baddbmm_(slopes.mT, hidden, alpha=factor)
        to_biases.add_(slopes.sum(1, keepdim=True), alpha=factor)
        return to_embeddings

    def _parts(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Views: layer [K, H, E], its offsets [K, 1, H]; heads [K, D, H], biases [K, 1, D]."""
        inner, outer = self.hidden, self.made
        lengths = [inner * self.embedding, inner, outer * inner, outer]
        layer, offsets, heads, biases = torch.split(weights, lengths, dim=1)
        return (
            torch.unflatten(layer, 1, (inner, -1)),
            offsets.unsqueeze(1),
            torch.unflatten(heads, 1, (outer, inner)),
            biases.unsqueeze(1),
        )


def fresh_embedding(generator: torch.Generator) -> Tensor:
    """A fresh embedding [E]: uniform, with mean zero and variance one."""
    return (torch.rand(EMBEDDING, generator=generator) * 2 - 1) * math.sqrt(3)


def spreads(shapes: Shapes, start: Tensor) -> Tensor:
    """Standard deviation of the tensor that each parameter belongs to [d]."""
    parts = torch.split(start, [math.prod(shape) for _, shape in shapes])
    return torch.cat([part.std(correction=0).expand(len(part)) for part in parts])


# --- Initial parameters from a file instead of random ones, for every method and model. ----------

COPY = "initial.npy"  # the file in the folder of a run, so that the run can be replayed elsewhere


class _Started:
    """A model whose initial parameters are given; all else is the model's."""

    def __init__(self, model: Model, values: Tensor, *, head: bool) -> None:
        self._model, self._values, self._head = model, values, head

    def initial(self, generator: torch.Generator) -> Tensor:
        """The parameters [d], the head drawn unless it is given, too."""
        values = self._values.to(generator.device)
        if self._head:
            return values.clone()
        drawn, head = self._model.initial(generator), self._model.head
        return torch.cat([values[: head.start], drawn[head], values[head.stop :]])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def started(model: Model, initial: Initial | None, folder: Path | None = None) -> Model:
    """A model that starts from parameters of a file."""
    if initial is None:
        return model
    values = _read(initial, None if folder is None else folder / COPY)
    if values.shape != (model.parameters,):
        rule = (
            f"must have one array of the {model.parameters} parameters of {model.name}"
        )
        found = "x".join(map(str, values.shape)) or "a single number"
        raise InputError.one(f"{FIELD}.file", rule, found)
    if initial.head == "drawn":
        model.head  # noqa: B018  # raises where the model has no dense layer
    with np.errstate(over="ignore"):
        loaded = torch.from_numpy(values.astype(np.float32))
    if not bool(torch.isfinite(loaded).all()):
        rule = "must have numbers that are finite in float32"
        raise InputError.one(f"{FIELD}.file", rule, initial.file)
    return cast(Model, _Started(model, loaded, head=initial.head == "loaded"))


def save(path: Path, values: Tensor) -> str:
    """Write parameters [d] to start from; returns the SHA-256 of the file."""
    buffer = io.BytesIO()
    np.save(buffer, values.cpu().numpy().astype(np.float32))
    write_bytes(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def keep(initial: Initial | None, folder: Path) -> None:
    """Copy the file to the folder of a run, unless it is there."""
    if initial is not None and not (folder / COPY).exists():
        write_bytes(folder / COPY, initial.content())


def _read(initial: Initial, copy: Path | None) -> np.ndarray:
    """The array of a file."""
    content, values = initial.content(copy), None
    with suppress(Exception):  # NumPy's reader of a damaged file can fail in any way
        values = np.load(io.BytesIO(content), allow_pickle=False)
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        rule = "must be a .npy file with floating-point numbers"
        raise InputError.one(f"{FIELD}.file", rule, initial.file)
    return values


# --- Random numbers that a module draws in training, from a stream of the client's own. ----------
# Dropout and similar layers draw from PyTorch's generator of the process, which is shared by all
# threads. Here every operation that draws random numbers receives a generator with a given seed,
# so that a step's numbers depend neither on other clients nor on the number of threads.

_aten = torch.ops.aten

_SEEDED: Mapping[Any, Any] = MappingProxyType(
    {
        _aten.rand.default: _aten.rand.generator,
        _aten.randn.default: _aten.randn.generator,
        _aten.randint.default: _aten.randint.generator,
        _aten.randint.low: _aten.randint.low_generator,
        _aten.randperm.default: _aten.randperm.generator,
    }
)
"""Operations without a generator, and the same ones with it."""


class SeededRandomness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within this context operations of this thread draw from a generator of their own."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: PyTorch would otherwise import its compiler here, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Execute one operation."""
        named: dict[str, Any] = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **named)
        if func in (_aten.rand_like.default, _aten.randn_like.default):
            like = torch.empty_like(args[0], **named)
            fill = like.normal_ if (func is _aten.randn_like.default) else like.uniform_
            return fill(generator=self._generator)
        func = _SEEDED.get(func, func)
        if any(argument.name == "generator" for argument in func._schema.arguments):
            named["generator"] = self._generator
        return func(*args, **named)
