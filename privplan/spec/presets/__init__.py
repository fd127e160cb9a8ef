"""Specs to start from, kept as commented YAML beside this file."""

from __future__ import annotations

from importlib.resources import files

from privplan.errors import InputError, one_of

DEFAULT = "digits"
PRESETS = (
    "digits",
    "gdpfed-fmnist",
    "gdpfed-svhn",
    "gdpfed-shakespeare",
    "gdpfed-cifar10",
    "robust-hdp-fmnist",
    "digits-planned",
)


def preset(name: str = DEFAULT) -> str:
    """The YAML text of a preset.

    Raises:
        InputError: for a name that is not one of ``PRESETS``.
    """
    if name not in PRESETS:
        raise InputError.one("preset", one_of(PRESETS, name), name)
    return files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
