"""Checks of a user's module: every fault at once, each with its remedy."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from privplan.errors import Fault
from simulate.data.dataset import Dataset
from simulate.data.own_arrays import named_classes_hint
from simulate.data.user_code import error_line
from simulate.models.modular import outputs_of
from simulate.models.objective import Objective, fitted
from simulate.models.randomness import SeededRandomness

# Of a group normalisation for a batch normalisation (Wu and He 2018).
MAX_GROUPS = 32
COPY_RULE = (
    "must be copied by copy.deepcopy; keep locks, files and computed tensors out of it"
)
# Largest relative difference between equal computations in another order, in float32.
_TOLERANCE = 1e-4


class Probe(NamedTuple):
    """Constants on which a module is tried, instead of anybody's records.

    Attributes:
        x: model inputs [3, ...].
        y: labels [3].
        objective: the loss, with constant targets.
    """

    x: Tensor
    y: Tensor
    objective: Objective


class Behaviour(NamedTuple):
    """What a module does with records.

    Attributes:
        outputs: size of the last dimension of its outputs.
        stochastic: whether it draws random numbers in training.
        faults: that were seen.
        normalised: whether its outputs are probabilities, as of a softmax.
    """

    outputs: int
    stochastic: bool
    faults: list[Fault]
    normalised: bool = False


def probe_of(data: Dataset, objective: Objective) -> Probe:
    """Three made-up records of the data's shape, which are the same for any values.

    One client's records would otherwise decide how all others are trained. Tokens are
    1 and then 0, which pads many texts: 0 in a quarter, a half and three quarters.
    Codes are 0 and 1, which every embedding has; all other inputs are random.
    """
    rows = torch.arange(3)
    if data.kind == "tokens":
        size = math.prod(data.shape)
        lengths = size * (3 - rows[:, None]) / 4
        inputs = (torch.arange(size) < lengths).long().view(-1, *data.shape)
    else:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(len(rows), *data.shape, generator=generator)
    for place in data.codes:
        inputs[:, place] = rows % 2
    if objective.targets is None:
        # The number of classes may be read from labels, but is 2 or more then.
        return Probe(inputs, rows % min(2, len(data.classes)), objective)
    # Of all kinds of targets, a loss is finite at 1.
    targets = objective.targets.new_ones(len(rows), *objective.targets.shape[1:])
    return Probe(inputs, rows, replace(objective, targets=targets))


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
    for name, child in module.named_children():
        setattr(module, name, without_batch_norm(child))
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
        elif value.layout != torch.strided or value.is_quantized:
            rule = "must have dense values, neither sparse nor quantized ones"
        elif value.isnan().any():
            rule = "must have no NaN among its values, which equals nothing"
        else:
            continue
        names_by_rule.setdefault(rule, []).append(name)
    for rule, names in names_by_rule.items():
        yield Fault("model", rule, ", ".join(names))


def structure_faults(module: nn.Module) -> Iterator[Fault]:
    """Faults that the module's parts show without being run."""
    for name, submodule in module.named_modules():
        if isinstance(submodule, nn.modules.batchnorm._BatchNorm):
            rule = (
                "must have no batch normalisation, which mixes records; use nn.GroupNorm "
                "(--fix)"
            )
            yield Fault("model", rule, f"{type(submodule).__name__} {name or 'itself'}")
    parameters = dict(module.named_parameters())
    empty = [name for name, value in parameters.items() if not value.numel()]
    if empty:
        yield Fault("model", "must have no parameter of size 0", ", ".join(empty))
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


def _has_dropout(module: nn.Module) -> bool:
    """Whether a part drops values, also where an input or a branch would hide it.

    The probability is called ``p``, or something with ``drop`` in attention and others.
    """
    for submodule in module.modules():
        for name, value in vars(submodule).items():
            is_named = "drop" in name or name == "p"
            if is_named and isinstance(value, float) and 0 < value <= 1:
                return True
    return False


def _is_stochastic(module: nn.Module, x: Tensor, outputs: Tensor) -> bool:
    """Whether training differs from evaluation, or draws random numbers.

    Args:
        module: that is tried.
        x: its inputs.
        outputs: in evaluation, which may be the same where draws enter as 0.
    """
    process = torch.default_generator.get_state()
    trained = outputs_of(module.train()(x.clone()))
    has_drawn = not torch.equal(process, torch.default_generator.get_state())
    return has_drawn or _has_dropout(module) or not close(trained, outputs)


def behaviour(
    module: nn.Module, probe: Probe, data: Dataset, *, by_record: bool
) -> Behaviour:
    """What a forward and a backward pass show, which no values of records change.

    Records decide only whether there is a fault: numbers that the module cannot take.

    Args:
        module: of the user, which stays as it is.
        probe: constants on which it is tried.
        data: of the run.
        by_record: whether records are protected, each by its own gradient.
    """
    try:
        module = copy.deepcopy(module)
    except Exception as error:
        # Such as a lock, or a tensor that was computed from parameters.
        return Behaviour(0, False, [Fault("model", COPY_RULE, error_line(error))])
    state_before = _state_of(module)
    try:
        with torch.random.fork_rng(devices=[]):
            outputs = outputs_of(module.eval()(probe.x.clone()))
            fault = _shape_fault(outputs, probe, data)
            if fault is not None:
                return Behaviour(0, False, [fault])
            is_stochastic = _is_stochastic(module, probe.x, outputs)
            faults = list(_training_faults(module, probe.x))
            faults += _evaluation_faults(module.eval(), probe.x)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        shape = "x".join(map(str, probe.x.shape[1:]))
        rule = f"must take records of shape {shape} (after the batch dimension)"
        if probe.x.dtype == torch.int64:
            rule += (
                ", whole numbers, which are codes of an embedding (int64); of other "
                "whole numbers give x.astype(numpy.float32)"
            )
        if isinstance(error, IndexError):
            # An embedding has no row for 1, or for a number that is no code.
            rule += "; --codes names columns of codes"
        return Behaviour(0, False, [Fault("model", rule, error_line(error))])
    kept_by_calls = _differing(state_before, _state_of(module))
    if kept_by_calls:
        rule = "must keep nothing between calls, which would tell of other records"
        faults.append(Fault("model", rule, ", ".join(kept_by_calls)))
    faults += _gradient_faults(module, probe, by_record=by_record)
    if data.kind == "tokens" or data.codes:
        faults += _range_faults(module, probe.x[:1].clone(), data)
    sums = outputs.sum(-1)
    is_normalised = bool((outputs >= 0).all()) and close(sums, torch.ones_like(sums))
    return Behaviour(int(outputs.shape[-1]), is_stochastic, faults, is_normalised)


def _range_faults(module: nn.Module, record: Tensor, data: Dataset) -> Iterator[Fault]:
    """A number of a record beyond the module's tables, which a refusal reveals.

    Args:
        module: that takes the record.
        record: a made-up one [1, ...], which receives the largest numbers.
        data: the records.
    """
    places = list(data.codes) or slice(None)
    largest = torch.maximum(data.train_x.amax(0), data.test_x.amax(0))[places]
    record[0, places] = largest.to(record.dtype)
    try:
        module(record)
    except IndexError as error:
        rule = (
            f"must take numbers up to {float(largest.max()):.6g}, which a record has; "
            "whoever sees this refusal knows so"
        )
        yield Fault("model", rule, error_line(error))
    except Exception:  # no fault: perhaps no record has all the largest numbers
        return


def _training_faults(module: nn.Module, x: Tensor) -> Iterator[Fault]:
    """Outputs in training that depend on more than records and seed."""

    def seeded() -> Tensor:
        with SeededRandomness(0):
            return outputs_of(module(x.clone()))

    before = copy.deepcopy(dict(module.named_buffers()))
    process = torch.default_generator.get_state()
    is_repeated = close(seeded(), seeded())
    # Such as of an operation that takes no generator.
    has_drawn = not torch.equal(process, torch.default_generator.get_state())
    changed = [
        name
        for name, value in module.named_buffers()
        if not torch.equal(value, before[name])
    ]
    if changed:
        rule = (
            "must have no buffers that training changes: they would leave clients "
            "without noise"
        )
        yield Fault("model", rule, ", ".join(changed))
    elif has_drawn or not is_repeated:
        rule = "must draw random numbers with torch only, so that a run can be resumed"
        yield Fault("model", rule, "other outputs from the same seed")


_OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has: parameters, buffers, parts, hooks and its mode."""


def _state_of(module: nn.Module) -> dict[str, Any]:
    """Copies of the plain attributes of a module's parts, by name.

    Plain are numbers, texts, tensors, and lists, tuples and tables of them.
    """
    state: dict[str, Any] = {}
    for part_name, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in _OF_TORCH:
                state[f"{part_name}.{name}".lstrip(".")] = _plain(value, {})
    return state


def _plain(value: Any, met: dict[int, int]) -> Any:
    """A plain value as text or nested lists, tensors hashed; None of another object.

    Args:
        value: of an attribute, or within one.
        met: identities of the lists, tuples and tables so far to their number, which
            stands for one that is met again, such as within itself.
    """
    if isinstance(value, Tensor) and (value.is_meta or value.layout != torch.strided):
        return None
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return hashlib.sha256(content.numpy().tobytes()).hexdigest()
    if isinstance(value, (dict, list, tuple)):
        if id(value) in met:
            return met[id(value)]
        met[id(value)] = len(met)
        items = [*value, *value.values()] if isinstance(value, dict) else value
        return [_plain(item, met) for item in items]
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    return None


def _differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what two states do not have alike."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))


def _evaluation_faults(module: nn.Module, x: Tensor) -> Iterator[Fault]:
    """Outputs in evaluation that depend on more than the record."""
    inputs = x.clone()
    outputs = outputs_of(module(inputs))
    if not torch.equal(inputs, x):
        rule = (
            "must not change its inputs in place; set inplace=False in its first layers"
        )
        yield Fault("model", rule, "changed records")
    single = [outputs_of(module(record[None].clone())) for record in x]
    if not close(torch.cat(single), outputs):
        rule = "must compute a record's outputs from that record only"
        yield Fault("model", rule, "outputs that depend on the batch")


def _shape_fault(logits: Any, probe: Probe, data: Dataset) -> Fault | None:
    """The fault of outputs that do not fit the task; None when they do."""
    count = len(probe.y)
    rule = f"must return a tensor of {count} rows for {count} records"
    if not isinstance(logits, Tensor):
        return Fault("model", rule, type(logits).__name__)
    targets = probe.objective.targets_of(probe.y)
    if data.targets is None:
        classes = len(data.classes)
        rule = (
            f"must return logits of shape ({count}, {classes}) for {count} records, as "
            f"labels go from 0 to {classes - 1}"
        )
        fits = logits.ndim == 2 and len(logits) == count and logits.shape[1] >= classes
        labels = {*data.train_y.tolist(), *data.test_y.tolist()}
        rule += named_classes_hint(sorted(labels))
        if logits.shape[1:] == (1,):
            rule += "; one logit is for --task binary (task='binary')"
    elif targets.is_floating_point():
        rule = (
            f"must return outputs of shape {tuple(targets.shape)} for {count} records"
        )
        fits = fitted(logits, targets).shape == targets.shape
    elif targets.ndim == 2:
        rule = f"must return logits of shape ({count}, {targets.shape[1]}, tokens)"
        fits = logits.shape[:2] == targets.shape
    else:
        fits = logits.shape[:1] == (count,)
    if fits:
        return None
    return Fault("model", rule, tuple(logits.shape))


def _loss_faults(outputs: Tensor, probe: Probe, *, by_record: bool) -> list[Fault]:
    """Faults of the loss on outputs of made-up records.

    Args:
        outputs: of the model [B, ...], with gradient.
        probe: the records, with the loss.
        by_record: whether records are protected, each by its own gradient.
    """
    y = probe.y
    objective = probe.objective
    process = torch.default_generator.get_state()
    try:
        loss = objective(outputs, y)
        if not isinstance(loss, Tensor) or loss.ndim:
            rule = "must return a scalar tensor, the mean over the records"
            is_tensor = isinstance(loss, Tensor)
            value = tuple(loss.shape) if is_tensor else type(loss).__name__
            return [Fault("loss", rule, value)]
        losses = [
            float(objective(*record).detach())
            for record in zip(outputs[:, None], y[:, None], strict=True)
        ]
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = "must take outputs and targets without an error"
        return [Fault("loss", rule, error_line(error))]
    if not loss.requires_grad:
        return [Fault("loss", "must be differentiable in the outputs", "no gradient")]
    batch_loss = float(loss.detach())
    if not math.isfinite(batch_loss):
        return [Fault("loss", "must be finite on made-up records", batch_loss)]
    # Records of one client would else decide what the losses of others draw.
    has_drawn = not torch.equal(process, torch.default_generator.get_state())
    if has_drawn or not torch.equal(loss, objective(outputs, y)):
        rule = "must give the same loss each time, without random numbers"
        return [Fault("loss", rule, batch_loss)]
    mean = sum(losses) / len(losses)
    if by_record and abs(mean - batch_loss) > _TOLERANCE * max(1.0, abs(mean)):
        rule = "must be the mean of the losses of single records where records are protected"
        return [Fault("loss", rule, f"{batch_loss:.6g} and a mean of {mean:.6g}")]
    return []


def _gradient_faults(
    module: nn.Module, probe: Probe, *, by_record: bool
) -> list[Fault]:
    """Parameters without a gradient, and a backward pass that fails."""
    trainable = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }
    if not trainable:
        return []

    def gradients_of(x: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Outputs of records, and gradients of their squares' sum by parameter."""
        with torch.enable_grad():
            outputs = outputs_of(module(x.clone()))
            parameters = list(trainable.values())
            slopes = torch.autograd.grad(
                outputs.square().sum(), parameters, allow_unused=True
            )
        return outputs, slopes

    try:
        logits, gradients = gradients_of(probe.x)
        of_records = [gradients_of(record[None])[1] for record in probe.x]
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
    # Mini-batches are filled up to equal sizes by records that enter no loss.
    batch_dependent = []
    for name, gradient, *singles in zip(trainable, gradients, *of_records, strict=True):
        if gradient is not None and not close(_total(singles), gradient):
            batch_dependent.append(name)
    if batch_dependent:
        rule = (
            "must compute a record's gradient from that record only, in float32 and not "
            "scaled by counts in its batch"
        )
        return [Fault("model", rule, ", ".join(batch_dependent))]
    with torch.enable_grad():
        outputs = logits.detach().requires_grad_()
        return _loss_faults(outputs, probe, by_record=by_record)


def _total(gradients: Sequence[Tensor | None]) -> Tensor:
    """The sum of gradients by one parameter; None stands for 0."""
    present = [gradient for gradient in gradients if gradient is not None]
    return torch.stack(present).sum(0) if present else torch.zeros(())


def close(result: Tensor, reference: Tensor) -> bool:
    """Whether two results differ by rounding only."""
    scale = max(1.0, float(reference.detach().abs().max()))
    return bool((result - reference).abs().max() <= _TOLERANCE * scale)
