"""An accountant for Opacus, with two-sided bounds; importing this module registers it.

::

    import privplan.contrib.adapters.opacus
    engine = opacus.PrivacyEngine(accountant="privplan")

Opacus' accountants are of Poisson sampling under add/remove, and so is this one.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any

from privplan.accounting.accountant import Interval
from privplan.accounting.curve import PrivacyCurve, checked_rounds
from privplan.accounting.pld.accountant import TOLERANCE
from privplan.accounting.release import Relation, Release, SamplingLaw
from privplan.contrib.adapters.members import opened
from privplan.errors import InputError
from privplan.guard import BudgetExceededError, GroupTotal, Guard
from privplan.ledger import history_of, read_ledger
from privplan.plan import GroupPlan, Plan
from privplan.secure_stream import secure_stream

try:
    import torch
    from opacus import GradSampleModule
    from opacus.accountants import IAccountant, register_accountant
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator
    from torch.nn.modules.module import _has_any_global_hook
    from torch.optim import optimizer as torch_optimizer
    from torch.utils.data import (
        DataLoader,
        Dataset,
        RandomSampler,
        SequentialSampler,
        default_collate,
    )

    from privplan.contrib.adapters.record_trial import (
        refuse_mixed_records,
        with_sample_gradients,
    )
except ImportError as error:
    needs = "needs opacus: pip install 'privplan[simulate]'"
    raise ImportError(f"privplan.contrib.adapters.opacus {needs}") from error

_log = logging.getLogger(__name__)

# Gap of bounds on epsilon: Opacus' search for a noise multiplier stops at 0.01.
_ABSOLUTE = 2e-3
# Above this epsilon no search asks for more precision.
_LARGE_EPSILON = 1e3
# Relative; by more than this no clipping in single precision exceeds its norm. Opacus
# computes norms and products in the precision of the gradients, so that a clipped one
# was measured to be 4.6e-8 too long.
_CLIPPING_ROUNDING = 1e-5

# What a plan does of the options of Opacus' engine; None, or no value, is its default.
_AS_PLANNED = {
    "poisson_sampling": True,
    "grad_sample_mode": "hooks",
    "clipping": "flat",
    "batch_first": True,
}

Segment = tuple[float, float, int]
"""Noise multiplier, sampling ratio and number of steps, as Opacus keeps them."""


class PrivplanAccountant(IAccountant):  # type: ignore[misc]
    """Accountant of Opacus that answers with an upper bound on epsilon.

    Attributes:
        history: segments of equal steps, as in Opacus' own accountants.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Segment]
        self._curve = PrivacyCurve(Relation.ADD_REMOVE)
        self._counted: Counter[Release] = Counter()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Add one step."""
        Release(noise_multiplier, sample_rate, SamplingLaw.POISSON)
        last = self.history[-1] if self.history else None
        if last is not None and last[:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def curve(self) -> PrivacyCurve:
        """The composed steps, to be read at any delta or epsilon."""
        counted: Counter[Release] = Counter()
        for noise, rate, steps in self.history:
            counted[Release(noise, rate, SamplingLaw.POISSON)] += checked_rounds(steps)
        if any(count > counted[release] for release, count in self._counted.items()):
            self._curve = PrivacyCurve(Relation.ADD_REMOVE)
            self._counted = Counter()
        for release, count in counted.items():
            if count > self._counted[release]:
                self._curve.step(release, count - self._counted[release])
        self._counted = counted
        return self._curve

    def bounds(self, delta: float, *, tolerance: float | None = None) -> Interval:
        """Lower and upper bound on epsilon at ``delta``.

        Without a tolerance, the bounds are within 1e-4 of each other and within 2e-3 in
        all, since Opacus' search for a noise multiplier stops at an absolute 0.01.
        """
        curve = self.curve()
        bounds = curve.epsilon(delta, tolerance=tolerance)
        is_coarse = _ABSOLUTE / TOLERANCE < bounds.upper < _LARGE_EPSILON
        if tolerance is None and is_coarse:
            bounds = curve.epsilon(delta, tolerance=_ABSOLUTE / bounds.upper)
        return bounds

    def get_epsilon(
        self, delta: float, *, tolerance: float | None = None, **_: Any
    ) -> float:
        """Upper bound on epsilon at ``delta``.

        Further options are ignored: Opacus passes those of other parts of its engine.
        """
        return self.bounds(delta, tolerance=tolerance).upper

    def __len__(self) -> int:
        """Number of steps so far."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows the accountant."""
        return "privplan"

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace the history by that of a state.

        It is unchanged when the state has a fault.
        """
        earlier_history = self.history
        super().load_state_dict(state_dict)
        try:
            self.history = [
                (float(n), float(q), checked_rounds(t)) for n, q, t in self.history
            ]
            for noise, rate, _ in self.history:
                Release(noise, rate, SamplingLaw.POISSON)
        except InputError:
            self.history = earlier_history
            raise
        except (TypeError, ValueError):
            self.history = earlier_history
            rule = "must be a list of (noise multiplier, sampling ratio, steps)"
            raise InputError.one("history", rule, state_dict["history"]) from None


register_accountant(PrivplanAccountant.mechanism(), PrivplanAccountant, force=True)


# Opacus under a plan: batches drawn by the guard, its noise, and a booking per executed
# step.
#
# The clients of the plan are the records of the data set (or whatever its items are),
# in one group, and its rounds are the optimiser's steps::
#
#     with Guard("plan.json", "run") as guard:
#         model, optimizer, batches = guarded(guard, model, optimizer, dataset)
#         for inputs, labels in batches:   # ends with the plan or the budget
#             ...
#             optimizer.step()
#
# Opacus draws the noise; each step is booked before it changes the model.


class PlannedBatches:
    """A batch sampler: the positions that the guard draws, step by step.

    Args:
        guard: the guard of the run.
        group: name of the plan's only group.
        epoch: number of batches of one pass, of which none begins when the plan has
            ended; by default one pass has all batches until the plan ends.
    """

    def __init__(self, guard: Guard, group: str, epoch: int | None = None) -> None:
        self._guard = guard
        self._group = group
        self._epoch = epoch
        # Records of the batch that was drawn last.
        self.size = 0

    def __len__(self) -> int:
        """Number of steps of the next pass."""
        steps_left = max(0, self._guard.plan.spec.rounds - self._guard.round + 1)
        if self._epoch is None:
            return steps_left
        return min(steps_left, self._epoch)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches until the pass or the plan ends.

        Or until the next step would exceed the budget.
        """
        refusal = None if self._epoch is None else self._guard.refusal()
        if refusal:
            raise BudgetExceededError(refusal)
        for round_ in islice(self._guard.rounds(), self._epoch):
            batch = list(self._guard.draw(round_).clients[self._group])
            self.size = len(batch)
            yield batch


class PlannedOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimiser; it refuses to clip or to add noise otherwise than planned.

    Each step is booked before it changes the model, with what was seen of it: norms of
    the gradients, their sum, and the noise as the difference of the sum and what Opacus
    released.

    Args:
        guard: the guard of the run.
        optimizer: the optimiser that makes the steps.
        options: of ``DPOptimizer``.
    """

    noise_multiplier: float

    def __init__(
        self, guard: Guard, optimizer: torch.optim.Optimizer, **options: Any
    ) -> None:
        self._guard = guard
        [self._group] = guard.plan.groups
        ratio, sigma = self._planned()
        super().__init__(
            optimizer,
            noise_multiplier=sigma,
            max_grad_norm=guard.clipping_norm(self._group.name),
            expected_batch_size=ratio * self._group.clients,
            **options,
        )
        self._seen = GroupTotal()
        # The scaled noisy gradient of each parameter of a step.
        self._booked: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._module = torch.nn.Module()
        self._batches = PlannedBatches(guard, self._group.name)
        self._tensors: dict[str, torch.Tensor] = {}
        self._parameters: dict[str, torch.Tensor] = {}

    def watch(self, module: torch.nn.Module, batches: PlannedBatches) -> None:
        """Refuse steps once the module has changed otherwise than by booked steps.

        What follows records leaves without noise: a buffer, an attribute, or parameters
        that another optimiser moves.

        Args:
            module: that is trained.
            batches: each of whose records has one gradient in a step.
        """
        self._module = module
        self._batches = batches
        self._tensors = _copies(_tensors_beside_weights(module))
        self._parameters = _copies(module.named_parameters())

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """As in Opacus."""
        loss = super().step(closure)
        if not self._is_last_step_skipped:
            # Whoever stores the module would store what has no noise.
            self._forget()
        self._parameters = _copies(self._module.named_parameters())
        return loss

    def _planned(self) -> tuple[float, float]:
        """Sampling ratio and noise multiplier of the guard's next round."""
        plan = self._guard.plan
        return plan.at_round(self._group, min(self._guard.round, plan.spec.rounds))

    def _check(self) -> None:
        """Compare noise, norm, buffers and weights with what was planned and booked."""
        _, sigma = self._planned()
        bound = self._guard.clipping_norm(self._group.name)
        if self.max_grad_norm != bound:
            rule = f"must be {bound:.9g}, as in the plan"
            raise InputError.one("max_grad_norm", rule, self.max_grad_norm)
        if not self.noise_multiplier >= sigma:
            rule = f"must be {sigma:.9g}, as in the plan"
            raise InputError.one("noise_multiplier", rule, self.noise_multiplier)
        inner = self.original_optimizer
        if inner._optimizer_step_pre_hooks or inner._optimizer_step_post_hooks:
            rule = "must have no hooks on its steps, which move weights without noise"
            raise InputError.one("optimizer", rule, type(inner).__name__)
        _refuse_global_hooks()
        for name, value in _tensors_beside_weights(self._module):
            if not _is_copy(value, self._tensors.get(name)):
                rule = (
                    "must have no buffers or other tensors that training changes; a "
                    "constant, such as a mask, is made in __init__"
                )
                raise InputError.one("module", rule, name)
        for name, value in self._module.named_parameters():
            if not _is_copy(value, self._parameters.get(name)):
                rule = (
                    "must change by the steps of its one private optimiser only; load "
                    "its state before it becomes private"
                )
                raise InputError.one("module", rule, name)

    def clip_and_accumulate(self) -> None:
        """As in Opacus; gradients [records, d] that are not finite become zero."""
        part_norms = [
            gradient.reshape(len(gradient), math.prod(gradient.shape[1:]))
            .double()
            .norm(dim=1)
            for gradient in self.grad_samples
        ]
        norms = torch.stack(part_norms).norm(dim=0)
        for gradient in self.grad_samples:
            _refuse_half_precision("gradients", gradient.dtype)
        is_lost = ~norms.isfinite()
        if is_lost.any():
            for parameter, gradient in zip(self.params, self.grad_samples, strict=True):
                gradient[is_lost] = 0.0
                parameter.grad_sample = gradient

        seen = self._seen
        bound = self.max_grad_norm
        finite_norms = norms[~is_lost]
        seen.reported += len(norms)
        seen.excluded += int(is_lost.sum())
        seen.clipped += int((finite_norms > bound).sum())
        clipped_norms = finite_norms.clamp(max=bound).tolist()
        seen.largest_norm = max([seen.largest_norm, *clipped_norms])
        super().clip_and_accumulate()

    def add_noise(self) -> None:
        """Add noise of a cryptographic stream; then the release is booked.

        The generators of PyTorch that Opacus draws from have as few as 32 bits of seed,
        which whoever sees the model before and after a step can try.
        """
        self._check()
        try:
            self._release()
        except BaseException:
            # A step that was refused leaves no sum to which the next one would add.
            self._forget()
            raise
        finally:
            self._seen = GroupTotal()

    def _forget(self) -> None:
        """Drop gradients and sums without noise, also of what is frozen meanwhile."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad_sample = None
                parameter.summed_grad = None

    def _release(self) -> None:
        """Turn sums into gradients with noise, and book them."""
        if self._seen.reported != self._batches.size:
            rule = f"must have one gradient of each of the {self._batches.size} records drawn"
            raise InputError.one("step", rule, self._seen.reported)
        stream = secure_stream()
        state = stream.fingerprint()
        summed = _vector(parameter.summed_grad for parameter in self.params)
        std = self.noise_multiplier * self.max_grad_norm
        # Noise covers a sum that clipping left a little too long; the ledger says less.
        drawn_std = std * (1 + _CLIPPING_ROUNDING)
        noise = torch.from_numpy(drawn_std * stream.standard_normal(len(summed)))
        noisy_sum = summed + noise

        # What else Opacus does in a step it does without noise of its own.
        multiplier = self.noise_multiplier
        self.noise_multiplier = 0.0
        try:
            super().add_noise()
        finally:
            self.noise_multiplier = multiplier
        sizes = [parameter.numel() for parameter in self.params]
        parts = torch.split(noisy_sum, sizes)
        for parameter, part in zip(self.params, parts, strict=True):
            parameter.grad = part.to(parameter.grad).view_as(parameter)

        released = _vector(parameter.grad for parameter in self.params)
        self._seen.total = summed.numpy()
        self._guard.record_noised(
            self._guard.round,
            len(summed),
            std,
            self._seen,
            (released - summed).numpy(),
            state,
        )

    def scale_grad(self) -> None:
        """As in Opacus; then the values of the next round are taken over."""
        super().scale_grad()
        self._booked = {part: part.grad.clone() for part in self.params}
        if not self._guard.finished:
            ratio, self.noise_multiplier = self._planned()
            self.expected_batch_size = ratio * self._group.clients

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """As in Opacus; its hook may not change the noisy gradients, or add others.

        A parameter that is frozen after the backward pass has a gradient without noise.

        Raises:
            InputError: when the step would apply others than were booked.
        """
        self._check()  # also before a step of nothing that can be trained
        is_due = bool(super().pre_step(closure))
        if is_due:
            applied = {}
            for group in self.param_groups:
                for part in group["params"]:
                    if part.grad is not None:
                        applied[part] = part.grad
            is_booked = applied.keys() == self._booked.keys() and all(
                torch.equal(gradient, self._booked[part])
                for part, gradient in applied.items()
            )
            if not is_booked:
                rule = "must be the noisy gradient that was booked"
                text = "one that a step hook changed, or of a frozen parameter"
                raise InputError.one("grad", rule, text)
        return is_due


def _is_copy(tensor: torch.Tensor, earlier: torch.Tensor | None) -> bool:
    """Whether a tensor is as it was copied; one that was added later is not."""
    if earlier is None or tensor.shape != earlier.shape:
        return False
    are_nan = (tensor != tensor) & (earlier != earlier)
    return bool(((tensor == earlier) | are_nan).all())


def _tensors_beside_weights(
    module: torch.nn.Module,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values of the buffers, and of tensors that are plain attributes."""
    yield from module.named_buffers()
    for name, layer in module.named_modules():
        for attribute, value in vars(layer).items():
            if torch.is_tensor(value):
                yield f"{name}.{attribute}".lstrip("."), value


def _copies(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Copies of named parameters or buffers."""
    return {name: tensor.detach().clone() for name, tensor in tensors}


def _vector(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """Tensors as one vector [d] in double precision."""
    return torch.cat([part.reshape(-1).double() for part in parts]).cpu()


def guarded(
    guard: Guard,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Dataset[Any],
    epoch: int | None = None,
    examples: Any = None,
    **options: Any,
) -> tuple[GradSampleModule, PlannedOptimizer, DataLoader[Any]]:
    """A module, an optimiser and a loader that execute the plan.

    Args:
        guard: the guard of the run.
        module: that is trained; each record must have a gradient of its own.
        optimizer: that makes the steps.
        dataset: whose items are the clients of the plan.
        epoch: see ``PlannedBatches``.
        examples: the arguments that the module is called with, as a tuple or by name as
            a dict, of 8 made-up records or more; where its inputs are not like the
            data set's.
        options: of ``DPOptimizer``.

    Raises:
        InputError: when one of them does not keep the plan.
    """
    group = _only_group(guard.plan)
    try:
        size = len(dataset)  # type: ignore[arg-type]
    except TypeError:
        rule = "must have a length, and items by position"
        raise InputError.one("dataset", rule, type(dataset).__name__) from None
    if size != group.clients:
        raise InputError.one(
            "dataset", f"must have {group.clients} items, as the plan", size
        )
    _refuse_extra_state(module)
    for parameter in module.parameters():
        _refuse_half_precision("parameters", parameter.dtype)
    sample = _collated([dataset[0]])
    empty = _without_records(sample)
    if guard.round > 1:
        text = (
            "the run goes on with step %d: load the weights of step %d into the module"
        )
        _log.warning(text, guard.round, guard.round - 1)
    _refuse_what_opacus_refuses(module)
    refuse_mixed_records(module, sample, examples)
    drawn = PlannedBatches(guard, group.name, epoch)
    private = PlannedOptimizer(guard, optimizer, **options)
    private.watch(module, drawn)
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=drawn,
        collate_fn=lambda items: _collated(items) if items else empty,
    )
    # Under a mean Opacus multiplies gradients by the number of records.
    reduction = options.get("loss_reduction", "mean")
    return with_sample_gradients(module, reduction), private, batches


def _only_group(plan: Plan) -> GroupPlan:
    """The group of a plan, which has no other."""
    if len(plan.groups) != 1:
        rule = "must be one; Opacus has one noise multiplier for all records"
        raise InputError.one("plan.groups", rule, len(plan.groups))
    return plan.groups[0]


def _collated(items: list[Any]) -> Any:
    """Items as a batch."""
    try:
        return default_collate(items)
    except (TypeError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        rule = (
            "must have items that default_collate stacks, such as tensors of one shape"
        )
        raise InputError.one("dataset", rule, reason) from None


def _without_records(batch: Any) -> Any:
    """A batch of no records, in the structure of one of tensors."""
    if torch.is_tensor(batch):
        return batch[:0]
    # Other kinds, such as named tuples, have ways of their own to be made.
    if type(batch) is dict:
        return {name: _without_records(part) for name, part in batch.items()}
    if type(batch) in (list, tuple):
        return [_without_records(part) for part in batch]
    rule = "must have items of tensors and numbers, in lists or dicts"
    raise InputError.one("dataset", rule, type(batch).__name__)


def _refuse_what_opacus_refuses(module: torch.nn.Module) -> None:
    """Refuse modules in evaluation mode, and layers that Opacus does not take."""
    if not module.training:
        rule = "must be in training mode; call module.train() before"
        raise InputError.one("module", rule, "evaluation mode")
    faults = ModuleValidator.validate(module)
    if faults:
        rule = (
            "must have layers that Opacus takes (ModuleValidator.fix replaces others)"
        )
        raise InputError.one("module", rule, str(faults[0]))


def _refuse_global_hooks() -> None:
    """Refuse hooks of the whole process, which see records or move weights."""
    if (
        _has_any_global_hook()  # type: ignore[no-untyped-call]
        or torch_optimizer._global_optimizer_pre_hooks
        or torch_optimizer._global_optimizer_post_hooks
    ):
        rule = "must have no hooks for all modules or optimizers"
        raise InputError.one("torch", rule, "one that was registered")


def _refuse_extra_state(module: torch.nn.Module) -> None:
    """Refuse what a module adds to its state, which nobody watches."""
    for name, layer in module.named_modules():
        if type(layer).get_extra_state is not torch.nn.Module.get_extra_state:
            rule = "must have no extra state, which no noise protects"
            raise InputError.one("module", rule, f"{type(layer).__name__} at {name}")


def _refuse_half_precision(what: str, precision: torch.dtype) -> None:
    """Refuse numbers in whose precision a clipped gradient can be 1% too long."""
    if precision not in (torch.float32, torch.float64):
        rule = f"must have {what} of torch.float32, to be clipped exactly"
        raise InputError.one("module", rule, precision)


class GuardedEngine:
    """Opacus' ``PrivacyEngine`` under a plan.

    An epoch has as many steps as one over the sampling ratio.

    Args:
        plan: file of the plan.
        run: the run folder.
    """

    def __init__(self, plan: Path | str, run: Path | str) -> None:
        self.guard = opened(plan, run, "Opacus")

    def make_private(
        self,
        *,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: DataLoader[Any],
        noise_multiplier: float | None = None,
        max_grad_norm: float | None = None,
        **options: Any,
    ) -> tuple[GradSampleModule, PlannedOptimizer, DataLoader[Any]]:
        """As in Opacus; arguments on noise, norm and batches must be the plan's."""
        group = _only_group(self.guard.plan)
        ratio, sigma = self.guard.plan.at_round(group, 1)
        drawable = self.guard.plan.law_of(group).law.drawable(group.clients)
        batch_size = max(1, round(ratio * drawable))
        for name, value, planned in (
            ("noise_multiplier", noise_multiplier, sigma),
            ("max_grad_norm", max_grad_norm, self.guard.clipping_norm(group.name)),
            ("batch_size", data_loader.batch_size, batch_size),
        ):
            if value is None:
                continue
            is_number = isinstance(value, Real)
            if not is_number or not math.isclose(value, planned, rel_tol=1e-6):
                raise InputError.one(
                    name, f"must be {planned:.9g}, as in the plan", value
                )
        for name in set(options) - {"loss_reduction", "examples"}:
            value = options.pop(name)
            if value != _AS_PLANNED.get(name):
                raise InputError.one(name, "must be left to the plan", value)
        if data_loader.collate_fn is not default_collate:
            rule = (
                "must be default_collate, which mixes no records; a data set pads items"
            )
            name = getattr(data_loader.collate_fn, "__name__", "another")
            raise InputError.one("collate_fn", rule, name)
        if data_loader.num_workers or not isinstance(
            data_loader.sampler, (RandomSampler, SequentialSampler)
        ):
            _log.warning("the plan draws the batches: no sampler, no workers")
        epoch = max(1, round(1 / ratio))
        return guarded(
            self.guard, module, optimizer, data_loader.dataset, epoch, **options
        )

    def make_private_with_epsilon(
        self, *, target_epsilon: float, target_delta: float, epochs: int, **options: Any
    ) -> tuple[GradSampleModule, PlannedOptimizer, DataLoader[Any]]:
        """As in Opacus; the plan's budget must keep the target, in as many epochs."""
        plan = self.guard.plan
        group = plan.groups[0]
        for name, target, budget in (
            ("target_epsilon", target_epsilon, group.epsilon),
            ("target_delta", target_delta, group.delta),
        ):
            if not target >= budget:
                raise InputError.one(
                    name, f"must be {budget:.9g} or more, as in the plan", target
                )
        ratio, _ = plan.at_round(group, 1)
        steps = epochs * max(1, round(1 / ratio))
        if steps != plan.spec.rounds:
            rule = f"must have the plan's {plan.spec.rounds} steps"
            raise InputError.one("epochs", rule, steps)
        return self.make_private(**options)

    def get_epsilon(self, delta: float) -> float:
        """Upper bound on what the steps so far cost at ``delta``."""
        guard = self.guard
        [group] = guard.plan.groups
        if guard.round == 1:
            return 0.0
        ledger = read_ledger(guard.folder, guard.plan.digest)
        history = history_of(ledger.records, group.name)
        curve = PrivacyCurve(Relation(guard.plan.spec.relation))
        return curve.step(history).epsilon(delta).upper

    def __getattr__(self, name: str) -> Any:
        text = "what other accountants and checkpoints hold is not determined by its ledger"
        raise AttributeError(f"GuardedEngine has no {name}: {text}")
