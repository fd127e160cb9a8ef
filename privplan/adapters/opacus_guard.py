"""Opacus under a plan: batches drawn by the guard, its noise, and a booking per executed step.

The clients of the plan are the records of the data set (or whatever its items are), in one group,
and its rounds are the optimiser's steps::

    with Guard("plan.json", "run") as guard:
        model, optimizer, batches = guarded(guard, model, optimizer, dataset)
        for inputs, labels in batches:   # ends with the plan, or before the budget is exceeded
            ...
            optimizer.step()

Opacus draws the noise; each step is booked before it changes the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from privplan.errors import InputError
from privplan.guard import Guard

try:
    import torch
    from opacus import GradSampleModule
    from opacus.data_loader import shape_safe, wrap_collate_with_empty
    from opacus.optimizers import DPOptimizer
    from torch.utils.data import DataLoader, Dataset, default_collate
except ImportError as error:
    raise ImportError(
        "privplan.adapters.opacus_guard needs opacus: pip install 'privplan[simulate]'"
    ) from error


class PlannedBatches:
    """A batch sampler: the positions that the guard draws, step by step.

    Args:
        guard: the guard of the run.
        group: name of the plan's only group.
    """

    def __init__(self, guard: Guard, group: str) -> None:
        self._guard, self._group = guard, group

    def __len__(self) -> int:
        """Number of steps that are left in the plan."""
        return max(0, self._guard.plan.spec.rounds - self._guard.round + 1)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches until the plan ends or the next step would exceed the budget.

        Raises:
            InputError: when a batch was not followed by a step of the optimiser.
        """
        for round_ in self._guard.rounds():
            yield list(self._guard.draw(round_).clients[self._group])


def guarded(
    guard: Guard,
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Dataset[Any],
    **options: Any,
) -> tuple[GradSampleModule, DPOptimizer, DataLoader[Any]]:
    """A module, an optimiser and a loader that execute the plan.

    Args:
        guard: the guard of the run.
        module: the module, of layers that Opacus supports.
        optimizer: its optimiser.
        dataset: as many items as the plan's group has clients.
        options: of Opacus' ``DPOptimizer``, such as ``loss_reduction``.

    Raises:
        InputError: when the plan does not fit Opacus: several groups, or another number of items.
    """
    groups, size = guard.plan.groups, len(dataset)  # type: ignore[arg-type]
    if len(groups) != 1:
        rule = "must be one; Opacus has one noise multiplier for all records"
        raise InputError.one("plan.groups", rule, len(groups))
    [group] = groups
    if size != group.clients:
        raise InputError.one("dataset", f"must have {group.clients} items, as the plan", size)
    device = next(module.parameters()).device
    source = torch.Generator(device)
    source.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
    ratio, sigma = guard.plan.at_round(group, min(guard.round, guard.plan.spec.rounds))
    private = DPOptimizer(
        optimizer,
        noise_multiplier=sigma,
        max_grad_norm=guard.clipping_norm(group.name),
        expected_batch_size=ratio * group.clients,
        generator=source,
        **options,
    )

    def executed(step: DPOptimizer) -> None:
        dimension = sum(one.numel() for one in step.params)
        guard.record_noised(guard.round, dimension, step.noise_multiplier * step.max_grad_norm)
        if not guard.finished:
            ratio, step.noise_multiplier = guard.plan.at_round(group, guard.round)
            step.expected_batch_size = ratio * group.clients

    private.attach_step_hook(executed)
    sample = default_collate([dataset[0]])
    parts = sample if isinstance(sample, (list, tuple)) else [sample]
    collate = wrap_collate_with_empty(
        collate_fn=default_collate,
        sample_empty_shapes=[(0, *shape_safe(part)[1:]) for part in parts],
        dtypes=[part.dtype for part in parts],
    )
    batches: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=PlannedBatches(guard, group.name),
        collate_fn=collate,
    )
    return GradSampleModule(module), private, batches
