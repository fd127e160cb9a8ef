"""A model given by a PyTorch module of any structure, evaluated on flat parameter vectors."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from privplan.errors import InputError
from simulate.data.arrays import said
from simulate.models.network import Packed, Shapes
from simulate.models.objective import CROSS_ENTROPY, Objective, without_seeds
from simulate.models.randomness import SeededRandomness
from simulate.norms import factors

ROWS = 50
"""Records of a block when one model is evaluated on a CPU."""

WIDE = 512
"""Least outputs of a convolution whose kernels stay in PyTorch's contiguous format: measured on a
CPU, the kernels of narrower ones are faster in the `channels_last` format, wider ones slower."""

BLOCK_VALUES = 2**26
"""Most values of per-record gradients in memory at a time: 256 MB."""

BLOCK_RECORDS = 16
"""Most records whose gradients are in memory at a time."""


@dataclass(frozen=True)
class Modular:
    """A `Model` given by a `torch.nn.Module`.

    On a CPU clients are trained one after the other by autograd, images in the `channels_last`
    format; all clients in one batch, as on a GPU, use `torch.func.vmap`.

    Attributes:
        name: as in the spec.
        input_shape: shape of one record.
        classes: number of logits.
        build: returns the module, initialised by PyTorch; it has no buffers that training changes.
        batched: returns a module with the same parameters in operations that `vmap` supports; None
            when `build` does.
        start: returns the module with the initial parameters; None when `build` does.
        constants: returns the module's buffers by name; None when `build` sets them.
        channels_last: whether the module computes with images in that format.
        objective: the loss.
        stochastic: whether the module draws random numbers in training, such as dropout; labels
            then carry seeds.
        export: returns the module as its user knows it, with the same parameters by name and
            perhaps frozen ones; None when ``module`` does.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: int
    build: Callable[[], nn.Module]
    batched: Callable[[], nn.Module] | None = None
    start: Callable[[], nn.Module] | None = None
    constants: Callable[[], dict[str, Tensor]] | None = None
    channels_last: bool = True
    objective: Objective = CROSS_ENTROPY
    stochastic: bool = False
    export: Callable[[], nn.Module] | None = None

    @cached_property
    def shapes(self) -> Shapes:
        """The parameter tensors by name, in the order of `module().named_parameters()`."""
        named = self._template.named_parameters()
        return tuple((name, tuple(value.shape)) for name, value in named)

    @property
    def parameters(self) -> int:
        """Length d of the parameter vector."""
        return sum(self._sizes)

    @cached_property
    def head(self) -> slice:
        """Slice of the flat vector with the last dense layer, weight and bias."""
        named = self._template.named_modules()
        dense = [name for name, part in named if isinstance(part, nn.Linear)]
        if not dense:
            rule = "must have a torch.nn.Linear, its last one being the personal head"
            raise InputError.one("model", rule, self.name)
        names = [name for name, _ in self.shapes]
        first = names.index(f"{dense[-1]}.weight")
        end = first + (2 if f"{dense[-1]}.bias" in names else 1)  # the bias comes right after it
        begin = sum(self._sizes[:first])
        return slice(begin, begin + sum(self._sizes[first:end]))

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32: drawn by the module's own initialisation, or loaded."""
        seed = torch.randint(2**62, (), generator=generator, device=generator.device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(seed))
            module = (self.start or self.build)()
        values = [value.detach().flatten() for value in module.parameters()]
        return torch.cat(values).float().to(generator.device)

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, *input_shape] to logits [B, classes]."""
        module, tensors = self._own_copy("evaluation"), self._all(theta)
        rows = ROWS if x.device.type == "cpu" else max(1, len(x))
        blocks = torch.split(x, rows)
        with self._forward():
            outputs = [_call(module, tensors, block, self.channels_last) for block in blocks]
        return torch.cat(outputs)

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model per client: [K, d] and records [K, B, *input_shape] to [K, B, classes]."""
        module = self._own_copy("batched")

        def one(theta: Tensor, records: Tensor) -> Tensor:
            return outputs_of(functional_call(module, self._all(theta), (records,)))

        with self._forward():
            return vmap(one)(thetas, x)

    def module(self) -> nn.Module:
        """The same network as a plain PyTorch module; parameters in the same order."""
        module = self.build()
        if self.constants is not None:
            module.load_state_dict(self._constants, strict=False)
        return module

    def clients_per_chunk(self, batch: int) -> int:
        """Clients trained at once on one core: one."""
        return 1

    def pack(self, thetas: Tensor) -> Packed:
        """A copy of parameters [K, d]: one tensor [K, ...] per parameter, in the faster format."""
        parts = zip(self.shapes, torch.split(thetas, self._sizes, 1), strict=True)
        fast = self.channels_last
        return [(_laid_out(part.view(len(part), *shape), fast),) for (_, shape), part in parts]

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d]."""
        return torch.cat([part.reshape(clients, -1) for (part,) in packed], 1)

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean loss over its unpadded rows."""
        gradients = []
        for client, (records, labels) in enumerate(zip(x, y, strict=True)):
            tensors = [part[client].detach() for (part,) in packed]
            present = labels >= 0
            if not present.all():
                records, labels = records[present], labels[present]
            gradients.append(self._gradient(tensors, records, labels))
        if len(gradients) == 1:
            return [(part.unsqueeze(0),) for part in gradients[0]]
        return [(torch.stack(parts),) for parts in zip(*gradients, strict=True)]

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum [d] of the clipped per-record gradients, and their norms [B] before clipping."""
        module = self._own_copy("batched")

        def loss(flat: Tensor, record: Tensor, label: Tensor) -> Tensor:
            with self._forward():
                logits = outputs_of(functional_call(module, self._all(flat), (record[None],)))
            return self.objective(logits, label[None])

        gradients = vmap(grad(loss), (None, 0, 0), randomness="different")
        total, norms = torch.zeros_like(theta), []
        size = min(BLOCK_RECORDS, max(1, BLOCK_VALUES // self.parameters))
        y, randomness = self._randomness(y)
        with randomness:
            for records, labels in zip(torch.split(x, size), torch.split(y, size), strict=True):
                each = gradients(theta, records, labels)
                norms.append(torch.linalg.vector_norm(each, dim=1, dtype=torch.float64))
                factor = factors(norms[-1], clipping_norm)
                total += factor[factor > 0] @ each[factor > 0]
        return total, torch.cat(norms)

    @cached_property
    def _template(self) -> nn.Module:
        """The structure without storage, in evaluation mode."""
        with torch.device("meta"):
            return self.build().eval().to("meta")

    @cached_property
    def _batched(self) -> nn.Module:
        with torch.device("meta"):
            return (self.batched or self.build)().to("meta").train(self.stochastic)

    @cached_property
    def _copies(self) -> threading.local:
        return threading.local()

    def _own_copy(self, use: str) -> nn.Module:
        """The structure for one use in one thread: calls with other parameters change it."""
        copies: dict[str, nn.Module] = self._copies.__dict__
        if use not in copies:
            template = self._batched if use == "batched" else self._template
            copies[use] = copy.deepcopy(template)
        return copies[use]

    def _training_copy(self) -> tuple[nn.Module, list[nn.Parameter]]:
        """The structure for training in one thread, and its parameters, whose values are set.

        For one model after the other this is faster than ``functional_call``.
        """
        copies: dict[str, tuple[nn.Module, list[nn.Parameter]]] = self._copies.__dict__
        if "training" not in copies:
            module = copy.deepcopy(self._template).train(self.stochastic)
            for part in module.modules():  # Module.to_empty would load SymPy
                for name, own in list(part.named_parameters(recurse=False)):
                    setattr(part, name, nn.Parameter(torch.empty(own.shape, dtype=own.dtype)))
            for name, value in self._constants.items():
                place, _, last = name.rpartition(".")
                module.get_submodule(place)._buffers[last] = value
            copies["training"] = (module, list(module.parameters()))
        return copies["training"]

    @contextmanager
    def _forward(self) -> Iterator[None]:
        """Turns errors of a user's module, which can be of any type, into one line."""
        try:
            yield
        except (InputError, MemoryError, torch.OutOfMemoryError):
            raise
        except (Exception, SystemExit) as error:
            if self.export is None:
                raise
            rule = "must compute the outputs of every batch of records"
            raise InputError.one("model", rule, said(error)) from error

    def _randomness(self, y: Tensor) -> tuple[Tensor, SeededRandomness | nullcontext[None]]:
        """Labels [B] of one client's step without a seed, and the context of its forward pass."""
        if not self.stochastic:
            return y, nullcontext()
        y, seed = without_seeds(y)
        return y, SeededRandomness(seed)

    @cached_property
    def _constants(self) -> dict[str, Tensor]:
        """The module's buffers by name, which no training changes."""
        if not any(True for _ in self._template.buffers()):
            return {}
        with torch.random.fork_rng(devices=[]):
            return (self.constants or (lambda: dict(self.build().named_buffers())))()

    @cached_property
    def _sizes(self) -> list[int]:
        """Values of each tensor."""
        return [math.prod(shape) for _, shape in self.shapes]

    def _named(self, theta: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector [d] by name."""
        parts = zip(self.shapes, torch.split(theta, self._sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in parts}

    def _all(self, theta: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector [d] and the buffers, by name."""
        constants = {name: value.to(theta.device) for name, value in self._constants.items()}
        return self._named(theta) | constants

    def _gradient(self, tensors: list[Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Gradient of the mean loss of one client's records; 0 without records."""
        if not len(y):
            return tuple(torch.zeros_like(part) for part in tensors)
        module, parameters = self._training_copy()
        for parameter, value in zip(parameters, tensors, strict=True):
            parameter.data = value
        y, randomness = self._randomness(y)
        with torch.enable_grad():
            with randomness, self._forward():
                logits = outputs_of(module(_laid_out_images(x, self.channels_last)))
            return torch.autograd.grad(self.objective(logits, y), parameters)


def _laid_out(part: Tensor, channels_last: bool) -> Tensor:
    """A copy of a parameter tensor [K, ...]; narrow kernels in `channels_last`, per client."""
    if not channels_last or part.dim() != 5 or part.shape[1] >= WIDE:
        return part.clone(memory_format=torch.contiguous_format)
    return part.movedim(2, 4).clone(memory_format=torch.contiguous_format).movedim(4, 2)


def _call(module: nn.Module, tensors: dict[str, Tensor], x: Tensor, channels_last: bool) -> Tensor:
    """Logits of a module with other parameters; images in the faster format of a CPU."""
    return outputs_of(functional_call(module, tensors, (_laid_out_images(x, channels_last),)))


def _laid_out_images(x: Tensor, channels_last: bool) -> Tensor:
    """Images in the faster format of a CPU; other records as they are."""
    if channels_last and x.dim() == 4 and x.device.type == "cpu":
        return x.contiguous(memory_format=torch.channels_last)
    return x


def outputs_of(result: Any) -> Tensor:
    """The tensor that a module returns, or the ``logits`` of what it returns."""
    outputs: Tensor = getattr(result, "logits", result)
    return outputs
