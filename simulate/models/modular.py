"""A model given by a PyTorch module of any structure, evaluated on flat parameter vectors."""

from __future__ import annotations

import copy
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from privplan.errors import InputError
from simulate.data.dataset import error_line
from simulate.models.network import (
    CROSS_ENTROPY,
    Model,
    Objective,
    Packed,
    SeededRandomness,
    Shapes,
    without_seeds,
)
from simulate.norms import factors

T = TypeVar("T")
ROWS = 50  # records of a block when one model is evaluated on a CPU

WIDE = 512
"""Least outputs of a convolution whose kernels stay in PyTorch's contiguous format: measured on a
CPU, the kernels of narrower ones are faster in the `channels_last` format, wider ones slower."""

BLOCK_VALUES = 2**26  # most values of per-record gradients in memory at a time: 256 MB

BLOCK_RECORDS = 16  # most records whose gradients are in memory at a time


@dataclass(frozen=True)
class Modular:
    """A `Model` given by a `torch.nn.Module`.

    On a CPU clients are trained one after the other by autograd, images in the `channels_last`
    format; all clients in one batch, as on a GPU, use `torch.func.vmap`.
    """

    name: str  # as in the spec
    input_shape: tuple[int, ...]  # of one record
    classes: int  # number of logits
    # The module, initialised by PyTorch; it has no buffers that training changes.
    build: Callable[[], nn.Module]
    # A module with the same parameters in operations that `vmap` supports; None when `build` is.
    batched: Callable[[], nn.Module] | None = None
    # The module with the initial parameters, and its buffers by name; None when `build` has them.
    start: Callable[[], nn.Module] | None = None
    constants: Callable[[], dict[str, Tensor]] | None = None
    channels_last: bool = True  # whether the module computes with images in that format
    objective: Objective = CROSS_ENTROPY
    stochastic: bool = (
        False  # whether training draws random numbers; labels then carry seeds
    )
    # The module as its user knows it, perhaps with frozen parameters; None when `module` is.
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
        end = first + (
            2 if f"{dense[-1]}.bias" in names else 1
        )  # the bias comes right after it
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
        blocks = torch.split(x, ROWS if x.device.type == "cpu" else max(1, len(x)))
        with self._forward():
            images = [_laid_out_images(block, self.channels_last) for block in blocks]
            return torch.cat(
                [outputs_of(functional_call(module, tensors, x)) for x in images]
            )

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
        return [
            (_laid_out(part.view(len(part), *shape), fast),)
            for (_, shape), part in parts
        ]

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
                logits = outputs_of(
                    functional_call(module, self._all(flat), (record[None],))
                )
            return self.objective(logits, label[None])

        gradients = vmap(grad(loss), (None, 0, 0), randomness="different")
        total, norms = torch.zeros_like(theta), []
        size = min(BLOCK_RECORDS, max(1, BLOCK_VALUES // self.parameters))
        y, randomness = self._randomness(y)
        with randomness:
            for records, labels in zip(
                torch.split(x, size), torch.split(y, size), strict=True
            ):
                each = gradients(theta, records, labels)
                norms.append(torch.linalg.vector_norm(each, dim=1, dtype=torch.float64))
                factor = factors(norms[-1], clipping_norm)
                total += factor[factor > 0] @ each[factor > 0]
        return total, torch.cat(norms)

    @cached_property
    def _template(self) -> nn.Module:
        """The structure without storage, in evaluation mode."""
        return _outside_transforms(lambda: _on_meta(self.build)).eval()

    @cached_property
    def _batched(self) -> nn.Module:
        made = _outside_transforms(lambda: _on_meta(self.batched or self.build))
        return made.train(self.stochastic)

    @cached_property
    def _copies(self) -> threading.local:
        return threading.local()

    def _own_copy(self, use: str) -> nn.Module:
        """The structure for one use in one thread: calls with other parameters change it."""
        copies: dict[str, nn.Module] = self._copies.__dict__
        if use not in copies:
            copies[use] = copy.deepcopy(
                self._batched if use == "batched" else self._template
            )
        return copies[use]

    def _training_copy(self) -> tuple[nn.Module, list[nn.Parameter]]:
        """The structure of one thread and its parameters; faster than ``functional_call``."""
        copies: dict[str, tuple[nn.Module, list[nn.Parameter]]] = self._copies.__dict__
        if "training" not in copies:
            module = copy.deepcopy(self._template).train(self.stochastic)
            for part in module.modules():  # Module.to_empty would load SymPy
                for name, own in list(part.named_parameters(recurse=False)):
                    setattr(
                        part,
                        name,
                        nn.Parameter(torch.empty(own.shape, dtype=own.dtype)),
                    )
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
            raise InputError.one("model", rule, error_line(error)) from error

    def _randomness(
        self, y: Tensor
    ) -> tuple[Tensor, SeededRandomness | nullcontext[None]]:
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
        made = self.constants or (lambda: dict(self.build().named_buffers()))
        with torch.random.fork_rng(devices=[]):
            return _outside_transforms(made)

    @cached_property
    def _sizes(self) -> list[int]:
        """Values of each tensor."""
        return [math.prod(shape) for _, shape in self.shapes]

    def _all(self, theta: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector [d] and the buffers, by name."""
        parts = zip(self.shapes, torch.split(theta, self._sizes), strict=True)
        constants = {
            name: value.to(theta.device) for name, value in self._constants.items()
        }
        return {name: part.view(shape) for (name, shape), part in parts} | constants

    def _gradient(
        self, tensors: list[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
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


def _on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build().to("meta")


def _outside_transforms(build: Callable[[], T]) -> T:
    """A function's result from another thread: ``vmap``, active in one, refuses randomness."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(build).result()


def _laid_out(part: Tensor, channels_last: bool) -> Tensor:
    """A copy of a parameter tensor [K, ...]; narrow kernels in `channels_last`, per client."""
    if not channels_last or part.dim() != 5 or part.shape[1] >= WIDE:
        return part.clone(memory_format=torch.contiguous_format)
    return part.movedim(2, 4).clone(memory_format=torch.contiguous_format).movedim(4, 2)


def _laid_out_images(x: Tensor, channels_last: bool) -> Tensor:
    """Images in the faster format of a CPU; other records as they are."""
    if channels_last and x.dim() == 4 and x.device.type == "cpu":
        return x.contiguous(memory_format=torch.channels_last)
    return x


def outputs_of(result: Any) -> Tensor:
    """The tensor that a module returns, or the ``logits`` of what it returns."""
    outputs: Tensor = getattr(result, "logits", result)
    return outputs


# --- `adapters:MODEL`: a model with frozen weights and small trainable adapters after its blocks. -
# Bottleneck adapters after N. Houlsby et al., Parameter-Efficient Transfer Learning for NLP, ICML
# 2019: a projection down, a rectifier and a projection up, added to the input. The adapters and
# the head are trained; all other parameters keep their initial values, which for `vit:FOLDER` and
# `roberta:FOLDER` are those on disk. Other models are initialised from one fixed seed.

PREFIX = "adapters:"  # beginning of the name of such a model

BOTTLENECK = 8  # width of the bottleneck


class Adapter(nn.Module):
    """A residual bottleneck, initially the identity, over channels or the last dimension."""

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
    """A block that returns a tensor, or a tuple that begins with one, followed by an adapter."""

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
    """A model with the adapters and the head of another model as parameters."""
    name = PREFIX + base.name
    ends = itertools.accumulate(math.prod(shape) for _, shape in base.shapes)
    head = {
        key
        for (key, _), end in zip(base.shapes, ends, strict=True)
        if base.head.start < end <= base.head.stop
    }
    with torch.device("meta"):
        widths = _widths(base, head, name)

    def adapt(network: nn.Module) -> nn.Module:
        """Insert adapters; all parameters but theirs and the head's become buffers."""
        for prefix, part in list(network.named_modules()):
            for key, value in list(part.named_parameters(recurse=False)):
                if (f"{prefix}.{key}" if prefix else key) not in head:
                    delattr(part, key)
                    part.register_buffer(key, value.detach())
        for site, width in widths.items():
            network.set_submodule(
                site, AdaptedBlock(network.get_submodule(site), width)
            )
        return network

    def build() -> nn.Module:
        return adapt(base.module())

    def start() -> nn.Module:
        module = build()
        source = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        last = [
            part for key, part in module.named_parameters() if ".adapter." not in key
        ]
        nn.utils.vector_to_parameters(base.initial(source)[base.head].clone(), last)
        return module

    def constants() -> dict[str, Tensor]:
        network = base.module()
        values = base.initial(torch.Generator().manual_seed(0))
        nn.utils.vector_to_parameters(values, network.parameters())
        return dict(adapt(network).named_buffers())

    return Modular(
        name, base.input_shape, base.classes, build, start=start, constants=constants
    )


def _widths(base: Model, head: set[str], name: str) -> dict[str, int]:
    """Features of each block by one pass on the CPU (``meta`` would import a compiler)."""
    network, widths = base.module().eval(), dict[str, int]()
    sites = _sites(network, head)
    if not sites:
        raise InputError.one("model.name", "must be a model with a row of blocks", name)

    def record(site: str, part: nn.Module, inputs: object, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        widths[site] = first.shape[1 if first.dim() == 4 else -1]

    for site in sites:
        network.get_submodule(site).register_forward_hook(partial(record, site))
    kind = torch.int64 if len(base.input_shape) == 1 else torch.float32
    with torch.no_grad(), torch.device("cpu"):
        for part in network.modules():
            for key, value in list(part.named_parameters(recurse=False)):
                zeros = torch.zeros(value.shape, dtype=value.dtype)
                setattr(part, key, nn.Parameter(zeros, requires_grad=False))
            for key, kept in list(part.named_buffers(recurse=False)):
                part.register_buffer(key, torch.zeros(kept.shape, dtype=kept.dtype))
        network(torch.zeros((2, *base.input_shape), dtype=kind))
    return widths


def _sites(network: nn.Module, head: set[str]) -> list[str]:
    """Names of the outermost sequence of blocks with parameters, without the head."""
    for prefix, part in network.named_modules():
        if isinstance(part, nn.ModuleList | nn.Sequential):
            blocks = {
                f"{prefix}.{key}" if prefix else key: one
                for key, one in part.named_children()
            }
            sites = [
                site
                for site, one in blocks.items()
                if any(f"{site}.{key}" not in head for key, _ in one.named_parameters())
            ]
            if sites:
                return sites
    return []


# --- `vit:FOLDER` and `roberta:FOLDER`: transformers of the library `transformers`, from disk. ---
# A folder contains what `save_pretrained` writes: `config.json` and the weights. Nothing is ever
# downloaded. A head for another number of classes is initialised at random.

TOKENS = (
    128  # default number of tokens of a record, the usual choice for sentence pairs
)


class Vit(nn.Module):
    """An image classifier of the library; images are interpolated to its input size."""

    def __init__(self, network: nn.Module, channels: int, side: int) -> None:
        super().__init__()
        self.network, self.channels, self.side = network, channels, side

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, channels or 1, H, W] to logits [B, classes]."""
        if x.shape[2:] != (self.side, self.side):
            x = functional.interpolate(x, (self.side, self.side), mode="bilinear")
        logits: Tensor = self.network(x.expand(-1, self.channels, -1, -1)).logits
        return logits


class Roberta(nn.Module):
    """A text classifier of the library, which does not attend to padding tokens."""

    def __init__(self, network: nn.Module, padding: int) -> None:
        super().__init__()
        self.network, self.padding = network, padding

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [B, T], int64, to logits [B, classes]."""
        present = (x != self.padding)[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        mask = torch.where(present, 0.0, torch.finfo(torch.float32).min)
        logits: Tensor = self.network(x, attention_mask=mask).logits
        return logits


def vit(
    name: str,
    folder: str,
    shape: tuple[int, ...] | None = None,
    classes: int | None = None,
) -> Modular:
    """A vision transformer."""
    config = _config(name, folder, "vit", classes)
    channels, side = config.num_channels, config.image_size
    shape = shape or (channels, side, side)
    wrap = partial(Vit, channels=channels, side=side)
    return _modular(name, folder, shape, config, "ImageClassification", wrap)


def roberta(
    name: str,
    folder: str,
    shape: tuple[int, ...] | None = None,
    classes: int | None = None,
) -> Modular:
    """A RoBERTa that classifies sentences or pairs of them."""
    config = _config(name, folder, "roberta", classes)
    padding = config.pad_token_id
    shape = shape or (min(TOKENS, config.max_position_embeddings - padding - 1),)
    wrap = partial(Roberta, padding=padding)
    return _modular(name, folder, shape, config, "SequenceClassification", wrap)


def _config(name: str, folder: str, kind: str, classes: int | None) -> Any:
    """The configuration in a folder, without dropout."""
    try:
        from transformers import AutoConfig
        from transformers.utils import logging
    except ImportError:
        rule = 'needs the package transformers: pip install "privplan[hub]"'
        raise InputError.one("model.name", rule, name) from None
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        if not (Path(folder) / "config.json").is_file():
            raise OSError
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError):
        rule = f"must name a folder with the config.json and the weights of a {kind}"
        raise InputError.one("model.name", rule, name) from None
    if config.model_type != kind:
        rule = f"must name the folder of a {kind}, not of a {config.model_type}"
        raise InputError.one("model.name", rule, name)
    if classes is not None:
        config.num_labels = classes
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return config


def _modular(
    name: str,
    folder: str,
    shape: tuple[int, ...],
    config: Any,
    task: str,
    wrap: Callable[[nn.Module], nn.Module],
) -> Modular:
    """The model of a configuration, initialised with the folder's weights."""
    import transformers

    auto = getattr(transformers, f"AutoModelFor{task}")

    def build() -> nn.Module:
        return wrap(auto.from_config(config, attn_implementation="eager"))

    def start() -> nn.Module:
        try:
            loaded = auto.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                attn_implementation="eager",
            )
        except (OSError, ValueError, RuntimeError) as error:
            rule = f"must name a folder with weights that can be read ({error_line(error)})"
            raise InputError.one("model.name", rule, name) from None
        return wrap(loaded)

    return Modular(name, shape, config.num_labels, build, start=start)


PRETRAINED: Mapping[str, Callable[..., Modular]] = MappingProxyType(
    {"roberta": roberta, "vit": vit}
)
"""Each takes ``name``, ``folder``, and ``shape`` and ``classes``, which have defaults."""
