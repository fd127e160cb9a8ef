"""`adapters:MODEL`: a model with frozen weights and small trainable adapters after its blocks.

Bottleneck adapters after N. Houlsby et al., Parameter-Efficient Transfer Learning for NLP, ICML
2019: a projection down, a rectifier and a projection up, added to the input. The adapters and the
head are trained; all other parameters keep their initial values, which for `vit:FOLDER` and
`roberta:FOLDER` are those on disk. Other models are initialised from one fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from privplan.errors import InputError
from simulate.models.modular import Modular
from simulate.models.network import Model

PREFIX = "adapters:"
"""Beginning of the name of such a model."""

BOTTLENECK = 8
"""Width of the bottleneck."""


class Adapter(nn.Module):
    """A residual bottleneck over features, initially the identity.

    Args:
        width: features of a block: channels of an image, or the last dimension of anything else.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, BOTTLENECK), nn.Linear(BOTTLENECK, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Features [B, width], [B, T, width] or [B, width, H, W] to features of the same shape."""
        features = x.movedim(1, -1) if x.dim() == 4 else x
        change: Tensor = self.up(self.down(features).relu())
        return x + (change.movedim(-1, 1) if x.dim() == 4 else change)


class AdaptedBlock(nn.Module):
    """A block followed by an adapter.

    Args:
        block: returns a tensor, or a tuple that begins with one.
        width: number of features.
    """

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__()
        self.block, self.adapter = block, Adapter(width)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The block's output, with an adapted first tensor."""
        output = self.block(*inputs, **options)
        if isinstance(output, tuple):
            return (self.adapter(output[0]), *output[1:])
        return self.adapter(output)


def adapted(base: Model) -> Modular:
    """A model with the adapters and the head of another model as parameters.

    Raises:
        InputError: the model has no sequence of blocks.
    """
    name = PREFIX + base.name
    with torch.device("meta"):
        widths = _widths(base, name)

    def build() -> nn.Module:
        return _adapt(base.module(), base, widths)

    def start() -> nn.Module:
        module = build()
        source = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        head = [part for key, part in module.named_parameters() if ".adapter." not in key]
        nn.utils.vector_to_parameters(base.initial(source)[base.head].clone(), head)
        return module

    def constants() -> dict[str, Tensor]:
        network = base.module()
        values = base.initial(torch.Generator().manual_seed(0))
        nn.utils.vector_to_parameters(values, network.parameters())
        return dict(_adapt(network, base, widths).named_buffers())

    return Modular(name, base.input_shape, base.classes, build, start=start, constants=constants)


def _adapt(network: nn.Module, base: Model, widths: dict[str, int]) -> nn.Module:
    """Insert adapters in place and turn all parameters but theirs and the head's into buffers."""
    head = _head(base)
    for prefix, part in list(network.named_modules()):
        for key, value in list(part.named_parameters(recurse=False)):
            if (f"{prefix}.{key}" if prefix else key) not in head:
                delattr(part, key)
                part.register_buffer(key, value.detach())
    for site, width in widths.items():
        network.set_submodule(site, AdaptedBlock(network.get_submodule(site), width))
    return network


def _head(base: Model) -> set[str]:
    """Names of the parameters of the head."""
    names, start = set(), 0
    for name, shape in base.shapes:
        if base.head.start <= start < base.head.stop:
            names.add(name)
        start += math.prod(shape)
    return names


def _widths(base: Model, name: str) -> dict[str, int]:
    """Number of features of each block, by the block's name, from one pass without data.

    The pass is on the CPU, with zeros as parameters: on the device ``meta`` it would
    import PyTorch's compiler.
    """
    network, widths = base.module().eval(), {}
    sites = _sites(network, _head(base))
    if not sites:
        raise InputError.one("model.name", "must be a model with a row of blocks", name)

    def recorder(site: str) -> Callable[..., None]:
        def record(part: nn.Module, inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
            first = output[0] if isinstance(output, tuple) else output
            widths[site] = first.shape[1 if first.dim() == 4 else -1]

        return record

    for site in sites:
        network.get_submodule(site).register_forward_hook(recorder(site))
    kind = torch.int64 if len(base.input_shape) == 1 else torch.float32
    with torch.no_grad(), torch.device("cpu"):
        _fill_with_zeros(network)
        network(torch.zeros((2, *base.input_shape), dtype=kind))
    return widths


def _fill_with_zeros(network: nn.Module) -> None:
    """Replace all parameters and buffers by zeros on the current device."""
    for part in network.modules():
        for key, value in list(part.named_parameters(recurse=False)):
            zeros = torch.zeros(value.shape, dtype=value.dtype)
            setattr(part, key, nn.Parameter(zeros, requires_grad=False))
        for key, kept in list(part.named_buffers(recurse=False)):
            part.register_buffer(key, torch.zeros(kept.shape, dtype=kept.dtype))


def _sites(network: nn.Module, head: set[str]) -> list[str]:
    """Names of the outermost sequence of blocks with parameters, without the head."""
    for prefix, part in network.named_modules():
        if isinstance(part, nn.ModuleList | nn.Sequential):
            blocks = {
                f"{prefix}.{key}" if prefix else key: one for key, one in part.named_children()
            }
            sites = [
                site
                for site, one in blocks.items()
                if any(f"{site}.{key}" not in head for key, _ in one.named_parameters())
            ]
            if sites:
                return sites
    return []
