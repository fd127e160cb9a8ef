"""The user's own ``torch.nn.Module``, validated and run by ``Modular`` or by the fast kernels."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from privplan.errors import Fault, InputError
from simulate.data.dataset import Dataset
from simulate.data.own import Data
from simulate.data.user_code import error_line
from simulate.models.fast import Compiled, compiled
from simulate.models.modular import Modular, outputs_of
from simulate.models.network import (
    CROSS_ENTROPY,
    Objective,
    SeededRandomness,
    fitted,
    with_seeds,
)
from simulate.tasks import MULTI_CLASS, objective_of

# --- Checks of the user's module: every fault at once, each with its remedy. ---------------------

PROBE_RECORDS = 3  # records on which a module is tried
MOST_GROUPS = 32  # of a group normalisation for a batch normalisation (Wu and He 2018)
COPY_RULE = (
    "must be copied by copy.deepcopy; keep locks, files and computed tensors out of it"
)
_TOLERANCE = (
    1e-4  # largest relative difference between equal computations in another order
)


class Probe(NamedTuple):
    """A few records on which a module is tried."""

    x: Tensor  # model inputs [B, ...]
    y: Tensor  # labels [B]


class Behaviour(NamedTuple):
    """What a module does with records."""

    outputs: int  # size of the last dimension of its outputs
    stochastic: bool  # whether it draws random numbers in training
    faults: list[Fault]


def probe_of(data: Dataset) -> Probe:
    """Records of the data's shape: token ids of the data, otherwise random values."""
    rows = torch.arange(PROBE_RECORDS) % len(data.train_y)
    if data.kind == "tokens":
        return Probe(data.inputs(data.train_x[rows]), data.train_y[rows])
    generator = torch.Generator().manual_seed(0)
    return Probe(
        torch.randn(PROBE_RECORDS, *data.shape, generator=generator), data.train_y[rows]
    )


def without_batch_norm(module: nn.Module) -> nn.Module:
    """The module with group normalisation in place of batch normalisation.

    The number of groups is the largest divisor of the channels up to MOST_GROUPS that leaves two
    channels or more in a group, so that records without spatial dimensions can be normalised.
    Scale and shift keep their values.
    """
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        channels = module.num_features
        most = max(1, min(MOST_GROUPS, channels // 2))
        groups = max(n for n in range(1, most + 1) if channels % n == 0)
        mended = nn.GroupNorm(groups, channels, eps=module.eps, affine=module.affine)
        if module.affine:
            mended.weight, mended.bias = module.weight, module.bias
        return mended
    for name, part in module.named_children():
        mended_part = without_batch_norm(part)
        if mended_part is not part:
            setattr(module, name, mended_part)
    return module


def value_faults(module: nn.Module) -> Iterator[Fault]:
    """Parameters and buffers without real values, which nothing else can be asked of."""
    found: dict[str, list[str]] = {}
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(value):
            rule = "must give the input sizes of its lazy modules, or call them once on a record"
        elif value.is_meta:
            rule = "must have values, not be on torch's meta device"
        elif value.is_complex() and value.requires_grad:
            rule = "must have real parameters, not complex ones"
        else:
            continue
        found.setdefault(rule, []).append(name)
    for rule, names in found.items():
        yield Fault("model", rule, ", ".join(names))


def structure_faults(module: nn.Module) -> Iterator[Fault]:
    """Faults that the module's parts show without being run."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            where = f"{type(part).__name__} {name or 'itself'}"
            rule = "must have no batch normalisation, which mixes records; use nn.GroupNorm (--fix)"
            yield Fault("model", rule, where)
    parameters = dict(module.named_parameters())
    if not parameters:
        yield Fault("model", "must have parameters", 0)
    elif not any(value.requires_grad for value in parameters.values()):
        yield Fault(
            "model", "must have trainable parameters; set requires_grad", "all frozen"
        )
    every = module.named_parameters(remove_duplicate=False)
    tied = [
        name for name, value in every if value.requires_grad and name not in parameters
    ]
    if tied:
        yield Fault(
            "model", "must have no tied parameters; give each its own", ", ".join(tied)
        )


def behaviour(
    module: nn.Module, probe: Probe, classes: int | None, objective: Objective
) -> Behaviour:
    """What a forward and a backward pass show."""
    try:
        module = copy.deepcopy(module)
    except (
        Exception
    ) as error:  # such as a lock, or a tensor that was computed from parameters
        return Behaviour(0, False, [Fault("model", COPY_RULE, error_line(error))])
    before = [value.clone() for value in module.buffers()]
    x = probe.x

    def seeded() -> Tensor:
        with SeededRandomness(0):
            return outputs_of(module(x.clone()))

    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            module.train()
            trained, again = seeded(), seeded()
            after = zip(module.named_buffers(), before, strict=True)
            changed = [
                name for (name, value), old in after if not torch.equal(value, old)
            ]
            given = x.clone()
            logits = outputs_of(module.eval()(given))
            single = [
                outputs_of(module(x[row : row + 1].clone())) for row in range(len(x))
            ]
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        shape = "x".join(map(str, x.shape[1:]))
        rule = f"must take records of shape {shape} (after the batch dimension)"
        return Behaviour(0, False, [Fault("model", rule, error_line(error))])
    fault = _shape_fault(logits, probe, classes, objective)
    if fault is not None:
        return Behaviour(0, False, [fault])
    faults = []
    if changed:
        rule = "must have no buffers that training changes: they would leave clients without noise"
        faults.append(Fault("model", rule, ", ".join(changed)))
    stochastic = not changed and not close(trained, logits)
    if not changed and not close(trained, again):
        rule = "must draw random numbers with torch only, so that a run can be resumed"
        faults.append(Fault("model", rule, "other outputs from the same seed"))
    if not torch.equal(given, x):
        rule = (
            "must not change its inputs in place; set inplace=False in its first layers"
        )
        faults.append(Fault("model", rule, "changed records"))
    if not close(torch.cat(single), logits):
        rule = "must compute a record's outputs from that record only"
        faults.append(Fault("model", rule, "outputs that depend on the batch"))
    faults += _gradient_faults(module, probe, objective)
    return Behaviour(int(logits.shape[-1]), stochastic, faults)


def _shape_fault(
    logits: Any, probe: Probe, classes: int | None, objective: Objective
) -> Fault | None:
    """The fault of outputs that do not fit the task; None when they do."""
    count = len(probe.y)
    if not isinstance(logits, Tensor):
        rule = f"must return a tensor of {count} rows for {count} records"
        return Fault("model", rule, type(logits).__name__)
    found, targets = tuple(logits.shape), objective.targets_of(probe.y)
    if classes is not None:
        rule = f"must return logits of shape ({count}, {classes}) for {count} records"
        fits = (
            logits.ndim == 2 and logits.shape[0] == count and logits.shape[1] >= classes
        )
    elif targets.is_floating_point():
        rule = (
            f"must return outputs of shape {tuple(targets.shape)} for {count} records"
        )
        fits = fitted(logits, targets).shape == targets.shape
    elif targets.ndim == 2:
        rule = f"must return logits of shape ({count}, {targets.shape[1]}, tokens)"
        fits = logits.shape[:2] == targets.shape
    else:
        rule = f"must return a tensor of {count} rows for {count} records"
        fits = logits.shape[:1] == (count,)
    return None if fits else Fault("model", rule, found)


def loss_faults(
    outputs: Tensor, y: Tensor, objective: Objective, *, by_record: bool
) -> list[Fault]:
    """Faults of the loss on outputs of records."""
    try:
        loss = objective(outputs, y)
        if not isinstance(loss, Tensor) or loss.ndim:
            found = (
                tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            )
            return [
                Fault(
                    "loss",
                    "must return a scalar tensor, the mean over the records",
                    found,
                )
            ]
        each = [
            float(objective(outputs[row : row + 1], y[row : row + 1]).detach())
            for row in range(len(y))
        ]
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        return [
            Fault(
                "loss",
                "must take outputs and targets without an error",
                error_line(error),
            )
        ]
    if not loss.requires_grad:
        return [Fault("loss", "must be differentiable in the outputs", "no gradient")]
    value, mean = float(loss.detach()), sum(each) / len(each)
    if not math.isfinite(value):
        return [Fault("loss", "must be finite on the first records", value)]
    if by_record and abs(mean - value) > _TOLERANCE * max(1.0, abs(mean)):
        rule = "must be the mean of the losses of single records where records are protected"
        return [Fault("loss", rule, f"{value:.6g} and a mean of {mean:.6g}")]
    return []


def _gradient_faults(
    module: nn.Module, probe: Probe, objective: Objective
) -> list[Fault]:
    """Parameters without a gradient, and a backward pass that fails."""
    trainable = {
        name: part for name, part in module.named_parameters() if part.requires_grad
    }
    if not trainable:
        return []
    try:
        with torch.enable_grad():
            logits = outputs_of(module(probe.x.clone()))
            weights = list(trainable.values())
            found = torch.autograd.grad(
                logits.square().sum(), weights, allow_unused=True
            )
    except RuntimeError as error:  # such as an operation in place
        rule = "must be differentiable; avoid operations in place"
        return [Fault("model", rule, error_line(error))]
    unused = [
        name for name, value in zip(trainable, found, strict=True) if value is None
    ]
    if unused:
        rule = "must use all parameters; remove the unused ones"
        return [Fault("model", rule, ", ".join(unused))]
    with torch.enable_grad():
        return loss_faults(
            logits.detach().requires_grad_(), probe.y, objective, by_record=False
        )


def frozen_as_buffers(module: nn.Module) -> nn.Module:
    """The module with its frozen parameters (``requires_grad=False``) as buffers, in place."""
    for part in module.modules():
        for name, value in list(part.named_parameters(recurse=False)):
            if not value.requires_grad:
                delattr(part, name)
                part.register_buffer(name, value.detach())
    return module


def close(first: Tensor, second: Tensor) -> bool:
    """Whether two results differ by rounding only."""
    scale = max(1.0, float(second.detach().abs().max()))
    return bool((first - second).abs().max() <= _TOLERANCE * scale)


# --- The user's own ``torch.nn.Module``, validated and run by ``Modular`` or the fast kernels. ---

Factory = Callable[..., nn.Module]  # a class or function that returns a fresh module


@dataclass(frozen=True)
class OwnModel:
    """A module class with its arguments, or a module whose parameters training starts from."""

    source: (
        Factory | nn.Module
    )  # a class or function that returns a module, or a module
    arguments: Mapping[str, Any]  # keyword arguments of the class or function
    label: str  # how the user named it
    fix: bool = False  # whether group normalisation replaces batch normalisation

    def fresh(self) -> nn.Module:
        """A module with initial parameters, in training mode."""
        given = isinstance(self.source, nn.Module)
        try:
            module = (
                copy.deepcopy(self.source) if given else self.source(**self.arguments)
            )
        except (Exception, SystemExit) as error:  # the user's code can fail in any way
            rule = COPY_RULE if given else "must be built without an error"
            raise InputError.one("model", rule, error_line(error)) from None
        if not isinstance(module, nn.Module):
            rule = f"must be a torch.nn.Module or return one ({self.label})"
            raise InputError.one("model", rule, type(module).__name__)
        if faults := list(value_faults(module)):
            raise InputError(faults)
        return (
            (without_batch_norm(module) if self.fix else module).cpu().float().train()
        )

    def parameters(self) -> int:
        """Number of trainable parameters, which a plan calls ``model.parameters``."""
        return sum(
            part.numel() for part in self._seeded().parameters() if part.requires_grad
        )

    def check(self, data: Data | None) -> None:
        """Raises what ``model`` would raise, as far as it is known before a plan."""
        module = self._seeded()
        faults = list(structure_faults(module))
        if data is not None:
            dataset, _ = replace(data, client=None, group=None).prepared(())
            classes = len(dataset.classes) if data.task == MULTI_CLASS else None
            objective = objective_of(data.task, None, dataset.targets)
            faults += behaviour(module, probe_of(dataset), classes, objective).faults
        if faults:
            raise InputError(faults)

    def model(
        self,
        name: str,
        data: Dataset,
        *,
        objective: Objective = CROSS_ENTROPY,
        vectorised: bool = False,
        by_record: bool = False,
    ) -> Modular | Compiled:
        """The validated model."""
        user, again = self._seeded(), self._seeded()
        faults = list(structure_faults(user))
        pairs = zip(user.parameters(), again.parameters(), strict=True)
        if not all(torch.equal(one, other) for one, other in pairs):
            rule = "must be initialised from torch's random generator only"
            faults.append(Fault("model", rule, "other values from the same seed"))
        probe = probe_of(data)
        classes = None if data.targets is not None else len(data.classes)
        found = behaviour(user, probe, classes, objective)
        faults += found.faults
        if faults:
            raise InputError(faults)
        skeleton = frozen_as_buffers(copy.deepcopy(user))
        buffers = {key: value.clone() for key, value in skeleton.named_buffers()}
        plain = Modular(
            name, data.shape, found.outputs, lambda: copy.deepcopy(skeleton),
            start=lambda: frozen_as_buffers(self.fresh()), constants=lambda: buffers,
            channels_last=False, objective=objective, stochastic=found.stochastic,
            export=lambda: copy.deepcopy(user),
        )  # fmt: skip
        if by_record:
            logits = plain.logits(
                plain.initial(torch.Generator().manual_seed(0)), probe.x
            )
            outputs = logits.detach().requires_grad_()
            if faults := loss_faults(outputs, probe.y, objective, by_record=True):
                raise InputError(faults)
        general = _fastest(plain, skeleton, probe, vectorised=vectorised)
        if objective is not CROSS_ENTROPY or found.stochastic or buffers:
            return general
        return compiled(general, skeleton) or general

    def digest(self) -> str:
        """SHA-256 of the structure: modules, names and shapes; and of values that are fixed.

        Those are frozen parameters, buffers, and all parameters of a given module. A resumed run
        must have the same.
        """
        module = self._seeded()
        content = hashlib.sha256(repr(module).encode())
        given = isinstance(self.source, nn.Module)
        for name, value in module.named_parameters():
            content.update(f"{name}{tuple(value.shape)}".encode())
            if given or not value.requires_grad:
                content.update(_bytes(value))
        for name, buffer in module.named_buffers():
            content.update(f"{name}{tuple(buffer.shape)}".encode() + _bytes(buffer))
        return content.hexdigest()

    def _seeded(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return self.fresh()


def _bytes(value: Tensor) -> bytes:
    return value.detach().flatten().contiguous().view(torch.uint8).numpy().tobytes()


def _fastest(
    model: Modular, module: nn.Module, probe: Probe, *, vectorised: bool
) -> Modular:
    """The model in the format of images that computes the module's gradients."""
    theta = torch.cat([value.detach().flatten() for value in module.parameters()])
    labels: Tensor = probe.y
    if model.stochastic:
        labels = with_seeds(labels[None, None], torch.zeros(1, 1, dtype=torch.int64))[
            0, 0
        ]

    def gradient(tried: Modular) -> Tensor:
        packed = tried.packed_gradients(
            tried.pack(theta[None]), probe.x[None], labels[None]
        )
        return tried.unpack(packed, 1)

    try:
        expected = gradient(model)
        if vectorised:
            model.clipped_sum(theta, probe.x, labels, 1.0)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = "must work with torch.func.functional_call"
        rule += " and torch.func.vmap, which this run needs" if vectorised else ""
        raise InputError.one(
            "model", rule, error_line(error.__cause__ or error)
        ) from None
    if probe.x.ndim != 4:
        return model
    fast = replace(model, channels_last=True)
    try:
        return fast if close(gradient(fast), expected) else model
    except Exception:  # such as ``view`` of a tensor in another format
        return model
