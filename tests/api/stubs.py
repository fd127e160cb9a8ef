"""Write the stubs of the packages whose names load on first use.

``python -m tests.api.stubs`` writes them; a test compares. A type checker and an editor
read a stub in place of the ``__init__`` beside it, whose ``__getattr__`` tells them
nothing of the names.
"""

from importlib import import_module
from pathlib import Path

PACKAGES = ("privplan", "simulate")
"""Packages that load their names on first use."""

_HEAD = '''"""The names of the package, for type checkers; python -m tests.api.stubs writes it."""

'''


def stub_of(package: str) -> str:
    """The text of a package's stub: each public name from the module that has it."""
    module = import_module(package)
    homes = sorted((home, name) for name, home in module._WHERE.items())
    lines = [f"from {home} import {name} as {name}\n" for home, name in homes]
    if package == "privplan":
        lines.append("\nSTABLE: dict[str, str]\n__version__: str\n")
    return _HEAD + "".join(lines)


def path_of(package: str) -> Path:
    """Where the stub of a package lies."""
    return Path(import_module(package).__file__ or "").with_suffix(".pyi")


if __name__ == "__main__":
    for name in PACKAGES:
        path_of(name).write_text(stub_of(name), encoding="utf-8")
