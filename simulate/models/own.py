"""The user's own ``torch.nn.Module``, validated and run by ``Modular``."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from privplan.errors import Fault, InputError
from simulate.data.dataset import Dataset
from simulate.data.own import said
from simulate.models.modular import Modular

Factory = Callable[..., nn.Module]
"""A class or function that returns a fresh module."""
PROBE_RECORDS = 3
"""Records on which a module is tried."""
_TOLERANCE = 1e-4
"""Largest relative difference by rounding between equal computations in another order."""


@dataclass(frozen=True)
class OwnModel:
    """A module class with its arguments, or a module whose parameters training starts from.

    Attributes:
        source: a class or function that returns a module, or a module.
        arguments: keyword arguments of the class or function.
        label: how the user named it.
    """

    source: Factory | nn.Module
    arguments: Mapping[str, Any]
    label: str

    def fresh(self) -> nn.Module:
        """A module with initial parameters, in training mode.

        Raises:
            InputError: when the user's code fails, or returns no module.
        """
        if isinstance(self.source, nn.Module):
            return copy.deepcopy(self.source).cpu().train()
        try:
            module = self.source(**self.arguments)
        except Exception as error:  # the user's code can fail in any way
            raise InputError.one("model", "must be built without an error", said(error)) from None
        if not isinstance(module, nn.Module):
            rule = f"must be a torch.nn.Module or return one ({self.label})"
            raise InputError.one("model", rule, type(module).__name__)
        return module.cpu().float().train()

    def model(self, name: str, data: Dataset, *, vectorised: bool = False) -> Modular:
        """The validated model.

        Args:
            name: the plan's name of the model.
            data: the data set; the module is tried on records of its shape.
            vectorised: whether the run needs ``torch.func.vmap``: on a GPU, or for gradients of
                single records.

        Raises:
            InputError: with every fault of the module.
        """
        skeleton, again = self._seeded(), self._seeded()
        faults = list(_structure_faults(skeleton))
        if not _same_values(skeleton.parameters(), again.parameters()):
            rule = "must be initialised from torch's random generator only"
            faults.append(Fault("model", rule, "other values from the same seed"))
        probe = _probe(data)
        outputs, more = _behaviour_faults(skeleton, probe, len(data.classes))
        faults += more
        if faults:
            raise InputError(faults)
        buffers = {key: value.clone() for key, value in skeleton.named_buffers()}
        plain = Modular(
            name,
            data.shape,
            outputs,
            lambda: copy.deepcopy(skeleton),
            start=self.fresh,
            constants=lambda: buffers,
            channels_last=False,
        )
        return _fastest(plain, skeleton, probe, vectorised=vectorised)

    def digest(self) -> str:
        """SHA-256 of the structure: modules, names and shapes; of a given module also its values.

        A resumed run must have the same.
        """
        module = self._seeded()
        content = hashlib.sha256(repr(module).encode())
        for name, value in module.named_parameters():
            content.update(f"{name}{tuple(value.shape)}".encode())
            if isinstance(self.source, nn.Module):
                content.update(value.detach().contiguous().numpy().tobytes())
        return content.hexdigest()

    def _seeded(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return self.fresh()


def _structure_faults(module: nn.Module) -> Iterator[Fault]:
    """Faults that the module's parts show without being run."""
    for name, part in module.named_modules():
        where = f"{type(part).__name__} {name or 'itself'}"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            rule = "must have no batch normalisation, which mixes records; use nn.GroupNorm"
            yield Fault("model", rule, where)
        elif isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            yield Fault("model", "must have no dropout, which is not simulated; set p=0", where)
    parameters = dict(module.named_parameters())
    if not parameters:
        yield Fault("model", "must have parameters", 0)
    frozen = [name for name, value in parameters.items() if not value.requires_grad]
    if frozen:
        rule = "must have no frozen parameters, which would be trained; make them buffers"
        yield Fault("model", rule, ", ".join(frozen))
    every = list(module.named_parameters(remove_duplicate=False))
    tied = [name for name, _ in every if name not in parameters]
    if tied:
        yield Fault("model", "must have no tied parameters; give each its own", ", ".join(tied))


def _behaviour_faults(module: nn.Module, probe: Tensor, classes: int) -> tuple[int, list[Fault]]:
    """Number of outputs and the faults that a forward and a backward pass show."""
    module = copy.deepcopy(module)
    before = [value.clone() for value in module.buffers()]
    parameters = dict(module.named_parameters())
    shape = "x".join(map(str, probe.shape[1:]))
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            trained = module.train()(probe.clone())
            changed = not _same_values(before, module.buffers())
            logits = module.eval()(probe.clone())
            single = [module(probe[row : row + 1].clone()) for row in range(len(probe))]
    except Exception as error:  # the user's code can fail in any way
        rule = f"must take records of shape {shape} (after the batch dimension)"
        return 0, [Fault("model", rule, said(error))]
    if not isinstance(logits, Tensor) or logits.shape[:1] != probe.shape[:1] or logits.ndim != 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        rule = f"must return logits of shape ({len(probe)}, {classes}) for {len(probe)} records"
        return 0, [Fault("model", rule, found)]
    faults = []
    if logits.shape[1] < classes:
        rule = f"must return a logit for each of the {classes} classes of the data"
        faults.append(Fault("model", rule, logits.shape[1]))
    if changed:
        names = ", ".join(
            name
            for (name, after), value in zip(module.named_buffers(), before, strict=True)
            if not torch.equal(after, value)
        )
        rule = "must have no buffers that training changes: they would leave clients without noise"
        faults.append(Fault("model", rule, names))
    if not _close(trained, logits):
        rule = "must compute the same in training and in evaluation, without dropout"
        faults.append(Fault("model", rule, "other outputs in training"))
    if not _close(torch.cat(single), logits):
        rule = "must compute a record's outputs from that record only"
        faults.append(Fault("model", rule, "outputs that depend on the batch"))
    faults += _gradient_faults(module, probe, parameters)
    return int(logits.shape[1]), faults


def _gradient_faults(
    module: nn.Module, probe: Tensor, parameters: Mapping[str, nn.Parameter]
) -> list[Fault]:
    """Parameters without a gradient, and a backward pass that fails."""
    trainable = {name: value for name, value in parameters.items() if value.requires_grad}
    if not trainable:
        return []
    try:
        with torch.enable_grad():
            logits = module(probe.clone())
            loss = functional.cross_entropy(logits, torch.zeros(len(probe), dtype=torch.int64))
            found = torch.autograd.grad(loss, list(trainable.values()), allow_unused=True)
    except RuntimeError as error:  # such as an operation in place
        return [Fault("model", "must be differentiable", said(error))]
    unused = [name for name, value in zip(trainable, found, strict=True) if value is None]
    if not unused:
        return []
    rule = "must use all parameters; remove the unused ones"
    return [Fault("model", rule, ", ".join(unused))]


def _fastest(model: Modular, module: nn.Module, probe: Tensor, *, vectorised: bool) -> Modular:
    """The model in the format of images that computes the module's gradients.

    Raises:
        InputError: when its gradients cannot be computed for parameters given from outside.
    """
    theta = torch.cat([value.detach().flatten() for value in module.parameters()])
    labels = torch.zeros(len(probe), dtype=torch.int64)

    def gradient(tried: Modular) -> Tensor:
        packed = tried.packed_gradients(tried.pack(theta[None]), probe[None], labels[None])
        return tried.unpack(packed, 1)

    try:
        expected = gradient(model)
        if vectorised:
            model.clipped_sum(theta, probe, labels, 1.0)
    except Exception as error:  # the user's code can fail in any way
        rule = "must work with torch.func.functional_call"
        rule += " and torch.func.vmap, which this run needs" if vectorised else ""
        raise InputError.one("model", rule, said(error)) from None
    if probe.ndim != 4:
        return model
    fast = replace(model, channels_last=True)
    try:
        return fast if _close(gradient(fast), expected) else model
    except Exception:  # such as ``view`` of a tensor in another format
        return model


def _probe(data: Dataset) -> Tensor:
    """A few model inputs of the data's shape: token ids of the data, otherwise random values."""
    if data.kind == "tokens":
        rows = torch.arange(PROBE_RECORDS) % len(data.train_y)
        return data.inputs(data.train_x[rows])
    generator = torch.Generator().manual_seed(0)
    return torch.randn(PROBE_RECORDS, *data.shape, generator=generator)


def _same_values(first: Any, second: Any) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def _close(first: Tensor, second: Tensor) -> bool:
    scale = max(1.0, float(second.detach().abs().max()))
    return bool((first - second).abs().max() <= _TOLERANCE * scale)
