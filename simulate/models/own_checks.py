"""Checks of a user's module: every fault at once, each with its remedy."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from privplan.errors import Fault
from simulate.data.dataset import Dataset
from simulate.data.user_code import error_line
from simulate.models.modular import outputs_of
from simulate.models.objective import Objective, fitted
from simulate.models.randomness import SeededRandomness

PROBE_RECORDS = 3  # records on which a module is tried
# Of a group normalisation for a batch normalisation (Wu and He 2018).
MAX_GROUPS = 32
COPY_RULE = (
    "must be copied by copy.deepcopy; keep locks, files and computed tensors out of it"
)
# Largest relative difference between equal computations in another order, in float32.
_TOLERANCE = 1e-4


class Probe(NamedTuple):
    """Records on which a module is tried: model inputs [B, ...] and labels [B]."""

    x: Tensor
    y: Tensor


class Behaviour(NamedTuple):
    """What a module does with records.

    Attributes:
        outputs: size of the last dimension of its outputs.
        stochastic: whether it draws random numbers in training.
        faults: that were seen.
    """

    outputs: int
    stochastic: bool
    faults: list[Fault]


def probe_of(data: Dataset) -> Probe:
    """Records of the data's shape: token ids of the data, otherwise random values.

    Codes are 0, and in the second record the largest, which an embedding must have.
    """
    rows = torch.arange(PROBE_RECORDS) % len(data.train_y)
    if data.kind == "tokens":
        inputs = data.inputs(data.train_x[rows])
    else:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(PROBE_RECORDS, *data.shape, generator=generator)
    for place in data.codes:
        records = torch.cat([data.train_x[:, place], data.test_x[:, place]])
        inputs[:, place] = 0
        inputs[1, place] = records.max()
    return Probe(inputs, data.train_y[rows])


def without_batch_norm(module: nn.Module) -> nn.Module:
    """The module with group normalisation in place of batch normalisation.

    The number of groups is the largest divisor of the channels up to ``MAX_GROUPS``
    that leaves two channels or more in a group, so that records without spatial
    dimensions can be normalised. Scale and shift keep their values.
    """
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        channels = module.num_features
        groups = max(1, min(MAX_GROUPS, channels // 2))
        while channels % groups:
            groups -= 1
        norm = nn.GroupNorm(groups, channels, eps=module.eps, affine=module.affine)
        if module.affine:
            norm.weight = module.weight
            norm.bias = module.bias
        return norm
    for name, part in module.named_children():
        mended = without_batch_norm(part)
        if mended is not part:
            setattr(module, name, mended)
    return module


def value_faults(module: nn.Module) -> Iterator[Fault]:
    """Parameters and buffers without real values, of which no more can be asked."""
    names_by_rule: dict[str, list[str]] = {}
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(value):
            rule = (
                "must give the input sizes of its lazy modules, or call them once on a "
                "record"
            )
        elif value.is_meta:
            rule = "must have values, not be on torch's meta device"
        elif value.is_complex() and value.requires_grad:
            rule = "must have real parameters, not complex ones"
        else:
            continue
        names_by_rule.setdefault(rule, []).append(name)
    for rule, names in names_by_rule.items():
        yield Fault("model", rule, ", ".join(names))


def structure_faults(module: nn.Module) -> Iterator[Fault]:
    """Faults that the module's parts show without being run."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            rule = (
                "must have no batch normalisation, which mixes records; use nn.GroupNorm "
                "(--fix)"
            )
            yield Fault("model", rule, f"{type(part).__name__} {name or 'itself'}")
    parameters = dict(module.named_parameters())
    if not parameters:
        yield Fault("model", "must have parameters", 0)
    elif not any(value.requires_grad for value in parameters.values()):
        rule = "must have trainable parameters; set requires_grad"
        yield Fault("model", rule, "all frozen")
    # A tied parameter has a second name, by which it is not listed without duplicates.
    tied = [
        name
        for name, value in module.named_parameters(remove_duplicate=False)
        if value.requires_grad and name not in parameters
    ]
    if tied:
        rule = "must have no tied parameters; give each its own"
        yield Fault("model", rule, ", ".join(tied))


class _Trial(NamedTuple):
    """What a module gave for the records of a probe.

    Attributes:
        trained: outputs in training, with a seed.
        repeated: the same again.
        evaluated: outputs in evaluation.
        single: the same, record by record.
        changed_buffers: names of those that training changed.
        keeps_inputs: whether it left its inputs as they were.
    """

    trained: Any
    repeated: Any
    evaluated: Any
    single: list[Any]
    changed_buffers: list[str]
    keeps_inputs: bool


def _tried(module: nn.Module, x: Tensor) -> _Trial:
    """Run a module in training and evaluation; raise what the user's code raises."""

    def seeded() -> Any:
        with SeededRandomness(0):
            return outputs_of(module(x.clone()))

    before = [value.clone() for value in module.buffers()]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module.train()
        trained = seeded()
        repeated = seeded()
        changed = [
            name
            for (name, value), old in zip(module.named_buffers(), before, strict=True)
            if not torch.equal(value, old)
        ]
        inputs = x.clone()
        evaluated = outputs_of(module.eval()(inputs))
        single = [outputs_of(module(x[row : row + 1].clone())) for row in range(len(x))]
    is_kept = torch.equal(inputs, x)
    return _Trial(trained, repeated, evaluated, single, changed, is_kept)


def behaviour(
    module: nn.Module, probe: Probe, classes: int | None, objective: Objective
) -> Behaviour:
    """What a forward and a backward pass show.

    Args:
        module: of the user, which stays as it is.
        probe: records on which it is tried.
        classes: of the task; None for a task without.
        objective: the loss.
    """
    try:
        module = copy.deepcopy(module)
    except Exception as error:
        # Such as a lock, or a tensor that was computed from parameters.
        return Behaviour(0, False, [Fault("model", COPY_RULE, error_line(error))])
    try:
        trial = _tried(module, probe.x)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        shape = "x".join(map(str, probe.x.shape[1:]))
        rule = f"must take records of shape {shape} (after the batch dimension)"
        if isinstance(error, IndexError):
            # An embedding has no row for a code, or for a number that is none.
            largest = float(probe.x.max())
            rule += f" with numbers up to {largest:.6g}; --codes names columns of codes"
        return Behaviour(0, False, [Fault("model", rule, error_line(error))])
    outputs = trial.evaluated
    fault = _shape_fault(outputs, probe, classes, objective)
    if fault is not None:
        return Behaviour(0, False, [fault])
    faults = list(_trial_faults(trial))
    faults += _gradient_faults(module, probe, objective)
    is_stochastic = not trial.changed_buffers and not close(trial.trained, outputs)
    return Behaviour(int(outputs.shape[-1]), is_stochastic, faults)


def _trial_faults(trial: _Trial) -> Iterator[Fault]:
    """Outputs that depend on more than the record and the seed."""
    if trial.changed_buffers:
        rule = (
            "must have no buffers that training changes: they would leave clients "
            "without noise"
        )
        yield Fault("model", rule, ", ".join(trial.changed_buffers))
    elif not close(trial.trained, trial.repeated):
        rule = "must draw random numbers with torch only, so that a run can be resumed"
        yield Fault("model", rule, "other outputs from the same seed")
    if not trial.keeps_inputs:
        rule = (
            "must not change its inputs in place; set inplace=False in its first layers"
        )
        yield Fault("model", rule, "changed records")
    if not close(torch.cat(trial.single), trial.evaluated):
        rule = "must compute a record's outputs from that record only"
        yield Fault("model", rule, "outputs that depend on the batch")


def _shape_fault(
    logits: Any, probe: Probe, classes: int | None, objective: Objective
) -> Fault | None:
    """The fault of outputs that do not fit the task; None when they do."""
    count = len(probe.y)
    if not isinstance(logits, Tensor):
        rule = f"must return a tensor of {count} rows for {count} records"
        return Fault("model", rule, type(logits).__name__)
    targets = objective.targets_of(probe.y)
    if classes is not None:
        rule = (
            f"must return logits of shape ({count}, {classes}) for {count} records, as "
            f"labels go from 0 to {classes - 1}"
        )
        fits = logits.ndim == 2 and len(logits) == count and logits.shape[1] >= classes
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
    if fits:
        return None
    return Fault("model", rule, tuple(logits.shape))


def loss_faults(
    outputs: Tensor, y: Tensor, objective: Objective, *, by_record: bool
) -> list[Fault]:
    """Faults of the loss on outputs of records.

    Args:
        outputs: of the model [B, ...], with gradient.
        y: labels [B].
        objective: the loss.
        by_record: whether records are protected, each by its own gradient.
    """
    try:
        loss = objective(outputs, y)
        if not isinstance(loss, Tensor) or loss.ndim:
            rule = "must return a scalar tensor, the mean over the records"
            is_tensor = isinstance(loss, Tensor)
            value = tuple(loss.shape) if is_tensor else type(loss).__name__
            return [Fault("loss", rule, value)]
        losses = [
            float(objective(outputs[row : row + 1], y[row : row + 1]).detach())
            for row in range(len(y))
        ]
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = "must take outputs and targets without an error"
        return [Fault("loss", rule, error_line(error))]
    if not loss.requires_grad:
        return [Fault("loss", "must be differentiable in the outputs", "no gradient")]
    whole = float(loss.detach())
    mean = sum(losses) / len(losses)
    if not math.isfinite(whole):
        return [Fault("loss", "must be finite on the first records", whole)]
    if by_record and abs(mean - whole) > _TOLERANCE * max(1.0, abs(mean)):
        rule = "must be the mean of the losses of single records where records are protected"
        return [Fault("loss", rule, f"{whole:.6g} and a mean of {mean:.6g}")]
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
            gradients = torch.autograd.grad(
                logits.square().sum(), list(trainable.values()), allow_unused=True
            )
    except RuntimeError as error:  # such as an operation in place
        rule = "must be differentiable; avoid operations in place"
        return [Fault("model", rule, error_line(error))]
    unused = [
        name
        for name, gradient in zip(trainable, gradients, strict=True)
        if gradient is None
    ]
    if unused:
        rule = "must use all parameters; remove the unused ones"
        return [Fault("model", rule, ", ".join(unused))]
    with torch.enable_grad():
        return loss_faults(
            logits.detach().requires_grad_(), probe.y, objective, by_record=False
        )


def close(first: Tensor, second: Tensor) -> bool:
    """Whether two results differ by rounding only."""
    scale = max(1.0, float(second.detach().abs().max()))
    return bool((first - second).abs().max() <= _TOLERANCE * scale)
