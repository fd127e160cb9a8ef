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

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from privplan.errors import InputError, did_you_mean

T = TypeVar("T")


@cache
def _points(group: str, path: tuple[str, ...]) -> EntryPoints:
    return entry_points(group=group)


def points(group: str) -> EntryPoints:
    """Entry points of a group; metadata of packages are read once for a search path."""
    return _points(group, tuple(sys.path))


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
        order: sort key of a component, for lists of names; the order of registration by default.
    """

    def __init__(
        self,
        field: str,
        group: str,
        package: str | None = None,
        check: Callable[[object], T] | None = None,
        order: Callable[[T], Any] | None = None,
    ) -> None:
        self.field, self.group = field, group
        self._package, self._check, self._order = package, check, order
        self._components: dict[str, T] = {}
        self._points: dict[str, EntryPoint] = {}
        self._complete = False

    def register(self, name: str, component: T) -> T:
        """Add a component under a name, which it replaces, and return it."""
        self._points.pop(name, None)
        self._components[name] = component
        return component

    def names(self) -> tuple[str, ...]:
        """Names of all components: the project's first, then those of entry points.

        Entry points are listed by name and not loaded, so a broken one does no harm here.
        """
        self._find_all()
        return tuple(name for name, _ in self._ordered()) + tuple(self._points)

    def items(self) -> tuple[tuple[str, T], ...]:
        """All names with their components."""
        self._find_all()
        for name in tuple(self._points):
            if name in self._points:  # a module may register the components of several
                self._load_point(name)
        return self._ordered()

    def get(self, name: str) -> T:
        """The component of a name.

        Only the module of that name is imported where there is one, else all of them.
        """
        if name not in self._components:
            name = self.name_of(name)
            if name in self._points:
                self._load_point(name)
        return self._components[name]

    def is_loaded(self, name: str) -> bool:
        """Whether the component of that exact name is registered, and not only an entry point."""
        return name in self._components

    def has_exactly(self, name: str) -> bool:
        """Whether a component has that name in just that spelling."""
        return self._known(name) == name

    def name_of(self, text: str) -> str:
        """The registered spelling of a name."""
        known = self._known(text)
        if known is None:
            names = self.names()
            rule = f"must be one of {', '.join(names)}{did_you_mean(text, names)}"
            raise InputError.one(self.field, rule, text)
        return known

    def __contains__(self, name: object) -> bool:
        """Whether a component has that name."""
        return isinstance(name, str) and self._known(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Names of all components."""
        return iter(self.names())

    def _ordered(self) -> tuple[tuple[str, T], ...]:
        items, order = tuple(self._components.items()), self._order
        return (
            items
            if order is None
            else tuple(sorted(items, key=lambda item: order(item[1])))
        )

    def _find(self, text: str) -> str | None:
        plain = _plain(text)
        return next(
            (n for n in (*self._components, *self._points) if _plain(n) == plain), None
        )

    def _known(self, text: str) -> str | None:
        """The registered spelling of a name; no more is imported than it takes to find it."""
        ways: tuple[Callable[[], None], ...] = (
            lambda: self._load_module(text),
            self._import_modules,
            self._find_all,
        )
        for find_more in ways:
            known = self._find(text)
            if known is not None:
                return known
            find_more()
        return self._find(text)

    def _load_module(self, name: str) -> None:
        module = f"{self._package}.{_plain(name)}"
        if (
            self._package
            and _plain(name).isidentifier()
            and find_spec(module) is not None
        ):
            import_module(module)

    def _find_all(self) -> None:
        """Import the project's components; note the entry points of others without loading them."""
        if self._complete:
            return
        self._complete = True
        self._import_modules()
        for point in points(self.group):
            if self._find(point.name) is None:
                self._points[point.name] = point

    def _import_modules(self) -> None:
        if self._package:
            for module in iter_modules(import_module(self._package).__path__):
                import_module(f"{self._package}.{module.name}")

    def _load_point(self, name: str) -> None:
        """Register the component that an entry point names."""
        point = self._points[name]
        try:
            component = point.load()
            self.register(
                name, component if self._check is None else self._check(component)
            )
        except Exception as error:  # code of another distribution can fail in any way
            first = (str(error).splitlines() or [type(error).__name__])[0]
            rule = (
                f"entry point {point.value!r} of group {self.group} must load: {first}"
            )
            raise InputError.one(self.field, rule, name) from None


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def instance_of(kind: type[Any]) -> Callable[[object], Any]:
    """A check of components: an instance of a class, or a subclass, of which one is made."""

    def check(component: object) -> Any:
        found = component
        if isinstance(component, type) and issubclass(component, kind):
            found = component()
        if not isinstance(found, kind):
            raise TypeError(f"must be of {kind.__name__}, found {type(found).__name__}")
        return found

    return check


def function_of(arguments: str) -> Callable[[object], Any]:
    """A check of components: something that can be called."""

    def check(component: object) -> Any:
        if not callable(component):
            raise TypeError(f"must be a function of {arguments}")
        return component

    return check
