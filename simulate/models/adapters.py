"""``adapters:MODEL``: frozen weights, and small trainable adapters after the blocks.

Bottleneck adapters after N. Houlsby et al., Parameter-Efficient Transfer Learning for
NLP, ICML 2019: a projection down, a rectifier and a projection up, added to the input.
The adapters and the head are trained. All other parameters keep their initial values,
which for ``vit:FOLDER`` and ``roberta:FOLDER`` are those on disk. Other models are
initialised from one fixed seed, so that every client freezes the same values.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from privplan.errors import InputError
from simulate.models.modular import IMAGE_DIMENSIONS, Modular
from simulate.models.network import Model

PREFIX = "adapters:"  # beginning of the name of such a model

# Width of the bottleneck: the smallest of the widths that Houlsby et al. compare for
# GLUE (8, 64 and 256). Noise grows with the number of trained parameters.
BOTTLENECK = 8


class Adapter(nn.Module):
    """A residual bottleneck over channels or the last dimension.

    It is the identity at the start, so that training begins from the frozen network.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, BOTTLENECK)
        self.up = nn.Linear(BOTTLENECK, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add the bottleneck's output.

        Args:
            x: features [B, width], [B, T, width] or [B, width, H, W].

        Returns:
            Features of the same shape.
        """
        if x.dim() == IMAGE_DIMENSIONS:
            # A linear layer reads the last dimension; channels of images are the
            # second.
            return x + self._change(x.movedim(1, -1)).movedim(-1, 1)
        return x + self._change(x)

    def _change(self, features: Tensor) -> Tensor:
        change: Tensor = self.up(self.down(features).relu())
        return change


class AdaptedBlock(nn.Module):
    """A block followed by an adapter.

    The block returns a tensor, or a tuple that begins with one, as blocks of the
    library ``transformers`` do.
    """

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__()
        self.block = block
        self.adapter = Adapter(width)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The block's output, with an adapted first tensor."""
        output = self.block(*inputs, **options)
        if isinstance(output, tuple):
            return (self.adapter(output[0]), *output[1:])
        return self.adapter(output)


def adapted(base: Model) -> Modular:
    """A model with the adapters and the head of another model as parameters.

    Args:
        base: the model whose blocks are frozen; it needs a `ModuleList` or
            `Sequential`.

    Returns:
        The model ``adapters:NAME``. Its frozen values are buffers, which are neither
        trained nor sent.

    Raises:
        InputError: the model has no row of blocks, or no head.
    """
    name = PREFIX + base.name
    head = _head_parameters(base)
    with torch.device("meta"):
        widths = _block_widths(base, head, name)

    def adapt(network: nn.Module) -> nn.Module:
        _freeze(network, head)
        for site, width in widths.items():
            block = network.get_submodule(site)
            network.set_submodule(site, AdaptedBlock(block, width))
        return network

    def build() -> nn.Module:
        return adapt(base.module())

    def start() -> nn.Module:
        """Adapters as PyTorch draws them, and the head as the base model draws it."""
        module = build()
        source = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        head_parameters = [
            parameter
            for key, parameter in module.named_parameters()
            if ".adapter." not in key
        ]
        head_values = base.initial(source)[base.head].clone()
        nn.utils.vector_to_parameters(head_values, head_parameters)
        return module

    def constants() -> dict[str, Tensor]:
        """The frozen values, from the same seed for every client and run."""
        network = base.module()
        values = base.initial(torch.Generator().manual_seed(0))
        nn.utils.vector_to_parameters(values, network.parameters())
        return dict(adapt(network).named_buffers())

    return Modular(
        name, base.input_shape, base.classes, build, start=start, constants=constants
    )


def _joined(prefix: str, key: str) -> str:
    """The name of a part of a module; the outermost module has the name ""."""
    if prefix:
        return f"{prefix}.{key}"
    return key


def _head_parameters(base: Model) -> set[str]:
    """Names of the parameters that lie within the head's slice of the flat vector."""
    ends = itertools.accumulate(math.prod(shape) for _, shape in base.shapes)
    return {
        key
        for (key, _), end in zip(base.shapes, ends, strict=True)
        if base.head.start < end <= base.head.stop
    }


def _freeze(network: nn.Module, head: set[str]) -> None:
    """Turn all parameters but the head's into buffers."""
    for prefix, module in list(network.named_modules()):
        for key, value in list(module.named_parameters(recurse=False)):
            if _joined(prefix, key) not in head:
                delattr(module, key)
                module.register_buffer(key, value.detach())


def _block_widths(base: Model, head: set[str], name: str) -> dict[str, int]:
    """Features of each block by a pass on the CPU; ``meta`` would import a compiler."""
    network = base.module().eval()
    sites = _sites(network, head)
    if not sites:
        raise InputError.one("model.name", "must be a model with a row of blocks", name)

    widths: dict[str, int] = {}

    def record(site: str, module: nn.Module, inputs: object, output: Any) -> None:
        features = output[0] if isinstance(output, tuple) else output
        dimension = 1 if features.dim() == IMAGE_DIMENSIONS else -1
        widths[site] = features.shape[dimension]

    for site in sites:
        network.get_submodule(site).register_forward_hook(partial(record, site))

    # Only shapes matter here: zeros in place of all values, and two records because
    # some layers refuse a single one. A record of one dimension consists of tokens.
    if len(base.input_shape) == 1:
        record_type = torch.int64
    else:
        record_type = torch.float32
    with torch.no_grad(), torch.device("cpu"):
        for submodule in network.modules():
            for key, value in list(submodule.named_parameters(recurse=False)):
                zeros = torch.zeros(value.shape, dtype=value.dtype)
                setattr(submodule, key, nn.Parameter(zeros, requires_grad=False))
            for key, buffer in list(submodule.named_buffers(recurse=False)):
                submodule.register_buffer(
                    key, torch.zeros(buffer.shape, dtype=buffer.dtype)
                )
        network(torch.zeros((2, *base.input_shape), dtype=record_type))
    return widths


def _sites(network: nn.Module, head: set[str]) -> list[str]:
    """Names of the outermost sequence of blocks with parameters, without the head."""
    for prefix, module in network.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        sites = []
        for key, block in module.named_children():
            site = _joined(prefix, key)
            names = [f"{site}.{name}" for name, _ in block.named_parameters()]
            if not head.issuperset(names):
                sites.append(site)
        if sites:
            return sites
    return []
