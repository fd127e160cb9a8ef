"""A user's modules that consist of the layers of a chain, trained by its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simulate.models.chain import Chain
from simulate.models.layers import Conv, Layer, Linear, Pool, Relu
from simulate.models.modular import Modular
from simulate.models.network import Shapes


@dataclass(frozen=True)
class Compiled(Chain):
    """A ``Chain`` with the names, initialisation and plain form of a user's module.

    Attributes:
        source: the same model on the general path.
    """

    source: Modular

    @property
    def shapes(self) -> Shapes:
        """The parameters by name, as `module().named_parameters()` lists them."""
        return self.source.shapes

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters [d], float32: drawn as the module draws them, or loaded."""
        return self.source.initial(generator)

    def module(self) -> nn.Module:  # type: ignore[override]
        """The user's module."""
        return self.source.module()


def compiled(source: Modular, module: nn.Module) -> Compiled | None:
    """The model with fast kernels; None for other layers, or no dense last one."""
    shape = source.input_shape
    layers: list[Layer] = []
    is_flat = len(shape) == 1
    for inner in _parts(module):
        if type(inner) is nn.Flatten and (inner.start_dim, inner.end_dim) == (1, -1):
            is_flat = True
            continue
        layer = _layer(inner)
        if layer is None or (isinstance(layer, Linear) and not is_flat):
            return None
        if isinstance(layer, Conv | Pool) and (is_flat or len(shape) != 3):
            return None
        layers.append(layer)
    # A rectifier is monotone: after the maximum it gives the same with a quarter of
    # values.
    for place in range(len(layers) - 1):
        if isinstance(layers[place], Relu) and isinstance(layers[place + 1], Pool):
            layers[place], layers[place + 1] = layers[place + 1], layers[place]
    if not layers or not isinstance(layers[-1], Linear):
        return None
    return Compiled(source.name, shape, source.classes, tuple(layers), source)


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """The innermost modules in the order of execution; only sequences are opened."""
    if _calls_only(module, nn.Sequential):
        for child in module.children():
            yield from _parts(child)
        return
    is_idle = type(module) is nn.Dropout and module.p == 0
    if type(module) is not nn.Identity and not is_idle:
        yield module


def _calls_only(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a call of the module is ``kind.forward`` and nothing else."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    is_same = isinstance(module, kind) and type(module).forward is kind.forward
    return is_same and not any(hooks) and "forward" not in vars(module)


def _layer(module: nn.Module) -> Layer | None:
    """The layer that computes the same; None for other modules."""
    if not _calls_only(module, type(module)):
        return None
    if type(module) is nn.ReLU:
        return Relu()
    if type(module) is nn.LeakyReLU and module.negative_slope > 0:
        return Relu(module.negative_slope)
    if type(module) is nn.Linear and module.bias is not None:
        return Linear(module.in_features, module.out_features)
    if (
        type(module) is nn.MaxPool2d
        and not module.ceil_mode
        and not module.return_indices
    ):
        sizes = (module.kernel_size, module.stride, module.padding, module.dilation)
        is_plain = list(map(_pair, sizes)) == [(2, 2), (2, 2), (0, 0), (1, 1)]
        if is_plain:
            return Pool()
        return None
    if type(module) is nn.Conv2d:
        return _conv(module)
    return None


def _conv(convolution: nn.Conv2d) -> Conv | None:
    """A square convolution of stride one with a bias; None for others."""
    padding = convolution.padding
    if isinstance(padding, str):
        size = convolution.kernel_size[0]
        if padding == "same" and size % 2 == 0:
            return None  # PyTorch pads one side more
        padding = (size // 2, size // 2) if padding == "same" else (0, 0)
    is_plain = (
        convolution.stride == (1, 1)
        and convolution.dilation == (1, 1)
        and convolution.groups == 1
        and convolution.padding_mode == "zeros"
        and convolution.bias is not None
        and len(set(convolution.kernel_size)) == len(set(padding)) == 1
    )
    if not is_plain:
        return None
    return Conv(
        convolution.in_channels,
        convolution.out_channels,
        convolution.kernel_size[0],
        padding[0],
    )


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """A size along both sides."""
    if isinstance(value, tuple):
        return value
    return (value, value)
