"""The state of a rule of the user's: a part of its own of what the server keeps.

Rules of the project share one mapping, by distinct keys, because some of them read what
others keep. A rule of somebody else cannot know those keys. So where its ``start`` is
defined outside this package, it gets and returns its own tensors alone, by any names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from simulate.signatures import require_types

State = Mapping[str, Tensor]
PREFIX = "own "  # of the keys of a user's rule, before the kind of the rule


def is_own(function: Callable[..., Any]) -> bool:
    """Whether a function is defined outside this package."""
    package = __name__.partition(".")[0]
    module = getattr(function, "__module__", None) or ""
    return module.partition(".")[0] != package


@dataclass(frozen=True)
class OwnStart:
    """The first state of a user's rule, under keys that no other rule has."""

    function: Callable[[Tensor], State]
    prefix: str

    def __call__(self, theta: Tensor) -> State:
        """The state for the first global vector [d].

        Raises:
            InputError: where the rule starts with anything else than tensors by name.
        """
        started = self.function(theta)
        kind = self.prefix.removeprefix(PREFIX).removesuffix(": ")
        hints = {"start": Mapping[str, Tensor]}
        require_types({"start": started}, hints, f"{kind}.", "return")
        return {self.prefix + key: value for key, value in started.items()}


@dataclass(frozen=True)
class OwnRule:
    """A user's rule, which gets its own state as its last argument."""

    function: Callable[..., Any]
    prefix: str

    def __call__(self, *arguments: Any) -> Any:
        """The rule's result, with the state of all other rules beside its own."""
        *vectors, state = arguments
        tensors = {
            key.removeprefix(self.prefix): value
            for key, value in state.items()
            if key.startswith(self.prefix)
        }
        # Another rule of the user's calls this one with what is its own already.
        if not tensors:
            return self.function(*arguments)
        result = self.function(*vectors, tensors)
        # What is no state is refused where it is used.
        if not isinstance(result, tuple) or not isinstance(result[-1], Mapping):
            return result
        vector, after = result
        named = {self.prefix + key: value for key, value in after.items()}
        return vector, {**state, **named}


def isolate(component: Any, kind: str, rules: tuple[str, ...]) -> None:
    """Give a component of the user's its own state.

    Args:
        component: a frozen dataclass with ``start``, changed in place.
        kind: of the component.
        rules: names of its functions whose last argument is the state.
    """
    prefix = f"{PREFIX}{kind}: "
    if is_own(component.start):
        object.__setattr__(component, "start", OwnStart(component.start, prefix))
    if not isinstance(component.start, OwnStart):
        return
    for name in rules:
        rule = getattr(component, name)
        if is_own(rule):
            object.__setattr__(component, name, OwnRule(rule, prefix))
