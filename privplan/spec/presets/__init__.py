"""Specs to start from, kept as commented YAML beside this file."""

from __future__ import annotations

from importlib.resources import files

from privplan.errors import InputError, did_you_mean

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
        rule = f"must be one of {', '.join(PRESETS)}{did_you_mean(name, PRESETS)}"
        raise InputError.one("preset", rule, name)
    return files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
