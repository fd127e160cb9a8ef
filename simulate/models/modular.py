"""A model given by a PyTorch module of any structure, on flat parameter vectors."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from privplan.errors import InputError
from simulate.data.user_code import error_line
from simulate.models.network import Packed, Shapes
from simulate.models.objective import CROSS_ENTROPY, Objective, without_seeds
from simulate.models.randomness import SeededRandomness
from simulate.norms import factors

T = TypeVar("T")

ROWS = 50  # records of a block when one model is evaluated on a CPU

WIDE = 512
"""Least outputs of a convolution whose kernels stay in PyTorch's contiguous format.

Measured on a CPU: the kernels of narrower ones are faster in the `channels_last`
format, wider ones slower.
"""

BLOCK_VALUES = 2**26  # most values of per-record gradients in memory at a time: 256 MB
BLOCK_RECORDS = 16  # most records whose gradients are in memory at a time

IMAGE_DIMENSIONS = 4  # of a batch of images [B, channels, H, W]
KERNEL_DIMENSIONS = 5  # of the kernels of K clients [K, outputs, inputs, H, W]


@dataclass(frozen=True)
class Modular:
    """A `Model` given by a `torch.nn.Module`.

    On a CPU clients are trained one after the other by autograd, images in the
    `channels_last` format; all clients in one batch, as on a GPU, use
    `torch.func.vmap`.

    Attributes:
        name: as in the spec.
        input_shape: shape of one record.
        classes: number of logits.
        build: returns the module, initialised by PyTorch; it has no buffers that
            training changes.
        batched: returns a module with the same parameters in operations that `vmap`
            supports; None when `build` does.
        start: returns the module with the initial parameters; None when `build` does.
        constants: returns the module's buffers by name; None when `build` sets them.
        channels_last: whether the module computes with images in that format.
        objective: the loss.
        stochastic: whether the module draws random numbers in training, such as
            dropout; labels then carry seeds.
        export: returns the module as its user knows it, with the same parameters by
            name and perhaps frozen ones; None when ``module`` does.
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
        """The parameter tensors by name, in the order of `named_parameters()`."""
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
        dense = [name for name, layer in named if isinstance(layer, nn.Linear)]
        if not dense:
            rule = "must have a torch.nn.Linear, its last one being the personal head"
            raise InputError.one("model", rule, self.name)
        # A module that is itself a dense layer has no name before its parameters'.
        prefix = f"{dense[-1]}." if dense[-1] else ""
        names = [name for name, _ in self.shapes]
        weight_index = names.index(f"{prefix}weight")
        end = weight_index + 1
        if f"{prefix}bias" in names:
            end += 1  # the bias comes right after the weight
        begin = sum(self._sizes[:weight_index])
        return slice(begin, begin + sum(self._sizes[weight_index:end]))

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, as the module initialises or loads them.

        Modules draw from PyTorch's generator of the process: it is seeded from
        `generator` here, and restored afterwards.
        """
        seed = torch.randint(2**62, (), generator=generator, device=generator.device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(seed))
            module = (self.start or self.build)()
        values = [value.detach().flatten() for value in module.parameters()]
        return torch.cat(values).float().to(generator.device)

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """Parameters [d] and records [B, *input_shape] to logits [B, classes]."""
        module = self._thread_copy("evaluation")
        block_rows = ROWS if x.device.type == "cpu" else max(1, len(x))
        outputs = []
        with self._forward():
            for block in torch.split(x, block_rows):
                images = _laid_out_images(block, self.channels_last)
                tensors = self._all(theta)
                outputs.append(outputs_of(functional_call(module, tensors, images)))
        return torch.cat(outputs)

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """Logits [K, B, classes] of one model per client.

        Args:
            thetas: parameters [K, d].
            x: records [K, B, *input_shape].
        """
        module = self._thread_copy("batched")

        def client_logits(theta: Tensor, records: Tensor) -> Tensor:
            return outputs_of(functional_call(module, self._all(theta), (records,)))

        with self._forward():
            return vmap(client_logits)(thetas, x)

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
        """A copy of parameters [K, d]: a tensor [K, ...] each, in the faster format."""
        packed: Packed = []
        flat_tensors = torch.split(thetas, self._sizes, 1)
        for (_, shape), tensor in zip(self.shapes, flat_tensors, strict=True):
            tensor = tensor.view(len(tensor), *shape)
            packed.append((_laid_out(tensor, self.channels_last),))
        return packed

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d]."""
        return torch.cat([tensor.reshape(clients, -1) for (tensor,) in packed], 1)

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean loss over its unpadded rows."""
        gradients = []
        for client, (records, labels) in enumerate(zip(x, y, strict=True)):
            tensors = [tensor[client].detach() for (tensor,) in packed]
            present = labels >= 0
            # A selection copies the records, so it is left out where all are present.
            if not present.all():
                records = records[present]
                labels = labels[present]
            gradients.append(self._gradient(tensors, records, labels))
        if len(gradients) == 1:
            return [(tensor.unsqueeze(0),) for tensor in gradients[0]]  # without a copy
        return [
            (torch.stack(of_parameter),)
            for of_parameter in zip(*gradients, strict=True)
        ]

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """The clipped per-record gradients of one model, added up.

        Args:
            theta: parameters [d].
            x: records [B, *input_shape].
            y: labels [B], none of them padding.
            clipping_norm: largest L2 norm of a record's gradient in the sum.

        Returns:
            The sum [d], and the norms [B] before clipping, float64.
        """
        module = self._thread_copy("batched")

        def loss(flat: Tensor, record: Tensor, label: Tensor) -> Tensor:
            batch = (record[None],)
            with self._forward():
                logits = outputs_of(functional_call(module, self._all(flat), batch))
            return self.objective(logits, label[None])

        # Different records draw different numbers, for example in dropout.
        gradients = vmap(grad(loss), (None, 0, 0), randomness="different")
        total = torch.zeros_like(theta)
        norms = []
        block_rows = min(BLOCK_RECORDS, max(1, BLOCK_VALUES // self.parameters))
        y, randomness = self._randomness(y)
        blocks = zip(
            torch.split(x, block_rows), torch.split(y, block_rows), strict=True
        )
        with randomness:
            for records, labels in blocks:
                record_gradients = gradients(theta, records, labels)
                record_norms = torch.linalg.vector_norm(
                    record_gradients, dim=1, dtype=torch.float64
                )
                norms.append(record_norms)
                factor = factors(record_norms, clipping_norm)
                # A factor of 0 stands for a gradient that is not finite: 0 times it is
                # NaN.
                total += factor[factor > 0] @ record_gradients[factor > 0]
        return total, torch.cat(norms)

    @cached_property
    def _template(self) -> nn.Module:
        """The structure without storage, in evaluation mode."""
        return _outside_transforms(lambda: _on_meta(self.build)).eval()

    @cached_property
    def _batched(self) -> nn.Module:
        """The structure for `vmap` without storage; dropout acts if training draws."""
        module = _outside_transforms(lambda: _on_meta(self.batched or self.build))
        return module.train(self.stochastic)

    @cached_property
    def _copies(self) -> threading.local:
        """Copies of the structure by use, of each thread."""
        return threading.local()

    def _thread_copy(self, use: str) -> nn.Module:
        """The structure for one use in one thread.

        A call with other parameters sets them in the module meanwhile, so threads that
        shared a module would compute with each other's parameters.
        """
        copies: dict[str, nn.Module] = self._copies.__dict__
        if use not in copies:
            if use == "batched":
                template = self._batched
            else:
                template = self._template
            copies[use] = copy.deepcopy(template)
        return copies[use]

    def _training_copy(self) -> tuple[nn.Module, list[nn.Parameter]]:
        """The structure for training in one thread, and its parameters, to be set.

        For one model after the other this is faster than ``functional_call``.
        """
        copies: dict[str, tuple[nn.Module, list[nn.Parameter]]] = self._copies.__dict__
        if "training" not in copies:
            module = copy.deepcopy(self._template).train(self.stochastic)

            # Storage for the parameters, without Module.to_empty, which would load
            # SymPy.
            for submodule in module.modules():
                for name, template in list(submodule.named_parameters(recurse=False)):
                    storage = torch.empty(template.shape, dtype=template.dtype)
                    setattr(submodule, name, nn.Parameter(storage))

            copies["training"] = (module, list(module.parameters()))
        module, parameters = copies["training"]
        for name, value in self._constants.items():
            place, _, buffer = name.rpartition(".")
            module.get_submodule(place)._buffers[buffer] = self._for_one_call(value)
        return module, parameters

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
            raise InputError.one("model", rule, error_line(error)) from error

    def _randomness(
        self, y: Tensor
    ) -> tuple[Tensor, SeededRandomness | nullcontext[None]]:
        """Labels [B] without the seed of the step, and its forward pass's context."""
        if not self.stochastic:
            return y, nullcontext()
        y, seed = without_seeds(y)
        return y, SeededRandomness(seed)

    @cached_property
    def _constants(self) -> dict[str, Tensor]:
        """The module's buffers by name, which no training changes."""
        if not any(True for _ in self._template.buffers()):
            return {}

        def buffers() -> dict[str, Tensor]:
            return dict(self.build().named_buffers())

        with torch.random.fork_rng(devices=[]):
            return _outside_transforms(self.constants or buffers)

    @cached_property
    def _sizes(self) -> list[int]:
        """Values of each tensor."""
        return [math.prod(shape) for _, shape in self.shapes]

    def _all(self, theta: Tensor) -> dict[str, Tensor]:
        """The tensors of a flat vector [d] and the buffers, by name, for one call."""
        tensors: dict[str, Tensor] = {}
        flat_tensors = torch.split(theta, self._sizes)
        for (name, shape), tensor in zip(self.shapes, flat_tensors, strict=True):
            tensors[name] = self._for_one_call(tensor.view(shape))
        for name, value in self._constants.items():
            tensors[name] = self._for_one_call(value.to(theta.device))
        return tensors

    def _for_one_call(self, value: Tensor) -> Tensor:
        """A parameter or buffer that one call of the module receives.

        A user's module may change it in place, as a mask or an embedding with a largest
        norm does. It then changes a copy. Otherwise records would change, without
        noise, what all other clients train with.
        """
        return value if self.export is None else value.clone()

    def _gradient(
        self, tensors: list[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
        """Gradient of the mean loss of one client's records; 0 without records."""
        if not len(y):
            return tuple(torch.zeros_like(tensor) for tensor in tensors)
        module, parameters = self._training_copy()
        for parameter, value in zip(parameters, tensors, strict=True):
            parameter.data = self._for_one_call(value)
        y, randomness = self._randomness(y)
        with torch.enable_grad():
            with randomness, self._forward():
                logits = outputs_of(module(_laid_out_images(x, self.channels_last)))
            return torch.autograd.grad(self.objective(logits, y), parameters)


def forget(model: object) -> None:
    """Drop what a module keeps between calls in this thread, such as a first batch.

    The next client gets a structure in which nothing of another one's records is.
    """
    if isinstance(model, Modular):
        model._copies.__dict__.clear()


def _on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """A module without storage; the cast is for what its constructor put on a CPU."""
    with torch.device("meta"):
        return build().to("meta")


def _outside_transforms(build: Callable[[], T]) -> T:
    """A function's result from another thread.

    Under ``vmap`` in this thread, the random numbers of an initialisation are refused.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(build).result()


def _laid_out(tensor: Tensor, channels_last: bool) -> Tensor:
    """A copy of a parameter tensor [K, ...]; narrow kernels in `channels_last`."""
    is_kernel = tensor.dim() == KERNEL_DIMENSIONS
    if not channels_last or not is_kernel or tensor.shape[1] >= WIDE:
        return tensor.clone(memory_format=torch.contiguous_format)

    # Each client's kernels are stored with the inputs last, in the order of dimensions
    # that the name of the format promises: [K, outputs, H, W, inputs] in memory.
    inputs_last = tensor.movedim(2, 4).clone(memory_format=torch.contiguous_format)
    return inputs_last.movedim(4, 2)


def _laid_out_images(x: Tensor, channels_last: bool) -> Tensor:
    """Images in the faster format of a CPU; other records as they are."""
    if channels_last and x.dim() == IMAGE_DIMENSIONS and x.device.type == "cpu":
        return x.contiguous(memory_format=torch.channels_last)
    return x


def outputs_of(result: Any) -> Tensor:
    """The tensor that a module returns, or the ``logits`` of what it returns."""
    outputs: Tensor = getattr(result, "logits", result)
    return outputs
