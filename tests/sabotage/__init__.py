"""Runs that are broken on purpose: a table of faults, each caught by a named check."""

from importlib import import_module
from itertools import chain
from pkgutil import iter_modules

from tests.sabotage import kinds
from tests.sabotage.bench import Finding, honest, honest_runs, plan, planted, tried
from tests.sabotage.books import BOOKS
from tests.sabotage.cohorts import COHORTS
from tests.sabotage.contributions import CONTRIBUTIONS
from tests.sabotage.fault import Fault
from tests.sabotage.noise import NOISE
from tests.sabotage.own_noise import OWN_NOISE

__all__ = [
    "COLLECTED",
    "FAULTS",
    "Fault",
    "Finding",
    "honest",
    "honest_runs",
    "plan",
    "planted",
    "tried",
]

MODULES = [
    import_module(f"{kinds.__name__}.{module.name}")
    for module in iter_modules(kinds.__path__)
]
COLLECTED: tuple[Fault, ...] = tuple(
    chain.from_iterable(module.FAULTS for module in MODULES)
)
"""Faults of the modules of ``kinds``: a new file there needs no other change."""
FAULTS: tuple[Fault, ...] = (
    *NOISE,
    *CONTRIBUTIONS,
    *OWN_NOISE,
    *COHORTS,
    *BOOKS,
    *COLLECTED,
)
