"""Registries: the components of one kind by name, from this project and from other packages.

Each kind of component (accountants, sampling laws, objectives, algorithms, data sets, ...) has one
``Registry``. Inside the project a component is one module of the registry's package, which
registers the component when it is imported; nothing else has to be changed. Other distributions
declare an entry point in the registry's group: its name is the component's name, its value the
component::

    [project.entry-points."privplan.accountants"]
    mine = "my_package.accountant:MyAccountant"

Imports values and errors only, so that any layer may hold a registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Generic, TypeVar

from privplan.errors import InputError

T = TypeVar("T")


class Registry(Generic[T]):
    """Components of one kind.

    Names are matched in any case; ``-`` and ``_`` are the same.

    Args:
        field: how a message names the kind, such as ``accountant``.
        group: entry-point group of other distributions, such as ``privplan.accountants``.
        package: package whose modules register components when they are imported; None when
            all components are registered by hand.
        check: called with each component of another distribution: returns the component to
            register (for example one that it made), or raises ``TypeError`` with the rule.
    """

    def __init__(
        self,
        field: str,
        group: str,
        package: str | None = None,
        check: Callable[[object], T] | None = None,
    ) -> None:
        self.field = field
        self.group = group
        self._package = package
        self._check = check
        self._components: dict[str, T] = {}
        self._complete = False

    def register(self, name: str, component: T) -> T:
        """Add a component under a name; a second registration of the name replaces the first.

        Returns:
            The component, so that a decorator can be built from this method.
        """
        self._components[name] = component
        return component

    def names(self) -> tuple[str, ...]:
        """Names of all components: the project's in order of module and line, then others'."""
        self._load_all()
        return tuple(self._components)

    def items(self) -> tuple[tuple[str, T], ...]:
        """All names with their components."""
        self._load_all()
        return tuple(self._components.items())

    def get(self, name: str) -> T:
        """The component of a name.

        Only the module of that name is imported where there is one, else all of them.

        Raises:
            InputError: when no component has that name; the message lists those that exist.
        """
        return self._components[self.name_of(name)]

    def name_of(self, text: str) -> str:
        """The registered spelling of a name.

        Raises:
            InputError: when no component has that name.
        """
        known = self._find(text)
        if known is None:
            self._load_module(text)
            known = self._find(text)
        if known is None:
            self._load_all()
            known = self._find(text)
        if known is None:
            raise InputError.one(self.field, f"must be one of {', '.join(self._components)}", text)
        return known

    def __contains__(self, name: object) -> bool:
        """Whether a component has that name."""
        if not isinstance(name, str):
            return False
        self._load_all()
        return self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Names of all components."""
        return iter(self.names())

    def _find(self, text: str) -> str | None:
        plain = _plain(text)
        return next((name for name in self._components if _plain(name) == plain), None)

    def _load_module(self, name: str) -> None:
        module = f"{self._package}.{_plain(name)}"
        if self._package and _plain(name).isidentifier() and find_spec(module) is not None:
            import_module(module)

    def _load_all(self) -> None:
        if self._complete:
            return
        self._complete = True
        if self._package:
            package = import_module(self._package)
            for module in iter_modules(package.__path__):
                import_module(f"{self._package}.{module.name}")
        for point in entry_points(group=self.group):
            if self._find(point.name) is None:
                self.register(point.name, self._loaded(point))

    def _loaded(self, point: EntryPoint) -> T:
        """The component that an entry point names.

        Raises:
            InputError: when it cannot be imported or is not a component of this kind.
        """
        try:
            component = point.load()
            return component if self._check is None else self._check(component)
        except (ImportError, AttributeError, TypeError) as error:
            rule = f"entry point {point.value!r} of group {self.group} must load: {error}"
            raise InputError.one(self.field, rule, point.name) from None


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")
