"""A plain PyTorch loop under a plan: cohorts, totals, and a step with the noised mean.

::

    with Guard("plan.json", "run") as guard:
        loop = TorchLoop(guard, module)
        for cohort in loop.rounds():
            for group, client in cohort.members:
                trained = copy.deepcopy(module)
                ...                                # train it on the client's data
                loop.add(group, client, trained)

When the body of the loop ends, the sum is noised, the model makes its step, and both are stored
before the release is booked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from privplan.guard import Cohort, Guard, Layout

try:
    import torch
except ImportError as error:
    needs = "privplan.contrib.adapters.torch_loop needs torch: pip install 'privplan[simulate]'"
    raise ImportError(needs) from error

_STATE = "optimizer/"
Available = Callable[[int], Mapping[str, Iterable[int]] | None]


def arrays_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """The module's state as arrays: parameters, and buffers such as running means."""
    return {
        name: one.detach().cpu().numpy() for name, one in module.state_dict().items()
    }


class TorchLoop:
    """The rounds of a plan for a module, whose state is the global model.

    Args:
        guard: the guard of the run; its last model, if any, is loaded into the module.
        module: the global model.
        optimizer: optimiser of the module's parameters that makes the server's step, with the
            noised mean as negative gradient; None adds the mean. Buffers get the mean.
        available: returns the clients that are there in a round; all when None.
    """

    def __init__(
        self,
        guard: Guard,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        available: Available | None = None,
    ) -> None:
        self.guard, self.module = guard, module
        self._optimizer, self._available = optimizer, available
        self._layout = Layout.of(arrays_of(module))
        stored = guard.model
        if stored is not None:
            self._load(stored)

    def rounds(self) -> Iterator[Cohort]:
        """The cohorts of the rounds that are left; a round ends when the next is asked for.

        An interrupted round makes its step first, with the same release.
        """
        found = self.guard.interrupted
        if found is not None:
            self._step(found.round, found.mean)
        for round_ in self.guard.rounds():
            there = None if self._available is None else self._available(round_)
            cohort = self.guard.draw(round_, there)
            self._start = self._layout.vector(arrays_of(self.module))
            yield cohort
            if self.guard.round == round_:  # unless the body called guard.fail
                nobody = None
                if not any(self.guard.total(name).reported for name in cohort.clients):
                    first = self.guard.plan.groups[0].name
                    nobody = {first: np.zeros(self._layout.size)}
                released = self.guard.release(round_, nobody)
                self._step(round_, released.mean)

    def add(self, group: str, client: int, trained: torch.nn.Module) -> None:
        """Add a client's update: its trained module less the global model."""
        update = self._layout.vector(arrays_of(trained)) - self._start
        self.guard.add(self.guard.round, group, client, update)

    def _step(self, round_: int, mean: np.ndarray) -> None:
        """Move the module by the mean update [d], and store it."""
        before = arrays_of(self.module)
        after = self._layout.arrays(self._layout.vector(before) + mean, before)
        if self._optimizer is None:
            self._load(after)
        else:
            steps = self._layout.arrays(mean, before)
            parameters = dict(self.module.named_parameters())
            self._load(
                {name: one for name, one in after.items() if name not in parameters}
            )
            for name, parameter in parameters.items():
                parameter.grad = -torch.from_numpy(steps[name]).to(parameter)
            self._optimizer.step()
            self._optimizer.zero_grad()
        self.guard.record(round_, {**arrays_of(self.module), **self._optimizer_state()})

    def _optimizer_state(self) -> dict[str, np.ndarray]:
        if self._optimizer is None:
            return {}
        return {
            f"{_STATE}{index}/{name}": one.detach().cpu().numpy()
            for index, values in self._optimizer.state_dict()["state"].items()
            for name, one in values.items()
            if isinstance(one, torch.Tensor)
        }

    def _load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load arrays into the module, and into the optimiser what is its state."""
        own = {
            k: torch.from_numpy(v.copy()) for k, v in arrays.items() if _STATE not in k
        }
        self.module.load_state_dict(own, strict=False)
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, one in arrays.items():
            if name.startswith(_STATE):
                _, index, key = name.split("/", 2)
                state.setdefault(int(index), {})[key] = torch.from_numpy(one.copy())
        if self._optimizer is not None and state:
            self._optimizer.load_state_dict(
                {**self._optimizer.state_dict(), "state": state}
            )
