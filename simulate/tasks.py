"""Tasks: what records are labelled with, the loss of training, the metric.

The metric is computed on the outputs of all test records and names the score of the
run. After which rounds a run is evaluated, and on which test records, is known before
it begins.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.streams import Purpose, stream
from simulate.data.own_arrays import size_faults
from simulate.data.partition.clients import ClientPartition
from simulate.data.user_code import error_line
from simulate.models.objective import CROSS_ENTROPY, Loss, Objective, fitted
from simulate.rare_classes import auroc, balanced_accuracy, calibration_error

# Target of a token that is not predicted, such as padding; PyTorch's default.
IGNORED = -100
MULTI_CLASS = "multi-class"
ACCURACY = "accuracy"


@dataclass(frozen=True)
class Metric:
    """A measure of a model on test records."""

    name: str  # in records, verdicts and plots
    # (outputs [n, ...], targets [n, ...]) to a number
    compute: Callable[[Tensor, Tensor], Any]
    is_own: bool = False  # whether it is code of the user

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        """The metric of some records; it gets copies, which it may change."""
        predicted = fitted(outputs, targets)
        try:
            return float(self.compute(predicted.clone(), targets.clone()))
        except Exception as error:  # the user's code can fail in any way
            rule = f"must compute a number from outputs and targets ({self.name})"
            raise InputError.one("metric", rule, error_line(error)) from None


Function = Callable[[Tensor, Tensor], Tensor]
"""(outputs [n, ...], targets [n, ...]) to a number."""


@dataclass(frozen=True)
class Task:
    """A kind of prediction."""

    name: str  # on the command line
    loss: Loss  # mean loss of records
    metrics: Mapping[str, Function]  # by name, the default first


def _token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over records of the mean cross-entropy of their tokens."""
    losses = functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(targets.shape)
    tokens = (targets != IGNORED).sum(1).clamp(min=1)
    return (losses.sum(1) / tokens).mean()


def _class_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) == targets).double().mean()


def _label_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == (targets > 0.5)).double().mean()


def _f1(outputs: Tensor, targets: Tensor) -> Tensor:
    """F1 of the positive labels, counted over all records and labels; 0 without any."""
    predicted = outputs > 0
    true = targets > 0.5
    hits = (predicted & true).sum().double()
    return 2 * hits / (predicted.sum() + true.sum()).clamp(min=1)


def _rmse(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.double() - targets).square().mean().sqrt()


def _mae(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.double() - targets).abs().mean()


def _r2(outputs: Tensor, targets: Tensor) -> Tensor:
    residual = (outputs.double() - targets).square().sum()
    return 1 - residual / (targets.double() - targets.double().mean(0)).square().sum()


def _token_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(-1) == targets)[targets != IGNORED].double().mean()


def _perplexity(outputs: Tensor, targets: Tensor) -> Tensor:
    """Exponential of the mean cross-entropy of all tokens."""
    flat = outputs.flatten(0, 1)
    return functional.cross_entropy(flat, targets.flatten(), ignore_index=IGNORED).exp()


BINARY = functional.binary_cross_entropy_with_logits
RARE_CLASSES: Mapping[str, Function] = MappingProxyType(
    {
        "balanced-accuracy": balanced_accuracy,
        "auroc": auroc,
        "calibration-error": calibration_error,
    }
)
"""Metrics that say something where most records are of one class."""
_TASKS = (
    Task(MULTI_CLASS, CROSS_ENTROPY.loss, {ACCURACY: _class_accuracy, **RARE_CLASSES}),
    Task("binary", BINARY, {ACCURACY: _label_accuracy, "f1": _f1, **RARE_CLASSES}),
    Task("multi-label", BINARY, {"f1": _f1, ACCURACY: _label_accuracy, "auroc": auroc}),
    Task("regression", functional.mse_loss, {"rmse": _rmse, "mae": _mae, "r2": _r2}),
    Task(
        "next-token",
        _token_loss,
        {"perplexity": _perplexity, ACCURACY: _token_accuracy},
    ),
)
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _TASKS})
"""The tasks by name."""


def task_of(name: str) -> Task:
    """The task of a name."""
    if name not in TASKS:
        raise InputError.one("task", f"must be one of {', '.join(TASKS)}", name)
    return TASKS[name]


def objective_of(task: str, loss: Any, targets: Tensor | None) -> Objective:
    """The loss of a run over a data set's targets."""
    if loss is None and targets is None:
        return CROSS_ENTROPY
    if loss is None:
        return Objective(task_of(task).loss, targets)
    return Objective(_called("loss", loss), targets)


def metric_of(task: str, metric: Any) -> Metric:
    """The metric of a run.

    Args:
        task: its name.
        metric: a name, a function of outputs and targets, or an object that accumulates
            as those of ``torchmetrics`` do; the task's first when None.

    Raises:
        InputError: for an unknown name, or for what cannot be called.
    """
    of_task = task_of(task).metrics
    if metric is None:
        metric = next(iter(of_task))
    if isinstance(metric, str):
        metric = _as_named(metric)
        if metric not in of_task:
            names = ", ".join(of_task)
            rule = f"must be one of {names} for {task}, or package.module:name"
            raise InputError.one("metric", rule, metric)
        return Metric(metric, of_task[metric])
    label = getattr(metric, "__name__", None) or type(metric).__name__
    if any(_as_named(label) in task.metrics for task in _TASKS):
        rule = (
            "must not have the name of a built-in metric when it is your own; rename it"
        )
        raise InputError.one("metric", rule, label)
    function = _called("metric", metric)
    if not (hasattr(function, "update") and hasattr(function, "compute")):
        return Metric(label, function, is_own=True)

    def accumulated(outputs: Tensor, targets: Tensor) -> Tensor:
        state: Any = copy.deepcopy(function)
        state.reset()
        state.update(outputs, targets)
        value: Tensor = state.compute()
        return value

    return Metric(label, accumulated, is_own=True)


def _as_named(name: str) -> str:
    """The name of a metric that Python's libraries write otherwise."""
    return name.lower().replace("_", "-")


def is_accuracy(task: str, metric: Any) -> bool:
    """Whether a metric is the accuracy of classes."""
    if task != MULTI_CLASS:
        return False
    # Libraries may overload ``==`` of their objects.
    return metric is None or (isinstance(metric, str) and metric == ACCURACY)


def _called(field: str, value: Any) -> Callable[[Tensor, Tensor], Any]:
    """A function of outputs and targets; a class of modules is built first."""
    if isinstance(value, type) and issubclass(value, nn.Module):
        try:
            value = value()
        except Exception as error:  # the user's code can fail in any way
            rule = "must be built without arguments; else name an instance"
            raise InputError.one(field, rule, error_line(error)) from None
    if not callable(value):
        rule = "must be a function of outputs and targets"
        raise InputError.one(field, rule, type(value).__name__)
    function: Callable[[Tensor, Tensor], Any] = value
    return function


def finite_or_none(value: float) -> float | None:
    """The value; None when it is not finite."""
    if math.isfinite(value):
        return value
    return None


def _as_tensor(values: Any) -> Tensor:
    """Values as a tensor; those of a read-only array are copied, else PyTorch warns."""
    is_read_only = isinstance(values, np.ndarray) and not values.flags.writeable
    return torch.as_tensor(values.copy() if is_read_only else values)


def targets_of(task: str, y: Any, records: Tensor) -> tuple[Tensor, Tensor]:
    """Model inputs [n, ...] and targets [n, ...] of a task other than multi-class."""
    if task == "next-token":
        return _next_tokens(y, records)
    if y is None:
        raise InputError.one("data.y", f"is required for {task}", "none")
    try:
        targets = _as_tensor(y).detach().cpu()
        targets = targets.float()
    except (TypeError, ValueError, RuntimeError):
        raise InputError.one(
            "data.y", f"must be numbers for {task}", type(y).__name__
        ) from None
    dimensions = 2 if task == "multi-label" else 1
    is_vector_regression = task == "regression" and targets.ndim == 2
    if targets.ndim != dimensions and not is_vector_regression:
        shape = "[records, labels]" if dimensions == 2 else "[records]"
        raise InputError.one(
            "data.y", f"must have shape {shape} for {task}", tuple(targets.shape)
        )
    faults = list(size_faults("data.y", targets))
    if faults:
        raise InputError(faults)
    if task != "regression" and not ((targets == 0) | (targets == 1)).all():
        wrong = targets[(targets != 0) & (targets != 1)][0]
        raise InputError.one("data.y", f"must be 0 or 1 for {task}", float(wrong))
    return records, targets


def _next_tokens(y: Any, records: Tensor) -> tuple[Tensor, Tensor]:
    if records.dtype != torch.int64 or records.ndim != 2 or records.shape[1] < 2:
        rule = "must be token ids of shape [records, 2 tokens or more] for next-token"
        raise InputError.one("data.x", rule, f"{records.dtype} {tuple(records.shape)}")
    if y is None:
        return records[:, :-1].contiguous(), records[:, 1:].contiguous()
    targets = _as_tensor(y).detach().cpu()
    if targets.shape != records.shape or targets.is_floating_point():
        rule = f"must be token ids of shape {tuple(records.shape)}, or left out"
        raise InputError.one("data.y", rule, f"{targets.dtype} {tuple(targets.shape)}")
    return records, targets.to(torch.int64)


# --- After which rounds a run is evaluated, and on which test records. ----------------

# Largest time of evaluation during training, as a share of that.
EVALUATION_SHARE = 0.12
# Cost of a training step on one record, in forward passes.
TRAINING_COST = 3
# Least number of evaluations, in a run that has as many rounds.
MIN_EVALUATIONS = 5
# Test records in an evaluation during training, where there are as many.
MIN_RECORDS = 1000
# Most test records of the global model's evaluations in training.
EVALUATED_RECORDS = 10_000


def records_within_share(
    rounds: int, interval: int, cohort: float, images: int, test_records: int
) -> int:
    """Test records of an evaluation, so that all together keep EVALUATION_SHARE.

    Args:
        rounds: of the run.
        interval: rounds between two evaluations.
        cohort: expected number of participants.
        images: records that a participant trains on in a round.
        test_records: all of them, which the last evaluation uses.
    """
    before_last = max(1, (rounds - 1) // interval)
    share = EVALUATION_SHARE * TRAINING_COST * cohort * images * rounds
    return max(MIN_RECORDS, int((share - test_records) / before_last))


def evaluation_schedule(
    plan: Plan, partition: ClientPartition, test_records: int
) -> tuple[int, int]:
    """Rounds between two evaluations of a run, and test records in each.

    Args:
        plan: of the run.
        partition: records of the clients.
        test_records: number of all of them.
    """
    local = plan.spec.local
    rounds = plan.spec.rounds
    records = partition.sizes(np.concatenate(partition.members)).mean()
    images = round(local.steps * min(local.batch_size, records))
    cohort = sum(group.expected_cohort for group in plan.groups)

    # Rounds without evaluation keep the share of time, as far as enough others remain.
    round_cost = TRAINING_COST * cohort * images
    evaluation_cost = min(test_records, EVALUATED_RECORDS)
    rounds_of_share = math.ceil(evaluation_cost / (EVALUATION_SHARE * round_cost))
    interval = max(1, min(rounds_of_share, rounds // MIN_EVALUATIONS))
    within_share = records_within_share(rounds, interval, cohort, images, test_records)
    return interval, min(within_share, EVALUATED_RECORDS)


def evaluations(
    plan: Plan, partition: ClientPartition, test_records: int, seed: int
) -> dict[int, np.ndarray]:
    """Indices of the test records of each evaluation of a global model, by round.

    After the last round all are evaluated.
    """
    interval, max_records = evaluation_schedule(plan, partition, test_records)
    rounds = plan.spec.rounds
    all_rows = np.arange(test_records)
    rows = all_rows
    if test_records > max_records:
        order = stream(seed, Purpose.EVALUATION, 1).permutation(test_records)
        rows = np.sort(order[:max_records])
    before_last = dict.fromkeys(range(interval, rounds, interval), rows)
    return {**before_last, rounds: all_rows}
