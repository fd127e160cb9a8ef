"""A trial on made-up records: whether a module gives each a gradient of its own.

Opacus takes the first dimension of whatever enters a layer for the records, and clips
row by row. The guarantee is that of the plan only where one record moves one row. It
does not where a module mixes the records of a batch, or where a layer inside it takes
another dimension first, such as time, or another order of the records.

So a copy is tried on pairs of batches, whose first records are the same and the others
not. The first rows of the outputs and of each parameter's gradients must be the same;
rows are as many as records. And a copy that saw one batch must give for the other one
what a fresh copy gives. The values tell of nobody.
"""

import copy
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule

from privplan.errors import InputError

# Difference of two numbers that differ by rounding only, in single precision.
_SAME = 1e-4
# Records of a small and a large batch: no other dimension is both long.
_SMALL = 2
_LARGE = 5
# First records of both of a pair of large batches.
_COMMON = 2
# Made-up records: those in common, and three more of either batch.
_MADE_UP = 2 * _LARGE - _COMMON
# Pairs of large batches: an order of the records can be the same in both by chance.
_PAIRS = 2
# Of a module that draws: one that mixes records may do so in some of its calls only.
_PAIRS_OF_DRAWS = 8
# Of an output's sum, by normal numbers added to weights: those of a last layer often
# start at zero. Much larger sums saturate what follows, whose gradients vanish.
_PERTURBATION = 0.5


Call = tuple[Any, ...] | dict[str, Any]
"""What a module is called with, by position or by name: tensors whose first dimension is
the records."""


@dataclass(frozen=True)
class Answer:
    """What a module gave for a batch."""

    outputs: Any
    # Gradients of each parameter of the first two records [2, ...].
    gradients: Mapping[str, torch.Tensor]


def refuse_mixed_records(
    module: torch.nn.Module, sample: Any, examples: Call | None = None
) -> None:
    """Refuse a module in which one record moves what another one gives.

    Args:
        module: in the mode in which it trains.
        sample: a batch of the data set, for structure, shapes and types: each way to
            call the module that it suggests is tried.
        examples: the arguments that the module is called with instead, as a tuple or by
            name as a dict, of 8 made-up records or more.

    Raises:
        InputError: when it mixes records, cannot be copied, or cannot be tried.
    """
    calls: Iterable[list[Call]] = _suggested(module, sample)
    if examples is not None:
        calls = [[_checked(examples)]]
    parameter = next(module.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    devices = [] if device.type == "cpu" else [device]
    refusals = []
    with (
        torch.random.fork_rng(devices, device_type=device.type),
        warnings.catch_warnings(),
    ):
        # Opacus' hooks warn where inputs have no gradients, which is no fault here.
        warnings.simplefilter("ignore")
        trial = _with_other_weights(module)
        was_tried = False
        for variants in calls:
            for call in variants:
                try:
                    _try(trial, _changed(call, lambda tensor: tensor.to(device)))
                except _NotTakenError as error:
                    refusals.append(str(error))
                else:
                    was_tried = True
                    break
    if not was_tried:
        rule = (
            "must take inputs like the data set's, so that it can be tried; else give "
            f"examples=, what it is called with, of {_MADE_UP} made-up records"
        )
        raise InputError.one("module", rule, refusals[0] if refusals else "none")


def with_sample_gradients(
    module: torch.nn.Module, loss_reduction: str = "mean"
) -> GradSampleModule:
    """The module as Opacus trains it, which computes a gradient for each record.

    Args:
        module: that is trained.
        loss_reduction: how losses of records make that of a batch: mean or sum.
    """
    try:
        return GradSampleModule(module, loss_reduction=loss_reduction)
    except (ValueError, NotImplementedError) as error:
        rule = "must be one that Opacus takes, and that is not private already"
        raise InputError.one("module", rule, str(error)) from None


class _NotTakenError(Exception):
    """A module does not take the call."""


def _with_other_weights(module: torch.nn.Module) -> torch.nn.Module:
    """A copy with weights moved at random."""
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            rule = "must have parameters of known sizes; call it once before"
            raise InputError.one("module", rule, name)
    try:
        trial = copy.deepcopy(module)
    except Exception as error:
        rule = "must be copyable, since a copy is tried on made-up records"
        raise InputError.one("module", rule, str(error)) from None
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in trial.parameters():
            summands = weights.numel() / max(1, len(weights)) if weights.ndim else 1
            step = _PERTURBATION / math.sqrt(10 + summands)
            weights.add_(torch.randn_like(weights), alpha=step)
    return trial


def _checked(examples: Call) -> Call:
    """The arguments that a user gives, of enough records."""
    sizes = {argument.shape[:1].numel() for argument in _tensors(examples)}
    is_call = isinstance(examples, (tuple, dict))
    if not is_call or len(sizes) != 1 or min(sizes) < _MADE_UP:
        rule = (
            f"must be a tuple or dict of tensors of the same {_MADE_UP} records or more"
        )
        raise InputError.one("examples", rule, type(examples).__name__)
    return examples


def _suggested(module: torch.nn.Module, sample: Any) -> Iterator[list[Call]]:
    """The calls of a module that a data set's batch suggests.

    Yields:
        Variants of a call, the likeliest first: loops often change what a loader gives.
    """
    arguments = inspect.signature(module.forward).parameters
    for call in _calls(sample, arguments):
        made_up = _changed(call, _made_up)
        narrow = _changed(made_up, _narrowed)
        positive = _changed(made_up, lambda tensor: tensor.abs() + 0.1)
        numbers = _changed(made_up, lambda tensor: tensor.real.float())
        vectors = _changed(numbers, lambda tensor: tensor.reshape(_MADE_UP, -1))
        yield [made_up, narrow, positive, numbers, vectors]


def _calls(sample: Any, arguments: Mapping[str, inspect.Parameter]) -> Iterator[Call]:
    """The calls that the structure of a batch suggests.

    Args:
        sample: the batch.
        arguments: the module's.
    """
    if torch.is_tensor(sample):
        yield (sample,)
    elif isinstance(sample, dict):
        takes_all = any(
            argument.kind == argument.VAR_KEYWORD for argument in arguments.values()
        )
        yield {
            name: part
            for name, part in sample.items()
            if takes_all or name in arguments
        }
        yield (sample,)
        for part in sample.values():
            yield from _calls(part, arguments)
    elif isinstance(sample, (list, tuple)) and sample:
        yield from _calls(sample[0], arguments)
        if isinstance(sample[0], (list, tuple)):  # several inputs beside the labels
            yield tuple(sample[0])
        if len(sample) > 2:  # all but the labels
            yield tuple(sample[:-1])
        if all(argument.default is argument.empty for argument in arguments.values()):
            yield tuple(sample)  # none of which is taken for an option


def _made_up(like: torch.Tensor) -> torch.Tensor:
    """Records [8, ...] of a shape and type: normal numbers, or codes.

    Each record has larger numbers than those before it. Codes go up to its own largest
    one; sequences of them begin there and end in zeros, as padded ones do.
    """
    source = torch.Generator().manual_seed(0)
    shape = (_MADE_UP, *like.shape[1:])
    if like.is_floating_point() or like.is_complex():
        numbers = torch.randn(shape, generator=source, dtype=like.dtype)
        sizes = torch.linspace(0.2, 2.0, _MADE_UP).to(like.dtype)
        return numbers * sizes.view(_MADE_UP, *[1] * (like.ndim - 1))
    codes = torch.zeros(shape, dtype=torch.int64)
    for record, codes_of_record in enumerate(codes):
        largest = 1 + record
        of_record = torch.randint(0, 1 + largest, shape[1:], generator=source)
        if of_record.ndim == 0:
            of_record.fill_(largest)
        else:
            of_record[0] = largest
            of_record[largest:] = 0
        codes_of_record.copy_(of_record)
    return codes.to(like.dtype)


def _narrowed(codes: torch.Tensor) -> torch.Tensor:
    """Codes of which every table has two: 0 and 1; other numbers as they are."""
    if codes.is_floating_point() or codes.is_complex():
        return codes
    return (codes != 0).to(codes.dtype)


def _try(trial: torch.nn.Module, records: Call) -> None:
    """Refuse a module that mixes records, takes others first, or keeps what it saw.

    Args:
        trial: the module.
        records: a call with at least 8.

    Raises:
        InputError: when it does.
        _NotTakenError: when it does not take such a call.
    """
    answer = _answer(trial, records, 0, list(range(_SMALL)))
    has_small_rows = _has_rows(answer.outputs, _SMALL)
    for seed in range(_PAIRS_OF_DRAWS):
        # The largest record is in one of both batches.
        order = np.random.default_rng(seed).permutation(_MADE_UP - 1).tolist()
        batch = order[:_LARGE]
        neighbour = [*batch[:_COMMON], *order[_LARGE:], _MADE_UP - 1]
        answer = _answer(trial, records, seed, batch)
        has_drawn = not torch.equal(torch.get_rng_state(), _state_of(seed))
        # Of other outputs nothing tells which rows are the records.
        has_rows = has_small_rows and _has_rows(answer.outputs, _LARGE)
        _compare(answer, _answer(trial, records, seed, neighbour), has_rows)
        if seed == 0:
            after_neighbour = _answer(trial, records, seed, neighbour, batch)
            _compare(answer, after_neighbour, has_rows)
        if not has_drawn and seed + 1 == _PAIRS:
            break
    if answer.gradients and not _largest(answer.gradients.values()):
        raise _NotTakenError("gradients that are all 0")


def _state_of(seed: int) -> torch.Tensor:
    """The state of a generator of random numbers that drew none after a seed."""
    return torch.Generator().manual_seed(seed).get_state()


def _has_rows(outputs: Any, size: int) -> bool:
    """Whether outputs are one tensor with as many rows."""
    return torch.is_tensor(outputs) and outputs.shape[:1] == (size,)


def _answer(
    trial: torch.nn.Module, records: Call, seed: int, *batches: Sequence[int]
) -> Answer:
    """Outputs, and gradients as Opacus takes them, of a fresh copy.

    Args:
        trial: the module.
        records: a call.
        seed: of its draws for each batch, such as those of dropout.
        batches: places of the records of one batch after the other; the answer is that
            to the last.
    """
    probe = with_sample_gradients(copy.deepcopy(trial))
    try:
        for places in batches:
            torch.manual_seed(seed)
            for parameter in probe.parameters():
                parameter.grad_sample = None
            batch = _changed(records, itemgetter(list(places)))
            with torch.enable_grad():
                outputs = probe(**batch) if isinstance(batch, dict) else probe(*batch)
                total = _weighted_sum(outputs)
                if total.requires_grad:
                    total.backward()  # type: ignore[no-untyped-call]
        all_rows = {
            name: parameter.grad_sample
            for name, parameter in probe._module.named_parameters()
            if torch.is_tensor(getattr(parameter, "grad_sample", None))
        }
    except Exception as error:  # the user's code can fail in any way
        reason = str(error).partition("\n")[0]
        raise _NotTakenError(f"{type(error).__name__}: {reason}") from None
    finally:
        # Its hooks refer to it, so that it would wait for the collector of cycles.
        probe.to_standard_module()
    gradients = {}
    for name, rows in all_rows.items():
        _require_records(name, rows, len(batches[-1]))
        if not rows.isfinite().all():
            raise _NotTakenError("gradients that are not finite")
        gradients[name] = rows[:_COMMON].clone()
    return Answer(outputs, gradients)


def _weighted_sum(outputs: Any) -> torch.Tensor:
    """A sum of all outputs, in which no two have a term together.

    Weights differ, so that the gradients of outputs which add up to 1 do not vanish.
    """
    total = torch.zeros(())
    for tensor in _tensors(outputs):
        if tensor.is_floating_point() and tensor.requires_grad:
            weights = torch.cos(torch.arange(tensor.numel(), device=tensor.device))
            total = total.to(tensor.device) + (tensor.reshape(-1) * weights).sum()
    return total


def _require_records(name: str, rows: torch.Tensor, size: int) -> None:
    """Refuse gradients of a parameter whose rows are others than a batch's records."""
    if len(rows) != size:
        rule = (
            "must have a row of gradients for each record: layers take records as "
            "their first dimension (batch_first), positions are looked up for each"
        )
        count = f"{len(rows)} of {size} in a trial, at {name}"
        raise InputError.one("module", rule, count)


def _compare(answer: Answer, other_answer: Answer, has_rows: bool) -> None:
    """Refuse rows of the same records that differ.

    Args:
        answer: to a batch.
        other_answer: to another one, or of a copy that saw another one before.
        has_rows: whether rows of the outputs are the records.
    """
    if has_rows:
        rows = answer.outputs[:_COMMON]
        reference = other_answer.outputs[:_COMMON]
        if not _is_same(rows, reference, _largest([answer.outputs])):
            rule = "must compute a record's outputs from that record only"
            text = (
                "outputs that depend on the batch, on one before it, or on random "
                "numbers not of torch"
            )
            raise InputError.one("module", rule, text)
    # Gradients that vanish, as before a normalisation, are rounding of the others.
    scale = _largest(answer.gradients.values())
    for name, rows in answer.gradients.items():
        if not _is_same(rows, other_answer.gradients[name], scale):
            rule = "must compute a record's gradient from that record only"
            text = f"{name}, whose gradients depend on the batch or on one before it"
            raise InputError.one("module", rule, text)


def _largest(tensors: Iterable[torch.Tensor]) -> float:
    """The largest number in tensors, by magnitude; 0 where there is none."""
    sizes = [
        float(tensor.detach().nan_to_num(0, 0, 0).abs().max())
        for tensor in tensors
        if tensor.numel()
    ]
    return max(sizes, default=0.0)


def _is_same(rows: torch.Tensor, reference: torch.Tensor, scale: float) -> bool:
    """Whether rows differ by rounding only, of numbers up to a scale."""
    if rows.shape != reference.shape:
        return False
    return torch.allclose(rows, reference, rtol=0, atol=_SAME * scale, equal_nan=True)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """The tensors in values of any structure."""
    if torch.is_tensor(values):
        yield values
    elif isinstance(values, Mapping):
        for part in values.values():
            yield from _tensors(part)
    elif isinstance(values, (list, tuple)):
        for part in values:
            yield from _tensors(part)


def _changed(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Values of any structure, with each tensor changed."""
    if torch.is_tensor(values):
        return change(values)
    if isinstance(values, Mapping):
        return {name: _changed(part, change) for name, part in values.items()}
    if isinstance(values, (list, tuple)):
        return tuple(_changed(part, change) for part in values)
    return values
