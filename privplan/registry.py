"""Registries: the components of one kind by name, of this project and of others.

Each kind of component (accountants, sampling laws, objectives, algorithms, data sets,
...) has one ``Registry``. Inside the project a component is one module of the
registry's package, which registers the component when it is imported; nothing else has
to be changed. Other distributions declare an entry point in the registry's group: its
name is the component's name, its value the component::

    [project.entry-points."privplan.accountants"]
    mine = "my_package.accountant:MyAccountant"

Imports errors only, so that any layer may hold a registry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar, cast

from privplan.errors import InputError, one_of

T = TypeVar("T")


@cache
def _all_points(path: tuple[str, ...]) -> EntryPoints:
    # Before Python 3.12 the groups of all points come in another class, which selects
    # alike.
    return cast(EntryPoints, entry_points())


def points(group: str) -> EntryPoints:
    """Entry points of a group; metadata of packages are read once for a search path."""
    return _all_points(tuple(sys.path)).select(group=group)


class Registry(Generic[T]):
    """Components of one kind.

    Names are matched in any case; ``-`` and ``_`` are the same.

    Args:
        field: how a message names the kind, such as ``accountant``.
        group: entry-point group of other distributions, such as
            ``privplan.accountants``.
        package: package whose modules register components when they are imported; None
            when all components are registered by hand.
        check: called with each component of another distribution: returns the component
            to register (for example one that it made), or raises ``TypeError`` with the
            rule.
        order: sort key of a component, for lists of names; the order of registration by
            default.
        elsewhere: how a user has a component without registering it, for the line
            about an unknown name.
    """

    def __init__(
        self,
        field: str,
        group: str,
        package: str | None = None,
        check: Callable[[object], T] | None = None,
        order: Callable[[T], Any] | None = None,
        elsewhere: str = "",
    ) -> None:
        self.field = field
        self.group = group
        self._package = package
        self._check = check
        self._order = order
        self._elsewhere = elsewhere
        self._components: dict[str, T] = {}
        # Entry points that were not loaded, by the name of their component.
        self._points: dict[str, EntryPoint] = {}
        # Whether all modules were imported and all entry points noted.
        self._complete = False

    def register(self, name: str, component: T) -> T:
        """Add a component under a name, and return it.

        It replaces one of the same module, as where a cell of a notebook is run twice.

        Raises:
            InputError: for the name of a component of another module.
        """
        origin = _origin(component)
        if origin.partition(".")[0] not in _OWN_PACKAGES:
            self._import_modules()  # whose names are taken
        namesake = self._components.get(self._find(name) or "")
        if namesake is not None and _origin(namesake) != origin:
            rule = f"must be another name; it is taken by {_origin(namesake)}"
            raise InputError.one(self.field, rule, name)
        self._points.pop(name, None)
        self._components[name] = component
        return component

    def names(self) -> tuple[str, ...]:
        """Names of all components: the project's first, then those of entry points.

        Entry points are listed by name and not loaded, so a broken one does no harm
        here.
        """
        self._find_all()
        return tuple(name for name, _ in self._ordered()) + tuple(self._points)

    def items(self) -> tuple[tuple[str, T], ...]:
        """All names with their components."""
        self._find_all()
        for name in tuple(self._points):
            # A module may register the components of several.
            if name in self._points:
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
        """Whether a component of that exact name is registered, no mere entry point."""
        return name in self._components

    def has_exactly(self, name: str) -> bool:
        """Whether a component has that name in just that spelling."""
        return self._spelling(name) == name

    def name_of(self, text: str) -> str:
        """The registered spelling of a name."""
        spelling = self._spelling(text)
        if spelling is None:
            rule = one_of(self.names(), text)
            if self._elsewhere:
                rule += f"; {self._elsewhere}"
            raise InputError.one(self.field, rule, text)
        return spelling

    def __contains__(self, name: object) -> bool:
        """Whether a component has that name."""
        return isinstance(name, str) and self._spelling(name) is not None

    def __iter__(self) -> Iterator[str]:
        """Names of all components."""
        return iter(self.names())

    def _ordered(self) -> tuple[tuple[str, T], ...]:
        """All registered components by name, in the order of lists."""
        items = tuple(self._components.items())
        order = self._order
        if order is None:
            return items
        return tuple(sorted(items, key=lambda item: order(item[1])))

    def _find(self, text: str) -> str | None:
        """The name that a text means, among those that are registered or noted."""
        plain = _plain(text)
        for name in (*self._components, *self._points):
            if _plain(name) == plain:
                return name
        return None

    def _spelling(self, text: str) -> str | None:
        """The registered spelling of a name; None of an unknown one.

        No more is imported than it takes to find it.
        """
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._load_module(text),
            self._import_modules,
            self._find_all,
        )
        for find_more in steps:
            name = self._find(text)
            if name is not None:
                return name
            find_more()
        return self._find(text)

    def _load_module(self, name: str) -> None:
        """Import the project's module of a name, where there is one."""
        module = f"{self._package}.{_plain(name)}"
        can_be_module = self._package and _plain(name).isidentifier()
        if can_be_module and find_spec(module) is not None:
            import_module(module)

    def _find_all(self) -> None:
        """Import the project's components; note entry points without loading them."""
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
            if self._check is not None:
                component = self._check(component)
            self.register(name, component)
        # Code of another distribution can fail in any way.
        except Exception as error:
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            entry_point = f"entry point {point.value!r} of group {self.group}"
            rule = f"{entry_point} must load: {first_line}"
            raise InputError.one(self.field, rule, name) from None


_OWN_PACKAGES = ("privplan", "simulate")
"""Packages of this project."""


def _origin(component: object) -> str:
    """The module of a component; that of the function of an entry or a partial."""
    function = getattr(component, "function", getattr(component, "func", component))
    return str(getattr(function, "__module__", ""))


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def instance_of(kind: type[Any]) -> Callable[[object], Any]:
    """A check of components: an instance of a class, or a class of which to make it."""

    def check(component: object) -> Any:
        if isinstance(component, type) and issubclass(component, kind):
            component = component()
        if not isinstance(component, kind):
            name = type(component).__name__
            raise TypeError(f"must be of {kind.__name__}, found {name}")
        return component

    return check


def function_of(arguments: str) -> Callable[[object], Any]:
    """A check of components: something that can be called."""

    def check(component: object) -> Any:
        if not callable(component):
            raise TypeError(f"must be a function of {arguments}")
        return component

    return check
