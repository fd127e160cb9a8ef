"""pfl-research 0.6: users drawn by a plan, its scales per group, its noise, and a halt.

With one guard::

    dataset = PlannedUsers(guard, lambda group, position: user_dataset)
    backend = SimulatedBackend(dataset, None, postprocessors=[GuardedMechanism(guard)])
    algorithm.run(..., callbacks=[StopAtBudget(guard)])

or, in a program that has a backend, ``guarded(SimulatedBackend, "plan.json",
"run")(...)``. The server's statistics are the noised mean with weight 1, so that no
weight of a user enters it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from privplan.contrib.adapters.members import opened
from privplan.errors import InputError
from privplan.guard import Guard, clip

try:
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset, FederatedDatasetBase
    from pfl.internal.ops.selector import get_default_framework_module as get_ops
    from pfl.metrics import Metrics
    from pfl.privacy.privacy_mechanism import (
        CentralPrivacyMechanism,
        NoPrivacy,
        PrivacyMechanism,
    )
except ImportError as error:
    raise ImportError("privplan.contrib.adapters.pfl needs pfl 0.6") from error

_NOBODY = "privplan: nobody was drawn"


class PlannedUsers(FederatedDatasetBase):  # type: ignore[misc]
    """The users of a plan; ``get_cohort`` draws by its law and ignores the given size.

    Where nobody is drawn, the first user trains and its update counts as zero, since
    pfl has no statistics of an empty cohort and noise must be released all the same.

    Args:
        guard: the guard of the run.
        make_dataset: data of a user, by group and position in it.
    """

    def __init__(self, guard: Guard, make_dataset: Callable[[str, int], Any]) -> None:
        super().__init__()
        self._guard = guard
        self._make_dataset = make_dataset
        self._drawn = 0

    def __next__(self) -> tuple[Any, int]:
        """One user cannot be drawn by itself."""
        raise InputError.one("dataset", "must be drawn by cohorts under a plan", "next")

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Any, int]]:
        """The users that the law draws in the guard's next round, each with a seed."""
        # pfl trained with it, and nothing was released.
        if self._drawn == self._guard.round:
            rule = "must have the GuardedMechanism of this guard"
            raise InputError.one(
                "postprocessors", rule, f"none that released round {self._drawn}"
            )
        self._drawn = self._guard.round
        cohort = self._guard.draw(self._drawn)
        for group, position in cohort.members:
            yield self._user(group, position, f"{group}/{position}"), self._get_seed()
        if not len(cohort):
            yield (
                self._user(self._guard.plan.groups[0].name, 0, _NOBODY),
                self._get_seed(),
            )

    def _user(self, group: str, position: int, name: str) -> Any:
        data = self._make_dataset(group, position)
        data._user_id = name
        return data


class GuardedMechanism(CentralPrivacyMechanism):  # type: ignore[misc]
    """Central differential privacy by a plan with one joint release of all groups.

    Args:
        guard: the guard of the run.

    Raises:
        InputError: when the plan has one release per group, since pfl sums over all
            users.
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        if guard.plan.release != "joint" and len(guard.plan.groups) > 1:
            rule = "must be joint; pfl adds the updates of all groups in one sum"
            raise InputError.one("plan.release", rule, guard.plan.release)
        self._guard = guard

    def postprocess_one_user(
        self, *, stats: Any, user_context: Any
    ) -> tuple[Any, Metrics]:
        """Clip a user's update and scale it by the factor of its group."""
        if user_context.user_id == _NOBODY:
            return _replaced(stats, np.zeros(len(_vector(stats)))), Metrics()
        group, _, position = str(user_context.user_id).rpartition("/")
        # The sum that is released; pfl's own has to agree with it, so nobody is in that
        # one twice.
        self._guard.add(self._guard.round, group, int(position), _vector(stats))
        vector = clip(
            _vector(stats), self._guard.clipping_norm(group)
        ) * self._guard.scale(group)
        return _replaced(stats, vector), Metrics()

    def postprocess_server(
        self, *, stats: Any, central_context: Any, aggregate_metrics: Any
    ) -> tuple[Any, Metrics]:
        """The noised mean, booked before it is returned.

        The metrics of the round's training are emptied. They are exact, so that they
        would tell of single users, and callbacks could steer training by them.
        Statistics and metrics of other populations are not touched.
        """
        if str(central_context.population).rpartition(".")[2].lower() != "train":
            return stats, Metrics()
        # pfl keeps this object and has no call that removes an entry.
        Metrics.__init__(aggregate_metrics)
        round_ = self._guard.round
        released = self._guard.release(round_, self._nobody(_vector(stats)))
        self._guard.record(round_)
        return _replaced(stats, released.mean), Metrics()

    def _nobody(self, received: np.ndarray) -> dict[str, np.ndarray] | None:
        """The sum of nobody [d]; None where users were added.

        Then pfl's sum must agree with that of the guard.
        """
        names = [group.name for group in self._guard.plan.groups]
        totals = [self._guard.total(name).total for name in names]
        summed = np.zeros(len(received))
        for total in totals:
            if total is not None:
                summed = summed + total
        # pfl adds in single precision.
        absolute = 1e-5 * (1 + np.abs(summed).max())
        if not np.allclose(received, summed, rtol=1e-4, atol=absolute):
            rule = (
                "must change nothing after GuardedMechanism, which clips; distance of "
                "the sums 0"
            )
            distance = float(np.linalg.norm(received - summed))
            raise InputError.one("postprocessors", rule, distance)
        if not all(total is None for total in totals):
            return None
        return {names[0]: received}


def guarded(
    backend: Callable[..., Any],
    plan: Path | str,
    run: Path | str,
    users: Sequence[Any] | None = None,
) -> Callable[..., Any]:
    """A backend whose cohorts, clipping and noise are those of a plan.

    Args:
        backend: a class such as ``SimulatedBackend``; what is returned is called in its
            place.
        plan: file of the plan.
        run: the run folder.
        users: ids of a ``FederatedDataset``'s users, in the plan's order of groups.
            None for an artificial data set: each client of the plan is one user that it
            makes.
    """

    def make_backend(
        training_data: Any, val_data: Any, postprocessors: Any = None, **options: Any
    ) -> Any:
        user_postprocessors = list(postprocessors or ())
        for postprocessor in user_postprocessors:
            is_private = isinstance(postprocessor, PrivacyMechanism)
            if is_private and not isinstance(postprocessor, NoPrivacy):
                rule = (
                    "must have no privacy mechanism: the guard clips and adds the plan's "
                    "noise"
                )
                name = type(postprocessor).__name__
                raise InputError.one("postprocessors", rule, name)
        guard = opened(plan, run, "pfl", resends=False)

        # Which user is which client of the plan.
        places: list[tuple[str, int]] = []
        for group in guard.plan.groups:
            places += [(group.name, position) for position in range(group.clients)]
        has_ids = isinstance(training_data, FederatedDataset) or users is not None
        if has_ids and len(set(users or ())) != len(places):
            rule = f"must be the different ids of the plan's {len(places)} clients"
            raise InputError.one("users", rule, len(set(users or ())))
        ids = dict(zip(places, users or (), strict=False))

        @cache
        def artificial(group: str, position: int) -> Any:
            return next(training_data)[0]

        def user(group: str, position: int) -> Any:
            return training_data.make_dataset_fn(ids[group, position])

        data = PlannedUsers(guard, artificial if users is None else user)
        all_postprocessors = [*user_postprocessors, GuardedMechanism(guard)]
        return _checking_models(backend(data, val_data, all_postprocessors, **options))

    return make_backend


def _checking_models(backend: Any) -> Any:
    """A backend that refuses models with running statistics before it trains them."""
    gather = backend.async_gather_results

    def checked(model: Any, *arguments: Any, **named: Any) -> Any:
        require_no_statistics(model)
        return gather(model, *arguments, **named)

    backend.async_gather_results = checked
    return backend


def require_no_statistics(model: Any) -> None:
    """Refuse a model with running statistics, which pfl leaves out of its updates.

    Users would change them without clipping and noise.

    Raises:
        InputError: naming the layer.
    """
    module = getattr(model, "pytorch_model", None)
    if module is None:
        return
    for name, layer in module.named_modules():
        if getattr(layer, "track_running_stats", False):
            rule = "must have no running statistics of users' records"
            raise InputError.one("model", rule, f"{type(layer).__name__} at {name}")


class StopAtBudget(TrainingProcessCallback):  # type: ignore[misc]
    """Ends training when the plan is done or the next release would exceed a budget.

    Args:
        guard: the guard of the run.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Whether to stop."""
        require_no_statistics(model)
        return self._guard.finished or not self._guard.may_release(), Metrics()


def _vector(stats: Any) -> np.ndarray:
    """The statistics as one vector [d]; their weight is no part of it."""
    _, weights = stats.get_weights()
    to_numpy = get_ops().to_numpy
    parts = [np.asarray(to_numpy(weight), np.float64).ravel() for weight in weights]
    return np.concatenate(parts)


def _replaced(stats: Any, vector: np.ndarray) -> Any:
    """Statistics with other numbers and weight 1."""
    metadata, weights = stats.get_weights()
    parts = []
    start = 0
    for weight in weights:
        shape = tuple(get_ops().get_shape(weight))
        end = start + int(np.prod(shape))
        part = vector[start:end].reshape(shape).astype(np.float32)
        parts.append(get_ops().to_tensor(part))
        start = end
    replaced = stats.from_weights(metadata, parts)
    if hasattr(replaced, "weight"):
        replaced.weight = 1.0
    return replaced
