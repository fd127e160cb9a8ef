"""The user's own ``torch.nn.Module``, validated; run by ``Modular`` or a chain."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from privplan.errors import Fault, InputError
from simulate.data.dataset import Dataset
from simulate.data.own import Data
from simulate.data.user_code import error_line
from simulate.models.compiled import Compiled, compiled
from simulate.models.modular import Modular
from simulate.models.network import Model
from simulate.models.objective import CROSS_ENTROPY, Objective
from simulate.models.own_checks import (
    COPY_RULE,
    Probe,
    behaviour,
    close,
    probe_of,
    structure_faults,
    value_faults,
    without_batch_norm,
)
from simulate.tasks import objective_of

_log = logging.getLogger(__name__)
_IMAGES_NDIM = 4  # of images [B, channels, height, width]
Factory = Callable[..., nn.Module]
"""A class or function that returns a fresh module."""


@dataclass(frozen=True)
class OwnModel:
    """A module class with its arguments, or a module that training starts from.

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
        """A module with initial parameters, in training mode."""
        source = self.source
        module: object
        rule = "must be built without an error"
        try:
            if isinstance(source, nn.Module):
                rule = COPY_RULE
                module = copy.deepcopy(source)
            else:
                module = source(**self.arguments)
        except (Exception, SystemExit) as error:  # the user's code can fail in any way
            raise InputError.one("model", rule, error_line(error)) from None
        if not isinstance(module, nn.Module):
            rule = f"must be a torch.nn.Module or return one ({self.label})"
            raise InputError.one("model", rule, type(module).__name__)
        faults = list(value_faults(module))
        if faults:
            raise InputError(faults)
        try:
            if self.fix:
                module = without_batch_norm(module)
            return module.cpu().float().train()
        except RecursionError as error:
            rule = "must not be a part of itself"
            raise InputError.one("model", rule, error_line(error)) from None

    def parameters(self) -> int:
        """Number of trainable parameters, which a plan calls ``model.parameters``."""
        return sum(
            parameter.numel()
            for parameter in self._seeded().parameters()
            if parameter.requires_grad
        )

    def check(self, data: Data | None) -> None:
        """Raise what ``model`` would raise, as far as it is known before a plan."""
        if data is not None:
            # A copy, so that what was said of the data is not said again.
            unassigned = copy.copy(data)
            unassigned.clients = None
            dataset, _ = unassigned.prepared(())
            objective = objective_of(data.task, None, dataset.targets)
            self.model(self.label, dataset, objective=objective)
        faults = list(structure_faults(self._seeded()))
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
            name: the plan's name of it.
            data: that it is trained on.
            objective: the loss.
            vectorised: whether the run computes gradients of several models at once.
            by_record: whether the run protects records.

        Raises:
            InputError: naming every fault of the module, or those of its loss.
        """
        module = self._seeded()
        faults = list(structure_faults(module))
        again = self._seeded().parameters()
        if not all(map(torch.equal, module.parameters(), again)):
            rule = "must be initialised from torch's random generator only"
            faults.append(Fault("model", rule, "other values from the same seed"))
        probe = probe_of(data, objective)
        shown = behaviour(module, probe, data, by_record=by_record)
        faults += shown.faults
        if faults:
            raise InputError(faults)
        if shown.normalised and objective is CROSS_ENTROPY:
            _warn_of_softmax(self.label)
        try:
            skeleton = frozen_as_buffers(copy.deepcopy(module))
        except Exception as error:  # a hook stored an activation when it was tried
            raise InputError.one("model", COPY_RULE, error_line(error)) from None
        # A buffer that two parts share has two names, a part that is met twice has one.
        buffers = dict[str, Tensor]()
        for place, part in skeleton.named_modules():
            named = part.named_buffers(place, recurse=False, remove_duplicate=False)
            buffers.update({key: value.clone() for key, value in named})
        plain = Modular(
            name,
            data.shape,
            shown.outputs,
            lambda: copy.deepcopy(skeleton),
            start=lambda: frozen_as_buffers(self.fresh()),
            constants=lambda: buffers,
            channels_last=False,
            objective=objective,
            stochastic=shown.stochastic,
            export=lambda: copy.deepcopy(module),
        )
        general = _fastest(plain, skeleton, probe, vectorised=vectorised)
        if objective is not CROSS_ENTROPY or shown.stochastic or buffers:
            return general
        return compiled(general, skeleton) or general

    def digest(self) -> str:
        """SHA-256 of modules, names and shapes, and of values that are fixed.

        Those are frozen parameters, buffers, and all parameters of a module that
        training starts from. A resumed run must have the same.
        """
        module = self._seeded()
        content = hashlib.sha256(repr(module).encode())
        is_module = isinstance(self.source, nn.Module)
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            content.update(f"{name}{tuple(value.shape)}".encode())
            is_trained = isinstance(value, nn.Parameter) and value.requires_grad
            if is_module or not is_trained:
                values = value.detach().flatten().contiguous()
                content.update(values.view(torch.uint8).numpy().tobytes())
        return content.hexdigest()

    def _seeded(self) -> nn.Module:
        """A fresh module, the same at each call."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return self.fresh()


@cache
def _warn_of_softmax(label: str) -> None:
    """Warn once of a model, of which a comparison makes many."""
    _log.warning(
        "model: the outputs of %s are probabilities, and its loss takes logits; without "
        "the softmax it learns faster",
        label,
    )


def frozen_as_buffers(module: nn.Module) -> nn.Module:
    """The module with its frozen parameters as buffers, changed in place."""
    for submodule in module.modules():
        for name, value in list(submodule.named_parameters(recurse=False)):
            if not value.requires_grad:
                delattr(submodule, name)
                submodule.register_buffer(name, value.detach())
    return module


def require_no_random_layers(model: Model) -> None:
    """Refuse dropout where single records are protected.

    Its draws go by the place of a record in a batch, so that one record more changes
    those of all later ones.

    Raises:
        InputError: for a model that draws random numbers in training.
    """
    if model.stochastic:
        rule = (
            "must draw no random numbers, as dropout does, for secure noise with unit: "
            "record; --noise seeded rehearses"
        )
        raise InputError.one("model", rule, type(model).__name__)


def _fastest(
    model: Modular, module: nn.Module, probe: Probe, *, vectorised: bool
) -> Modular:
    """The model in the format of images that computes the module's gradients."""
    theta = torch.cat([value.detach().flatten() for value in module.parameters()])

    def gradient(candidate: Modular) -> Tensor:
        packed = candidate.pack(theta[None])
        # In a model with random layers such labels have the seed 0.
        packed = candidate.packed_gradients(packed, probe.x[None], probe.y[None])
        return candidate.unpack(packed, 1)

    tried = replace(model, objective=probe.objective)
    try:
        expected = gradient(tried)
        # So the verifier computes it. A module that reads its parameters again in the
        # backward pass, as checkpoints of activations do, finds none there.
        flat = theta.clone().requires_grad_()
        loss = tried.objective(tried.logits(flat, probe.x), probe.y)
        torch.autograd.grad(loss, flat)
        if vectorised:
            tried.clipped_sum(theta, probe.x, probe.y, 1.0)
    except (Exception, SystemExit) as error:  # the user's code can fail in any way
        rule = "must work with torch.func.functional_call"
        if vectorised:
            rule += " and torch.func.vmap, which this run needs"
        reason = error_line(error.__cause__ or error)
        raise InputError.one("model", rule, reason) from None
    if probe.x.ndim != _IMAGES_NDIM:
        return model
    try:
        fast = gradient(replace(tried, channels_last=True))
    except Exception:  # such as ``view`` of a tensor in another format
        return model
    return replace(model, channels_last=close(fast, expected))
