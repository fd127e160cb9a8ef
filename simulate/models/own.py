"""The user's own ``torch.nn.Module``, validated and run by ``Modular`` or by the fast kernels."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from privplan.errors import Fault, InputError
from simulate.data.arrays import said
from simulate.data.dataset import Dataset
from simulate.data.own import Data
from simulate.models.compiled import Compiled, compiled
from simulate.models.modular import Modular
from simulate.models.objective import CROSS_ENTROPY, Objective, with_seeds
from simulate.models.validation import (
    COPY_RULE,
    Probe,
    behaviour,
    close,
    frozen_as_buffers,
    loss_faults,
    probe_of,
    same_values,
    structure_faults,
    value_faults,
    without_batch_norm,
)
from simulate.tasks import MULTI_CLASS

Factory = Callable[..., nn.Module]
"""A class or function that returns a fresh module."""


@dataclass(frozen=True)
class OwnModel:
    """A module class with its arguments, or a module whose parameters training starts from.

    Attributes:
        source: a class or function that returns a module, or a module.
        arguments: keyword arguments of the class or function.
        label: how the user named it.
        fix: whether group normalisation replaces batch normalisation.
    """

    source: Factory | nn.Module
    arguments: Mapping[str, Any]
    label: str
    fix: bool = False

    def fresh(self) -> nn.Module:
        """A module with initial parameters, in training mode.

        Raises:
            InputError: when the user's code fails, or returns no module.
        """
        given = isinstance(self.source, nn.Module)
        try:
            module = copy.deepcopy(self.source) if given else self.source(**self.arguments)
        except (Exception, SystemExit) as error:  # the user's code can fail in any way
            rule = COPY_RULE if given else "must be built without an error"
            raise InputError.one("model", rule, said(error)) from None
        if not isinstance(module, nn.Module):
            rule = f"must be a torch.nn.Module or return one ({self.label})"
            raise InputError.one("model", rule, type(module).__name__)
        return self._fixed(module)

    def _fixed(self, module: nn.Module) -> nn.Module:
        faults = list(value_faults(module))
        if faults:
            raise InputError(faults)
        return (without_batch_norm(module) if self.fix else module).cpu().float().train()

    def parameters(self) -> int:
        """Number of trainable parameters, which a plan calls ``model.parameters``."""
        return sum(part.numel() for part in self._seeded().parameters() if part.requires_grad)

    def check(self, data: Data | None) -> None:
        """Raises what ``model`` would raise, as far as it is known before a plan.

        Args:
            data: the data; without them only the structure is checked. Outputs are checked for
                multi-class data only: what they must be for other tasks depends on the loss.

        Raises:
            InputError: with every fault of the module.
        """
        module = self._seeded()
        faults = list(structure_faults(module))
        if data is not None and data.task == MULTI_CLASS:
            dataset, _ = replace(data, client=None, group=None).prepared(())
            faults += behaviour(
                module, probe_of(dataset), len(dataset.classes), CROSS_ENTROPY
            ).faults
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
        """The validated model.

        Args:
            name: the plan's name of the model.
            data: the data set; the module is tried on records of its shape.
            objective: the loss.
            vectorised: whether the run needs ``torch.func.vmap``: on a GPU, or for gradients of
                single records.
            by_record: whether the run clips gradients of single records.

        Raises:
            InputError: with every fault of the module.
        """
        user, again = self._seeded(), self._seeded()
        faults = list(structure_faults(user))
        if not same_values(user.parameters(), again.parameters()):
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
            name,
            data.shape,
            found.outputs,
            lambda: copy.deepcopy(skeleton),
            start=lambda: frozen_as_buffers(self.fresh()),
            constants=lambda: buffers,
            channels_last=False,
            objective=objective,
            stochastic=found.stochastic,
            export=lambda: copy.deepcopy(user),
        )
        if by_record:
            _check_by_record(plain, probe)
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


def _check_by_record(model: Modular, probe: Probe) -> None:
    """Raises when the loss is not a mean over records."""
    logits = model.logits(model.initial(torch.Generator().manual_seed(0)), probe.x)
    faults = loss_faults(logits.detach().requires_grad_(), probe.y, model.objective, by_record=True)
    if faults:
        raise InputError(faults)


def _fastest(model: Modular, module: nn.Module, probe: Probe, *, vectorised: bool) -> Modular:
    """The model in the format of images that computes the module's gradients.

    Raises:
        InputError: when its gradients cannot be computed for parameters given from outside.
    """
    theta = torch.cat([value.detach().flatten() for value in module.parameters()])
    labels: Tensor = probe.y
    if model.stochastic:
        labels = with_seeds(labels[None, None], torch.zeros(1, 1, dtype=torch.int64))[0, 0]

    def gradient(tried: Modular) -> Tensor:
        packed = tried.packed_gradients(tried.pack(theta[None]), probe.x[None], labels[None])
        return tried.unpack(packed, 1)

    try:
        expected = gradient(model)
        if vectorised:
            model.clipped_sum(theta, probe.x, labels, 1.0)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = "must work with torch.func.functional_call"
        rule += " and torch.func.vmap, which this run needs" if vectorised else ""
        raise InputError.one("model", rule, said(error.__cause__ or error)) from None
    if probe.x.ndim != 4:
        return model
    fast = replace(model, channels_last=True)
    try:
        return fast if close(gradient(fast), expected) else model
    except Exception:  # such as ``view`` of a tensor in another format
        return model
