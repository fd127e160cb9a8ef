"""A device that is not there: its tensors hold CPU tensors, its operations are a CPU's.

It refuses what a GPU refuses (operands of two devices, NumPy, a generator of the CPU),
and counts what makes the host wait for a GPU, by the line of this project that asks for
it.
"""

import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

ROOT = Path(__file__).parents[3]
NAME = "pretend"
_aten = torch.ops.aten
WAITING = {
    _aten._local_scalar_dense.default,
    _aten.nonzero.default,
    _aten.equal.default,
    _aten.masked_select.default,
    _aten.repeat_interleave.Tensor,
    _aten._unique2.default,
    _aten.is_nonzero.default,
}
"""Operations whose result the host needs, by value or by size."""
INDEXING = {
    _aten.index.Tensor,
    _aten.index_put_.default,
    _aten.index_put.default,
}
_registered: list[torch.device] = []


def device():
    """The device; PyTorch learns of it once per process."""
    if not _registered:
        _setup_privateuseone_for_python_backend(NAME)
        _registered.append(torch.device(NAME, 0))
    return _registered[0]


class DeviceTensor(torch.Tensor):
    """A tensor on the device; ``value`` is the CPU tensor that it holds."""

    @staticmethod
    def __new__(cls, value):
        layout = {"strides": value.stride(), "storage_offset": value.storage_offset()}
        wrapper = torch.Tensor._make_wrapper_subclass(
            cls, value.shape, dtype=value.dtype, device=device(), **layout
        )
        wrapper.value = value
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self):
        """The values, which PyTorch itself gives for no subclass."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} must run where the device is in use")


class Use(TorchDispatchMode):
    """Runs operations on the device, and counts waits and copies to it, by line."""

    def __init__(self):
        super().__init__()
        self.waits = Counter()
        self.sent = Counter()

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        operands = [
            operand
            for operand in tree_flatten((args, kwargs))[0]
            if isinstance(operand, torch.Tensor)
        ]
        device_tensors = [
            operand for operand in operands if isinstance(operand, DeviceTensor)
        ]
        target = kwargs.get("device")
        to_device = target is not None and torch.device(target).type == NAME
        if not device_tensors and not to_device:
            return function(*args, **kwargs)
        is_copy = function in (_aten.copy_.default, _aten._to_copy.default)
        _refuse_what_a_gpu_refuses(function, operands, kwargs.get("generator"), is_copy)

        # The host waits for copies to it, and for results that it needs.
        to_host = bool(device_tensors) and target is not None and not to_device
        host_target = function is _aten.copy_.default and not isinstance(
            args[0], DeviceTensor
        )
        if to_host or host_target or _result_is_needed(function, args):
            self.waits[_line()] += 1
        elif is_copy and len(device_tensors) < len(operands):
            self.sent[_line()] += 1

        # The operation itself, on the CPU tensors that the device holds.
        if to_device:
            kwargs["device"] = torch.device("cpu")
        result = function(*tree_map(_value, args), **tree_map(_value, kwargs))
        if torch.Tag.inplace_view in function.tags:
            # A view in place, such as ``squeeze_``, also changes the shape that the
            # tensor on the device says it has.
            with no_dispatch():
                function(*args, **kwargs)
        if to_host or host_target:
            return args[0] if host_target else result
        tensor_of_value = {id(tensor.value): tensor for tensor in device_tensors}
        return tree_map(lambda value: _wrapped(value, tensor_of_value), result)


def _refuse_what_a_gpu_refuses(function, operands, generator, is_copy):
    """Raise the faults of a generator of the CPU and of operands on two devices."""
    if generator is not None and generator.device.type == "cpu":
        raise RuntimeError(
            f"Expected a '{NAME}' generator but found 'cpu' in {function}"
        )
    # A scalar of the CPU goes with any device, and a copy between devices is allowed.
    cpu_tensors = [
        operand
        for operand in operands
        if operand.dim() and not isinstance(operand, DeviceTensor)
    ]
    if cpu_tensors and not is_copy:
        raise RuntimeError(
            f"Expected all tensors on one device, found two in {function}"
        )


def _result_is_needed(function, args):
    """Whether the host needs a value or a size, such as that of a masked selection."""
    if function in INDEXING:
        indices = [index for index in args[1] if index is not None]
        return any(index.dtype == torch.bool for index in indices)
    return function in WAITING


def _value(operand):
    return operand.value if isinstance(operand, DeviceTensor) else operand


def _wrapped(value, tensor_of_value):
    if not isinstance(value, torch.Tensor):
        return value
    # An operation in place returns the tensor that it was given.
    if id(value) in tensor_of_value:
        return tensor_of_value[id(value)]
    return DeviceTensor(value)


def _line():
    """The innermost line of the project at work, such as ``simulate/norms.py:20``."""
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if (
            path.is_relative_to(ROOT)
            and path != Path(__file__)
            and ".venv" not in path.parts
        ):
            return f"{path.relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


@contextmanager
def in_use():
    """Use the device until the block ends; its counts are those of the block."""
    device()
    plain = torch.tensor

    def tensor(data, *, device=None, **kwargs):
        # PyTorch's copy to a device passes by every mode, so it is made here.
        result = plain(data, **kwargs)
        return result if device is None else result.to(device)

    torch.tensor = tensor
    try:
        with Use() as use:
            yield use
    finally:
        torch.tensor = plain
