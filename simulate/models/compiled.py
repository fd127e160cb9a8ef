"""Sequential modules of convolutions, poolings, rectifiers and dense layers, as fast kernels.

A module of the user's that consists of the layers of ``simulate.models.layers`` is trained by the
same kernels as the built-in networks; its names, initialisation and plain form stay its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simulate.models.chain import Chain
from simulate.models.layers import Conv, Layer, Linear, Pool, Relu
from simulate.models.modular import Modular
from simulate.models.network import Packed, Shapes


@dataclass(frozen=True)
class Compiled(Chain):
    """A ``Chain`` with the structure of a user's module.

    Attributes:
        source: the same model on the general path.
    """

    source: Modular

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

    @property
    def _kernels(self) -> Chain:
        """The layers over records of three dimensions, which the kernels of a CPU expect."""
        images = any(isinstance(layer, Conv | Pool) for layer in self.layers)
        shape = self.input_shape if images else (math.prod(self.input_shape), 1, 1)
        return Chain(self.name, shape, self.classes, self.layers)

    def clients_per_chunk(self, batch: int) -> int:
        """Clients trained at once on one core."""
        return self._kernels.clients_per_chunk(batch)

    def pack(self, thetas: Tensor) -> Packed:
        """Parameters [K, d] in the layout of `simulate.models.grouped`; always a copy."""
        return self._kernels.pack(thetas)

    def unpack(self, packed: Packed, clients: int) -> Tensor:
        """The inverse of `pack`: a fresh [K, d]."""
        return self._kernels.unpack(packed, clients)

    def packed_gradients(self, packed: Packed, x: Tensor, y: Tensor) -> Packed:
        """Gradient of each client's mean cross-entropy over its unpadded rows, packed."""
        kernels = self._kernels
        return kernels.packed_gradients(packed, x.reshape(*y.shape, *kernels.input_shape), y)

    def clipped_sum(
        self, theta: Tensor, x: Tensor, y: Tensor, clipping_norm: float
    ) -> tuple[Tensor, Tensor]:
        """Sum [d] of the clipped per-record gradients, and their norms [B] before clipping."""
        kernels = self._kernels
        records = x.reshape(*y.shape, *kernels.input_shape)
        return kernels.clipped_sum(theta, records, y, clipping_norm)


def compiled(source: Modular, module: nn.Module) -> Compiled | None:
    """The model with fast kernels; None where the module has other layers.

    Args:
        source: the model on the general path.
        module: the user's module.
    """
    layers = _layers(module, source.input_shape)
    if layers is None:
        return None
    return Compiled(source.name, source.input_shape, source.classes, layers, source)


def _layers(module: nn.Module, shape: tuple[int, ...]) -> tuple[Layer, ...] | None:
    """The module as layers; None where it has others, or ends in another than a dense one."""
    layers: list[Layer] = []
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
    return tuple(layers) if layers and isinstance(layers[-1], Linear) else None


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """The innermost modules in the order of execution; others than sequences as they are."""
    if _calls_only(module, nn.Sequential):
        for part in module.children():
            yield from _parts(part)
    elif not (type(module) is nn.Identity or (type(module) is nn.Dropout and module.p == 0)):
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
        sizes = [_pair(value) for value in (part.kernel_size, part.stride, part.padding)]
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
