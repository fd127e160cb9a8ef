"""Random numbers that a module draws in training, from a stream of the client's own.

Dropout and similar layers draw from PyTorch's generator of the process, which is shared
by all threads. Here every operation that draws random numbers receives a generator with
a given seed, so that a step's numbers depend neither on other clients nor on the number
of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
    """Within this context, operations of this thread draw from their own generator."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: PyTorch would else import its compiler here, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Execute one operation."""
        arguments: dict[str, Any] = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **arguments)
        if func in (_aten.rand_like.default, _aten.randn_like.default):
            values = torch.empty_like(args[0], **arguments)
            is_normal = func is _aten.randn_like.default
            fill = values.normal_ if is_normal else values.uniform_
            return fill(generator=self._generator)
        func = _SEEDED.get(func, func)
        if "generator" in [argument.name for argument in func._schema.arguments]:
            arguments["generator"] = self._generator
        return func(*args, **arguments)
