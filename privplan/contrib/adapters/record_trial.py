"""A trial on made-up records: whether a module gives each a gradient of its own.

Opacus takes the first dimension of whatever enters a layer for the records, and clips
row by row. The guarantee is that of the plan only where one record moves one row. It
does not where a module mixes the records of a batch, or where a layer inside it takes
another dimension first, such as time.

So a copy is tried on two batches that have their first record in common, no others. The
first row of the outputs and of each parameter's gradients must be the same, and there
must be as many rows as records. The values tell of nobody.
"""

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from opacus import GradSampleModule

from privplan.errors import InputError

# Difference of two numbers that differ by rounding only, in single precision.
_SAME = 1e-4
# Records of a batch. Of two, a permutation often moves none; no dimension is both long.
_SIZES = (2, 7)
# Batches of a module that draws: one that mixes records may do so now and then only.
_DRAWS = 8
# Of the normal numbers added to weights: those of a last layer often start at zero.
_PERTURBATION = 0.1


@dataclass(frozen=True)
class Call:
    """What a module is called with: tensors whose first dimension is the records."""

    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] | None = None

    def made_up(self, records: int, seed: int) -> "Call":
        """The same with so many records, of values that are drawn."""
        source = torch.Generator().manual_seed(seed)
        named = self.named or {}
        return Call(
            tuple(_made_up(like, records, source) for like in self.positional),
            {name: _made_up(like, records, source) for name, like in named.items()},
        )

    def with_first_of(self, other: "Call") -> "Call":
        """The same with the first record of another call."""
        named = {}
        for name, tensor in (self.named or {}).items():
            named[name] = _with_first(tensor, (other.named or {})[name])
        pairs = zip(self.positional, other.positional, strict=True)
        return Call(tuple(_with_first(tensor, first) for tensor, first in pairs), named)

    def of(self, module: torch.nn.Module, device: torch.device) -> Any:
        """What the module answers."""
        positional = [_moved(value, device) for value in self.positional]
        named = {
            name: _moved(value, device) for name, value in (self.named or {}).items()
        }
        return module(*positional, **named)


@dataclass(frozen=True)
class Answer:
    """What a module gave for a batch."""

    outputs: Any
    # Gradients of each parameter by record [rows, ...].
    gradients: Mapping[str, torch.Tensor]


def refuse_mixed_records(module: torch.nn.Module, sample: Any) -> None:
    """Refuse a module in which one record moves what another one gives.

    A module that takes none of the calls that a batch suggests is believed, as is one
    that mixes records only in some of its calls.

    Args:
        module: in the mode in which it trains.
        sample: a batch of the data set, for structure, shapes and types.

    Raises:
        InputError: when it mixes records, or cannot be copied.
    """
    parameter = next(module.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    devices = [] if device.type == "cpu" else [device]
    with (
        torch.random.fork_rng(devices, device_type=device.type),
        warnings.catch_warnings(),
    ):
        # Opacus' hooks warn where inputs have no gradients, which is no fault here.
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        try:
            trial = copy.deepcopy(module)
        except Exception as error:
            rule = "must be copyable, since a copy is tried on made-up records"
            raise InputError.one("module", rule, str(error)) from None
        with torch.no_grad():
            for weights in trial.parameters():
                weights.add_(torch.randn_like(weights), alpha=_PERTURBATION)
        for call in _calls(sample):
            _try(trial, call, device)


def _calls(sample: Any) -> Iterator[Call]:
    """The calls of a module that a batch of a data set suggests."""
    if torch.is_tensor(sample):
        yield Call((sample,))
    elif isinstance(sample, dict):
        yield Call((sample,))
        yield Call(named=sample)
        for part in sample.values():
            yield Call((part,))
    elif isinstance(sample, (list, tuple)) and sample:
        yield from _calls(sample[0])
        if len(sample) > 2:  # all but the labels
            yield Call(tuple(sample[:-1]))


def _try(trial: torch.nn.Module, call: Call, device: torch.device) -> None:
    """Refuse a module that mixes the records of a call, or takes others first."""
    for records in _SIZES:
        first = call.made_up(records, seed=0)
        second = call.made_up(records, seed=1).with_first_of(first)
        for seed in range(_DRAWS):
            # Equal draws for both batches, such as those of dropout.
            before = torch.manual_seed(seed).get_state()
            try:
                answer = _answer(trial, first, device)
                has_drawn = not torch.equal(before, torch.get_rng_state())
                torch.manual_seed(seed)
                neighbour = _answer(trial, second, device)
            except Exception:  # the user's code can fail in any way
                return
            _compare(answer, neighbour, records)
            if not has_drawn:
                break


def _answer(trial: torch.nn.Module, call: Call, device: torch.device) -> Answer:
    """Outputs, and gradients as Opacus takes them, of a fresh copy."""
    probe = GradSampleModule(copy.deepcopy(trial))
    with torch.enable_grad():
        outputs = call.of(probe, device)
        total = _weighted_sum(outputs)
        if total.requires_grad:
            total.backward()  # type: ignore[no-untyped-call]
    gradients = {}
    for name, parameter in probe._module.named_parameters():
        rows = getattr(parameter, "grad_sample", None)
        if torch.is_tensor(rows):
            gradients[name] = rows.detach()
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


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    """The tensors in outputs of any structure."""
    if torch.is_tensor(outputs):
        yield outputs
    elif isinstance(outputs, Mapping):
        for part in outputs.values():
            yield from _tensors(part)
    elif isinstance(outputs, (list, tuple)):
        for part in outputs:
            yield from _tensors(part)


def _compare(answer: Answer, neighbour: Answer, records: int) -> None:
    """Refuse first rows that differ, and numbers of rows that are not the records'."""
    for name, rows in answer.gradients.items():
        if len(rows) != records:
            rule = (
                "must have layers that take the records as their first dimension "
                f"(batch_first), {records} in a trial of made-up ones"
            )
            raise InputError.one("module", rule, f"{len(rows)} at {name}")
    outputs = answer.outputs
    # Of other outputs nothing tells which rows are the records.
    has_rows = torch.is_tensor(outputs) and outputs.shape[:1] == (records,)
    if has_rows and not _is_same(
        outputs[0], neighbour.outputs[0], _largest([outputs[0]])
    ):
        rule = "must compute a record's outputs from that record only"
        text = "outputs that depend on the batch, or on random numbers not of torch"
        raise InputError.one("module", rule, text)
    # Gradients that vanish, as before a normalisation, are rounding of the others.
    scale = _largest(rows[0] for rows in answer.gradients.values())
    for name, rows in answer.gradients.items():
        if not _is_same(rows[0], neighbour.gradients[name][0], scale):
            rule = "must compute a record's gradient from that record only"
            text = f"{name}, whose gradients depend on the batch"
            raise InputError.one("module", rule, text)


def _largest(tensors: Iterable[torch.Tensor]) -> float:
    """The largest number in tensors, by magnitude; 0 where there is none."""
    sizes = [
        float(tensor.detach().nan_to_num(0, 0, 0).abs().max())
        for tensor in tensors
        if tensor.numel()
    ]
    return max(sizes, default=0.0)


def _is_same(row: torch.Tensor, reference: torch.Tensor, scale: float) -> bool:
    """Whether two rows differ by rounding only, of numbers up to a scale."""
    if row.shape != reference.shape:
        return False
    return torch.allclose(row, reference, rtol=0, atol=_SAME * scale, equal_nan=True)


def _made_up(like: Any, records: int, source: torch.Generator) -> Any:
    """Tensors of so many records, in the structure, shape and type of others."""
    if torch.is_tensor(like):
        shape = (records, *like.shape[1:])
        if like.is_floating_point():
            return torch.randn(shape, generator=source, dtype=like.dtype)
        # Codes, of which every embedding has two.
        return torch.randint(0, 2, shape, generator=source).to(like.dtype)
    if isinstance(like, Mapping):
        return {name: _made_up(part, records, source) for name, part in like.items()}
    if isinstance(like, (list, tuple)):
        return [_made_up(part, records, source) for part in like]
    return like


def _with_first(tensors: Any, first: Any) -> Any:
    """Tensors whose first record is that of others."""
    if torch.is_tensor(tensors):
        return torch.cat([first[:1], tensors[1:]])
    if isinstance(tensors, Mapping):
        return {name: _with_first(part, first[name]) for name, part in tensors.items()}
    if isinstance(tensors, list):
        pairs = zip(tensors, first, strict=True)
        return [_with_first(part, first_part) for part, first_part in pairs]
    return tensors


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors of any structure on a device."""
    if torch.is_tensor(value):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _moved(part, device) for name, part in value.items()}
    if isinstance(value, list):
        return [_moved(part, device) for part in value]
    return value
