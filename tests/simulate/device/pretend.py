"""A device that is not there: its tensors hold CPU tensors, and its operations are those of a CPU.

It refuses what a GPU refuses (operands of two devices, NumPy, a generator of the CPU), and counts
what makes the host wait for a GPU, by the line of this project that asks for it.
"""

import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

ROOT = Path(__file__).parents[3]
NAME = "pretend"
_aten = torch.ops.aten
WAITING = {
    _aten._local_scalar_dense.default, _aten.nonzero.default, _aten.equal.default,
    _aten.masked_select.default, _aten.repeat_interleave.Tensor, _aten._unique2.default,
    _aten.is_nonzero.default,
}  # fmt: skip
"""Operations whose result the host needs, by value or by size."""
_known: list[torch.device] = []


def device():
    """The device; PyTorch learns of it once per process."""
    if not _known:
        _setup_privateuseone_for_python_backend(NAME)
        _known.append(torch.device(NAME, 0))
    return _known[0]


class Held(torch.Tensor):
    """A tensor on the device; ``value`` is the CPU tensor that it holds."""

    @staticmethod
    def __new__(cls, value):
        layout = {"strides": value.stride(), "storage_offset": value.storage_offset()}
        made = torch.Tensor._make_wrapper_subclass(
            cls, value.shape, dtype=value.dtype, device=device(), **layout
        )
        made.value = value
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self):
        """The values, which PyTorch itself gives for no subclass."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} must run where the device is in use")


class Use(TorchDispatchMode):
    """Runs operations on the device, and counts waits and copies to it by line of the code."""

    def __init__(self):
        super().__init__()
        self.waits, self.sent = Counter(), Counter()

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        operands = [
            one
            for one in tree_flatten((args, kwargs))[0]
            if isinstance(one, torch.Tensor)
        ]
        held = [one for one in operands if isinstance(one, Held)]
        target = kwargs.get("device")
        to_device = target is not None and torch.device(target).type == NAME
        if not held and not to_device:
            return function(*args, **kwargs)
        if (
            generator := kwargs.get("generator")
        ) is not None and generator.device.type == "cpu":
            raise RuntimeError(
                f"Expected a '{NAME}' generator but found 'cpu' in {function}"
            )
        to_host = bool(held) and target is not None and not to_device
        copies = function in (_aten.copy_.default, _aten._to_copy.default)
        if not copies and any(
            one.dim() and not isinstance(one, Held) for one in operands
        ):
            raise RuntimeError(
                f"Expected all tensors on one device, found two in {function}"
            )
        host_target = function is _aten.copy_.default and not isinstance(args[0], Held)
        masks = function in (
            _aten.index.Tensor,
            _aten.index_put_.default,
            _aten.index_put.default,
        )
        masks = masks and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        )
        if to_host or host_target or masks or function in WAITING:
            self.waits[_line()] += 1
        elif copies and len(held) < len(operands):
            self.sent[_line()] += 1
        if to_device:
            kwargs["device"] = torch.device("cpu")
        result = function(*tree_map(_value, args), **tree_map(_value, kwargs))
        if to_host or host_target:
            return args[0] if host_target else result
        known = {id(one.value): one for one in held}
        return tree_map(lambda one: _held(one, known), result)


def _value(one):
    return one.value if isinstance(one, Held) else one


def _held(one, known):
    if not isinstance(one, torch.Tensor):
        return one
    return known[id(one)] if id(one) in known else Held(one)


def _line():
    """The innermost line of the project that is at work, such as ``simulate/norms.py:20``."""
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
        made = plain(data, **kwargs)  # its copy to a device passes by every mode
        return made if device is None else made.to(device)

    torch.tensor = tensor
    try:
        with Use() as use:
            yield use
    finally:
        torch.tensor = plain
