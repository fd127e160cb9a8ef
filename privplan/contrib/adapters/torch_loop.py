"""A plain PyTorch loop under a plan: cohorts, totals, and a step with the noised mean.

::

    with Guard("plan.json", "run") as guard:
        loop = TorchLoop(guard, module)
        for cohort in loop.rounds():
            for group, client in cohort.members:
                trained = copy.deepcopy(module)
                ...                                # train it on the client's data
                loop.add(group, client, trained)

When the body of the loop ends, the sum is noised, the model makes its step, and both
are stored before the release is booked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.guard import Cohort, Guard, Layout

try:
    import torch
except ImportError as error:
    needs = "needs torch: pip install 'privplan[simulate]'"
    raise ImportError(f"privplan.contrib.adapters.torch_loop {needs}") from error

# Before the names of arrays of the optimiser's state: index of the parameter, and key.
_STATE = "optimizer/"
Available = Callable[[int], Mapping[str, Iterable[int]] | None]


def arrays_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """The module's state as arrays: parameters, and buffers such as running means.

    Raises:
        InputError: for a state that NumPy does not have.
    """
    arrays = {}
    for name, tensor in module.state_dict().items():
        try:
            arrays[name] = tensor.detach().cpu().numpy()
        except (TypeError, AttributeError):  # torch.bfloat16, or an extra state
            rule = "must have a state of tensors in a precision of NumPy"
            raise InputError.one("module", rule, name) from None
    return arrays


class TorchLoop:
    """The rounds of a plan for a module, whose state is the global model.

    Args:
        guard: the guard of the run; its last model, if any, is loaded into the module.
        module: the global model.
        optimizer: optimiser of the module's parameters that makes the server's step,
            with the noised mean as negative gradient; None adds the mean. Buffers get
            the mean.
        available: returns the clients that are there in a round; all when None.

    Raises:
        InputError: when the folder has the model of another module, or the optimiser
            steps only with a closure.
    """

    def __init__(
        self,
        guard: Guard,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        available: Available | None = None,
    ) -> None:
        self.guard = guard
        self.module = module
        self._optimizer = optimizer
        self._available = available
        self._layout = Layout.of(arrays_of(module))
        if isinstance(optimizer, torch.optim.LBFGS):
            rule = "must step without a closure, by the noised mean alone"
            raise InputError.one("optimizer", rule, "LBFGS")
        stored = guard.model
        if stored is not None:
            self._refuse_other_module(stored)
            self._load(stored)
        # What was released, from which every client and every step starts; a copy,
        # since arrays of a module share its memory.
        self._released = copy.deepcopy(arrays_of(module))
        self._state = self._copied_state()

    def rounds(self) -> Iterator[Cohort]:
        """The cohorts of the rounds that are left.

        A round ends when the next is asked for. An interrupted round makes its step
        first, with the same release.
        """
        interrupted = self.guard.interrupted
        if interrupted is not None:
            self._step(interrupted.round, interrupted.mean)
        for round_ in self.guard.rounds():
            available = None if self._available is None else self._available(round_)
            cohort = self.guard.draw(round_, available)
            yield cohort
            if self.guard.round != round_:
                # The body called guard.fail.
                continue
            # Noise is released all the same when nobody reported.
            nobody = None
            if not any(self.guard.total(name).reported for name in cohort.clients):
                first = self.guard.plan.groups[0].name
                nobody = {first: np.zeros(self._layout.size)}
            released = self.guard.release(round_, nobody)
            self._step(round_, released.mean)

    def add(self, group: str, client: int, trained: torch.nn.Module) -> None:
        """Add a client's update: its trained module less the global model.

        Raises:
            InputError: when the global model itself was trained, from which the next
                client would start.
        """
        for name, array in arrays_of(self.module).items():
            if not np.array_equal(array, self._released[name], equal_nan=True):
                rule = "must stay as released, while clients train copies of it"
                raise InputError.one("module", rule, f"another {name}")
        start = self._layout.vector(self._released)
        update = self._layout.vector(arrays_of(trained)) - start
        self.guard.add(self.guard.round, group, client, update)

    def _step(self, round_: int, mean: np.ndarray) -> None:
        """Move the module by the mean update [d], and store it."""
        # What the module holds may be a client's.
        before = self._released
        after = self._layout.arrays(self._layout.vector(before) + mean, before)
        if self._optimizer is None:
            self._load(after)
        else:
            steps = self._layout.arrays(mean, before)
            parameters = dict(self.module.named_parameters())
            unchanged = {
                name: array for name, array in before.items() if name in parameters
            }
            self._load({**after, **unchanged})
            for name, parameter in parameters.items():
                parameter.grad = -torch.from_numpy(steps[name]).to(parameter)
            # As are moments of steps that were none of releases.
            self._optimizer.state.clear()
            self._optimizer.state.update(self._state)
            self._optimizer.step()
            self._optimizer.zero_grad()
            self._state = self._copied_state()
        self._released = copy.deepcopy(arrays_of(self.module))
        self.guard.record(round_, {**self._released, **self._optimizer_state()})

    def _refuse_other_module(self, stored: Mapping[str, np.ndarray]) -> None:
        """Refuse a module with other arrays than those of the stored model."""
        arrays = arrays_of(self.module)
        shapes = {(name, array.shape) for name, array in arrays.items()}
        stored_shapes = {
            (name, array.shape)
            for name, array in stored.items()
            if not name.startswith(_STATE)
        }
        differing = sorted(shapes ^ stored_shapes)
        if differing:
            rule = "must have the arrays of the stored model, with their shapes"
            raise InputError.one("module", rule, differing[0])

    def _copied_state(self) -> dict[Any, Any]:
        """Copies of what the optimiser keeps of its steps, by parameter."""
        if self._optimizer is None:
            return {}
        states = self._optimizer.state.items()
        return {parameter: copy.deepcopy(state) for parameter, state in states}

    def _optimizer_state(self) -> dict[str, np.ndarray]:
        if self._optimizer is None:
            return {}
        arrays: dict[str, np.ndarray] = {}
        for index, values in self._optimizer.state_dict()["state"].items():
            for name, value in values.items():
                if isinstance(value, torch.Tensor):
                    arrays[f"{_STATE}{index}/{name}"] = value.detach().cpu().numpy()
        return arrays

    def _load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load arrays into the module, and into the optimiser what is its state."""
        of_module = {
            name: torch.from_numpy(array.copy())
            for name, array in arrays.items()
            if not name.startswith(_STATE)
        }
        self.module.load_state_dict(of_module)
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, array in arrays.items():
            if name.startswith(_STATE):
                _, index, key = name.split("/", 2)
                state.setdefault(int(index), {})[key] = torch.from_numpy(array.copy())
        if self._optimizer is not None and state:
            whole_state = {**self._optimizer.state_dict(), "state": state}
            self._optimizer.load_state_dict(whole_state)
