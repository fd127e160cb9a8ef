"""Models that are a sequence of layers, with gradients of several clients at once on a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulate.models import layers as parts
from simulate.models.layers import Conv, Layer, Linear, Pool, Relu, input_shapes, split
from simulate.models.modular import Modular
from simulate.models.network import CROSS_ENTROPY, Objective, Packed, Parts, Shapes
from simulate.norms import factors

# --- Gradients of several models at once on a CPU: grouped convolutions, explicit backward passes -
# The clients of a chunk are concatenated along the channels of one `channels_last` tensor
# [B, K * C, H, W], so that a convolution of all of them is one grouped convolution that reads
# memory in order. Compared with autograd this saves the gradient with respect to the images and
# most changes of layout. Parameters are packed once for many steps: [K * out, in, k, k] for a
# convolution, [K, out, in] for a dense layer, whose inputs are in the order of memory
# (row, column, channel).

_ops = torch.ops.aten

Layers = tuple[Layer, ...]


def forward(layers: Layers, packed: Packed, x: Tensor) -> tuple[Tensor, list[Parts]]:
    """Logits [K, B, classes], and for each layer the tensors that its backward pass needs."""
    if isinstance(layers[0], Linear):  # features [K, B, H * W * C]
        value = x.movedim(2, -1).flatten(2)
    else:  # [B, K * C, H, W], a copy also with one channel: a view is slower to convolve
        value = x.permute(1, 3, 4, 0, 2).contiguous().flatten(3).permute(0, 3, 1, 2)
    saved: list[Parts] = []
    for layer, part in zip(layers, packed, strict=True):
        match layer:
            case Conv():
                saved.append((value,))
                weight, bias = part
                value = functional.conv2d(
                    value, weight, bias, padding=layer.padding, groups=len(x)
                )
            case Pool():
                maxima, where = _ops.max_pool2d_with_indices(value, 2)
                saved.append((value, where))
                value = maxima
            case Relu(leak):
                value = functional.leaky_relu(value, leak) if leak else value.relu()
                saved.append((value,))
            case Linear():
                features = value
                if value.dim() == 4:  # of each client [K, B, H * W * C]
                    images = torch.unflatten(value, 1, (len(x), -1))
                    features = images.permute(1, 0, 3, 4, 2).flatten(2)
                saved.append((features, value))
                value = torch.baddbmm(part[1], features, part[0].mT)
    return value, saved


def slopes(logits: Tensor, y: Tensor) -> Tensor:
    """Gradient of each record's cross-entropy w.r.t. its logits [..., classes]; 0 for padding."""
    slope, present = torch.softmax(logits, -1), y >= 0
    slope.add_(y.unsqueeze(-1) == torch.arange(logits.shape[-1]), alpha=-1)
    return slope if present.all() else slope.mul_(present.unsqueeze(-1))


def backward(
    layer: Layer,
    part: Parts,
    saved: Parts,
    slope: Tensor,
    *,
    needed: bool,
    pooled: Tensor | None = None,
) -> tuple[Tensor, Parts]:
    """Gradients w.r.t. a layer's input (unspecified unless `needed`) and its parameters."""
    match layer:
        case Conv():
            wanted = [needed, True, pooled is None]
            grad, weight, bias = _conv_backward(layer, part, saved[0], slope, wanted)
            return grad, (weight, bias if pooled is None else pooled.sum((0, 2, 3)))
        case Linear():
            parts = (slope.mT @ saved[0], slope.sum(1, keepdim=True))
            return slope_before(layer, part, saved, slope) if needed else slope, parts
        case _:
            return slope_before(layer, part, saved, slope), ()


def slope_before(layer: Layer, part: Parts, saved: Parts, slope: Tensor) -> Tensor:
    """Gradient with respect to the input of a layer."""
    match layer:
        case Conv():
            grad = _conv_backward(layer, part, saved[0], slope, [True, False, False])[0]
        case Pool():
            x, where = saved
            two, zero, one = [2, 2], [0, 0], [1, 1]
            grad = _ops.max_pool2d_with_indices_backward(
                slope, x, two, two, zero, one, False, where
            )
        case Relu(0.0):
            grad = _ops.threshold_backward(slope, saved[0], 0)
        case Relu(leak):
            grad = _ops.leaky_relu_backward(slope, saved[0], leak, True)
        case Linear():
            x, grad = saved[1], slope @ part[0]
            if x.dim() == 4:  # [K, B, H * W * C] as x [B, K * C, H, W]
                images = torch.unflatten(grad, 2, (*x.shape[2:], -1)).permute(
                    1, 2, 3, 0, 4
                )
                grad = images.flatten(3).permute(0, 3, 1, 2)
    return grad


def _conv_backward(
    layer: Conv, part: Parts, x: Tensor, slope: Tensor, wanted: list[bool]
) -> tuple[Tensor, ...]:
    """Gradients of a grouped convolution w.r.t. input, weight and bias, where wanted."""
    weight, bias = part
    padding = [layer.padding, layer.padding]
    gradients: tuple[Tensor, ...] = _ops.convolution_backward(
        slope, x, weight, bias.shape,
        [1, 1], padding, [1, 1], False, [0, 0], len(bias) // layer.outputs, wanted,
    )  # fmt: skip
    return gradients


# --- Sums of clipped per-record gradients for a chain of layers, on a CPU. -----------------------
# Each record of a block is processed as a client with a mini-batch of one, so that per-record
# gradients of convolutions come from one grouped convolution. A dense layer needs no per-record
# gradients: its gradient is the outer product of slope and features, whose norm is the product of
# their norms (Goodfellow 2015, "Efficient per-example gradient computations"), and the clipped sum
# is one matrix product with scaled slopes (ghost clipping: Li et al. 2022, "Large language models
# can be strong differentially private learners").

BLOCK = (
    16  # records whose gradients are in memory at a time: measured, they fit the caches
)


def clipped_sum(
    layers: Layers, packed: Packed, x: Tensor, y: Tensor, clipping_norm: float
) -> tuple[Packed, Tensor]:
    """Sum of the clipped gradients of one client's records."""
    total = [tuple(torch.zeros_like(value) for value in part) for part in packed]
    each: Packed = []  # the parameters once per record of a block; dense ones are not copied
    for layer, part in zip(layers, packed, strict=True):
        if isinstance(layer, Conv):
            weight = (
                part[0]
                .repeat(BLOCK, 1, 1, 1)
                .contiguous(memory_format=torch.channels_last)
            )
            each.append((weight, part[1].repeat(BLOCK)))
        else:
            each.append(tuple(value.expand(BLOCK, -1, -1) for value in part))
    norms = [
        _add_block(layers, each, rows, labels, clipping_norm, total)
        for rows, labels in zip(
            torch.split(x, BLOCK), torch.split(y, BLOCK), strict=True
        )
    ]
    return total, torch.cat(norms)


def _add_block(
    layers: Layers,
    each: Packed,
    x: Tensor,
    y: Tensor,
    clipping_norm: float,
    total: Packed,
) -> Tensor:
    """Add the clipped gradients of at most one block of records to `total`; return norms [B]."""
    repeated = [
        tuple(value[: len(value) // BLOCK * len(y)] for value in part) for part in each
    ]
    gradients, norms = _by_record(layers, repeated, x, y)
    finite = norms.isfinite()
    if not finite.all():
        if finite.any():
            _add_block(layers, each, x[finite], y[finite], clipping_norm, total)
        return norms
    factor = factors(norms, clipping_norm)
    for layer, part, sums in zip(layers, gradients, total, strict=True):
        match layer:
            case Conv():
                for values, into in zip(part, sums, strict=True):
                    into.add_((factor @ values).view(into.shape))
            case Linear():
                features, slope = part
                slope = slope * factor.unsqueeze(1)
                sums[0][0].addmm_(slope.mT, features)
                sums[1][0, 0].add_(slope.sum(0))
    return norms


def _by_record(
    layers: Layers, each: Packed, x: Tensor, y: Tensor
) -> tuple[Packed, Tensor]:
    """Factors of each record's gradient, and its norm [B], float64."""
    logits, saved = forward(layers, each, x[:, None])
    slope = slopes(logits, y[:, None])
    squares = torch.zeros(len(y), dtype=torch.float64)
    gradients: Packed = []
    for index in reversed(range(len(layers))):
        layer, tensors, needed = layers[index], saved[index], index > 0
        match layer:
            case Linear():
                part: Parts = (tensors[0].squeeze(1), slope.squeeze(1))
                squares += (_square(part[0]) + 1) * _square(part[1])
                if needed:
                    slope = slope_before(layer, each[index], tensors, slope)
            case _:
                slope, part = backward(
                    layer, each[index], tensors, slope, needed=needed
                )
                part = tuple(value.reshape(len(y), -1) for value in part)
                squares += sum(map(_square, part))
        gradients.append(part)
    return gradients[::-1], squares.sqrt()


def _square(values: Tensor) -> Tensor:
    """Squared L2 norm of each record's values [B, n], float64."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)
    return norms.square()


# --- Models that are a sequence of layers, with gradients of several clients at once on a CPU. ---

CHUNK_VALUES = 512 * 1024  # of the widest activation of a chunk: 2 MB fits the caches

CHUNK_CLIENTS = 64  # most of a chunk, so that small models are still distributed
CHUNK_OF_FEW = 128  # most clients of models for which two threads are slower than one


@dataclass(frozen=True)
class Chain:
    """A `Model` of convolutions, poolings, rectifiers and dense layers."""

    name: str  # as in the spec
    input_shape: tuple[int, ...]  # of one record, such as (1, 28, 28)
    classes: int  # number of logits
    layers: Layers  # in order; the last is dense

    objective: ClassVar[Objective] = CROSS_ENTROPY
    stochastic: ClassVar[bool] = False

    @property
    def shapes(self) -> Shapes:
        """The parameter tensors by name, in the order of `module().named_parameters()`."""
        with torch.device("meta"):
            plain = self.module()
        return tuple(
            (name, tuple(value.shape)) for name, value in plain.named_parameters()
        )

    @property
    def parameters(self) -> int:
        """Length d of the parameter vector."""
        return parts.count(self.layers)

    @property
    def head(self) -> slice:
        """Slice of the flat vector with the last dense layer, weight and bias."""
        size = sum(math.prod(shape) for shape in parts.shapes(self.layers[-1]))
        return slice(self.parameters - size, self.parameters)

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32, by He's initialisation."""
        return parts.initial(self.layers, generator)

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """One model: parameters [d] and records [B, *input_shape] to logits [B, classes]."""
        return parts.forward(self.layers, theta, x)

    def logits_each(self, thetas: Tensor, x: Tensor) -> Tensor:
        """One model per client: [K, d] and records [K, B, *input_shape] to [K, B, classes]."""
        return parts.forward_each(self.layers, thetas, x)

    def module(self) -> nn.Sequential:
        """The same network as a plain PyTorch module; parameters in the same order."""
        return parts.module(self.layers)

    def clients_per_chunk(self, batch: int) -> int:
        """Clients trained at once on one core: 4 for `cnn-2` in batches of 10."""
        widest = max(map(math.prod, input_shapes(self.layers, self._shape)))
        most = max(CHUNK_CLIENTS, min(CHUNK_OF_FEW, CHUNK_VALUES // self.parameters))
        return min(most, max(1, CHUNK_VALUES // (max(1, batch) * widest)))

    @property
    def _shape(self) -> tuple[int, ...]:
        """Shape of one record in the three dimensions that the kernels expect."""
        images = any(isinstance(layer, Conv | Pool) for layer in self.layers)
        return self.input_shape if images else (math.prod(self.input_shape), 1, 1)

    def pack(self, thetas: Tensor) -> Packed:
        """Parameters [K, d] as the packed tensors of each layer; always a copy."""
        packed: Packed = []
        shapes = input_shapes(self.layers, self._shape)
        for layer, shape, part in zip(
            self.layers, shapes, split(self.layers, thetas), strict=True
        ):
            match layer:
                case Conv():
                    weight = part[0].flatten(0, 1)
                    weight = weight.to(memory_format=torch.channels_last, copy=True)
                    packed.append((weight, part[1].flatten().clone()))
                case Linear():
                    weight = (
                        torch.unflatten(part[0], 2, shape).movedim(2, -1).flatten(2)
                    )
                    packed.append((weight.clone(), part[1].unsqueeze(1).clone()))
                case _:
                    packed.append(())
        return packed

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d], for parameters or for their gradients."""
        flat = []
        shapes = input_shapes(self.layers, self._shape)
        for layer, shape, part in zip(self.layers, shapes, packed, strict=True):
            match layer:
                case Conv():
                    flat += [part[0].reshape(clients, -1), part[1].view(clients, -1)]
                case Linear():
                    weight = torch.unflatten(
                        part[0], 2, (*shape[1:], shape[0])
                    ).movedim(-1, 2)
                    flat += [weight.reshape(clients, -1), part[1].view(clients, -1)]
        return torch.cat(flat, 1)

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean cross-entropy over its unpadded rows, packed."""
        logits, saved = forward(self.layers, packed, x.reshape(*y.shape, *self._shape))
        slope = slopes(logits, y)
        slope.div_((y >= 0).sum(1).clamp(min=1).view(-1, 1, 1))
        result: Packed = []
        pooled: Tensor | None = None
        for index in reversed(range(len(saved))):
            layer, part, tensors = self.layers[index], packed[index], saved[index]
            before, part = backward(
                layer, part, tensors, slope, needed=index > 0, pooled=pooled
            )
            pooled = slope if isinstance(layer, Pool) else None
            slope = before
            result.append(part)
        return result[::-1]

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum [d] of the clipped per-record gradients, and their norms [B] before clipping."""
        packed, records = self.pack(theta[None]), x.reshape(*y.shape, *self._shape)
        total, norms = clipped_sum(self.layers, packed, records, y, clipping_norm)
        return self.unpack(total, 1)[0], norms


# --- Modules of the user's that consist of these layers, trained by the same kernels. ------------


@dataclass(frozen=True)
class Compiled(Chain):
    """A ``Chain`` with the names, initialisation and plain form of a user's module."""

    source: Modular  # the same model on the general path

    @property
    def shapes(self) -> Shapes:
        """The parameter tensors by name, in the order of `module().named_parameters()`."""
        return self.source.shapes

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32: drawn by the module's own initialisation, or loaded."""
        return self.source.initial(generator)

    def module(self) -> nn.Module:  # type: ignore[override]
        """The user's module."""
        return self.source.module()


def compiled(source: Modular, module: nn.Module) -> Compiled | None:
    """The model with fast kernels; None for other layers, or a last one that is not dense."""
    shape, layers = source.input_shape, list[Layer]()
    flat = len(shape) == 1
    for part in _parts(module):
        if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
            flat = True
            continue
        layer = _layer(part)
        if layer is None or (isinstance(layer, Linear) and not flat):
            return None
        if isinstance(layer, Conv | Pool) and (flat or len(shape) != 3):
            return None
        layers.append(layer)
    for place in range(len(layers) - 1):
        if isinstance(layers[place], Relu) and isinstance(layers[place + 1], Pool):
            # a rectifier is monotone: after the maximum it gives the same with a quarter of values
            layers[place], layers[place + 1] = layers[place + 1], layers[place]
    if not layers or not isinstance(layers[-1], Linear):
        return None
    return Compiled(source.name, shape, source.classes, tuple(layers), source)


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """The innermost modules in the order of execution; others than sequences as they are."""
    if _calls_only(module, nn.Sequential):
        for part in module.children():
            yield from _parts(part)
    elif not (
        type(module) is nn.Identity or (type(module) is nn.Dropout and module.p == 0)
    ):
        yield module


def _calls_only(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a call of the module is ``kind.forward`` and nothing else."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    same = isinstance(module, kind) and type(module).forward is kind.forward
    return same and not any(hooks) and "forward" not in vars(module)


def _layer(part: nn.Module) -> Layer | None:
    """The layer that computes the same; None for other modules."""
    if not _calls_only(part, type(part)):
        return None
    if type(part) is nn.ReLU:
        return Relu()
    if type(part) is nn.LeakyReLU and part.negative_slope > 0:
        return Relu(part.negative_slope)
    if type(part) is nn.Linear and part.bias is not None:
        return Linear(part.in_features, part.out_features)
    if type(part) is nn.MaxPool2d and not part.ceil_mode and not part.return_indices:
        sizes = [
            _pair(value) for value in (part.kernel_size, part.stride, part.padding)
        ]
        plain = sizes == [(2, 2), (2, 2), (0, 0)] and _pair(part.dilation) == (1, 1)
        return Pool() if plain else None
    return _conv(part) if type(part) is nn.Conv2d else None


def _conv(part: nn.Conv2d) -> Conv | None:
    """A square convolution of stride one with a bias; None for others."""
    padding = part.padding
    if isinstance(padding, str):
        size = part.kernel_size[0]
        if padding == "same" and size % 2 == 0:
            return None  # PyTorch pads one side more
        padding = (size // 2, size // 2) if padding == "same" else (0, 0)
    plain = (
        part.stride == (1, 1)
        and part.dilation == (1, 1)
        and part.groups == 1
        and part.padding_mode == "zeros"
        and part.bias is not None
        and len(set(part.kernel_size)) == len(set(padding)) == 1
    )
    if not plain:
        return None
    return Conv(part.in_channels, part.out_channels, part.kernel_size[0], padding[0])


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)
